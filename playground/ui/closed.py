"""Visits whose browsers have gone, and when the server forgets them.

Gradio describes the whole page anew for each visit, half a megabyte, and keeps that until state_session_capacity visits
are there, closed ones included. Here the closed ones are forgotten but for the last few, whose pages may come back: a
laptop that slept, a connection that broke. To Gradio each call of a program is a visit as well, which is over with its
answer: 200 of them would push out every open page. They are counted apart, so that they push out no closed page either.
"""

from __future__ import annotations

import datetime
import threading
from collections import OrderedDict
from typing import Any

KEPT = 20
# A visit that was used so long after it was closed has come back. Closing it is a use too, which may end a bit later.
BACK = datetime.timedelta(seconds=10)


class Closed:
    """The closed visits of one kind, the longest gone first. Safe to call from any thread."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._gone: OrderedDict[str, datetime.datetime] = OrderedDict()

    def add(self, holder: Any, session: str) -> None:
        """This visit's browser has gone; `holder` is Gradio's StateHolder, which forgets one that went long ago."""
        with self._lock:
            self._gone[session] = datetime.datetime.now()
            self._gone.move_to_end(session)
            while len(self._gone) > self._most:
                oldest, at = self._gone.popitem(last=False)
                self._forget(holder, oldest, at)

    @staticmethod
    def _forget(holder: Any, session: str, at: datetime.datetime) -> None:
        with holder.lock:
            if holder.time_last_used.get(session, at) < at + BACK:
                holder.session_data.pop(session, None)
                holder.time_last_used.pop(session, None)
