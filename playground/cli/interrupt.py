"""Ctrl-C, remembered: an import that is under way can swallow a KeyboardInterrupt."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

stopped = threading.Event()


def _interrupt(signum: int, frame: FrameType | None) -> None:
    stopped.set()
    raise KeyboardInterrupt


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Inside, Ctrl-C sets `stopped` and raises KeyboardInterrupt; one that was held back until now comes now."""
    stopped.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        yield
    finally:
        signal.signal(signal.SIGINT, before)
