"""What a worker hands to the code that does its work: the device, and the way to report and to be stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from playground.engine.messages import Progress

if TYPE_CHECKING:  # a worker that needs no torch starts in a tenth of the time
    import torch


class Cancelled(Exception):
    """The person has stopped this request."""


class NeedsInterpreter(Exception):
    """The native path cannot do this; the message says why in one line. The engine goes to the interpreter."""


@dataclass(frozen=True)
class Job:
    """One request at work in a worker.

    device: where it runs. interpreted: this process has TRITON_INTERPRET=1. `progress` reports, and raises Cancelled
    once the request has been stopped, so calling it often is what makes Stop work.
    """

    device: torch.device
    interpreted: bool = False
    report: Callable[[Progress], None] = field(default=lambda progress: None, repr=False)
    stopped: Callable[[], bool] = field(default=lambda: False, repr=False)

    def progress(self, what: str, done: int = 0, total: int = 0, unit: str = "") -> None:
        if self.stopped():
            raise Cancelled
        self.report(Progress(what=what, done=done, total=total, unit=unit))
