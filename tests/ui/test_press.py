"""Two presses of one visit: the newer one draws, and the older one draws nothing over it."""

import threading

import gradio as gr

from playground.engine.messages import EngineError, Failure, Progress
from playground.settings import Settings
from playground.ui.context import Context
from playground.ui.tabs.autotune import moves
from playground.ui.tabs.autotune import tab as tune
from playground.ui.tabs.autotune.winner_map import NONE
from playground.ui.tabs.code import compare
from playground.ui.tabs.code import tab as code
from playground.ui.tabs.memory import measure
from playground.ui.tabs.memory import tab as memory
from playground.ui.tabs.memory.facts import Traces
from playground.ui.tabs.run import sweep_sheet, tab
from playground.ui.tabs.run.visit import Visit
from tests.ui.fake_engine import FakeEngine

VALUES = ("softmax", 7, 77, "float32", "auto", "none", [], 0)


class Engine(FakeEngine):
    """Its sweeps go on until they are stopped, and say once more how far they are as they stop."""

    def sweep(self, request, cancel):
        while True:
            yield Progress(what="Sweeping")
            if cancel.is_set():
                yield Progress(what="Sweeping")
                raise EngineError(Failure(kind="cancelled", message="stopped"))


def context():
    return Context(Engine(pause=threading.Event()), Settings())


def ends(stream):
    """What stands there at the end: every job's last drawing is of nothing."""
    *left, nothing = stream
    assert all(drawn == gr.skip() for drawn in nothing)
    return left[-1] if left else nothing


def test_an_older_press_draws_nothing_over_a_newer_one():
    where = context()
    older = tab._run(where, "me", Visit(), VALUES)
    next(older)
    newer = tab._run(where, "me", Visit(), VALUES)
    next(newer)
    assert all(drawn == gr.skip() for drawn in ends(older))
    where.engine.pause.set()
    end = ends(newer)
    assert "Right" in end[0] and gr.skip() not in end and not where.jobs.running("run me")


class Slow(FakeEngine):
    """What it is asked for lasts until it is stopped."""

    def stream(self, request, cancel):
        while not cancel.is_set():
            yield Progress(what="Working")
        raise EngineError(Failure(kind="cancelled", message="Stopped"))


def test_another_gpu_or_target_takes_the_place_of_what_is_traced_or_compiled():
    """As where one is chosen while the tab still opens: Stopped stood over the newer answer, and hid it."""
    where = Context(Slow(), Settings())
    presses = {
        "memory": lambda gpu: memory._trace(where, Traces(), measure.Devices(), "me", gpu, VALUES),
        "code": lambda gpu: code._compile(where, "me", {"H200": "sm_90", "A100": "sm_80"}[gpu], VALUES),
    }
    for name, press in presses.items():
        older, newer = press("H200"), press("A100")
        next(older)
        next(newer)
        left = list(older)
        assert left and all(drawn == gr.skip() for drawing in left for drawn in drawing)
        assert where.jobs.running(f"{name} me")
        where.jobs.stop(f"{name} me")
        assert "Stopped" in ends(newer)[0]


def test_compile_compare_and_inductor_stop_each_other_only_where_one_answer_goes():
    """A comparison that was asked for while the tab still compiled left "Compiling" there for good."""
    where = Context(Slow(), Settings())
    compiling = code._compile(where, "me", "sm_90", VALUES)
    next(compiling)
    comparing = compare._compare(where, "me", "sm_90", ("sm_80", *[compare.SAME] * 3, "", "PTX", *VALUES))
    said, there = next(comparing)
    asking = code._inductor(where, "me", "sm_90", VALUES, block=False)
    next(asking)
    assert "Compiling both" in said and there and where.jobs.running("code me")
    # Another stage, as what is compared is being compiled: the newer comparison draws.
    another = compare._compare(where, "me", "sm_90", ("sm_80", *[compare.SAME] * 3, "", "SASS", *VALUES))
    next(another)
    assert all(drawn == gr.skip() for drawn in ends(comparing))
    # A new compilation takes the older comparison away as it is asked for, and leaves what Inductor writes.
    assert compare.put_away(where, "me") == ["", False]
    newest = compare._compare(where, "me", "sm_90", ("sm_80", *[compare.SAME] * 3, "", "PTX", *VALUES))
    next(newest)  # pressed before the compilation begins
    newer = code._compile(where, "me", "sm_80", VALUES)
    next(newer)
    assert where.jobs.running("compare me")
    where.jobs.stop("compare me")
    assert all(drawn == gr.skip() for old in (compiling, another) for drawn in ends(old))
    assert where.jobs.running("inductor me")
    where.jobs.stop("inductor me")
    *_, said, nothing = asking
    assert "Stopped" in said and nothing == gr.skip()


def test_a_refused_press_takes_the_place_of_what_runs():
    where = context()
    older = tab._run(where, "me", Visit(), VALUES)
    next(older)
    refused = list(tab._run(where, "me", Visit(), ("softmax", 0, *VALUES[2:])))
    assert len(refused) == 2 and "rows must be 1 or more" in refused[0][0]
    assert all(drawn == gr.skip() for drawn in ends(older))


def a_run_that_stops_a_sweep():
    """Both have begun: where, the sweep, the run."""
    where = context()
    sweep = sweep_sheet._run(where, "me", VALUES)
    next(sweep)
    run = tab._run(where, "me", Visit(), VALUES)
    next(run)
    return where, sweep, run


def test_a_run_stops_a_sweep_and_keeps_run_and_stop_for_itself():
    where, sweep, run = a_run_that_stops_a_sweep()
    head, _, start, *buttons = ends(sweep)
    assert "Stopped after" in head and start["interactive"] and buttons == [gr.skip(), gr.skip()]
    where.engine.pause.set()
    assert ends(run)[-6:-4] == [gr.update(visible=True), gr.update(visible="hidden")]  # Run and Stop


def test_a_run_that_ends_before_the_sweep_it_stopped_has_ended_leaves_run_to_press():
    where, sweep, run = a_run_that_stops_a_sweep()
    assert any("Stopped after" in head for head, *_ in sweep_until_stopped(sweep))
    where.engine.pause.set()
    assert ends(run)[-6:-4] == [gr.update(visible=True), gr.update(visible="hidden")]  # Run and Stop


def sweep_until_stopped(sweep):
    """Its drawings up to the one that says so, after which it would end."""
    for drawn in sweep:
        yield drawn
        if "Stopped after" in drawn[0]:
            return


def test_sweeps_over_configs_and_over_shapes_take_each_others_place_and_leave_nothing_working():
    where = context()
    configs = tune._run(where, "me", "sm_90", "", VALUES)
    next(configs), next(configs)
    shapes = moves.sweep_shapes(where, "me", "rows", NONE, VALUES)
    next(shapes)
    begins_again = [gr.update(visible=True), gr.update(visible=False)]  # its button, and its Stop
    assert ends(configs)[-2:] == begins_again
    configs = tune._run(where, "me", "sm_90", "", VALUES)
    next(configs)
    assert ends(shapes)[-2:] == begins_again
    newer = tune._run(where, "me", "sm_90", "", VALUES)
    next(newer)
    assert all(drawn == gr.skip() for drawn in ends(configs))
