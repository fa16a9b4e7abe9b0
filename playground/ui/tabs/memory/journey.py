"""The journey of a tile as steps on one clock: the traced kernel beside the chain of kernels that eager runs.

Pure: facts in, plain data out for journey.js. The bytes are those of the whole grid; the time of a step is its bytes
at the rate of the level they come from, one step after the other, so a floor for each step and no forecast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from playground.engine.trace_messages import Access, TracedLaunch
from playground.ui import words
from playground.ui.tabs.memory.facts import MATRIX_OPS, Facts, fresh_bytes

MOST_STEPS = 60  # of a lane; a longer chain is cut, and says so


def short(tensor: str) -> str:
    """A pointer argument as people name the tensor: x_ptr is x."""
    return tensor.removesuffix("_ptr")


def lanes(facts: Facts) -> list[dict[str, Any]]:
    """The two lanes: the kernel of the trace, and eager's chain."""
    ours = list(_own_steps(facts))
    chain = list(_chain_steps(facts))
    launches = facts.trace.launches
    programs = sum(launch.programs_total for launch in launches)
    return [
        _lane("Triton", f"{words.count(len(launches), 'kernel')}, {words.count(programs, 'program')}", ours),
        _lane("Eager", words.count(len(facts.trace.chain), "kernel"), chain),
    ]


def _lane(name: str, note: str, steps: list[dict[str, Any]]) -> dict[str, Any]:
    cut = len(steps) - MOST_STEPS
    return {
        "name": name,
        "note": note + (f"; the first {MOST_STEPS} of {len(steps)} steps" if cut > 0 else ""),
        "steps": steps[:MOST_STEPS],
        "total": sum(step["bytes"] for step in steps if step["level"] == "hbm"),
        "floor": sum(step["us"] for step in steps),
    }


def saved(facts: Facts) -> tuple[float, float]:
    """Bytes through memory: the kernel's and the eager chain's."""
    ours, eager = lanes(facts)
    return ours["total"], eager["total"]


def _own_steps(facts: Facts) -> Iterator[dict[str, Any]]:
    heaviest = max(facts.trace.launches, key=lambda launch: sum(a.bytes for a in launch.accesses), default=None)
    for launch in facts.trace.launches:
        first_store = next((i for i, a in enumerate(launch.accesses) if a.kind == "store"), len(launch.accesses))
        held: list[str] = []
        for i, access in enumerate(launch.accesses):
            if i == first_store and launch is heaviest:
                yield _arithmetic(facts, launch.kernel, held)
            if access.kind == "load" and short(access.tensor) not in held:
                held.append(short(access.tensor))
            yield from _access(facts, launch, access, ", ".join(held))


def _access(facts: Facts, launch: TracedLaunch, access: Access, held: str) -> Iterator[dict[str, Any]]:
    """One line's traffic: what memory must give or take, and what the caches give again."""
    tensor = next(t for t in launch.tensors if t.name == access.tensor)
    asked = tensor.bytes_loaded if access.kind == "load" else tensor.bytes_stored
    fresh = fresh_bytes(launch, tensor, access.kind) * access.bytes / asked if asked else 0.0
    common = {
        "kernel": launch.kernel, "verb": access.kind, "tensor": short(access.tensor), "held": held,
        "line": access.line, "code": access.code,
    }  # fmt: skip
    yield common | {"bytes": fresh, "level": "hbm", "us": _us(fresh, facts.rates.memory)}
    again = access.bytes - fresh
    if again > 0.01 * access.bytes:
        rate = facts.rates.l2 or facts.rates.memory
        yield common | {"bytes": again, "level": "l2", "us": _us(again, rate), "again": True}


def _arithmetic(facts: Facts, kernel: str, held: list[str]) -> dict[str, Any]:
    return {
        "kernel": kernel, "verb": "compute", "tensor": "", "held": ", ".join(held), "bytes": 0, "level": "registers",
        "us": _us(facts.trace.flops, facts.arithmetic), "flops": facts.trace.flops,
    }  # fmt: skip


def _chain_steps(facts: Facts) -> Iterator[dict[str, Any]]:
    products = [step for step in facts.trace.chain if step.kernel.startswith(MATRIX_OPS)]
    for step in facts.trace.chain:
        held: list[str] = []
        for name, size in step.reads:
            held.append(name)
            yield _through_memory(facts, step.kernel, "load", name, size, ", ".join(held))
        if step in products:
            own = {**_arithmetic(facts, step.kernel, held), "flops": facts.trace.flops / len(products)}
            yield own | {"us": own["us"] / len(products)}
        for name, size in step.writes:
            yield _through_memory(facts, step.kernel, "store", name, size, ", ".join(held))


def _through_memory(facts: Facts, kernel: str, verb: str, tensor: str, size: int, held: str) -> dict[str, Any]:
    return {
        "kernel": kernel, "verb": verb, "tensor": tensor, "held": held, "bytes": size, "level": "hbm",
        "us": _us(size, facts.rates.memory),
    }  # fmt: skip


def _us(amount: float, rate: float) -> float:
    return amount / rate * 1e6 if rate and math.isfinite(rate) else 0.0
