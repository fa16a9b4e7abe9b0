"""The Code tab's comparison: the choice above beside another target, dtype or config, or beside an edit of its kernel.

An edit is compiled here and never run, which is for the Run tab, and changes nothing: it lasts until another kernel
is compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kernels import InputError, get
from kernels.targets import TARGETS
from playground.engine import edits
from playground.engine.code_messages import STAGES, CodeRequest, CodeResult
from playground.engine.messages import EngineError, Progress
from playground.ui import bench as form
from playground.ui import live, panels
from playground.ui.answer import ask
from playground.ui.bench import EACH, Bench
from playground.ui.context import AGAIN, Context
from playground.ui.tabs.code import view

SAME = "the same"
EDITED = "edited below"
PYTHON = "PYTHON"  # a stage here alone: the kernel's source itself


@dataclass(frozen=True)
class Sheet:
    """A compilation of the tab shows `column` where there is code, and puts away what is `compared` as it is asked for.
    `choices` are a visitor's own, of the kernel named first in them.

    No compilation sets a choice: as it ends it would set back one that was made since it began.
    """

    column: Any
    compared: list[Any]
    choices: list[Any]


def build(context: Context, bench: Bench, target: gr.Dropdown, targets: list[tuple[str, str]]) -> Sheet:
    """Lay out the sheet and wire it; `target` is the tab's own."""
    with gr.Column(elem_classes="sheet", visible=False, elem_id="code-compare") as column:
        note = "the choice above beside another target, dtype or config, or beside an edit"
        live.html(panels.section("Compare", None, note))
        with gr.Row(elem_classes="headrow"):
            other_target = gr.Dropdown([(SAME, SAME), *targets], value=SAME, label="target", filterable=False)
            dtype = gr.Dropdown([SAME], value=SAME, label="dtype", filterable=False)
            config = gr.Dropdown([SAME], value=SAME, label="config", filterable=False)
            kernel = gr.Dropdown([SAME], value=SAME, label="kernel's text", filterable=False, elem_id="compare-kernel")
            stages = [PYTHON, *(s.upper() for s in STAGES)]
            stage = gr.Dropdown(stages, value="PTX", label="stage", filterable=False, elem_id="compare-stage")
            go = gr.Button("Compare", min_width=110, elem_id="compare")
        editor = gr.Textbox(
            "", label="the kernel's file; only its code is compiled, and nothing is run or kept", lines=16,
            max_lines=16, visible=False, autoscroll=False, elem_id="compare-editor",
        )  # fmt: skip
        compared = live.html(elem_id="compared")
    shown = gr.State(False)  # whether there is a comparison, which another stage then redraws

    def compare(session: gr.Request, arch: str, *values: Any) -> Iterator[list[Any]]:
        yield from _compare(context, session.session_hash or "", arch, values)

    def again(session: gr.Request, there: bool, arch: str, *values: Any) -> Iterator[list[Any]]:
        yield [gr.skip()] * 2  # a generator that draws nothing would empty them
        if there:
            yield from _compare(context, session.session_hash or "", arch, values)

    choices = [target, other_target, dtype, config, kernel, editor, stage, *bench.inputs]
    go.click(compare, choices, [compared, shown], **AGAIN)
    stage.input(again, [shown, *choices], [compared, shown], **AGAIN)
    kernel.input(_edit, [kernel, editor, bench.kernel], [editor, stage], **EACH)
    return Sheet(column, [compared, shown], [gr.State(""), config, dtype, kernel, editor])


def offered(context: Context, arch: str, of: str, chosen: str, values: tuple[Any, ...]) -> list[Any]:
    """Updates of `Sheet.choices` before a compilation; `of` and `chosen` are the first two of them as they are.

    A choice stays as long as it can: an edit and its like until another kernel is compiled.
    """
    try:
        asked = form.read(context, *values)
    except InputError:  # which the compilation says
        return [gr.skip()] * 5
    spec = get(asked.kernel)
    configs = [(SAME, SAME), *form.configs(spec, asked, TARGETS[arch])[1:]]
    kept = chosen if of == spec.name and chosen in dict(configs).values() else SAME
    config = gr.update(choices=configs, value=kept)
    if of == spec.name:
        return [of, config, gr.skip(), gr.skip(), gr.skip()]
    bugs = [(f"bug: {bug.name}", bug.name) for bug in spec.bugs]
    return [
        spec.name,
        config,
        gr.update(choices=[SAME, *spec.dtypes], value=SAME),
        gr.update(choices=[(SAME, SAME), (EDITED, EDITED), *bugs], value=SAME),
        gr.update(value="", visible=False),
    ]


def put_away(context: Context, session: str) -> list[Any]:
    """Updates of `Sheet.compared` without a comparison; one that works draws no more."""
    context.jobs.give_up(f"compare {session}")
    return ["", False]


def _edit(choice: str, text: str, kernel: str) -> list[Any]:
    """The editor, opened with the kernel's own source; what was typed stays."""
    if choice != EDITED:
        return [gr.update(visible=False), gr.update()]
    return [gr.update(visible=True, value=text or edits.source_of(get(kernel))), gr.update(value=PYTHON)]


def _compare(context: Context, session: str, arch: str, values: tuple[Any, ...]) -> Iterator[list[Any]]:
    """One press of Compare, or another stage; it takes the place of an earlier one, which draws no more."""
    cancel = context.jobs.start(f"compare {session}")
    yield from context.jobs.newest(f"compare {session}", cancel, _compared(context, cancel, arch, values))


def _compared(context: Context, cancel: threading.Event, arch: str, values: tuple[Any, ...]) -> Iterator[list[Any]]:
    """Both sides compiled, their resources in a table and one stage as a diff."""
    try:
        *others, stage = values[:6]
        before = ask(CodeRequest, form.read(context, *values[6:]), target=arch)
        after = _changed(before, *others)
        if after == before:
            said = "both sides are the same; choose another target, dtype or config, or edit the kernel"
            yield [panels.failed(said, nothing_ran=False), False]
            return
        yield [panels.working(Progress(what="Compiling both")), True]
        one, two = (_code(context, request, cancel) for request in (before, after))
        names = names_of(one, two, str(others[3]))
        yield [view.resources_table(one, two, names) + view.diff(one, two, stage.lower()), True]
    except (InputError, EngineError) as error:
        yield [panels.failed(str(error), nothing_ran=False), False]


def _changed(asked: CodeRequest, target: str, dtype: str, config: str, kernel: str, text: str) -> CodeRequest:
    """The other side. Raises InputError for a config that is none."""
    changes: dict[str, Any] = {}
    if target != SAME:
        changes["target"] = target
    if dtype != SAME:
        changes["dtype"] = dtype
    if config != SAME:
        changes["config"] = form.links.config_from(config)
    if kernel == EDITED and text.strip() != edits.source_of(get(asked.kernel)).strip():
        changes["source"] = text
    elif kernel not in (SAME, EDITED):
        # A bug stands where nothing was chosen, and brings its own shape; the shape above is kept for both sides.
        changes["bug"] = kernel
    return asked.model_copy(update=changes)


def _code(context: Context, request: CodeRequest, cancel: Any) -> CodeResult:
    *_, result = context.engine.stream(request, cancel)
    return result


def names_of(before: CodeResult, after: CodeResult, kernel: str = SAME) -> tuple[str, str]:
    """What tells the two apart, for the heads of the table."""

    def parts(result: CodeResult) -> list[str]:
        return [result.target, result.choice.dtype, result.choice.config.label]

    pairs = [(a, b) for a, b in zip(parts(before), parts(after), strict=True) if a != b]
    if kernel != SAME:
        pairs.append(("as it is", "edited" if kernel == EDITED else f"bug: {kernel}"))
    return ", ".join(a for a, _ in pairs) or "before", ", ".join(b for _, b in pairs) or "after"
