"""A trace to take along: every access as CSV, or the whole of it as JSON."""

from __future__ import annotations

import csv
import io

import gradio as gr

from playground.engine.trace_messages import Access, TraceResult
from playground.ui.bench import FAST

SAVE = "file => { tp.save(file); }"
COLUMNS = tuple(name for name in Access.model_fields if name != "code")


def build(trace: gr.State) -> None:
    """Two buttons and what they save, from the trace that the state holds."""
    with gr.Row(elem_classes="exports"):
        for name, kind, write in (("CSV", "csv", as_csv), ("JSON", "json", as_json)):
            file = gr.JSON(visible=False)
            button = gr.Button(name, size="sm", elem_id=f"trace-{kind}")
            made = button.click(lambda t, kind=kind, write=write: saved(t, kind, write(t)) if t else None,
                                trace, file, **FAST)  # fmt: skip
            made.then(None, file, None, js=SAVE, api_visibility="private")


def saved(trace: TraceResult, kind: str, text: str) -> dict[str, str]:
    mime = {"csv": "text/csv", "json": "application/json"}[kind]
    return {"name": f"{trace.choice.kernel}_trace.{kind}", "text": text, "kind": mime}


def as_csv(trace: TraceResult) -> str:
    """A row for each line of each launch that loads or stores, with the shape it was traced at and its source."""
    dims = " ".join(f"{name}={size}" for name, size in trace.choice.dims.items())
    beside = {"dims": dims, "dtype": trace.choice.dtype, "config": trace.choice.config.label, "exact": trace.exact,
              "source": trace.source.kind, "device": trace.source.device}  # fmt: skip
    out = io.StringIO()
    writer = csv.DictWriter(out, ("kernel", *COLUMNS, "code", *beside), lineterminator="\n")
    writer.writeheader()
    for launch in trace.launches:
        for access in launch.accesses:
            writer.writerow({"kernel": launch.kernel, **access.model_dump(), **beside})
    return out.getvalue()


def as_json(trace: TraceResult) -> str:
    return trace.model_dump_json(indent=2) + "\n"
