"""The components that an answer fills, and what each shows of it, from the first progress to the last figure."""

from __future__ import annotations

from typing import Any

import gradio as gr

from kernels import get
from playground.engine.messages import HostResult
from playground.ui import live, panels
from playground.ui.answer import Answer
from playground.ui.bench import Bench
from playground.ui.context import Context
from playground.ui.tabs.run import fusion, headings, lesson, method, view

HALF = {"min_width": 460, "elem_classes": "sheet"}


class Parts:
    """The components that an answer fills, in the order of `draw`."""

    def __init__(self, context: Context, bench: Bench):
        self.bench = bench
        with gr.Column(elem_classes="answer"):
            first = view.empty(what_run_brings(None))
            self.banner = live.html(first, js_on_load=live.script("answer.js"), elem_id="answer")
            self.note = live.html("", elem_id="note", visible=False)
        with gr.Row(elem_classes="cols", visible=False, elem_id="here") as self.here:
            with gr.Column(scale=7, **HALF):
                self.here_table = live.html()
            with gr.Column(scale=5, **HALF):
                self.here_head = live.html()
                self.here_chart = live.chart(context.plotly, "Times on this device")
        with gr.Row(elem_classes="cols", visible=False, elem_id="there") as self.there:
            with gr.Column(scale=7, **HALF):
                self.there_table = live.html()
            with gr.Column(scale=5, **HALF):
                self.there_head = live.html()
                self.there_chart = live.chart(context.plotly, "Recorded times")
        self.fusion = live.html("", elem_id="fusion", visible=False)
        self.why = live.html("", elem_id="why", visible=False)

    @property
    def outputs(self) -> list[Any]:
        return [
            self.banner, self.note, self.here, self.here_table, self.here_head, self.here_chart, self.there,
            self.there_table, self.there_head, self.there_chart, self.fusion, self.why, self.bench.run, self.bench.stop,
        ]  # fmt: skip


def draw(answer: Answer, host: HostResult | None, sweeping: bool = False) -> list[Any]:
    """What each of `Parts.outputs` shows of an answer. sweeping: Run and Stop are left to the sweep that works now."""
    working = answer.progress is not None
    buttons = [gr.skip(), gr.skip()] if sweeping else [live.shown(not working), live.shown(working)]
    spec = get(answer.request.kernel)
    banner = view.banner(answer)
    note = view.picture(answer) + lesson.note(spec, answer.request, answer.run) if answer.run else ""
    here = _here(answer, host)
    there = _there(answer)
    if answer.run and not (working or answer.timed or answer.recorded):
        note += f'<div class="sheet judged">{method.judged()}</div>'  # else it stands under the times
    reasons = view.why(answer) if answer.right and not working else []
    why = f'<div class="sheet">{panels.section("Why")}{panels.reasons(reasons)}</div>' if reasons else ""
    return [banner, _shown(note), *here, *there, _shown(fusion.sheet(answer)), _shown(why), *buttons]


def _shown(html: str) -> Any:
    """A piece that takes no room while it is empty."""
    return live.shown(bool(html), value=html)


def _here(answer: Answer, host: HostResult | None) -> list[Any]:
    """Times on this device, or what is still being done for them."""
    bench = answer.timed
    title = "Against PyTorch" if host and host.kind == "gpu" else "Against PyTorch, on this CPU"
    if bench:
        table = panels.section(title, bench.source, view.conditions(bench)) + view.table(bench, answer.run, title)
        if bench.roofs is None and answer.progress:
            table += panels.working(
                answer.progress.model_copy(update={"what": f"{answer.progress.what}, for the share"})
            )
        head = panels.section(headings.times(bench), bench.source, "whiskers p20–p80; less is better")
        return [live.shown(True), table, head, live.drawn(view.bars(bench))]
    if answer.right and answer.progress and not answer.untimed:
        waiting = panels.section(title) + panels.working(answer.progress)
        return [live.shown(True), waiting, panels.section("Time", None, "comes with the table"), None]
    return [live.shown(False), "", "", None]


def _there(answer: Answer) -> list[Any]:
    """The recording that stands beside what this host can say."""
    recorded = answer.recorded
    if answer.unrecorded and answer.right:
        absent = panels.section("Against PyTorch, on a GPU", None, answer.unrecorded)
        return [live.shown(True), absent, "", None]
    if recorded is None or not answer.right:
        return [live.shown(False), "", "", None]
    title = f"Against PyTorch, on {recorded.source.device}"
    table = panels.section(title, recorded.source, view.recorded_note(answer)) + view.table(recorded, None, title)
    head = panels.section(headings.times(recorded), recorded.source, f"whiskers p20–p80; on {recorded.source.device}")
    return [live.shown(True), table, head, live.drawn(view.bars(recorded))]


def what_run_brings(host: HostResult | None) -> str:
    if host is None:
        return "Press Run: the verdict comes first, then times and what explains them."
    if host.kind == "gpu":
        return f"Press Run: a verdict against float64 comes first, then times on the {host.device} beside PyTorch's."
    return (
        "Press Run: the kernel runs on this CPU and is judged against float64, then timed beside PyTorch. "
        "Recorded GPU figures stand beside it, each with its own source."
    )
