"""The whole page: header, bench, tabs, and what opening it fills. Build it once; `server.launch` serves it."""

from __future__ import annotations

from typing import Any

import gradio as gr

from kernels import get
from playground.engine.messages import EngineError, HostResult
from playground.ui import bench as form
from playground.ui import live, panels
from playground.ui.api import endpoints
from playground.ui.closed import Closed
from playground.ui.context import LONG, PRIVATE, Context
from playground.ui.links import first_choice, restore
from playground.ui.tabs import all_tabs

FIRST = "add_rms_norm"  # the kernel of a first visit


def build(context: Context) -> gr.Blocks:
    """The page as Gradio Blocks; document.py completes its HTML."""
    start = first_choice(get(FIRST if FIRST in context.specs else next(iter(context.specs))))
    closed, calls = Closed(), Closed()
    with gr.Blocks(
        title="Triton Playground", fill_width=True, analytics_enabled=False, delete_cache=(3600, 3600)
    ) as demo:
        top = live.html(panels.header(None, ""), elem_id="top")
        bench = form.build(context, start)
        form.wire(bench, context)
        outputs, fills, later = [top, *bench.shown], [], []
        with gr.Tabs(elem_id="tabs"):
            for tab in all_tabs():
                with gr.Tab(tab.name, id=tab.name) as made:
                    loaded = tab.build(context, bench)
                made.select(None, js="() => tp.selected()", api_visibility="private")
                outputs += loaded.outputs
                fills.append(loaded.fill)
                later += [loaded] if loaded.later else []

        def opened(request: gr.Request) -> list[Any]:
            """What the link asks for; the worker may still be starting."""
            first = first_choice(get(start.kernel), context.gpu)
            params = dict(request.query_params)
            link = restore(params, first, context.gpu)
            parts = [value for fill in fills for value in fill(link.request, link.problem, params)]
            known = context.known_host
            bar = panels.header(known, mode(known) if known else "")
            return [bar, *form.fill(context, link.request), *parts]

        def called(session: str) -> None:
            calls.add(demo.state_holder, session)

        def left(request: gr.Request) -> None:
            """The browser has gone: what it waited for need not be finished."""
            context.jobs.stop_visit(request.session_hash or "")
            closed.add(demo.state_holder, request.session_hash or "")

        filled = demo.load(opened, None, outputs, queue=False, js="() => { tp.start(); return []; }", **PRIVATE)
        filled.then(None, js="() => tp.opened()", api_visibility="private")
        for loaded in later:
            filled.then(loaded.later, bench.inputs, loaded.later_outputs, **LONG)
        demo.load(lambda: _header(context), None, top, **LONG)
        demo.unload(left)
        endpoints.add(context, called)
    return demo


def _header(context: Context) -> str:
    try:
        host = context.host()
    except EngineError as error:
        return panels.header(None, f"No kernel worker: {error}")
    return panels.header(host, mode(host))


def mode(host: HostResult) -> str:
    """How kernels run on this host, in a few words."""
    if host.kind == "gpu":
        return "Running and timing on this GPU"
    if host.kind == "interpreter":
        return "Interpreting here; times are recorded on a GPU"
    return "Native on this CPU; GPU figures are recorded"
