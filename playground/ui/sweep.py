"""A sweep over sizes: which sizes, one quick benchmark for each, and what is kept when it is stopped.

It asks the engine and knows no Gradio. Recorded sweeps are read here too; they are never joined with measured points.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernels import KernelSpec
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    HostResult,
    Progress,
    Request,
)
from playground.ui.answer import Engine, ask

# The largest size of a sweep: bytes moved, FLOPs, and how many sizes. A CPU has to answer within a minute.
CPU_LIMITS = (2**28, 1e10, 8)
GPU_LIMITS = (2**31, 2e13, 14)
SMALLEST_BYTES = 2**13


@dataclass(frozen=True)
class Sweep:
    """A sweep over sizes: what is measured so far, and what is still to come."""

    request: Request
    sizes: tuple[int, ...]
    points: tuple[BenchResult, ...] = ()
    progress: Progress | None = None
    notes: tuple[str, ...] = ()


def sweeps(
    engine: Engine, request: Request, dim: str, sizes: tuple[int, ...], cancel: threading.Event
) -> Iterator[Sweep]:
    """One benchmark for each size. A size that fails is a note; Stop keeps what there is."""
    now = Sweep(request, sizes, progress=Progress(what="Starting the sweep", total=len(sizes), unit="sizes"))
    yield now
    for done, size in enumerate(sizes):
        own = request.model_copy(update={"dims": {**request.dims, dim: size}, "config": None})
        step = Progress(what=f"Timing {dim}={size}", done=done, total=len(sizes), unit="sizes")
        yield (now := replace(now, progress=step))
        try:
            for event in engine.stream(ask(BenchRequest, own, quick=True), cancel):
                if isinstance(event, Progress):
                    yield replace(now, progress=event if event.place else step)
                elif event.source.kind == "recorded":
                    yield replace(now, progress=None, notes=(event.note or "This host cannot time kernels.",))
                    return
                else:
                    now = replace(now, points=(*now.points, event))
        except EngineError as error:
            if error.failure.kind == "cancelled":
                kept = f"Stopped after {done} of {len(sizes)} sizes. What was measured stays."
                yield replace(now, progress=None, notes=(*now.notes, kept))
                return
            now = replace(now, notes=(*now.notes, f"{dim}={size}: {error.failure.message}"))
            if error.failure.kind in ("unavailable", "input"):
                break
    yield replace(now, progress=None)


def sizes(spec: KernelSpec, request: Request, host: HostResult) -> tuple[int, ...]:
    """Powers of two for the dim that the spec sweeps, from a few KB to what this host moves in bearable time."""
    most_bytes, most_flops, most = GPU_LIMITS if host.kind == "gpu" else CPU_LIMITS
    dim = next(d for d in spec.dims if d.name == spec.sweep_dim)
    fitting: list[int] = []
    for power in range(max(0, (dim.low - 1).bit_length()), dim.high.bit_length()):
        size = 2**power
        cost = spec.cost(spec.inputs({**request.dims, dim.name: size}, request.dtype or spec.dtypes[0], "meta"))
        if cost.bytes_moved > most_bytes or cost.flops > most_flops:
            break
        if cost.bytes_moved >= SMALLEST_BYTES:
            fitting.append(size)
    return tuple(thinned(fitting or [max(1, dim.low)], most))


def thinned(values: Sequence[int], most: int) -> list[int]:
    """At most so many of the values, evenly spread, the last one included."""
    step = -(-len(values) // most)
    return list(values[::-1][::step][::-1])


def recorded(engine: Engine, spec: KernelSpec, request: Request) -> list[BenchResult]:
    """The recordings that differ from each other in the swept dim alone, nearest to the request's shape."""
    found = engine.recorded(ask(BenchRequest, request, config=None, edge=None, bug=None))
    groups: dict[tuple[object, ...], list[BenchResult]] = {}
    for result in found:
        others = tuple((n, v) for n, v in sorted(result.choice.dims.items()) if n != spec.sweep_dim)
        groups.setdefault((result.source.device, others), []).append(result)
    wanted = [g for g in groups.values() if len(g) > 2]
    best = max(wanted, key=lambda g: (_same(g[0], request, spec), len(g)), default=[])
    return sorted(
        {r.choice.dims[spec.sweep_dim]: r for r in best}.values(), key=lambda r: r.choice.dims[spec.sweep_dim]
    )


def _same(result: BenchResult, request: Request, spec: KernelSpec) -> bool:
    return all(result.choice.dims[n] == request.dims.get(n) for n in result.choice.dims if n != spec.sweep_dim)
