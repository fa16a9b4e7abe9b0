"""Autotune: what every config costs, why the best one wins, and the winner kept for later runs on this device."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kernels import InputError, get
from kernels.targets import TARGETS
from playground.engine.messages import ConfigChoice, EngineError, Progress, Request
from playground.engine.sweep_messages import SweepRequest, SweepResult
from playground.ui import bench as form
from playground.ui import live, panels, words
from playground.ui.answer import ask
from playground.ui.bench import EACH, FAST, Bench
from playground.ui.context import AGAIN, LONG, Context
from playground.ui.tabs import Loaded, Tab, chosen, follows, presses
from playground.ui.tabs.autotune import charts as tune_charts
from playground.ui.tabs.autotune import export, method, moves, winners
from playground.ui.tabs.autotune import view as show
from playground.ui.tabs.code.tab import GPUS

MOST = 64  # configs of a person's own ranges
EMPTY = "Press Sweep configs: each is compiled for the target, judged, and timed on this device."
SAVE = "file => { tp.save(file); }"
ASKS = presses("tune-answer")


@dataclass(frozen=True)
class Parts:
    """The components of the tab that a sweep fills, in the order of `_drawn`."""

    state: gr.State
    banner: gr.HTML
    body: gr.Column
    measure: gr.Dropdown
    across: gr.Dropdown
    down: gr.Dropdown
    grid: gr.HTML
    lines_head: gr.HTML
    lines: gr.HTML
    spread_head: gr.HTML
    spread: gr.HTML
    table: gr.HTML
    start: gr.Button
    stop: gr.Button

    @property
    def outputs(self) -> list[Any]:
        return [
            self.state, self.banner, self.body, self.measure, self.across, self.down, self.grid, self.lines_head,
            self.lines, self.spread_head, self.spread, self.table, self.start, self.stop,
        ]  # fmt: skip


def build(context: Context, bench: Bench) -> Loaded:
    """Lay out the tab and wire it to the bench."""
    with gr.Column(elem_classes="answer"):
        first = panels.verdict("unknown", "Not swept yet", EMPTY)
        banner = live.html(first, js_on_load="tp.watch(element)", elem_id="tune-answer")
    with gr.Column(elem_classes="sheet"), gr.Row(elem_classes="headrow", elem_id="tune-form"):
        targets = [(f"{arch} · {GPUS[arch]}", arch) for arch, t in TARGETS.items() if t.kind != "cpu"]
        target = gr.Dropdown(targets, value="sm_90", label="compile for", filterable=False, min_width=190)
        ranges = gr.Textbox(
            label="own ranges, instead of the kernel's configs", placeholder="BLOCK_N=2048,4096 num_warps=4,8",
            max_lines=1, min_width=260, scale=4,
        )  # fmt: skip
        start = gr.Button("Sweep configs", variant="primary", elem_id="tune-start")
        stop = gr.Button("Stop", elem_id="tune-stop", visible=False)
        recorded = gr.Button("Show a recorded sweep", elem_id="tune-recorded", elem_classes="unseen")
    with gr.Column(visible=False) as body:
        with gr.Row(elem_classes="cols"):
            with gr.Column(scale=6, min_width=460, elem_classes="sheet"):
                live.html(panels.section("Two choices at a time", None, "hatched: failed or wrong"))
                with gr.Row(elem_classes="headrow"):
                    measure = gr.Dropdown([], label="show", filterable=False, min_width=140)
                    across = gr.Dropdown([], label="across", filterable=False, min_width=110)
                    down = gr.Dropdown([], label="down", filterable=False, min_width=110)
                grid = live.html(elem_id="tune-grid")
            with gr.Column(scale=6, min_width=460, elem_classes="sheet"):
                lines_head = live.html()
                lines = live.chart(context.plotly, "All choices of every config as lines")
        with gr.Column(elem_classes="sheet"):
            spread_head = live.html()
            spread = live.chart(context.plotly, "How the configs are spread, the best first")
        with gr.Column(elem_classes="sheet"):
            table = live.html(elem_id="tune-table")
            said = live.html()
            with gr.Row(elem_classes="exports"):
                keep = gr.Button("Use the winner here", size="sm", elem_id="tune-keep")
                exports = [gr.Button(name, size="sm") for name in ("triton.Config list", "CSV", "JSON")]
    moves.build(context, bench)
    kept = winners.build(context, bench)
    state = gr.State(None)
    parts = Parts(
        state, banner, body, measure, across, down, grid, lines_head, lines, spread_head, spread, table, start, stop
    )
    _wire(context, bench, parts, target, ranges)
    _wire_recorded(context, bench, parts, recorded)
    _wire_extras(parts, exports)
    keep.click(lambda result: winners.keep(context, result), parts.state, [said, kept], **FAST)
    target.input(None, target, None, js=follows(target, "tune"), api_visibility="private")
    own = chosen(target, "tune")

    def fill(request: Request, problem: str, params: Mapping[str, str]) -> list[Any]:
        """A link to this tab has the recorded sweep in its place at once, so that nothing moves for it later."""
        asked = params.get("tab") == TAB.name and not problem and context.known_host
        shown = _recorded(context, request) if asked else None
        return [*own.fill(request, problem, params), *(shown or [gr.skip()] * len(parts.outputs))]

    return Loaded([*own.outputs, *parts.outputs], fill, [said, kept], lambda *values: ["", winners.listed(context)])


def _wire(context: Context, bench: Bench, parts: Parts, target: gr.Dropdown, ranges: gr.Textbox) -> None:
    def run(request: gr.Request, arch: str, text: str, *values: Any) -> Iterator[list[Any]]:
        yield from _run(context, request.session_hash or "", arch, text, values)

    def stop(request: gr.Request) -> None:
        context.jobs.stop(f"tune {request.session_hash or ''}")

    def redraw(result: SweepResult | None, measure: str, across: str, down: str) -> list[Any]:
        return ["", "", None, "", None] if result is None else _pictures(result, measure, across, down)

    for asked in (parts.start.click, ranges.submit):
        asked(run, [target, ranges, *bench.inputs], parts.outputs, js=ASKS, **AGAIN)
    parts.stop.click(stop, None, None, **FAST)
    choices = [parts.state, parts.measure, parts.across, parts.down]
    pictures = [parts.grid, parts.lines_head, parts.lines, parts.spread_head, parts.spread]
    for choice in choices[1:]:
        choice.input(redraw, choices, pictures, **EACH)


def _wire_recorded(context: Context, bench: Bench, parts: Parts, shown: gr.Button) -> None:
    def recorded(request: gr.Request, *values: Any) -> list[Any]:
        found = None
        with contextlib.suppress(InputError):  # pressing Sweep configs tells what is wrong
            found = _recorded(context, form.read(context, *values))
        busy = context.jobs.running(f"tune {request.session_hash or ''}")
        return found if found and not busy else [gr.skip()] * len(parts.outputs)

    shown.click(recorded, bench.inputs, parts.outputs, js=ASKS, **LONG)


def _wire_extras(parts: Parts, exports: list[gr.Button]) -> None:
    kinds = (("py", export.triton_configs), ("csv", export.as_csv), ("json", export.as_json))
    for button, (kind, write) in zip(exports, kinds, strict=True):
        file = gr.JSON(visible=False)
        made = button.click(lambda r, kind=kind, write=write: _file(r, kind, write(r)) if r else None,
                            parts.state, file, **FAST)  # fmt: skip
        made.then(None, file, None, js=SAVE, api_visibility="private")


def _file(result: SweepResult, kind: str, text: str) -> dict[str, str]:
    mime = {"py": "text/x-python", "csv": "text/csv", "json": "application/json"}[kind]
    return {"name": f"{result.choice.kernel}_configs.{kind}", "text": text, "kind": mime}


# A sweep


def _recorded(context: Context, choice: Request) -> list[Any] | None:
    """What a GPU's sweep of this kernel found, where this host has no GPU; None where none is recorded."""
    try:
        if context.host().kind == "gpu":
            return None
        found = context.engine.recorded_sweeps(ask(SweepRequest, choice.model_copy(update={"config": None})))
    except (InputError, EngineError):
        return None
    if not found:
        return None
    drawn = _drawn(show.as_recorded(found[0]), first=True, working=False)
    return [drawn[0], show.recorded_banner(found[0]), *drawn[2:]]


def _run(context: Context, session: str, arch: str, text: str, values: tuple[Any, ...]) -> Iterator[list[Any]]:
    """One sweep, drawn as it grows. A sweep over shapes takes its place, as it does that one's."""
    cancel = context.jobs.start(f"tune {session}")
    yield from context.jobs.newest(f"tune {session}", cancel, _grown(context, session, cancel, arch, text, values))


def _grown(
    context: Context, session: str, cancel: threading.Event, arch: str, text: str, values: tuple[Any, ...]
) -> Iterator[list[Any]]:
    """What was found stays when it is stopped or fails."""
    last: SweepResult | None = None
    try:
        request = _asked(context, arch, text, values)
        context.jobs.stop(f"shapes {session}")
        yield _waiting(panels.busy(Progress(what="Starting the worker")), None)
        context.host()
        for item in context.engine.sweep(request, cancel):
            if isinstance(item, Progress):
                yield _waiting(panels.busy(item), last)
            else:
                yield _drawn(item, first=last is None, working=not item.done)
                last = item
    except InputError as error:
        yield _stopped(panels.failed(str(error)), None)
    except EngineError as error:
        ended = error.failure.kind == "cancelled" and last is not None
        said = show.banner(last) if ended and last else panels.failed(error.failure.message, nothing_ran=False)
        yield _stopped(said, last)


def _asked(context: Context, arch: str, text: str, values: tuple[Any, ...]) -> SweepRequest:
    chosen = form.read(context, *values)
    configs = ranges_of(text, chosen) if text and text.strip() else None
    return ask(SweepRequest, chosen.model_copy(update={"config": None}), target=arch, configs=configs)


def ranges_of(text: str, chosen: Request) -> tuple[ConfigChoice, ...]:
    """ "BLOCK_N=2048,4096 num_warps=4,8" as every combination. Raises InputError."""
    example = "write names and values, such as BLOCK_N=2048,4096 num_warps=4,8"
    axes: dict[str, list[int]] = {}
    for part in text.replace(";", " ").split():
        name, equals, listed = part.partition("=")
        numbers = [n for n in listed.split(",") if n]
        if not equals or not name or not numbers or not all(n.isdecimal() and len(n) < 8 for n in numbers):
            raise InputError(f"own ranges hold {part[:40]!r}; {example}", "configs")
        axes[name] = [int(n) for n in numbers]
    spec = get(chosen.kernel)
    inputs = spec.inputs(chosen.dims, chosen.dtype or spec.dtypes[0], "meta")
    own = spec.default_config(inputs, TARGETS["cpu"])
    base = {**own.meta, "num_warps": own.num_warps, "num_stages": own.num_stages}
    for name in axes:
        if name not in base:
            raise InputError(f"own ranges hold {name[:40]!r}; {spec.name} has {', '.join(base)}", "configs")
    made = math.prod(map(len, axes.values()))  # counted before they are made: a long text means billions
    if made > MOST:
        raise InputError(f"own ranges make {made:,} configs; {MOST} are the most: give fewer values", "configs")
    products = [dict(zip(axes, combo, strict=True)) for combo in itertools.product(*axes.values())]
    return tuple(_config({**base, **p}) for p in products)


def _config(numbers: dict[str, int]) -> ConfigChoice:
    warps, stages = numbers.pop("num_warps"), numbers.pop("num_stages")
    if not 1 <= warps <= 32 or warps & (warps - 1):
        raise InputError(f"num_warps is {warps}; it needs to be 1, 2, 4, 8, 16 or 32", "configs")
    if not 1 <= stages <= 10:
        raise InputError(f"num_stages is {stages}; it needs to be from 1 to 10", "configs")
    return ConfigChoice(meta=numbers, num_warps=warps, num_stages=stages)


def _buttons(working: bool) -> list[Any]:
    return [gr.update(visible=not working), gr.update(visible=working)]


def _waiting(banner: str, last: SweepResult | None) -> list[Any]:
    """What was drawn stays. A chart is given its value again: an update without one would take its Plotly away."""
    body = gr.update(visible=last is not None)
    same = [gr.update()] * 5
    charts = [_lines(last), gr.update(), _spread(last)]
    return [gr.update(), banner, body, *same, *charts, gr.update(), *_buttons(True)]


def _drawn(result: SweepResult, first: bool, working: bool) -> list[Any]:
    """Pictures of what is there so far; their choices can be changed once the sweep has ended."""
    names = [n for n, m in show.MEASURES.items() if any(m.of(c) is not None for c in result.configs)] or ["registers"]
    measure = show.shown_first(result)
    across, down = show.first_axes(result)
    axes = show.axes(result)
    choices = [
        gr.update(choices=names, value=measure),
        gr.update(choices=axes, value=across),
        gr.update(choices=axes, value=down),
    ]
    banner = gr.update() if working else show.banner(result)
    pictures = _pictures(result, measure, across, down)
    body = gr.update(visible=True) if first or not working else gr.update()
    return [result, banner, body, *choices, *pictures, _table(result), *_buttons(working)]


def _stopped(banner: str, last: SweepResult | None) -> list[Any]:
    return [*_waiting(banner, last)[:-2], *_buttons(False)]


def _lines(result: SweepResult | None) -> str | None:
    return live.drawn(tune_charts.parallel(result, show.shown_first(result))) if result else None


def _spread(result: SweepResult | None) -> str | None:
    return live.drawn(tune_charts.distribution(result, show.shown_first(result))) if result else None


def _pictures(result: SweepResult, measure: str, across: str, down: str) -> list[Any]:
    source = show.MEASURES[measure].source(result)
    note = result.recorded_note if measure == "time recorded" else "a line for each config, the best thickest"
    head = panels.section(show.leader(result, measure), source, note)
    spread = panels.section(show.spread(result, measure), source, "every config in order, the best first")
    return [
        show.grid(result, measure, across, down),
        head,
        live.drawn(tune_charts.parallel(result, measure)),
        spread,
        live.drawn(tune_charts.distribution(result, measure)),
    ]


def _table(result: SweepResult) -> str:
    on = f"{words.shape(result.choice.dims)}, {result.choice.dtype}"
    places = [f"here: {result.source.device}"] if result.source else []
    places += [f"recorded: {words.place(result.recorded)}"] if result.recorded else []
    places += [f"compiled for {result.target}"] if result.compiled else []
    head = panels.section("Every config", None, "; ".join((on, *places)))
    return head + show.table(result) + method.how(result)


TAB = Tab("Autotune", 30, build)
