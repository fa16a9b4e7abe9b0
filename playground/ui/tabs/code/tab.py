"""Code: what the compiler made of the kernel, for any GPU, without one; each line leads back to its Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import gradio as gr

from kernels import InputError, get
from kernels.targets import TARGETS
from playground.engine.code_messages import CodeRequest, CodeResult
from playground.engine.inductor_messages import InductorRequest
from playground.engine.messages import EngineError, Failure, Progress
from playground.ui import bench as form
from playground.ui import live, panels, words
from playground.ui.answer import ask
from playground.ui.bench import Bench
from playground.ui.context import AGAIN, Context
from playground.ui.tabs import Loaded, Tab, chosen, follows, presses
from playground.ui.tabs.code import compare, inductor, method
from playground.ui.tabs.code import view as code_view

GPUS = {
    "sm_75": "T4", "sm_80": "A100", "sm_86": "RTX 3090", "sm_89": "L40S, RTX 4090", "sm_90": "H100, H200",
    "sm_100": "B200", "sm_120": "RTX 5090", "gfx90a": "MI250X", "gfx942": "MI300X", "gfx950": "MI355X",
    "gfx1100": "RX 7900 XTX",
}  # fmt: skip
EMPTY = (
    "Not compiled yet",
    "Press Compile: the kernel, shape, dtype and config above become code for the GPU chosen here, without that GPU.",
)


def build(context: Context, bench: Bench) -> Loaded:
    targets = [(f"{arch} · {GPUS[arch]}", arch) for arch, t in TARGETS.items() if t.kind != "cpu"]
    with gr.Column(elem_classes="answer"):
        banner = live.html(panels.verdict("unknown", *EMPTY), js_on_load="tp.watch(element)", elem_id="code-answer")
    with gr.Column(elem_classes="sheet"):
        with gr.Row(elem_classes="headrow", elem_id="code-form"):
            head = live.html(panels.section("What the compiler made of it"))
            target = gr.Dropdown(targets, value="sm_90", label="target", filterable=False, min_width=190)
            go = gr.Button("Compile", variant="primary", elem_id="compile", min_width=110)
            stop = gr.Button("Stop", elem_id="stop-compile", min_width=90)
        view = gr.HTML(
            None, html_template='<div class="codeview" hidden></div>', js_on_load=live.script("code.js"),
            apply_default_css=False, elem_id="code",
        )  # fmt: skip
    with gr.Column(elem_classes="sheet", visible=False) as looks:
        looks_head = live.html()
        found = live.html()
    comparing = compare.build(context, bench, target, targets)
    with gr.Column(elem_classes="sheet"):
        with gr.Row(elem_classes="headrow"):
            note = "read without a GPU; on one, its header and a few choices may differ"
            live.html(panels.section("What torch.compile writes", "compiled", note))
            this = gr.Button("For this kernel", size="sm", elem_id="inductor-kernel")
            block = gr.Button("For a decoder block", size="sm", elem_id="inductor-block")
        wrote = live.html('<p class="quiet">Inductor\'s own Triton for the same operation, beside ours.</p>')

    outputs = [banner, head, view, looks, looks_head, found, comparing.column]

    def offer(session: gr.Request, arch: str, of: str, config: str, *values: Any) -> list[Any]:
        """Before it compiles: a comparison that is asked for from now on is of the new choice, and stays."""
        gone = compare.put_away(context, session.session_hash or "")
        return [*compare.offered(context, arch, of, config, values), *gone]

    def compile_(session: gr.Request, arch: str, *values: Any) -> Iterator[list[Any]]:
        yield from _compile(context, session.session_hash or "", arch, values)

    def inductor_(session: gr.Request, arch: str, *values: Any) -> Iterator[str]:
        yield from _inductor(context, session.session_hash or "", arch, values, block=False)

    def block_(session: gr.Request, arch: str, *values: Any) -> Iterator[str]:
        yield from _inductor(context, session.session_hash or "", arch, values, block=True)

    this.click(inductor_, [target, *bench.inputs], wrote, **AGAIN)
    block.click(block_, [target, *bench.inputs], wrote, **AGAIN)

    def stopped(session: gr.Request) -> None:
        for what in ("code", "compare", "inductor"):
            context.jobs.stop(f"{what} {session.session_hash or ''}")

    stop.click(stopped, None, None, **form.FAST)
    known = [target, *comparing.choices[:2], *bench.inputs]
    for asked in (
        go.click(offer, known, [*comparing.choices, *comparing.compared], **form.EACH),
        target.input(
            offer, known, [*comparing.choices, *comparing.compared], js=follows(target, "target"), **form.EACH
        ),
    ):
        asked.then(compile_, [target, *bench.inputs], outputs, js=presses("code-answer"), **AGAIN)
    return chosen(target, "target")


def _compile(context: Context, session: str, arch: str, values: tuple[Any, ...]) -> Iterator[list[Any]]:
    """One press of Compile, or one target chosen; it takes the place of an earlier one, which draws no more."""
    cancel = context.jobs.start(f"code {session}")
    yield from context.jobs.newest(f"code {session}", cancel, _compiled(context, cancel, arch, values))


def _compiled(context: Context, cancel: threading.Event, arch: str, values: tuple[Any, ...]) -> Iterator[list[Any]]:
    """The old code stays until the new is there; a refusal takes it away."""
    keep = [gr.skip()] * 5
    try:
        asked = ask(CodeRequest, form.read(context, *values), target=arch)
        yield [panels.busy(Progress(what=f"Compiling {asked.kernel} for {arch}")), *keep, gr.skip()]
        result = _ask(context, asked, cancel)
        yield _drawn(result)
    except (InputError, EngineError) as error:
        hidden = gr.update(visible=False)
        said = panels.failed(str(error), nothing_ran=isinstance(error, InputError))
        yield [said, gr.update(), None, hidden, "", "", hidden]


def _ask(context: Context, request: CodeRequest, cancel: threading.Event) -> CodeResult:
    *_, result = context.engine.stream(request, cancel)
    if not isinstance(result, CodeResult):
        raise EngineError(Failure(kind="failed", message="the compiler gave no code; press Compile again"))
    return result


def _drawn(result: CodeResult) -> list[Any]:
    shown = f"{result.target}, {result.choice.dtype}, {result.choice.config.label}, {words.shape(result.choice.dims)}"
    return [
        code_view.banner(result),
        panels.section("What the compiler made of it", result.source, shown),
        code_view.as_json(result) if result.launches else None,
        gr.update(visible=bool(result.launches)),
        panels.section(code_view.found(result), result.source, "found in the code; each leads to its lines"),
        code_view.findings(result) + method.how(result),
        gr.update(visible=bool(result.launches)),
    ]


def _inductor(context: Context, session: str, arch: str, values: tuple[Any, ...], block: bool) -> Iterator[str]:
    """Inductor's Triton for the kernel's eager function, or for a small decoder block."""
    cancel = context.jobs.start(f"inductor {session}")
    yield from context.jobs.newest(f"inductor {session}", cancel, _written(context, cancel, arch, values, block))


def _written(
    context: Context, cancel: threading.Event, arch: str, values: tuple[Any, ...], block: bool
) -> Iterator[str]:
    try:
        chosen = form.read(context, *values).model_copy(update={"config": None})
        asked = ask(InductorRequest, chosen, target=arch, block=block)
        yield panels.working(Progress(what="Asking torch.compile for its Triton; the first time takes some seconds"))
        *_, result = context.engine.stream(asked, cancel)
        spec = get(chosen.kernel)
        inputs = spec.inputs(chosen.dims, chosen.dtype or spec.dtypes[0], "meta")
        ours = len(spec.plan(inputs, spec.default_config(inputs, TARGETS[arch]), TARGETS[arch]).launches)
        yield inductor.inductor(result, spec.name, ours)
    except (InputError, EngineError) as error:
        yield panels.failed(str(error), nothing_ran=False)


TAB = Tab("Code", 40, build)
