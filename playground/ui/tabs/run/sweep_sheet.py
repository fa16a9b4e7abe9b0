"""Throughput against size: a sweep on this device, beside the one recorded on a GPU, never joined with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kernels import InputError, get
from playground.engine.messages import BenchResult, EngineError, Progress, Request
from playground.ui import bench as form
from playground.ui import live, panels, sweep, words
from playground.ui.bench import Bench
from playground.ui.context import AGAIN, Context
from playground.ui.sweep import Sweep
from playground.ui.tabs.run import headings, view

TITLE = "Throughput against size"


@dataclass(frozen=True)
class Sheet:
    """head and chart of this device's sweep, and of the recorded one."""

    here_head: gr.HTML
    here_chart: gr.HTML
    there: gr.Column
    there_head: gr.HTML
    there_chart: gr.HTML

    @property
    def rest(self) -> list[Any]:
        return [self.here_head, self.here_chart, self.there, self.there_head, self.there_chart]


def build(context: Context, bench: Bench) -> Sheet:
    with gr.Column(elem_classes="sheet", elem_id="sweep"):
        with gr.Row(elem_classes="headrow"):
            live.html(panels.section(TITLE, None, "a ceiling is the measured roof; above it, a cache served the data"))
            start = gr.Button("Sweep sizes", size="sm", elem_id="sweep-start")
        with gr.Row(elem_classes="cols"):
            with gr.Column(min_width=420, elem_classes="half"):
                here_head = live.html(elem_id="sweep-here")
                here_chart = live.chart(context.plotly, "Throughput against size on this device")
            with gr.Column(min_width=420, elem_classes="half", visible=False) as there:
                there_head = live.html(elem_id="sweep-there")
                there_chart = live.chart(context.plotly, "Recorded throughput against size")
    sheet = Sheet(here_head, here_chart, there, there_head, there_chart)

    def run(request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        yield from _run(context, request.session_hash or "", values)

    outputs = [here_head, here_chart, start, bench.run, bench.stop]
    start.click(run, bench.inputs, outputs, **AGAIN)
    return sheet


def at_rest(context: Context, request: Request) -> list[Any]:
    """Before a sweep: what it would do here, and the recorded one."""
    spec = get(request.kernel)
    found = sweep.recorded(context.engine, spec, request)
    chart = view.sweep_chart(found, spec.sweep_dim)
    shown = [live.shown(chart is not None), _recorded_head(found, spec.sweep_dim), live.drawn(chart)]
    return [_invitation(context, request), None, *shown]


def _invitation(context: Context, request: Request) -> str:
    spec = get(request.kernel)
    host = context.known_host
    if host is None:
        return '<p class="quiet">Not swept yet. Sweep sizes times every implementation over a range of sizes.</p>'
    sizes = sweep.sizes(spec, request, host)
    over = f"{len(sizes)} sizes of {spec.sweep_dim}, from {sizes[0]:,} to {sizes[-1]:,}"
    return f'<p class="quiet">Not swept here yet. Sweep sizes times every implementation at {over}.</p>'


def _recorded_head(found: list[BenchResult], dim: str) -> str:
    if not found:
        return ""
    others = {k: v for k, v in found[0].choice.dims.items() if k != dim}
    fixed = f", {words.shape(others)}" if others else ""
    chosen = found[0].choice
    older = "recorded with an older kernel; " if any(one.stale for one in found) else ""
    note = f"{older}{words.place(found[0].source)}, {chosen.kernel}, {chosen.dtype}, {dim} swept{fixed}"
    title = panels.text(f"Recorded{headings.best(found)}")
    return f"<h3>{title}</h3><p>{panels.badge(found[0].source)} {panels.text(note)}</p>"


def _run(context: Context, session: str, values: tuple[Any, ...]) -> Iterator[list[Any]]:
    """One sweep. A run takes its place; it then draws what it has, and leaves Run and Stop to that."""
    cancel = context.jobs.start(f"sizes {session}")
    yield from context.jobs.newest(f"sizes {session}", cancel, _drawn(context, session, cancel, values))


def _drawn(context: Context, session: str, cancel: threading.Event, values: tuple[Any, ...]) -> Iterator[list[Any]]:
    def shows(head: str, chart: str | None, working: bool) -> list[Any]:
        running = context.jobs.running(f"run {session}") and not working
        buttons = [gr.skip(), gr.skip()] if running else [live.shown(not working), live.shown(working)]
        return [head, chart, gr.update(interactive=not working), *buttons]

    try:
        asked = form.read(context, *values).model_copy(update={"edge": None, "bug": None})
        context.jobs.stop(f"run {session}")
        spec = get(asked.kernel)
        yield shows(panels.working(Progress(what="Starting the worker")), None, True)
        sizes = sweep.sizes(spec, asked, context.host())
        drawn: tuple[int, str | None] = (0, None)
        for now in sweep.sweeps(context.engine, asked, spec.sweep_dim, sizes, cancel):
            if len(now.points) != drawn[0]:
                drawn = (len(now.points), live.drawn(view.sweep_chart(now.points, spec.sweep_dim)))
            yield shows(_head(now, spec.sweep_dim), drawn[1], now.progress is not None)
    except InputError as error:
        cancel.set()  # what is refused works no more, and a run that ends now has its buttons back
        yield shows(panels.failed(str(error)), None, False)
    except EngineError as error:
        yield shows(panels.failed(error.failure.message), None, False)


def _head(now: Sweep, dim: str) -> str:
    head = ""
    if now.points:
        first = now.points[0]
        others = {k: v for k, v in first.choice.dims.items() if k != dim}
        fixed = f", {words.shape(others)}" if others else ""
        said = f"{words.place(first.source)}, {first.choice.kernel}, {first.choice.dtype}, {dim} swept{fixed}"
        title = panels.text(f"Here{headings.best(now.points)}")
        head = f"<h3>{title}</h3><p>{panels.badge(first.source)} {panels.text(said)}</p>"
    notes = "".join(f'<p class="quiet">{panels.text(note)}</p>' for note in now.notes)
    return head + (panels.working(now.progress) if now.progress else "") + notes
