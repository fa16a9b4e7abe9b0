"""The sheet "How the winner moves": the same sweep at several shapes, timed on this device, drawn as it grows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import gradio as gr

from kernels import InputError, get
from playground.engine.messages import EngineError, Progress, Request
from playground.engine.sweep_messages import SweepRequest, SweepResult
from playground.ui import bench as form
from playground.ui import live, panels, words
from playground.ui.answer import ask
from playground.ui.bench import FAST, Bench
from playground.ui.context import AGAIN, Context
from playground.ui.tabs.autotune import winner_map
from playground.ui.tabs.autotune.winner_map import NONE, Map

EMPTY = (
    '<p class="quiet">Not swept over shapes yet. Choose one dim or two, then Sweep over shapes: every config is '
    "judged and timed at each shape, and the map shows which one wins where.</p>"
)


def build(context: Context, bench: Bench) -> None:
    """Lay the sheet out and wire it to the bench."""
    names, first, second = winner_map.axes(get(bench.kernel.value))
    with gr.Column(elem_classes="sheet"):
        with gr.Row(elem_classes="headrow", elem_id="moves-form"):
            live.html(panels.section("How the winner moves", None, "the same sweep at several shapes, on this device"))
            across = gr.Dropdown(names, value=first, label="across", filterable=False, min_width=130)
            down = gr.Dropdown([NONE, *names], value=second, label="down", filterable=False, min_width=130)
            over = gr.Button("Sweep over shapes", size="sm", elem_id="tune-over")
            stop = gr.Button("Stop", size="sm", elem_id="tune-over-stop", visible=False)
        drawn = live.html(EMPTY, elem_id="tune-moves")

    def moving(request: gr.Request, x: str, y: str, *values: Any) -> Iterator[list[Any]]:
        yield from sweep_shapes(context, request.session_hash or "", x, y, values)

    def stopped(request: gr.Request) -> None:
        context.jobs.stop(f"shapes {request.session_hash or ''}")

    bench.kernel.change(_axes, bench.kernel, [across, down], **FAST)
    over.click(moving, [across, down, *bench.inputs], [drawn, over, stop], **AGAIN)
    stop.click(stopped, None, None, **FAST)


def _axes(kernel: str) -> list[Any]:
    names, first, second = winner_map.axes(get(kernel))
    return [gr.update(choices=names, value=first), gr.update(choices=[NONE, *names], value=second)]


def sweep_shapes(
    context: Context, session: str, across: str, down: str, values: tuple[Any, ...]
) -> Iterator[list[Any]]:
    """(picture, button, stop button) after each shape. A sweep over configs takes its place, as it does that one's."""
    cancel = context.jobs.start(f"shapes {session}")
    yield from context.jobs.newest(
        f"shapes {session}", cancel, _swept_shapes(context, session, cancel, across, down, values)
    )


def _swept_shapes(
    context: Context, session: str, cancel: threading.Event, across: str, down: str, values: tuple[Any, ...]
) -> Iterator[list[Any]]:
    """What was found stays when it is stopped or fails."""
    picture, done = "", 0
    try:
        asked = form.read(context, *values).model_copy(update={"edge": None, "bug": None, "config": None})
        context.jobs.stop(f"tune {session}")
        yield _shows(panels.working(Progress(what="Starting the worker")), True)
        found = winner_map.empty(get(asked.kernel), asked, context.host(), across, down)
        for done, (x, y) in enumerate(found.shapes):
            what = f"Sweeping {words.shape(found.dims(x, y))}"
            step = Progress(what=what, done=done, total=len(found.shapes), unit="shapes")
            yield _shows(picture + panels.working(step), True)
            found.cells[x, y] = _swept(context, asked, found, x, y, cancel)
            picture = winner_map.picture(found)
        yield _shows(picture or panels.failed(_no_winner(found), nothing_ran=False), False)
    except EngineError as error:
        stopped = error.failure.kind == "cancelled"
        note = f'<p class="quiet">Stopped after {words.count(done, "shape")}.</p>'
        yield _shows(picture + (note if stopped else panels.failed(str(error), nothing_ran=False)), False)
    except InputError as error:
        yield _shows(panels.failed(str(error)), False)


def _swept(context: Context, asked: Request, found: Map, x: int, y: int, cancel: threading.Event) -> SweepResult | str:
    """The sweep of one shape, or why there is none. Raises EngineError when stopped."""
    own = found.dims(x, y)
    why = winner_map.too_large(get(asked.kernel), asked, context.host(), own)
    if why:
        return why
    try:
        *_, result = context.engine.sweep(ask(SweepRequest, asked, dims={**asked.dims, **own}, target=None), cancel)
    except EngineError as error:
        if error.failure.kind == "cancelled":
            raise
        return error.failure.message
    return result


def _no_winner(found: Map) -> str:
    """Why the map is empty, by its first shape."""
    why = next(iter(found.cells.values()), "")
    if isinstance(why, SweepResult):
        why = next((c.failure for c in why.configs if c.failure), "")
    return f"no config has a time at any of these shapes{': ' * bool(why)}{why}"


def _shows(html: str, working: bool) -> list[Any]:
    return [html, gr.update(visible=not working), gr.update(visible=working)]
