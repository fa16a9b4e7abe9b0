"""One chat worker and everyone who talks to it: a thread that owns the process, and holds the device while it works.

It loads no model and no PyTorch. While a timing waits for the device, the worker pauses between two steps.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import TypeAdapter

from playground.decoder.messages import ChatRequest
from playground.decoder.protocol import (
    Answered,
    Ask,
    ChatAnyRequest,
    Loading,
    Pause,
    Paused,
    Refused,
    Resume,
    Stats,
    Token,
    from_chat,
)
from playground.engine.engine import INTERPRETER, environment
from playground.engine.lane import POLL_SECONDS, START_SECONDS, Gate
from playground.engine.messages import EngineError, Failure, Progress
from playground.engine.pool import Garbage, Gone, Worker, last_words
from playground.engine.protocol import Cancel, Ready

if TYPE_CHECKING:
    from playground.settings import Settings

log = logging.getLogger(__name__)

SILENT_SECONDS = 120.0  # a worker that has work and says nothing for so long is replaced


class ChatWorker(Worker):
    """A chat worker's process. Started with a backend, a cache dtype and a model, parted by spaces."""

    module: ClassVar[str] = "playground.decoder.worker"
    says: ClassVar[TypeAdapter[Any]] = from_chat

    def arguments(self, backend: str) -> list[str]:
        name, cache_dtype, *model = backend.split(" ", 2)
        given = ["--device", self.device, "--backend", name]
        given += ["--cache-dtype", cache_dtype] if cache_dtype != "auto" else []
        return [*given, *(["--model", *model] if model else [])]


@dataclass(eq=False)
class Ticket:
    """A question on its way. `events` ends with Answered or Refused."""

    id: int
    request: ChatAnyRequest
    events: queue.SimpleQueue[Progress | Token | Stats | Answered | Refused] = field(default_factory=queue.SimpleQueue)

    def fail(self, kind: str, message: str) -> None:
        self.events.put(Refused(id=self.id, failure=Failure(kind=kind, message=message)))  # type: ignore[arg-type]


class ChatLane:
    """One worker and everyone who talks to it. Its thread owns the worker, and holds the device while it works."""

    def __init__(
        self,
        device: str,
        backend: str,
        gate: Gate,
        settings: Settings,
        model: str | None = None,
        cache_dtype: str = "auto",
    ):
        self.device, self.backend, self._model, self._cache_dtype = device, backend, model, cache_dtype
        self._gate, self._settings = gate, settings
        self._changed = threading.Condition()
        self._ids = itertools.count(1)
        self._new: list[Ticket] = []
        self._open: dict[int, Ticket] = {}
        self._worker: ChatWorker | None = None
        self._ready = self._paused = self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, request: ChatAnyRequest) -> Ticket:
        with self._changed:
            ticket = Ticket(next(self._ids), request)
            if self._closed:
                ticket.fail("cancelled", "the engine has been closed")
                return ticket
            self._new.append(ticket)
            self._open[ticket.id] = ticket
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=f"chat-{self.backend}", daemon=True)
                self._thread.start()
            self._changed.notify()
        return ticket

    def stop(self, ticket: Ticket) -> None:
        """Its answer ends at the next step. Nothing happens where it has ended."""
        with self._changed:
            if ticket.id not in self._open:
                return
            if ticket in self._new:
                self._new.remove(ticket)
                del self._open[ticket.id]
                ticket.fail("cancelled", "stopped before its first token")
                return
            worker = self._worker
        if worker:
            worker.send(Cancel(id=ticket.id))

    def close(self) -> None:
        """Kill the worker and end every answer."""
        with self._changed:
            self._closed = True
            worker, thread = self._worker, self._thread
            self._changed.notify()
        if worker:
            worker.kill()
        self._end_all(Failure(kind="cancelled", message="the engine has been closed"))
        if thread and thread is not threading.current_thread():
            thread.join(3.0)

    # The lane's own thread

    def _serve(self) -> None:
        while self._wait():
            if self._gate.busy(alone=False):
                self._tell(Progress(what="waiting: a timing shares this device with no other work"))
            with self._gate.enter(False, lambda: self._closed or not self._open) as entered:
                if entered:
                    self._try_to_hold()

    def _wait(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._open or self._closed)
            return not self._closed

    def _try_to_hold(self) -> None:
        try:
            self._hold()
        except OSError as error:
            self._end_all(Failure(kind="failed", message=f"the chat worker could not be started: {error}"))
        except Exception as error:  # else whoever waits, now and later, waits for ever
            log.exception("the chat lane failed")
            what = f"the chat ended by a fault of ours: {type(error).__name__}: {error}"
            self._end_all(Failure(kind="failed", message=what))

    def _hold(self) -> None:
        """Work until nobody waits for an answer, the worker is lost, or a timing wants the device."""
        worker = self._started()
        if self._paused:
            worker.send(Resume())
            self._paused = False
        heard = time.monotonic()
        while self._worker is worker and self._pass_on(worker):
            if self._gate.wanted and self._ready:
                self._pause(worker)
                return
            event = _next_event(worker)
            if event is not None:
                heard = time.monotonic()
                self._hear(worker, event)
            elif time.monotonic() - heard > (SILENT_SECONDS if self._ready else 5 * START_SECONDS):
                worker.kill()  # which we hear of

    def _started(self) -> ChatWorker:
        """The worker; a new one where there is none, or it has died at rest."""
        while (worker := self._worker) and not (worker.alive and worker.events.empty()):
            self._hear(worker, worker.events.get())  # its last figures; of a dead one the end comes for certain
        if worker is None:
            on = environment(self.device, self._settings)
            backend = "auto" if self.device == INTERPRETER else self.backend
            worker = ChatWorker(self.device, f"{backend} {self._cache_dtype} {self._model or ''}".strip(), on)
            with self._changed:
                self._worker = worker
                if self._closed:
                    worker.kill()
        return worker

    def _pass_on(self, worker: ChatWorker) -> bool:
        """The new questions, to the worker. Gives whether anyone waits for an answer."""
        with self._changed:
            new, self._new = self._new, []
            for ticket in new:  # in here, so that no Cancel overtakes its Ask
                if not self._ready:
                    ticket.events.put(Progress(what="starting the chat worker"))
                try:
                    worker.send(Ask(id=ticket.id, request=ticket.request))
                except EngineError as error:
                    del self._open[ticket.id]
                    ticket.events.put(Refused(id=ticket.id, failure=error.failure))
            return bool(self._open) and not self._closed

    def _pause(self, worker: ChatWorker) -> None:
        """Returns when the device is free: the worker has paused, or is dead."""
        self._tell(Progress(what="paused: a timing has this device to itself"))
        worker.send(Pause())
        deadline = time.monotonic() + SILENT_SECONDS
        while self._worker is worker and not self._paused:
            event = _next_event(worker)
            if event is not None:
                self._hear(worker, event)
            elif time.monotonic() > deadline:
                worker.kill()

    def _hear(self, worker: ChatWorker, event: Any) -> None:
        if isinstance(event, Token | Answered | Refused) and event.id is not None:
            with self._changed:
                over = not isinstance(event, Token)
                ticket = self._open.pop(event.id, None) if over else self._open.get(event.id)
            if ticket:
                ticket.events.put(event)
        elif isinstance(event, Stats):
            for ticket in self._asked():
                ticket.events.put(event)
        elif isinstance(event, Loading):
            self._tell(_progress(event.what))
        elif isinstance(event, Ready):
            self._ready = True
            self._tell(Progress(what="making ready"), Progress(what="reading the prompt"))
        elif isinstance(event, Paused):
            self._paused = True
        elif isinstance(event, Refused):  # it says why it ends
            self._lose(worker, event.failure)
        elif isinstance(event, Garbage | Gone):
            worker.kill()
            why = event.what if isinstance(event, Garbage) else worker.why_it_died()
            words = last_words(worker.output())
            log.warning("the chat worker %d ended: %s\n%s", worker.pid, why, worker.output())
            line = f"the chat worker crashed ({why}){'; ' * bool(words)}{words}. The next question starts another"
            self._lose(worker, Failure(kind="crashed", message=line))

    def _lose(self, worker: ChatWorker, failure: Failure) -> None:
        """The worker is done for. Those that it was to answer are told; whoever has come since gets another."""
        worker.kill()
        worker.why_it_died()
        with self._changed:
            self._worker = None
            self._ready = self._paused = False
        for ticket in self._asked():
            with self._changed:
                self._open.pop(ticket.id, None)
            ticket.events.put(Refused(id=ticket.id, failure=failure))

    def _asked(self) -> list[Ticket]:
        """Those whose questions the worker has."""
        with self._changed:
            return [ticket for ticket in self._open.values() if ticket not in self._new]

    def _tell(self, progress: Progress, question: Progress | None = None) -> None:
        """Everyone who waits; `question`: what those hear instead who have asked the model something."""
        with self._changed:
            everyone = list(self._open.values())
        for ticket in everyone:
            asks = isinstance(ticket.request, ChatRequest)
            ticket.events.put(question if question and asks else progress)

    def _end_all(self, failure: Failure) -> None:
        with self._changed:
            open_, self._open, self._new = self._open, {}, []
        for ticket in open_.values():
            ticket.events.put(Refused(id=ticket.id, failure=failure))


def _progress(line: str) -> Progress:
    """A line of the worker's; "  12 of 93 MB downloaded" counts."""
    words = line.split()
    with contextlib.suppress(ValueError, IndexError):
        if words[1] == "of":
            return Progress(what="getting the model", done=int(words[0]), total=int(words[2]), unit=" ".join(words[3:]))
    return Progress(what=line.strip())


def _next_event(worker: ChatWorker) -> Any:
    try:
        return worker.events.get(timeout=POLL_SECONDS)
    except queue.Empty:
        return None
