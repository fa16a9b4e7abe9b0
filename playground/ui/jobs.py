"""What runs for each visitor, and how it is stopped: one job a visit, a new one takes the old one's place."""

from __future__ import annotations

import threading


class Jobs:
    """Stop events by session. Safe to call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[str, threading.Event] = {}

    def start(self, session: str) -> threading.Event:
        """The event that stops the new job; an earlier job of the same visit is stopped."""
        event = threading.Event()
        with self._lock:
            before = self._running.get(session)
            self._running[session] = event
        if before:
            before.set()
        return event

    def stop(self, session: str) -> None:
        with self._lock:
            event = self._running.get(session)
        if event:
            event.set()

    def stop_visit(self, session: str) -> None:
        """Stop everything that runs for a visit, whatever stands before the session in its name."""
        with self._lock:
            events = [e for name, e in self._running.items() if name.split(" ")[-1] == session]
        for event in events:
            event.set()

    def running(self, session: str) -> bool:
        with self._lock:
            return session in self._running

    def owns(self, session: str, event: threading.Event) -> bool:
        """Whether this job is still the visit's own, so that it may draw."""
        with self._lock:
            return self._running.get(session) is event

    def end(self, session: str, event: threading.Event) -> None:
        with self._lock:
            if self._running.get(session) is event:
                del self._running[session]
