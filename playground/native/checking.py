"""The switch of checked mode, for the launches of one thread."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar

_on: ContextVar[bool] = ContextVar("native_checked", default=False)


def is_on() -> bool:
    return _on.get()


@contextmanager
def checked(on: bool = True):
    """Launches inside check every load and store against their tensors.

    The first access outside its tensor, of the first program that makes one,
    raises OutOfBounds after the launch; nothing outside is read or written. A
    tensor's memory is what its strides reach, and gaps between its elements
    count as inside. Lanes that are masked off may point anywhere. Pointers that
    the kernel loads from memory are not checked.

    Applies to this thread (or asyncio task) alone: other threads' launches are
    as they were.
    """
    token = _on.set(on)
    try:
        yield
    finally:
        _on.reset(token)
