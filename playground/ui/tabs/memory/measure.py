"""This device measured for the Memory tab: its roofs, a copy over sizes, and the kernel over sizes with its verdicts.

This asks the engine and knows no Gradio.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernels import KernelSpec, get
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    Failure,
    HostRequest,
    HostResult,
    Progress,
    Request,
)
from playground.ui.answer import ask
from playground.ui.context import Context

SMALLEST, LARGEST = 2**14, {"gpu": 2**32, "cpu": 2**26, "interpreter": 2**14}  # bytes moved
SIZES = 7


@dataclass(frozen=True)
class Measured:
    """What is known so far. host is None until the device has been measured; skipped: sizes without a time."""

    progress: Progress | None
    host: HostResult | None = None
    results: tuple[BenchResult, ...] = ()
    skipped: str = ""


class Devices:
    """This device's figures, measured once in the life of the page. Safe to use from any thread."""

    def __init__(self) -> None:
        self._host: HostResult | None = None
        self._lock = threading.Lock()

    @property
    def host(self) -> HostResult | None:
        with self._lock:
            return self._host

    def keep(self, host: HostResult) -> None:
        with self._lock:
            self._host = host


def measure(context: Context, devices: Devices, request: Request, cancel: threading.Event) -> Iterator[Measured]:
    """The device first, then the kernel size by size. Raises EngineError."""
    host = devices.host
    if host is None:
        for event in context.engine.stream(HostRequest(roofs=True, curve=True), cancel):
            if isinstance(event, Progress):
                yield Measured(event)
            elif isinstance(event, HostResult):
                host = event
                devices.keep(event)
    if host is None:
        raise EngineError(Failure(kind="failed", message="the device gave no figures; press Measure again"))
    now = Measured(Progress(what="Timing the kernel"), host)
    yield now
    spec = get(request.kernel)
    wanted = shapes(spec, request, LARGEST.get(host.kind, 2**26))
    for done, dims in enumerate(wanted):
        what = f"Timing {', '.join(f'{name}={size:,}' for name, size in dims.items())}"
        now = replace(now, progress=Progress(what=what, done=done, total=len(wanted), unit="sizes"))
        yield now
        now = _timed(context, now, request, dims, cancel)
    yield replace(now, progress=None)


def _timed(
    context: Context, now: Measured, request: Request, dims: dict[str, int], cancel: threading.Event
) -> Measured:
    asked = ask(BenchRequest, request, dims=dims, config=None, edge=None, bug=None, baselines=(), quick=True)
    try:
        *_, result = context.engine.stream(asked, cancel)
    except EngineError as error:
        if error.failure.kind == "cancelled":
            raise
        return replace(now, skipped=str(error))
    # A time stands only beside a right answer.
    if isinstance(result, BenchResult) and result.ok and result.source.kind == "measured":
        return replace(now, results=(*now.results, result))
    return replace(now, skipped="a size without a right answer, or without a time of this device, is left out")


def shapes(spec: KernelSpec, request: Request, largest: int) -> list[dict[str, int]]:
    """The request's shape with its swept dim from small to large, spread evenly by factors."""
    dim = next(d for d in spec.dims if d.name == spec.sweep_dim)
    dtype = request.dtype or spec.dtypes[0]
    found = []
    for power in range(max(0, (dim.low - 1).bit_length()), dim.high.bit_length()):
        dims = {**request.dims, dim.name: 2**power}
        moved = spec.cost(spec.inputs(dims, dtype, "meta")).bytes_moved
        if moved > largest:
            break
        if moved >= SMALLEST:
            found.append(dims)
    step = max(1, -(-len(found) // SIZES))
    return found[::step]
