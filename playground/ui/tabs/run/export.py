"""A run as CSV and JSON. Each row of the CSV names its source; measured and recorded rows never share one."""

from __future__ import annotations

import csv
import io
import json

from playground.engine.messages import BenchResult, Message
from playground.ui.answer import Answer
from playground.ui.tabs.run.view import worst_output

COLUMNS = (
    "kernel", "dims", "dtype", "seed", "config", "edge", "bug", "provider", "ok", "ulps", "us_p20", "us_p50", "us_p80",
    "method", "gbps", "tflops", "share_of_peak", "speedup", "source", "device", "date", "versions",
)  # fmt: skip


def as_json(answer: Answer) -> str:
    """Everything that the page knows of this run, in the shapes of the command line's JSON."""
    parts: dict[str, Message | None] = {
        "request": answer.request, "run": answer.run, "bench": answer.timed, "resources": answer.resources,
        "recorded": answer.recorded,
    }  # fmt: skip
    found = {name: json.loads(part.model_dump_json()) for name, part in parts.items() if part is not None}
    return json.dumps(found, indent=2, allow_nan=False) + "\n"


def as_csv(answer: Answer) -> str:
    rows = _verdicts(answer) if answer.run and not answer.timed else []
    rows += [row for bench in (answer.timed, answer.recorded) if bench for row in _times(bench)]
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _verdicts(answer: Answer) -> list[dict[str, object]]:
    """One row for each implementation that was judged and not timed."""
    assert answer.run
    same = _common(answer.run)
    return [
        {**same, "provider": name, "ok": p.ok, "ulps": worst_output(p.outputs)[1].ulps if p.outputs else ""}
        for name, p in answer.run.providers.items()
        if not p.missing
    ]


def _times(bench: BenchResult) -> list[dict[str, object]]:
    rows = []
    for name, p in bench.providers.items():
        if p.missing:
            continue
        row = {**_common(bench), "provider": name, "ok": p.ok, "ulps": _blank(p.ulps), "method": p.method}
        if p.us and p.ok:
            row |= {"us_p20": p.us.p20, "us_p50": p.us.p50, "us_p80": p.us.p80, "gbps": _blank(p.gbps)}
            row |= {"tflops": _blank(p.tflops), "share_of_peak": _blank(p.share_of_peak), "speedup": _blank(p.speedup)}
        rows.append(row)
    return rows


def _blank(value: float | None) -> float | str:
    return "" if value is None else value


def _common(result) -> dict[str, object]:
    choice, source = result.choice, result.source
    return {
        "kernel": choice.kernel, "dims": " ".join(f"{k}={v}" for k, v in choice.dims.items()), "dtype": choice.dtype,
        "seed": choice.seed, "config": choice.config.label, "edge": choice.edge or "", "bug": choice.bug or "",
        "source": source.kind, "device": source.device, "date": source.date,
        "versions": " ".join(f"{k}={v}" for k, v in source.versions.items()),
    }  # fmt: skip
