"""The Run tab's editor: the kernel's own file, changed by a person and judged against the same reference.

A text lasts as long as the page is open. It changes no file, and Run goes on running the kernel as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from kernels import InputError, get
from playground.engine import edits
from playground.engine.messages import Request
from playground.ui import live, panels
from playground.ui.bench import FAST, Bench
from playground.ui.context import Context

NOTE = "change the kernel's text: the edit is judged against the same reference, and timed where it is right"


@dataclass(frozen=True)
class Texts:
    """What was typed, by kernel; `kernel` is the one in the editor, "" while it is closed."""

    kernel: str = ""
    typed: tuple[tuple[str, str], ...] = ()

    def turned(self, kernel: str, text: str) -> tuple[Texts, str]:
        """Another kernel in the editor: what was typed for the one before is kept, and for this one is back."""
        typed = dict(self.typed) | ({self.kernel: text} if self.kernel else {})
        return Texts(kernel, tuple(typed.items())), typed.get(kernel) or source(kernel)


@dataclass(frozen=True)
class Sheet:
    editor: gr.Textbox
    run: gr.Button


def build(context: Context, bench: Bench) -> Sheet:
    """Lay out the sheet; it is left out where kernels may not be edited."""
    with gr.Column(elem_classes="sheet", elem_id="edit", visible=context.settings.edits):
        with gr.Row(elem_classes="headrow"):
            live.html(panels.section("Edit it", None, NOTE))
            with gr.Row(elem_classes="exports"):
                begin = gr.Button("Edit the kernel", size="sm", elem_id="edit-open")
                again = gr.Button("Start over", size="sm", visible=False, elem_id="edit-again")
                run = gr.Button("Run the edit", size="sm", variant="primary", visible=False, elem_id="edit-run")
        editor = gr.Textbox(
            "", label="the kernel's file; nothing of it is kept", lines=22, max_lines=22, visible=False,
            autoscroll=False, elem_id="edit-text",
        )  # fmt: skip
    texts = gr.State(Texts())

    def opened(kernel: str, now: Texts, text: str) -> list[Any]:
        now, text = now.turned(kernel, text)
        shown = gr.update(visible=True)
        return [now, gr.update(value=text, visible=True), gr.update(visible=False), shown, shown]

    def turned(kernel: str, now: Texts, text: str) -> list[Any]:
        return list(now.turned(kernel, text)) if now.kernel else [gr.skip(), gr.skip()]

    begin.click(opened, [bench.kernel, texts, editor], [texts, editor, begin, again, run], **FAST)
    bench.kernel.change(turned, [bench.kernel, texts, editor], [texts, editor], **FAST)
    again.click(source, bench.kernel, editor, **FAST)
    return Sheet(editor, run)


def source(kernel: str) -> str:
    return edits.source_of(get(kernel))


def with_edit(asked: Request, text: str) -> Request:
    """The same choice of the edited kernel. Raises InputError where nothing was changed."""
    if text.strip() == source(asked.kernel).strip():
        raise InputError("the kernel's text is as it was; change a line of it, then Run the edit", "source")
    return asked.model_copy(update={"source": text})
