"""Two presses of one visit: the newer one draws, and the older one draws nothing over it."""

import threading

import gradio as gr

from playground.settings import Settings
from playground.ui.context import Context
from playground.ui.tabs.run import sweep_sheet, tab
from playground.ui.tabs.run.visit import Visit
from tests.ui.fake_engine import FakeEngine

VALUES = ("softmax", 7, 77, "float32", "auto", "none", [], 0)


def context():
    return Context(FakeEngine(pause=threading.Event()), Settings())


def ends(stream):
    return list(stream)[-1]


def test_an_older_press_draws_nothing_over_a_newer_one():
    where = context()
    older = tab._run(where, "me", Visit(), VALUES)
    next(older)
    newer = tab._run(where, "me", Visit(), VALUES)
    next(newer)
    assert all(drawn == gr.skip() for drawn in ends(older))  # Gradio sends it once more at the end
    where.engine.pause.set()
    end = ends(newer)
    assert "Right" in end[0] and gr.skip() not in end and not where.jobs.running("run me")


def test_a_refused_press_takes_the_place_of_what_runs():
    where = context()
    older = tab._run(where, "me", Visit(), VALUES)
    next(older)
    refused = list(tab._run(where, "me", Visit(), ("softmax", 0, *VALUES[2:])))
    assert len(refused) == 1 and "rows must be 1 or more" in refused[0][0]
    assert all(drawn == gr.skip() for drawn in ends(older))


def test_a_run_stops_a_sweep_and_keeps_run_and_stop_for_itself():
    where = context()
    sweep = sweep_sheet._run(where, "me", VALUES)
    next(sweep)
    run = tab._run(where, "me", Visit(), VALUES)
    next(run)
    head, _, start, *buttons = ends(sweep)
    assert "Stopped after" in head and start["interactive"] and buttons == [gr.skip(), gr.skip()]
    where.engine.pause.set()
    assert ends(run)[-6:-4] == [gr.update(visible=True), gr.update(visible="hidden")]  # Run and Stop
