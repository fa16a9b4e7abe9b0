"""What runs for each visitor, and how it is stopped: one job a visit, a new one takes the old one's place.

A job that begins some time after it was asked for is announced when it is asked for, and claimed when it begins: so
it is the order of the asking that counts, whatever order the beginnings come in.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import gradio as gr

Drawn = TypeVar("Drawn")


class Jobs:
    """Stop events by session. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, threading.Event] = {}  # those announced included
        self._announced: dict[str, int] = {}  # the ticket of the session's job, while nobody has claimed it
        self._tickets = itertools.count(1)

    def start(self, session: str) -> threading.Event:
        """The event that stops the new job; an earlier job of the same visit is stopped, and what was announced."""
        event = threading.Event()
        with self._lock:
            self._announced.pop(session, None)
            before = self._running.get(session)
            self._running[session] = event
        if before:
            before.set()
        return event

    def announce(self, session: str) -> int:
        """The ticket of a job that is to come. It takes the place of any other now, and can be stopped from now on."""
        event = self.start(session)
        with self._lock:
            ticket = next(self._tickets)
            if self._running.get(session) is event:
                self._announced[session] = ticket
        return ticket

    def claim(self, session: str, ticket: int) -> threading.Event | None:
        """The event that stops the job of this ticket. None where it has begun already, or another took its place."""
        with self._lock:
            if self._announced.get(session) != ticket:
                return None
            del self._announced[session]
            return self._running[session]

    def stop(self, session: str) -> None:
        with self._lock:
            event = self._running.get(session)
        if event:
            event.set()

    def stop_visit(self, session: str) -> None:
        """Stop everything that runs for a visit, whatever stands before the session in its name."""
        with self._lock:
            events = [e for name, e in self._running.items() if name.split(" ")[-1] == session]
            for name in [name for name in self._announced if name.split(" ")[-1] == session]:
                del self._announced[name], self._running[name]  # nobody will claim it
        for event in events:
            event.set()

    def running(self, session: str) -> bool:
        """Whether a job works here that was not stopped: one that was draws once more, and ends."""
        with self._lock:
            event = self._running.get(session)
        return event is not None and not event.is_set()

    def owns(self, session: str, event: threading.Event) -> bool:
        """Whether this job is still the visit's own, so that it may draw."""
        with self._lock:
            return self._running.get(session) is event

    def newest(self, session: str, event: threading.Event, drawings: Iterator[Drawn]) -> Iterator[Drawn]:
        """What a job draws, a list or one piece, and the job's end. Nothing is drawn over a newer job of the visit.

        Gradio sends what came last once more when a job ends. Every job ends with a drawing of nothing, so that what
        a visitor has chosen since is not set back, and a large answer does not travel twice.
        """
        nothing: Any = None
        try:
            for drawn in drawings:
                nothing = [gr.skip()] * len(drawn) if isinstance(drawn, list) else gr.skip()
                yield drawn if self.owns(session, event) else nothing
            if nothing is not None:
                yield nothing
        finally:
            self.end(session, event)

    def give_up(self, session: str) -> None:
        """Whatever works here stops, and draws no more."""
        self.end(session, self.start(session))

    def end(self, session: str, event: threading.Event) -> None:
        with self._lock:
            if self._running.get(session) is event:
                del self._running[session]
