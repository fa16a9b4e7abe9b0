"""Ctrl-C, remembered: an import that is under way can swallow a KeyboardInterrupt."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

stopped = threading.Event()
_holding = threading.Event()


def _interrupt(signum: int, frame: FrameType | None) -> None:
    stopped.set()
    if not _holding.is_set():
        raise KeyboardInterrupt


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Inside, Ctrl-C only sets `stopped`; the KeyboardInterrupt comes at the end. For imports of compiled code.

    A mask would not do: another thread could take the signal, and Python would raise here all the same.
    """
    _holding.set()
    try:
        yield
    finally:
        _holding.clear()
    if stopped.is_set():
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
