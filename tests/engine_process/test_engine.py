"""The engine's queue: places, stopping while waiting and running, closed generators, side by side and alone."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from playground.engine.lane import Gate
from playground.engine.messages import BenchRequest, EngineError, Progress, ResourcesRequest, RunRequest
from tests.engine_process.conftest import FaultyEngine, ready


def pause(ms, kind=RunRequest, **rest):
    return kind(kernel="pause", dims={"ms": ms}, **rest)


def span(result):
    """When a pause began and ended, on the machine's clock."""
    begin, end = result.note.split()
    return int(begin), int(end)


def overlap(a, b):
    return max(a[0], b[0]) < min(a[1], b[1])


class Person(threading.Thread):
    """Watches one request, as a page does."""

    def __init__(self, engine, request):
        super().__init__(daemon=True)
        self.engine, self.request, self.cancel = engine, request, threading.Event()
        self.places, self.events, self.failure, self.result, self.begun = [], [], None, None, threading.Event()
        self.start()

    def run(self):
        try:
            for event in self.engine.stream(self.request, self.cancel):
                self.events.append(event)
                if not isinstance(event, Progress):
                    self.result = event
                elif event.place:
                    self.places.append(event.place)
                else:
                    self.begun.set()
        except EngineError as e:
            self.failure = e.failure

    def until(self, condition, seconds=30.0):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, (self.events, self.failure)
            time.sleep(0.01)
        return self

    def done(self):
        self.join(30)
        assert not self.is_alive()
        return self


def test_who_waits_is_told_the_place(engine):
    first = Person(engine, pause(1500))
    first.until(first.begun.is_set)
    second = Person(engine, pause(50))
    second.until(lambda: second.places)
    third = Person(engine, pause(1))
    for person in (first, second, third):
        person.done()
    assert (first.places, second.places, third.places) == ([], [1], [2, 1])
    assert span(first.result)[1] <= span(second.result)[0] < span(third.result)[0]


def test_stopping_one_that_waits_lets_the_others_move_up(engine):
    first = Person(engine, pause(2000))
    first.until(first.begun.is_set)
    second = Person(engine, RunRequest(kernel="crash"))
    second.until(lambda: second.places)
    third = Person(engine, pause(1))
    third.until(lambda: third.places)
    second.cancel.set()
    second.done()
    third.until(lambda: third.places == [2, 1])
    assert first.is_alive()
    assert (second.failure.kind, second.failure.message) == ("cancelled", "stopped while it was waiting")
    assert third.done().places == [2, 1]
    assert first.done().result and third.result


def test_stopping_one_that_listens_keeps_its_worker(engine):
    before = engine.run(RunRequest(kernel="fine")).note
    person = Person(engine, RunRequest(kernel="slow"))
    person.until(person.begun.is_set).cancel.set()
    assert person.done().failure.kind == "cancelled"
    assert engine.run(RunRequest(kernel="fine")).note == before


@pytest.mark.parametrize("kernel", ["hang", "deaf"])
def test_stopping_one_that_does_not_listen_replaces_its_worker(engine, kernel):
    before = engine.run(RunRequest(kernel="fine")).note
    person = Person(engine, RunRequest(kernel=kernel))
    person.until(person.begun.is_set).cancel.set()
    assert person.done().failure.kind == "cancelled"
    assert "replaced" in person.failure.message
    assert engine.run(RunRequest(kernel="fine")).note != before


def test_a_closed_generator_stops_its_request(engine):
    """A closed tab: nothing more is taken from the generator. Closing it must not wait for the worker either."""
    before = engine.run(RunRequest(kernel="fine")).note
    stream = engine.stream(RunRequest(kernel="slow"))
    assert any(event.what == "working" for event in stream)
    begin = time.monotonic()
    stream.close()
    assert time.monotonic() - begin < 2  # it would have worked for 12 s, or until its time was over
    assert (
        engine.run(RunRequest(kernel="fine")).note == before
    )  # it listened: who does not, or has no time, is replaced


def test_a_device_does_one_thing_at_a_time(engine):
    with ThreadPoolExecutor(6) as people:
        results = list(people.map(engine.run, [pause(60) for _ in range(6)]))
    spans = sorted(span(result) for result in results)
    assert not any(overlap(a, b) for a, b in itertools.pairwise(spans))


def test_the_compiler_works_beside_the_cpu(engine):
    engine.run(pause(1, ResourcesRequest))  # its worker is awake
    with ThreadPoolExecutor(2) as people:
        results = list(people.map(engine.run, [pause(1500), pause(1500, ResourcesRequest)]))
    assert overlap(*map(span, results))


@pytest.mark.parametrize("compilers", [1, 2])
def test_as_many_compile_at_once_as_there_are_cores(engine, monkeypatch, compilers):
    monkeypatch.setattr("playground.engine.devices.cpu_cores", lambda: compilers)
    with ThreadPoolExecutor(3) as people:
        list(people.map(engine.run, [pause(200, ResourcesRequest)] * 2))  # every worker is awake
        spans = sorted(map(span, people.map(engine.run, [pause(1000, ResourcesRequest)] * 3)))
    assert overlap(*spans[:2]) == (compilers == 2)
    assert spans[2][0] >= min(end for _, end in spans[:2])  # the third waits for the first that is free


def test_a_timing_shares_the_cpu_with_nothing(engine):
    engine.run(pause(1, ResourcesRequest))
    timing = Person(engine, pause(1500, BenchRequest))
    timing.until(timing.begun.is_set)
    compiling = Person(engine, pause(400, ResourcesRequest))
    compiling.until(lambda: compiling.places)
    assert not overlap(span(timing.done().result), span(compiling.done().result))


def test_a_timing_that_waits_lets_no_others_in():
    """Else a busy page could put a timing off for ever."""
    gate, entered = Gate(), []
    with gate.enter(alone=False, give_up=lambda: False):

        def enter(alone):
            with gate.enter(alone=alone, give_up=lambda: False):
                entered.append(alone)

        timing = threading.Thread(target=enter, args=(True,))
        timing.start()
        while not gate.busy(alone=False):
            time.sleep(0.01)
        other = threading.Thread(target=enter, args=(False,))
        other.start()
        time.sleep(0.1)
        assert entered == []
    timing.join(5)
    other.join(5)
    assert entered == [True, False]


def test_a_timing_that_waits_can_be_stopped():
    gate = Gate()
    with gate.enter(alone=False, give_up=lambda: False), gate.enter(alone=True, give_up=lambda: True) as entered:
        assert not entered
    with gate.enter(alone=True, give_up=lambda: False) as entered:
        assert entered


def test_what_the_native_path_cannot_do_is_interpreted_and_says_so(engine):
    result = engine.run(RunRequest(kernel="needs_interpreter"))
    assert result.source.kind == "interpreted"
    assert result.note == "interpreted: inline PTX has no meaning on a CPU"


def test_a_bench_is_never_interpreted(engine):
    for request in (BenchRequest(kernel="needs_interpreter"), BenchRequest(kernel="fine", device="interpreter")):
        with pytest.raises(EngineError) as e:
            engine.run(request)
        assert e.value.failure.kind in ("unavailable", "input")


def test_devices_and_routing():
    with FaultyEngine(gpus=("NVIDIA H200", "NVIDIA H200")) as engine:
        assert engine.devices() == ("cuda:0", "cuda:1", "cpu", "interpreter")
        assert engine.run(RunRequest(kernel="fine")).source.device == "cuda:0"
        assert engine.run(RunRequest(kernel="fine", device="cuda:1")).source.device == "cuda:1"
        assert engine.run(RunRequest(kernel="fine", device="cpu")).source.device == "cpu"


@pytest.mark.parametrize(
    ("device", "kind", "words"),
    [
        ("cuda:0", "unavailable", "there is no cuda:0 here"),
        ("cuda", "unavailable", "choose auto or cpu or interpreter"),
        ("gpu", "input", "no device is named 'gpu'; choose auto or cpu or interpreter"),
        ("", "input", "no device is named ''"),
    ],
)
def test_a_device_that_there_is_not(engine, device, kind, words):
    with pytest.raises(EngineError) as e:
        engine.run(RunRequest(kernel="fine", device=device))
    assert (e.value.failure.kind, e.value.failure.argument) == (kind, "device")
    assert words in e.value.failure.message


def test_the_host_is_asked_once(engine):
    first = engine.host()
    with pytest.raises(EngineError):
        engine.run(RunRequest(kernel="crash"))
    assert engine.host() is first


def test_closing_ends_what_runs_and_what_waits():
    engine = FaultyEngine()
    running = Person(engine, RunRequest(kernel="hang"))
    running.until(running.begun.is_set)
    waiting = Person(engine, RunRequest(kernel="fine"))
    waiting.until(lambda: waiting.places)
    engine.close()
    assert running.done().failure.kind == waiting.done().failure.kind == "cancelled"
    with pytest.raises(EngineError, match="closed"):
        engine.run(RunRequest(kernel="fine"))


def test_warm_starts_the_worker():
    with FaultyEngine() as engine:
        engine.warm()
        ready(engine)
        events = list(engine.stream(RunRequest(kernel="fine")))
        assert len(events) == 1  # no "starting"


def test_warm_waits_for_nothing(monkeypatch):
    over, held = [], threading.Event()
    with FaultyEngine() as engine:
        monkeypatch.setattr(engine, "_warm", lambda device: over.append(held.wait(60)))
        engine.warm()
        assert over == []
        held.set()
