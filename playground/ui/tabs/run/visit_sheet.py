"""The sheet that lists this visit's runs, compares the ticked ones, and exports the one on the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from playground.ui import bench as form
from playground.ui import live, panels
from playground.ui.answer import Answer
from playground.ui.bench import Bench
from playground.ui.context import PRIVATE, Context
from playground.ui.tabs.run import export, visit
from playground.ui.tabs.run.script import script
from playground.ui.tabs.run.sheet import Parts, draw
from playground.ui.tabs.run.visit import Visit

LIGHT = {**PRIVATE, "concurrency_limit": 16}


@dataclass(frozen=True)
class Sheet:
    visit: gr.State
    outputs: list[Any]


def build(context: Context, bench: Bench, parts: Parts) -> Sheet:
    kept = gr.State(Visit())
    with gr.Column(elem_classes="sheet", visible=False, elem_id="visit") as sheet:
        with gr.Row(elem_classes="headrow"):
            live.html(panels.section("Runs of this visit", None, "a number shows its run again; tick two to compare"))
            with gr.Row(elem_classes="exports"):
                buttons = {name: gr.Button(name, size="sm") for name in EXPORTS}
        listed = live.html("", js_on_load=live.script("visit.js"), elem_id="runs")
        chart = live.chart(context.plotly, "Triton's time in the runs compared", elem_id="compare")
        file = gr.JSON(visible=False)
    outputs = [kept, sheet, listed, chart]

    def opened(session: gr.Request, event: gr.EventData, now: Visit) -> list[Any]:
        now = now.opened(int(event.number))
        answer = now.current
        if answer is None:
            return [gr.skip()] * (len(parts.outputs) + len(bench.shown) + len(outputs))
        context.jobs.give_up(f"run {session.session_hash or ''}")  # it would draw over what is opened
        return [*draw(answer, context.known_host), *form.fill(context, answer.request), *shows(now)]

    def compared(event: gr.EventData, now: Visit) -> list[Any]:
        return shows(now.picking([int(n) for n in event.numbers]))

    there = listed.open(opened, kept, [*parts.outputs, *bench.shown, *outputs], **form.FILLS)
    form.until_filled(there).success(
        None, bench.inputs, None, js="(...values) => tp.stands('answer', values)", api_visibility="private"
    )
    listed.compare(compared, kept, outputs, **form.EACH)
    for name, button in buttons.items():
        make = EXPORTS[name]
        button.click(lambda now, make=make: make(now), kept, file, **LIGHT).success(
            None, file, None, js="file => tp.save(file)", api_visibility="private"
        )
    return Sheet(kept, outputs)


def shows(now: Visit) -> list[Any]:
    """What the sheet shows of a visit."""
    return [now, live.shown(bool(now.runs)), visit.listing(now), live.drawn(visit.chart(now))]


def _csv(now: Visit) -> dict[str, str]:
    return _file(now, "csv", "text/csv", export.as_csv)


def _json(now: Visit) -> dict[str, str]:
    return _file(now, "json", "application/json", export.as_json)


def _script(now: Visit) -> dict[str, str]:
    return _file(now, "py", "text/x-python", _written)


def _written(answer: Answer) -> str:
    return script(answer.run.choice, answer.run.source, answer.request.source) if answer.run else ""


def _file(now: Visit, ending: str, kind: str, make: Any) -> dict[str, str]:
    """A file for the browser to save: nothing is written on this host."""
    answer = now.current
    if answer is None:
        return {}
    case = answer.request.edge or answer.request.bug or ""
    stem = "_".join(filter(None, (answer.request.kernel, case.replace(" ", "_").lower())))
    return {"name": f"{stem}.{ending}", "kind": kind, "text": make(answer)}


EXPORTS = {"CSV": _csv, "JSON": _json, "Script that reproduces this": _script}
