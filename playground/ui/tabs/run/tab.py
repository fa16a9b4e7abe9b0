"""Run & compare: is the answer right, how fast is it beside PyTorch, and why. The answer comes piece by piece."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import gradio as gr

from kernels import InputError, get
from playground.engine.messages import EngineError, Failure, Progress, Request
from playground.ui import bench as form
from playground.ui import live, panels
from playground.ui.answer import Answer, answers
from playground.ui.bench import Bench
from playground.ui.cases import Kept
from playground.ui.context import AGAIN, PRIVATE, Context
from playground.ui.tabs import Loaded, Tab, presses
from playground.ui.tabs.run import edit_sheet, sweep_sheet, view, visit_sheet
from playground.ui.tabs.run.sheet import Parts, draw, what_run_brings
from playground.ui.tabs.run.visit import Visit

BETWEEN = 0.12  # seconds between two pictures of the same progress
TO_RUN = "(...values) => { tp.tab('Run'); return values; }"
ASKS = presses("answer")


def build(context: Context, bench: Bench) -> Loaded:
    """Lay out the tab and wire it to the bench."""
    parts = Parts(context, bench)
    with gr.Column(elem_classes="sheet"):
        live.html(
            panels.section(
                "Break it", None, "Each sets the shape and dtype where it bites, and runs; dashed ones plant a bug."
            )
        )
        chips = live.html("", js_on_load=live.script("chips.js"), elem_id="chips")
    edit = edit_sheet.build(context, bench)
    sweep = sweep_sheet.build(context, bench)
    visits = visit_sheet.build(context, bench, parts)
    _wire(context, bench, parts, chips, edit, visits)

    def fill(request: Request, problem: str, params: Mapping[str, str]) -> list[Any]:
        first = panels.failed(problem) if problem else view.empty(what_run_brings(context.known_host))
        return [first, chips_of(request)]

    def swept(*values: Any) -> list[Any]:
        return sweep_sheet.at_rest(context, form.lenient(context, *values))

    kernel_or_dtype = [bench.kernel.change, bench.dtype.change]
    gr.on(kernel_or_dtype, swept, bench.inputs, sweep.rest, concurrency_limit=16, **PRIVATE)
    return Loaded([parts.banner, chips], fill, sweep.rest, swept)


def chips_of(request: Request) -> str:
    spec = get(request.kernel)
    cases = [("edge", e.name, e.attacks) for e in spec.edges] + [("bug", b.name, b.symptom) for b in spec.bugs]
    return panels.chips(cases, request.edge or request.bug or "")


def _wire(
    context: Context, bench: Bench, parts: Parts, chips: Any, edit: edit_sheet.Sheet, visits: visit_sheet.Sheet
) -> None:
    outputs = [*parts.outputs, *visits.outputs]

    def run(request: gr.Request, visit: Visit, *values: Any) -> Iterator[list[Any]]:
        yield from _run(context, request.session_hash or "", visit, values)

    def run_edit(request: gr.Request, text: str, visit: Visit, *values: Any) -> Iterator[list[Any]]:
        yield from _run(context, request.session_hash or "", visit, values, text)

    def pick(event: gr.EventData, kept: Kept | None, *values: Any) -> list[Any]:
        """The case of a chip; the one that is in force is put away by its own."""
        case = f"{event.kind}:{event.name}"
        case = form.NO_CASE if case == values[-3] else case
        return form.with_case(context, kept, *values[:-3], case, *values[-2:])

    def mend(event: gr.EventData, *values: Any) -> list[Any]:
        names = [d.name for d in get(values[0]).dims]
        sizes = [event.size if i < len(names) and names[i] == event.dim else v for i, v in enumerate(values[1:-5])]
        return form.fill(context, form.lenient(context, values[0], *sizes, *values[-5:]))

    def stop(request: gr.Request) -> None:
        for what in ("run", "sizes"):
            context.jobs.stop(f"{what} {request.session_hash or ''}")

    def offered(*values: Any) -> str:
        return chips_of(form.lenient(context, *values))

    given = [visits.visit, *bench.inputs]
    bench.run.click(run, given, outputs, js=presses("answer", TO_RUN), **AGAIN)
    for event in (
        chips.pick(pick, [bench.kept, *bench.inputs], bench.shown, **form.FILLS),
        parts.banner.mend(mend, bench.inputs, bench.shown, **form.FILLS),
    ):
        form.until_filled(event).success(run, given, outputs, js=ASKS, **AGAIN)
    edit.run.click(run_edit, [edit.editor, *given], outputs, js=ASKS, **AGAIN)
    bench.stop.click(stop, None, None, **form.FAST)
    gr.on([bench.kernel.change, bench.case.change], offered, bench.inputs, chips, **form.FAST)


def _run(
    context: Context, session: str, visit: Visit, values: tuple[Any, ...], edit: str | None = None
) -> Iterator[list[Any]]:
    """One press of Run. Whatever happens, it ends with Run to press again; unless a newer press has its place."""
    cancel = context.jobs.start(f"run {session}")
    yield from context.jobs.newest(f"run {session}", cancel, _drawn(context, session, cancel, visit, values, edit))


def _drawn(
    context: Context, session: str, cancel: threading.Event, visit: Visit, values: tuple[Any, ...], edit: str | None
) -> Iterator[list[Any]]:
    host = context.known_host

    def shows(answer: Answer, now: Visit) -> list[Any]:
        return [*draw(answer, host, context.jobs.running(f"sizes {session}")), *visit_sheet.shows(now)]

    try:
        asked = form.read(context, *values)
        asked = asked if edit is None else edit_sheet.with_edit(asked, edit)
        context.jobs.stop(f"sizes {session}")
        answer = Answer(asked, Progress(what="Starting the worker"))
        yield shows(answer, visit)
        host = context.host()
        drawn_at = 0.0
        for new in answers(context.engine, asked, host, cancel):
            counted = _only_counted(answer, new)
            answer = new
            if counted and time.monotonic() - drawn_at < BETWEEN:
                continue
            drawn_at = time.monotonic()
            visit = visit.added(new) if new.run and not new.progress else visit
            yield shows(new, visit)
    except InputError as error:
        cancel.set()  # what is refused works no more, and a sweep that ends now has its buttons back
        failure = Failure(kind="input", message=str(error), argument=error.argument)
        yield shows(Answer(form.lenient(context, *values), failure=failure), visit)
    except EngineError as error:
        yield shows(Answer(asked, failure=error.failure), visit)


def _only_counted(old: Answer, new: Answer) -> bool:
    """Whether the new answer only says that the same work has come further, which the next one will say again."""
    if old.progress is None or new.progress is None:
        return False
    same = (old.progress.what, old.progress.place) == (new.progress.what, new.progress.place)
    return same and replace(old, progress=None) == replace(new, progress=None)


TAB = Tab("Run", 10, build)
