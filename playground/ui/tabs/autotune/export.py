"""A sweep to take along: configs to paste, CSV and JSON. Pure: results in, text out."""

from __future__ import annotations

import csv
import io
import json

from playground.engine.sweep_messages import SweepResult
from playground.ui import words
from playground.ui.tabs.autotune.view import STAGES, WARPS, order


def triton_configs(result: SweepResult) -> str:
    """The right configs as a list to paste under @triton.autotune, the fastest first."""
    good = sorted(
        (c for c in result.configs if c.ok or (c.ok is None and c.tried and not c.failure and not c.refusal)),
        key=order,
    )
    lines = "".join(
        f"    triton.Config({dict(c.meta)!r}, num_warps={c.num_warps}, num_stages={c.num_stages}),\n"
        for c in (found.config for found in good)
    )
    return f"configs = [\n{lines}]\n"


def as_csv(result: SweepResult) -> str:
    columns = ("config", WARPS, STAGES, "ok", "us_p20", "us_p50", "us_p80", "method", "recorded_us", "registers",
               "spills", "shared_bytes", "occupancy", "first_seconds", "reason", "source", "device",
               "recorded_on", "compiled_for")  # fmt: skip
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for c in result.configs:
        timed = {"us_p20": c.us.p20, "us_p50": c.us.p50, "us_p80": c.us.p80, "method": c.method} if c.us else {}
        row = {
            "config": " ".join(f"{k}={v}" for k, v in c.config.meta.items()), WARPS: c.config.num_warps,
            STAGES: c.config.num_stages, "ok": c.ok, **timed,
            "recorded_us": c.recorded_us.p50 if c.recorded_us else None, "registers": c.registers,
            "spills": c.spills, "shared_bytes": c.shared_bytes, "occupancy": c.occupancy,
            "first_seconds": c.first_seconds or None, "reason": c.failure or c.refusal,
            "source": result.source.kind if result.source and c.us else None,
            "device": result.source.device if result.source and c.us else None,
            "recorded_on": words.place(result.recorded) if result.recorded and c.recorded_us else None,
            "compiled_for": result.target,
        }  # fmt: skip
        writer.writerow({k: "" if v is None else v for k, v in row.items()})
    return out.getvalue()


def as_json(result: SweepResult) -> str:
    return json.dumps(json.loads(result.model_dump_json()), indent=2, allow_nan=False) + "\n"
