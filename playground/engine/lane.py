"""One device, one request at a time: the queue before a worker, and what becomes of a request when the worker dies.

A lane is a thread that owns its worker. Requests wait in the order they came and are told their place. A lane
keeps a request to its time limit, passes a stop on, and kills and replaces a worker that does not listen, crashes
or talks nonsense; the request then ends with a Failure. The lane knows nothing of what the requests are for.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from playground.engine.messages import EngineError, Failure, Progress
from playground.engine.pool import Event, Garbage, Gone, Worker, last_words
from playground.engine.protocol import AnyRequest, Cancel, Do, Done, Failed, Ready, Report, Taken

log = logging.getLogger(__name__)

START_SECONDS = 120.0  # importing torch from a cold disk and making a CUDA context
GRACE_SECONDS = 2.0  # between asking a request to stop and killing its worker
POLL_SECONDS = 0.05
MOST_WAITING = 256

Answer = Progress | Done | Failed


class Gate:
    """Who may use the CPU: many at once, or a timing alone. One that waits to be alone lets no others in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = False
        self._waiting_to_be_alone = 0

    @contextlib.contextmanager
    def enter(self, alone: bool, give_up: Callable[[], bool]) -> Iterator[bool]:
        """Gives False, and is not entered, where `give_up` came true first."""
        entered = self._enter(alone, give_up)
        try:
            yield entered
        finally:
            if entered:
                with self._changed:
                    self._inside -= 1
                    self._alone = False
                    self._changed.notify_all()

    def _open(self, alone: bool) -> bool:
        return self._inside == 0 if alone else not (self._alone or self._waiting_to_be_alone)

    @property
    def wanted(self) -> bool:
        """Whether a timing waits to be alone, so that whoever can make way should."""
        with self._changed:
            return self._waiting_to_be_alone > 0

    def busy(self, alone: bool) -> bool:
        """Whether one that comes now has to wait."""
        with self._changed:
            return not self._open(alone)

    def _enter(self, alone: bool, give_up: Callable[[], bool]) -> bool:
        with self._changed:
            self._waiting_to_be_alone += alone
            while not give_up() and not self._open(alone):
                self._changed.wait(POLL_SECONDS)
            self._waiting_to_be_alone -= alone
            if give_up():
                return False
            self._inside += 1
            self._alone = alone
            return True


@dataclass(eq=False)
class Ticket:
    """A request in a lane. `answers` ends with Done or Failed. limit: seconds it may run; alone: it takes a timing."""

    request: AnyRequest
    limit: float
    limit_name: str
    alone: bool = False
    answers: queue.SimpleQueue[Answer] = field(default_factory=queue.SimpleQueue)
    stop: threading.Event = field(default_factory=threading.Event)
    id: int = 0
    place: int = 0  # as last told

    def fail(self, kind: str, message: str) -> Failed:
        return Failed(id=self.id, failure=Failure(kind=kind, message=message))  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.request.verb, getattr(self.request, "kernel", ""))))


class Lane:
    """start: makes a new worker, at once and without waiting until it is ready."""

    def __init__(self, device: str, start: Callable[[], Worker], gate: Gate, grace: float = GRACE_SECONDS):
        self.device = device
        self._start = start
        self._gate = gate
        self._grace = grace
        self._changed = threading.Condition()
        self._waiting: deque[Ticket] = deque()
        self._running: Ticket | None = None
        self._worker: Worker | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ids = 0

    @property
    def load(self) -> int:
        """Requests in it, the running one too."""
        with self._changed:
            return len(self._waiting) + (self._running is not None)

    def submit(self, ticket: Ticket) -> None:
        """Put a request at the end of the queue."""
        with self._changed:
            if self._closed:
                ticket.answers.put(ticket.fail("cancelled", "the engine has been closed"))
                return
            if len(self._waiting) >= MOST_WAITING:
                ticket.answers.put(ticket.fail("unavailable", f"{MOST_WAITING} others wait; try again in a minute"))
                return
            self._ids += 1
            ticket.id = self._ids
            self._waiting.append(ticket)
            self._tell_places()
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=f"lane-{self.device}", daemon=True)
                self._thread.start()
            self._changed.notify()

    def stop(self, ticket: Ticket) -> None:
        """Take a waiting request out of the queue; ask a running one to stop."""
        with self._changed:
            ticket.stop.set()
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                ticket.answers.put(ticket.fail("cancelled", "stopped while it was waiting"))
                self._tell_places()

    def warm(self) -> None:
        """Start the worker, so that it is ready when the first request comes. Does not wait for it."""
        with self._changed:
            if not self._closed and (self._worker is None or not self._worker.alive):
                self._worker = self._start()

    def close(self) -> None:
        """Kill the worker and end every request."""
        with self._changed:
            self._closed = True
            for ticket in self._waiting:
                ticket.answers.put(ticket.fail("cancelled", "the engine has been closed"))
            self._waiting.clear()
            if self._running:
                self._running.stop.set()
            worker, thread = self._worker, self._thread
            self._changed.notify()
        if worker:
            worker.kill()
        if thread and thread is not threading.current_thread():
            thread.join(self._grace + 1)

    # The lane's own thread

    def _serve(self) -> None:
        while ticket := self._next():
            if self._gate.busy(ticket.alone):
                ticket.answers.put(Progress(what="waiting: a timing shares this CPU with no other work", place=1))
            try:
                with self._gate.enter(ticket.alone, ticket.stop.is_set) as entered:
                    answer = self._do(ticket) if entered else ticket.fail("cancelled", "stopped while it was waiting")
            except _Over as over:
                answer = over.answer
            except EngineError as e:
                answer = Failed(id=ticket.id, failure=e.failure)
            except OSError as e:  # the system would not start another process
                answer = ticket.fail("failed", f"the {self.device} worker could not be started: {e}")
            except Exception as e:  # else whoever waits, now and later, waits for ever
                log.exception("the %s lane failed in %s", self.device, ticket.name)
                answer = ticket.fail("failed", f"{ticket.name} ended by a fault of ours: {type(e).__name__}: {e}")
            self._finish(ticket, answer)

    def _next(self) -> Ticket | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            self._running = self._waiting.popleft()
            self._tell_places()
            return self._running

    def _finish(self, ticket: Ticket, answer: Done | Failed) -> None:
        """Give the answer. A worker that died in this request has its successor started now, not at the next one."""
        with self._changed:
            self._running = None
            worker = self._worker
            if worker and worker.ready and not worker.alive and not self._closed:
                with contextlib.suppress(OSError, RuntimeError):  # no process or thread more: the next request says so
                    self._worker = self._start()
            self._tell_places()
        ticket.answers.put(answer)

    def _tell_places(self) -> None:
        ahead = 1 if self._running else 0
        for place, ticket in enumerate(self._waiting, ahead):
            if place != ticket.place:
                ticket.place = place
                ticket.answers.put(Progress(what="waiting", place=place))

    def _ready_worker(self, ticket: Ticket) -> Worker:
        self.warm()
        worker = self._worker
        if worker is None:
            raise _Over(ticket.fail("cancelled", "the engine has been closed"))
        if worker.ready:
            return worker
        deadline = time.monotonic() + START_SECONDS
        told = False
        while not ticket.stop.is_set():
            event = _next_event(worker)
            if isinstance(event, Ready):
                worker.ready = event
                if event.note:
                    log.warning("%s worker: %s", self.device, event.note)
                return worker
            if ticket.stop.is_set():  # it was us who killed it
                break
            if event is not None or time.monotonic() > deadline:
                worker.kill()
                why = worker.why_it_died() if event else f"it was not ready after {START_SECONDS:.0f} s"
                raise _Over(ticket.fail("crashed", self._lost(worker, "could not be started", why)))
            if not told:
                told = True
                ticket.answers.put(Progress(what=f"starting the {self.device} worker"))
        raise _Over(ticket.fail("cancelled", "stopped"))

    def _do(self, ticket: Ticket) -> Done | Failed:
        worker = self._ready_worker(ticket)
        answer = self._work(ticket, worker)
        if answer is None:  # it had died since its last request, unseen; that is not this one's fault
            worker.why_it_died()
            worker = self._ready_worker(ticket)
            answer = self._work(ticket, worker)
        return answer or self._crashed(ticket, worker, Gone())

    def _work(self, ticket: Ticket, worker: Worker) -> Done | Failed | None:
        """The worker's answer; None where it was dead before it took the request."""
        worker.send(Do(id=ticket.id, request=ticket.request))
        deadline = time.monotonic() + ticket.limit
        kill_at: float | None = None
        taken = False
        while True:
            event = _next_event(worker)
            taken = taken or isinstance(event, Taken)
            if isinstance(event, Report) and event.id == ticket.id:
                ticket.answers.put(event.progress)
            elif isinstance(event, Done | Failed) and event.id == ticket.id:
                broken = isinstance(event, Failed) and event.broken
                return self._end(worker, event) if broken else event
            elif isinstance(event, Gone) and not taken and not ticket.stop.is_set():
                return None
            elif isinstance(event, Garbage | Gone):
                return self._crashed(ticket, worker, event)
            now = time.monotonic()
            if kill_at is None and ticket.stop.is_set():
                worker.send(Cancel(id=ticket.id))
                kill_at = now + self._grace
            if kill_at is not None and now > kill_at:
                return self._end(worker, ticket.fail("cancelled", "stopped; its worker did not react and was replaced"))
            if now > deadline:
                return self._end(worker, ticket.fail("timeout", self._too_long(ticket)))

    def _crashed(self, ticket: Ticket, worker: Worker, event: Garbage | Gone) -> Done | Failed:
        if ticket.stop.is_set():
            return self._end(worker, ticket.fail("cancelled", "stopped"))
        if isinstance(event, Garbage):
            worker.kill()
            why = f"it sent what is no message: {event.what}"
        else:
            why = worker.why_it_died()
        lost = self._lost(worker, f"crashed in {ticket.name}", why)
        return self._end(worker, ticket.fail("crashed", f"{lost}. It has been replaced"))

    def _end(self, worker: Worker, answer: Done | Failed) -> Done | Failed:
        worker.kill()
        worker.why_it_died()  # so that it is seen to be dead
        return answer

    def _lost(self, worker: Worker, what: str, why: str) -> str:
        output = worker.output()
        log.warning("%s worker %d %s: %s\n%s", self.device, worker.pid, what, why, output)
        words = last_words(output)
        return f"the {self.device} worker {what} ({why})" + (f"; {words}" if words else "")

    def _too_long(self, ticket: Ticket) -> str:
        return (
            f"{ticket.name} took more than {ticket.limit:g} s on {self.device} and was ended: "
            f"choose a smaller shape, or raise {ticket.limit_name}"
        )


class _Over(Exception):
    """A request has ended before it could begin."""

    def __init__(self, answer: Failed):
        super().__init__(answer.failure.message)
        self.answer = answer


def _next_event(worker: Worker) -> Event | None:
    try:
        return worker.events.get(timeout=POLL_SECONDS)
    except queue.Empty:
        return None
