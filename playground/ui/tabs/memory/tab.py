"""Memory: which bytes move between which levels, how near the least that is, and what fusion saves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kernels import InputError
from playground.engine.gpus import CATALOGUE
from playground.engine.messages import EngineError, Progress
from playground.ui import bench as form
from playground.ui import live, panels, words
from playground.ui.bench import Bench
from playground.ui.context import AGAIN, LONG, Context
from playground.ui.tabs import Loaded, Tab, chosen, follows, presses
from playground.ui.tabs.memory import access_map, drawn, export, headings, method, occupancy, traffic, views
from playground.ui.tabs.memory import measure as memory_measure
from playground.ui.tabs.memory import trials as memory_trials
from playground.ui.tabs.memory.facts import FIRST_GPU, HERE, Facts, Traces, ask_for

TITLE = "Where the bytes go"
BETWEEN = 0.12  # seconds between two pictures of the same progress
EMPTY = (
    "Not traced yet",
    "Press Trace: each load and store of the kernel above is counted, and shown on the levels of the GPU chosen here.",
)
NO_SIZES = (
    '<div class="nochart"><p>Nothing is recorded of this kernel and dtype on this GPU. Measure this device draws a '
    "copy and the kernel over sizes, with the caches as plateaus.</p></div>"
)


@dataclass(frozen=True)
class Sheets:
    """The components that a trace fills, in the order of `drawn`."""

    banner: Any
    head: Any
    levels_head: Any
    levels: Any
    journey_head: Any
    journey: Any
    journey_how: Any
    flows_head: Any
    flows: Any
    roof_head: Any
    roof: Any
    roof_note: Any
    ways_head: Any
    ways: Any
    map_head: Any
    map: Any
    sizes_head: Any
    sizes: Any
    sizes_note: Any
    limits_head: Any
    limits: Any
    trials: Any
    trace: Any

    @property
    def all(self) -> list[Any]:
        return [getattr(self, name) for name in self.__dataclass_fields__]


def build(context: Context, bench: Bench) -> Loaded:
    names = [(HERE, HERE), *((f"{g.name} · {g.arch}", g.name) for g in CATALOGUE.values())]
    with gr.Column(elem_classes="answer"):
        banner = live.html(panels.verdict("unknown", *EMPTY), js_on_load="tp.watch(element)", elem_id="memory-answer")
    with gr.Column(elem_classes="sheet"), gr.Row(elem_classes="headrow", elem_id="memory-form"):
        head = live.html(panels.section(TITLE))
        gpu = gr.Dropdown(names, value=FIRST_GPU, label="GPU", filterable=False, min_width=170)
        go = gr.Button("Trace", variant="primary", elem_id="trace", min_width=110)
        stop = gr.Button("Stop", elem_id="stop-trace", min_width=90)
    with gr.Column(elem_classes="stack", elem_id="memory-body"):  # memory.css hides it until there is a map
        sheets, buttons = _body(context, banner, head)
    traces, devices = Traces(), memory_measure.Devices()

    def trace(session: gr.Request, name: str, *values: Any) -> Iterator[list[Any]]:
        yield from _trace(context, traces, devices, session.session_hash or "", name, values)

    def trials(session: gr.Request, name: str, *values: Any) -> Iterator[str]:
        yield from _trials(context, traces, devices, session.session_hash or "", name, values)

    def measure(session: gr.Request, *values: Any) -> Iterator[list[Any]]:
        yield from _measure(context, devices, session.session_hash or "", values)

    def stopped(session: gr.Request) -> None:
        for what in ("memory", "trials", "measure"):
            context.jobs.stop(f"{what} {session.session_hash or ''}")

    inputs = [gpu, *bench.inputs]
    stop.click(stopped, None, None, **form.FAST)
    go.click(trace, inputs, sheets.all, js=presses("memory-answer"), **AGAIN)
    gpu.input(trace, inputs, sheets.all, js=presses("memory-answer", follows(gpu, "gpu")), **AGAIN)
    buttons["try"].click(trials, inputs, sheets.trials, **AGAIN)
    buttons["measure"].click(measure, bench.inputs, [buttons["here"], buttons["said"]], **LONG)
    return chosen(gpu, "gpu")


def _body(context: Context, banner: Any, head: Any) -> tuple[Sheets, dict[str, Any]]:
    """Lay out the sheets; also the buttons, and what the measuring button fills."""
    parts: dict[str, Any] = {"banner": banner, "head": head}
    with gr.Row(elem_classes="memcols"):
        with gr.Column(elem_classes="sheet", min_width=460):
            parts["levels_head"], parts["levels"] = live.html(), live.html()
        with gr.Column(elem_classes="sheet", min_width=460):
            parts["journey_head"] = live.html()
            parts["journey"] = _drawn_by("journey", "journey.js")
            parts["journey_how"] = live.html()
    with gr.Column(elem_classes="sheet"):  # across the page: a chain of ten kernels has room for its names
        parts["flows_head"] = live.html()
        said = "Bytes through memory, eager's kernels above, Triton's below"
        parts["flows"] = live.chart(context.plotly, said, elem_id="flows")
    with gr.Row(elem_classes="memcols"):
        with gr.Column(elem_classes="sheet", min_width=460):
            parts["roof_head"] = live.html()
            parts["roof"] = live.chart(context.plotly, "Roofline: TFLOP per second against FLOP per byte")
            parts["roof_note"] = live.html()
        with gr.Column(elem_classes="sheet", min_width=460):
            parts["ways_head"], parts["ways"] = live.html(), live.html()
    with gr.Column(elem_classes="sheet"):
        parts["map_head"] = live.html()
        parts["map"] = _drawn_by("accmap", "access.js")
        parts["trace"] = gr.State(None)
        export.build(parts["trace"])
    with gr.Row(elem_classes="memcols"):
        with gr.Column(elem_classes="sheet", min_width=460):
            parts["sizes_head"] = live.html()
            parts["sizes"] = live.chart(context.plotly, "Bandwidth against size")
            parts["sizes_note"] = live.html()
            with gr.Row(elem_classes="headrow"):
                live.html(panels.section("On this device"))
                measure = gr.Button("Measure this device", elem_id="measure", min_width=150)
            said = live.html()
            here = live.chart(context.plotly, "Bandwidth against size on this device")
        with gr.Column(elem_classes="sheet", min_width=460):
            parts["limits_head"], parts["limits"] = live.html(), live.html()
            with gr.Row(elem_classes="headrow"):
                live.html(panels.section("What if", "compiled", "other warps and blocks, compiled for this GPU"))
                other = gr.Button("Try them", elem_id="trials", min_width=110)
            parts["trials"] = live.html()
    return Sheets(**parts), {"measure": measure, "said": said, "here": here, "try": other}


def _drawn_by(css: str, file: str) -> gr.HTML:
    """A picture that the browser draws from JSON."""
    return gr.HTML(
        None, html_template=f'<div class="{css}" hidden></div>', js_on_load=live.script(file), apply_default_css=False,
        elem_id=css,
    )  # fmt: skip


def _trace(
    context: Context, traces: Traces, devices: memory_measure.Devices, session: str, gpu: str, values: tuple[Any, ...]
) -> Iterator[list[Any]]:
    """One press of Trace, or one GPU chosen; it takes the place of an earlier one, which draws no more."""
    context.jobs.give_up(f"trials {session}")  # of the older choice
    cancel = context.jobs.start(f"memory {session}")
    pictures = _traced(context, traces, devices, gpu, values, cancel)
    yield from context.jobs.newest(f"memory {session}", cancel, pictures)


def _traced(
    context: Context, traces: Traces, devices: memory_measure.Devices, gpu: str, values: tuple[Any, ...],
    cancel: threading.Event,
) -> Iterator[list[Any]]:  # fmt: skip
    """The old pictures stay until the new ones are there; a refusal takes them away."""
    keep = [gr.update()] * (len(Sheets.__dataclass_fields__) - 1)
    drawn_at = 0.0
    try:
        asked = form.read(context, *values)
        yield [panels.busy(Progress(what=f"Tracing {asked.kernel}")), *keep]
        for event in ask_for(context, asked, gpu, traces, devices.host, cancel):
            if isinstance(event, Facts):
                yield _drawn(event)
            elif time.monotonic() - drawn_at > BETWEEN:
                drawn_at = time.monotonic()
                yield [panels.busy(event), *keep]
    except (InputError, EngineError) as error:
        gone = {"map": None, "head": panels.section(TITLE)}
        said = panels.failed(str(error), nothing_ran=isinstance(error, InputError))
        yield [said, *(gone.get(name, gr.update()) for name in list(Sheets.__dataclass_fields__)[1:])]


def _drawn(facts: Facts) -> list[Any]:
    """Every component of `Sheets`, in its order."""
    trace, rates, gpu = facts.trace, facts.rates, facts.gpu
    shape = (
        f"{trace.choice.kernel}, {words.shape(trace.choice.dims)}, {trace.choice.dtype}, {trace.choice.config.label}"
    )
    origin = f"{words.place(rates.source)}, {rates.source.kind}" if rates.source else "datasheet"
    clock = f"both on one clock, at {views.rate_text(rates.memory)} ({origin})" if rates.memory else views.UNMEASURED
    roof, sizes = drawn.roofline(facts), drawn.bandwidth(facts)
    widths = "thickness is bytes, on one scale; teal: tensors, else kernels"
    roofs = f"{gpu.name}, {origin}; dotted: other GPUs, datasheet"
    ran = sum(launch.programs_traced for launch in trace.launches)
    total = sum(launch.programs_total for launch in trace.launches)
    traced = f"{words.count(total, 'program')} traced" if trace.exact else f"{ran:,} of {total:,} programs traced"
    where = f"of {'an' if gpu.name[:1] in 'AHLMR' else 'a'} {gpu.name}" if not facts.cpu else "of this CPU"
    return [
        views.banner(facts),
        panels.section(TITLE, trace.source, f"{shape}; {traced}"),
        panels.section(f"The levels {where}", None, views.levels_note(gpu)),
        views.hierarchy(facts),
        panels.section(headings.of_journey(facts), "modelled", clock),
        views.journey(facts) if rates.memory and trace.launches else None,
        method.flowed(),
        panels.section(headings.of_flows(facts), "modelled", widths),
        live.drawn(drawn.flows(facts)),
        panels.section(headings.of_roof(facts), rates.source or "modelled", roofs),
        live.drawn(roof),
        method.roofs(facts) if roof else views.no_roofline(facts),
        panels.section(headings.of_ways(facts), None, "the least, what the program asks for, what DRAM saw"),
        traffic.three_ways(facts) + traffic.differences(facts) + method.counted(),
        panels.section(headings.of_map(facts), trace.source, "pick a program; each load and store of it, lane by lane"),
        access_map.as_json(trace) if trace.launches else None,
        panels.section(headings.of_sizes(facts), *_sizes_head(facts)),
        live.drawn(sizes),
        method.sizes(facts) if sizes else NO_SIZES,
        panels.section(
            headings.of_occupancy(facts),
            "compiled" if facts.code else None,
            f"programs that {gpu.one_unit} holds, {gpu.name}",
        ),
        occupancy.limits(facts) + (method.occupied(gpu) if facts.residents else ""),
        "",
        trace,
    ]


def _sizes_head(facts: Facts) -> tuple[Any, str]:
    found = next((r.source for r in facts.recorded if drawn.same_gpu(r.source.device, facts.gpu.name)), None)
    return found or facts.rates.source, f"{facts.gpu.name}; what a cache holds comes faster than memory gives it"


def _trials(
    context: Context, traces: Traces, devices: memory_measure.Devices, session: str, gpu: str, values: tuple[Any, ...]
) -> Iterator[str]:
    """One press of Try them; it takes the place of an earlier one."""
    cancel = context.jobs.start(f"trials {session}")
    yield from context.jobs.newest(f"trials {session}", cancel, _tried(context, traces, devices, gpu, values, cancel))


def _tried(
    context: Context, traces: Traces, devices: memory_measure.Devices, gpu: str, values: tuple[Any, ...],
    cancel: threading.Event,
) -> Iterator[str]:  # fmt: skip
    """The what-if: a cell for each config, as it is compiled."""
    try:
        asked = form.read(context, *values)
        facts = None
        for event in ask_for(context, asked, gpu, traces, devices.host, cancel):
            facts = event if isinstance(event, Facts) else facts
        if facts is None or facts.code is None or not facts.code.launches:
            yield panels.failed(facts.refused if facts and facts.refused else "nothing is launched", nothing_ran=False)
            return
        now = memory_trials.key_of(facts.code.choice.config)
        for progress, trials in memory_trials.try_all(context, facts, cancel):
            left = progress.done < progress.total
            yield occupancy.what_if(trials, now, facts.gpu.one_unit) + (panels.working(progress) if left else "")
    except (InputError, EngineError) as error:
        yield panels.failed(str(error), nothing_ran=False)


def _measure(
    context: Context, devices: memory_measure.Devices, session: str, values: tuple[Any, ...]
) -> Iterator[list[Any]]:
    """This device's copy over sizes and the kernel's, drawn as they come."""
    cancel = context.jobs.start(f"measure {session}")
    chart = None
    try:
        asked = form.read(context, *values)
        yield [chart, panels.working(Progress(what="Waiting for the device"))]
        for now in memory_measure.measure(context, devices, asked, cancel):
            if now.host:
                chart = live.drawn(drawn.here(now.host, list(now.results)))
            yield [chart, panels.working(now.progress) if now.progress else _measured(now)]
    except (InputError, EngineError) as error:
        yield [chart, panels.failed(str(error), nothing_ran=False)]
    finally:
        context.jobs.end(f"measure {session}", cancel)


def _measured(now: memory_measure.Measured) -> str:
    assert now.host is not None
    copy = views.rate_text(now.host.roofs.copy_gbps * 1e9) if now.host.roofs else "not known"
    tag = panels.badge(now.host.roofs.source) if now.host.roofs else ""
    skipped = f" Left out: {now.skipped}." if now.skipped else ""
    put = " Trace puts its rates on the levels."
    return f"<p>{panels.text(now.host.device)}: copy {copy} {tag}{panels.text(skipped + put)}</p>"


TAB = Tab("Memory", 20, build)
