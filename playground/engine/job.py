"""What a worker hands to the code that does its work: the device, and the way to report and to be stopped.

And the ways in which that work ends early.
"""

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


# After these a GPU's context answers every call with the same error.
FATAL = ("CUDA error", "Triton Error [CUDA]", "device-side assert", "illegal memory access", "HIP error")


def is_fatal(error: BaseException) -> bool:
    """Whether the process is of no more use after this error of a GPU's: the worker must be replaced."""
    if not isinstance(error, RuntimeError) or type(error).__name__ == "OutOfMemoryError":
        return False
    return any(text in str(error) for text in FATAL)


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
