"""The access map's data: for each launch its programs, and for each program its accesses as runs of elements. Pure."""

from __future__ import annotations

import json
from typing import Any

from playground.engine.trace_messages import ProgramAccess, TracedLaunch, TraceResult
from playground.ui import words
from playground.ui.tabs.memory.facts import fresh_bytes
from playground.ui.tabs.memory.journey import short
from playground.ui.tabs.memory.text import bytes_text, times_text


def as_json(trace: TraceResult) -> str:
    """What access.js draws."""
    return json.dumps({"launches": [_launch(launch, trace) for launch in trace.launches]}, separators=(",", ":"))


def _launch(launch: TracedLaunch, trace: TraceResult) -> dict[str, Any]:
    sizes = {t.name: (t.bytes_total // t.itemsize, t.itemsize) for t in launch.tensors}
    return {
        "kernel": launch.kernel,
        "grid": launch.grid,
        "total": launch.programs_total,
        "code": {a.line: a.code for a in launch.accesses},
        "misses": [
            {
                "line": m.line, "tensor": m.tensor, "index": m.index, "lane": m.lane,
                "program": _linear(m.program, launch),
            }
            for m in trace.out_of_bounds
            if any(m.line == a.line for a in launch.accesses)
        ],
        "sites": [
            {
                "kind": a.kind, "line": a.line, "tensor": a.tensor, "name": short(a.tensor), "calls": a.calls,
                "efficiency": a.efficiency, "masked": 1 - a.active / a.lanes if a.lanes else 0,
                "bytes": bytes_text(a.bytes), "size": sizes[a.tensor][0], "itemsize": sizes[a.tensor][1],
                "again": _again(launch, a.tensor, a.kind),
            }
            for a in launch.accesses
        ],
        "programs": [
            {"id": program, "at": _index(program, launch.grid), "accesses": [_access(a) for a in accesses]}
            for program, accesses in sorted(launch.programs.items())
        ],
    }  # fmt: skip


def _again(launch: TracedLaunch, name: str, kind: str) -> str:
    """How often each byte is asked for over the whole grid, in words."""
    tensor = next(t for t in launch.tensors if t.name == name)
    asked = tensor.bytes_loaded if kind == "load" else tensor.bytes_stored
    fresh = fresh_bytes(launch, tensor, kind)
    times = asked / fresh if fresh else 1.0
    return "each byte once" if times < 1.02 else f"each byte {times_text(times)} times"


def _access(access: ProgramAccess) -> dict[str, Any]:
    return {
        "line": access.line, "tensor": access.tensor, "kind": access.kind, "lanes": access.lanes,
        "active": access.active, "runs": access.runs,
        "samples": [[lane, index, words.number(value)] for lane, index, value in access.samples],
    }  # fmt: skip


def _index(linear: int, grid: tuple[int, ...]) -> list[int]:
    found = []
    for size in grid:
        found.append(linear % size)
        linear //= size
    return found


def _linear(program: tuple[int, ...], launch: TracedLaunch) -> int:
    x, y = (*launch.grid, 1, 1)[:2]
    return program[0] + x * (program[1] if len(program) > 1 else 0) + x * y * (program[2] if len(program) > 2 else 0)
