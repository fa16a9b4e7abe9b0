"""What Gradio's client makes of a generator's drawings where it draws later than they come."""

import copy
import itertools

import gradio as gr
import pytest
from gradio import utils

from playground.ui import updates


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(utils, "diff", utils.diff)
    updates.install()


def received(drawings):
    """Each drawing as the client holds it once all have come and none is drawn: it takes differences in place."""
    held = [copy.deepcopy(drawings[0])]
    for before, after in itertools.pairwise(drawings):
        last = held[-1]
        for action, path, value in utils.diff(before, after):
            if not path:
                last = value
            elif action == "delete":
                del last[path[0]]
            else:
                last[path[0]] = value
        held.append(last)
    return held


def test_no_update_that_waits_loses_what_a_later_one_does_not_name():
    shown, gone = gr.update(visible=True), gr.update(value="", visible="hidden")
    assert received([gr.skip(), shown, gr.skip()])[1:] == [shown, gr.skip()]
    assert received([gone, shown, gone]) == [gone, shown, gone]
    first, *_, last = received([gone, gone, shown])
    assert (first, last) == (gone, shown)


def test_values_still_travel_as_differences():
    assert utils.diff("1,2", "1,2,3") == [["append", [], ",3"]]
    assert utils.diff(gr.update(value="1,2"), gr.update(value="1,2,3")) == [["append", ["value"], ",3"]]
    assert utils.diff([1], [1, 2]) == [["add", [1], 2]] and utils.diff(gr.skip(), gr.skip()) == []


def test_gradio_asks_by_this_name():
    with gr.Blocks() as demo:
        box = gr.Column(), gr.HTML()
        gr.Button().click(lambda: None, None, list(box))
    fn = next(iter(demo.fns.values()))
    for drawing, sent in (
        ([gr.update(visible=True), "a"], [gr.update(visible=True), "a"]),
        ([gr.skip(), "ab"], [[["replace", [], gr.skip()]], [["append", [], "b"]]]),
    ):
        assert demo.handle_streaming_diffs(fn, drawing, "visit", "run", final=False) == sent
