"""The lane of a chat worker, with a worker that only plays one: whoever asks hears an end, whenever it dies."""

import queue
import threading

import pytest

from playground.decoder import lane as lanes
from playground.decoder.lane import ChatLane
from playground.decoder.messages import ChatMessage, ChatRequest, SwapRequest, SwapResult, WarmRequest
from playground.decoder.protocol import Answered, Ask, Pause, Paused, Refused
from playground.engine.lane import Gate
from playground.engine.messages import EngineError, Failure, Progress
from playground.engine.pool import Gone
from playground.engine.protocol import Ready
from playground.settings import Settings

QUESTION = SwapRequest(table={})
SAID = ChatMessage(role="user", content="Hello")


class Played:
    """The first says nothing by itself but that it is ready, and that it makes way; those after it answer."""

    made: list["Played"]

    def __init__(self, *_):
        self.pid, self.alive, self.events = 0, True, queue.SimpleQueue()
        self.made.append(self)
        self.asked = threading.Event()
        self.events.put(Ready(seconds=0))

    def send(self, message):
        if isinstance(message, Ask) and getattr(message.request, "owner", "") == "unspeakable":
            raise EngineError(Failure(kind="input", message="take it out"))
        if isinstance(message, Pause):
            self.events.put(Paused())
        if isinstance(message, Ask):
            self.asked.set()
            if len(self.made) > 1 and self.alive:
                self.events.put(Answered(id=message.id, result=SwapResult(table={})))

    def kill(self):
        self.alive = False

    def why_it_died(self):
        return "killed"

    def output(self):
        return ""


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def lane(monkeypatch, gate):
    monkeypatch.setattr(lanes, "ChatWorker", Played)
    Played.made = []
    lane = ChatLane("cpu", "triton", gate, Settings())
    yield lane
    lane.close()


def end_of(ticket):
    """Its last event, which comes within 20 s."""
    while isinstance(event := ticket.events.get(timeout=20), Progress):
        pass
    return event


@pytest.mark.parametrize(
    ("request_", "said"),
    [(WarmRequest(), "making ready"), (ChatRequest(messages=(SAID,)), "reading the prompt")],
)
def test_only_a_question_hears_that_its_prompt_is_read(lane, request_, said):
    """A warm-up's line stands on the page while answers are written."""
    ticket = lane.submit(request_)
    assert [ticket.events.get(timeout=20).what for _ in range(2)] == ["starting the chat worker", said]


def asked(lane):
    """A question that the first worker has, and never answers."""
    ticket = lane.submit(QUESTION)
    while not Played.made:
        lane._thread.join(0.01)
    assert Played.made[0].asked.wait(20)
    return ticket, Played.made[0]


def later(do, *arguments):
    """So late that the lane has looked for a word of the worker's several times."""
    threading.Timer(5 * lanes.POLL_SECONDS, do, arguments).start()


def test_a_worker_that_is_reaped_before_its_pipe_is_read_ends_the_answer(lane):
    """On a busy host its end is seen in this order: the process first, what it sent and that it sends no more later."""
    ticket, worker = asked(lane)
    worker.alive = False
    later(worker.events.put, Gone())
    assert end_of(ticket).failure.kind == "crashed"
    assert isinstance(end_of(lane.submit(QUESTION)), Answered)


def test_why_a_worker_ends_is_told_though_it_is_reaped_by_then(lane):
    ticket, worker = asked(lane)
    worker.alive = False
    later(worker.events.put, Refused(id=None, failure=Failure(kind="unavailable", message="no model")))
    assert end_of(ticket).failure.message == "no model"
    assert isinstance(end_of(lane.submit(QUESTION)), Answered)


def test_who_asks_the_moment_that_a_crash_is_told_is_answered(lane):
    """The question goes to the next worker, and neither to the dead one nor down with it."""
    ticket, worker = asked(lane)
    again = []

    class Eager(queue.SimpleQueue):
        def put(self, event):
            if isinstance(event, Refused):
                again.append(lane.submit(QUESTION))
            super().put(event)

    ticket.events = Eager()
    worker.alive = False
    worker.events.put(Gone())
    assert end_of(ticket).failure.kind == "crashed"
    assert isinstance(end_of(again[0]), Answered) and len(Played.made) == 2


def test_a_worker_that_died_at_rest_is_replaced_unseen(lane):
    ticket, worker = asked(lane)
    worker.events.put(Answered(id=ticket.id, result=SwapResult(table={})))
    assert isinstance(end_of(ticket), Answered)
    worker.alive = False
    later(worker.events.put, Gone())
    assert isinstance(end_of(lane.submit(QUESTION)), Answered)


def test_a_worker_that_dies_while_it_makes_way_for_a_timing_ends_its_answers(lane, gate):
    ticket, worker = asked(lane)
    with gate.enter(True, lambda: False):
        worker.alive = False
        worker.events.put(Gone())
    assert end_of(ticket).failure.kind == "crashed"


def test_what_cannot_be_sent_ends_its_own_question_alone(lane):
    ticket, worker = asked(lane)
    assert end_of(lane.submit(SwapRequest(table={}, owner="unspeakable"))).failure.kind == "input"
    worker.events.put(Answered(id=ticket.id, result=SwapResult(table={})))
    assert isinstance(end_of(ticket), Answered)


def test_a_fault_of_the_lane_ends_what_waits_and_the_next_question_works(lane, monkeypatch):
    monkeypatch.setattr(lane, "_started", lambda: 1 / 0)
    assert "a fault of ours: ZeroDivisionError" in end_of(lane.submit(QUESTION)).failure.message
    monkeypatch.undo()
    monkeypatch.setattr(lanes, "ChatWorker", Played)
    Played.made.append(None)  # so that the next one answers
    assert isinstance(end_of(lane.submit(QUESTION)), Answered)
