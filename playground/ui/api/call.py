"""One call of a program: a job of its visit, which is stopped when the program has gone."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from gradio.context import LocalContext

from playground.ui.jobs import Jobs

_NUMBERS = itertools.count(1)
_STOP: ContextVar[threading.Event] = ContextVar("stop")


def stop() -> threading.Event:
    """The event that stops the call that is being answered, for the engine. Outside a call, one that nothing sets."""
    return _STOP.get(None) or threading.Event()


def as_call(function: Callable[..., Any], jobs: Jobs, over: Callable[[str], None]) -> Callable[..., Any]:
    """The function as programs call it: `stop` holds while it runs, and `over` is told the session at its end.

    The calls of one program don't take each other's place, as the jobs of a page do.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        request = LocalContext.request.get(None)
        session = (request and request.session_hash) or ""
        name = f"call {next(_NUMBERS)} {session}"
        job = jobs.start(name)
        token = _STOP.set(job)
        try:
            return function(*args, **kwargs)
        finally:
            _STOP.reset(token)
            jobs.end(name, job)
            over(session)

    return called
