"""Workers under faults: the request ends with a line a person can read, and the next one works."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from playground.engine import devices
from playground.engine.engine import environment
from playground.engine.messages import EngineError, Progress, RunRequest
from playground.engine.pool import last_words
from playground.engine.worker import one_line
from playground.settings import ROOT, Settings
from tests.engine_process.conftest import FAULTS, FaultyEngine, gone, ready


def run(engine, kernel, **rest):
    return engine.run(RunRequest(kernel=kernel, **rest))


def failure(engine, kernel, **rest):
    with pytest.raises(EngineError) as e:
        run(engine, kernel, **rest)
    return e.value.failure


def pid(engine):
    return int(run(engine, "fine").note)


REPLACED = [
    ("crash", "crashed", "segmentation fault"),
    ("wild_pointer", "crashed", "it printed: about to read nowhere"),
    ("wild_pointer", "crashed", "in string_at"),
    ("abort", "crashed", "SIGABRT"),
    ("leave", "crashed", "exit code 7"),
    ("killed", "crashed", "memory ran out"),
    ("hang", "timeout", "choose a smaller shape, or raise PLAYGROUND_RUN_SECONDS"),
    ("deaf", "timeout", "took more than 4 s"),
    ("garbage", "crashed", "no message"),
    ("half_a_line", "crashed", "exit code 0"),
    ("hang_up", "crashed", "stopped answering"),
    ("sticky", "failed", "device-side assert triggered"),
]


@pytest.mark.parametrize(("kernel", "kind", "words"), REPLACED, ids=[f"{k}-{w[:12]}" for k, _, w in REPLACED])
def test_a_broken_worker_is_replaced(engine, kernel, kind, words):
    before = pid(engine)
    answer = failure(engine, kernel)
    assert answer.kind == kind
    assert words in answer.message
    assert "\n" not in answer.message
    assert pid(engine) != before
    assert gone(before)


KEPT = [
    ("sys_exit", "failed", "a kernel called sys.exit"),
    ("memory", "failed", "memory ran out: choose a smaller shape"),
    ("wrong_type", "failed", "TypeError: unsupported operand"),
    ("no_result", "failed", "validation error"),
    ("bad_input", "input", "n is -1; it needs 1 or more"),
]


@pytest.mark.parametrize(("kernel", "kind", "words"), KEPT, ids=[k for k, _, _ in KEPT])
def test_an_exception_leaves_the_worker_alive(engine, kernel, kind, words):
    before = pid(engine)
    answer = failure(engine, kernel)
    assert (answer.kind, answer.argument) == (kind, "n" if kind == "input" else "")
    assert words in answer.message
    assert "\n" not in answer.message
    assert pid(engine) == before


def test_what_is_printed_breaks_no_message(engine):
    """Half a message, a forged one, C's own stdout, 400 kB of bytes that are no text, a child's output."""
    before = pid(engine)
    assert run(engine, "noise").ok
    assert pid(engine) == before


def test_an_error_does_not_quote_an_earlier_request(engine):
    run(engine, "noise")
    assert "printed" not in failure(engine, "leave").message


def test_half_a_character_ends_its_request_alone(engine):
    """A browser and a terminal can send a surrogate without its other half, which JSON cannot hold."""
    answer = failure(engine, "fine \ud83d")
    assert answer.kind == "input" and "take it out" in answer.message
    assert pid(engine)


def test_a_fault_of_the_lane_ends_the_request_and_the_next_one_works(engine, monkeypatch):
    """Its thread ends with no exception: whoever asked, and all who ask later, would wait for ever."""
    pid(engine)
    monkeypatch.setattr(engine._lanes["cpu"], "_work", lambda *_: 1 / 0)
    assert "a fault of ours: ZeroDivisionError" in failure(engine, "fine").message
    monkeypatch.undo()
    assert pid(engine)


def test_progress_is_thinned_out_and_the_last_arrives(engine):
    """2,000 reports in a few milliseconds: a page draws at 20 a second."""
    events = list(engine.stream(RunRequest(kernel="count")))
    progress = [e for e in events if isinstance(e, Progress) and e.what == "counting"]
    assert (progress[0].done, progress[-1].done, progress[-1].total) == (1, 2000, 2000)
    assert len(progress) < 50
    assert events[-1].verb == "run"


def test_the_replacement_is_ready_before_the_next_request(engine):
    failure(engine, "crash")
    ready(engine)
    events = list(engine.stream(RunRequest(kernel="fine")))
    assert not [e for e in events if isinstance(e, Progress) and "starting" in e.what]


def test_a_worker_that_dies_between_requests_is_not_noticed(engine):
    before = pid(engine)
    os.kill(before, 9)
    assert gone(before)
    assert pid(engine) != before


def test_killing_a_worker_kills_what_it_started(engine):
    sleeper = int(run(engine, "leave_children").note)
    assert not gone(sleeper, 0)
    failure(engine, "crash")
    assert gone(sleeper)


def test_a_worker_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setenv("FAULT_AT_START", "1")
    with FaultyEngine() as engine:
        answer = failure(engine, "fine")
    assert answer.kind == "crashed"
    assert "could not be started" in answer.message
    assert "no such driver" in answer.message


def test_a_worker_outlives_the_thread_that_asked_for_it():
    """Linux sends the parent-death signal when the starting thread ends, not the process."""
    with FaultyEngine() as engine:

        def visit():
            engine._lane("cpu").warm()
            time.sleep(0.7)  # until the worker has asked for the signal

        thread = threading.Thread(target=visit)
        thread.start()
        thread.join()
        started = engine._lanes["cpu"]._worker.pid
        assert not gone(started, 0.5)
        assert pid(engine) == started


@pytest.mark.parametrize("kernel", ["hang", "deaf"])
def test_workers_die_with_their_parent(kernel):
    """Killed by SIGKILL, a parent can say nothing: `hang` hears the pipe close, `deaf` needs Linux's signal."""
    script = f"""
import os, signal, sys
from tests.engine_process.conftest import FaultyEngine
from playground.engine.messages import RunRequest
engine = FaultyEngine()
print(engine.run(RunRequest(kernel="fine")).note, flush=True)
for event in engine.stream(RunRequest(kernel={kernel!r})):
    if "starting" not in event.what:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    parent = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=100, check=False
    )
    assert parent.returncode == -9, parent.stderr
    assert gone(int(parent.stdout))


@pytest.mark.parametrize(
    ("device", "interpret", "visible"),
    [("cpu", None, ""), ("interpreter", "1", ""), ("compiler", None, ""), ("cuda:0", None, "3")],
)
def test_the_environment_of_a_worker(monkeypatch, tmp_path, device, interpret, visible):
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # ours is not theirs
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    env = environment(device, Settings(cache=tmp_path))
    assert env["TRITON_DEFAULT_FP_FUSION"] == "1"
    assert env.get("TRITON_INTERPRET") == interpret
    assert env["CUDA_VISIBLE_DEVICES"] == visible
    assert env["PLAYGROUND_CACHE"] == str(tmp_path)


@pytest.mark.parametrize(("limit", "threads"), [("150000 100000", 2), ("50000 100000", 1), ("max 100000", None)])
def test_a_container_with_a_share_of_the_cores_starts_no_more_threads(monkeypatch, tmp_path, limit, threads):
    """It sees every core of its host, and is stopped for most of each tenth of a second if it uses them."""
    (tmp_path / "cpu.max").write_text(f"{limit}\n")
    monkeypatch.setattr(devices, "GROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    env = environment("cpu", Settings())
    assert devices.cpu_cores() == (threads or 64)
    assert env.get("OMP_NUM_THREADS") == env.get("PLAYGROUND_NATIVE_THREADS") == (threads and str(threads))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert environment("cpu", Settings())["OMP_NUM_THREADS"] == "7"  # who sets it knows best


def test_settings_reach_the_worker(tmp_path):
    with FaultyEngine(Settings(cache=tmp_path)) as engine:
        assert f"PLAYGROUND_CACHE={tmp_path}" in run(engine, "environment").note


def test_last_words_are_one_short_line():
    assert last_words("") == ""
    assert last_words("a\n\nb  b\nc\nd\n") == "it printed: b b | c | d"
    assert len(last_words("x" * 10_000)) < 400
    traceback = 'warning\nTraceback (most recent call last):\n  File "x", line 1\n    y()\n    ^^^\nOSError: no disk\n'
    assert last_words(traceback) == "it printed: warning | OSError: no disk"


def test_one_line_takes_the_first_that_says_anything():
    assert one_line("\n\n  at last \nmore") == "at last"
    assert one_line("") == "no reason was given"
    assert len(one_line("x" * 1000)) == 400


def test_faults_need_no_torch():
    """So these tests are quick; it also holds for the engine, whose process loads torch only to check a request."""
    modules = f"{FAULTS}, playground.engine.engine, playground.engine.worker"
    script = f"import sys; sys.argv += ['--pipes', '0', '1']; import {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
