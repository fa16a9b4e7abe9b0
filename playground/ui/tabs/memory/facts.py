"""What the Memory tab knows of a choice: its trace, its programs on the chosen GPU, rates, and what was recorded.

This asks the engine and knows no Gradio. Rates say where they come from; one that is not known is None, not guessed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from playground.engine import choose, dram, recordings
from playground.engine.code_messages import CodeRequest, CodeResult
from playground.engine.dram import DramBytes, DramRecording
from playground.engine.gpus import CATALOGUE, Gpu, listed, this_device
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    HostResult,
    Progress,
    Request,
    Roofs,
    Source,
)
from playground.engine.residency import Residency, residency
from playground.engine.trace_messages import TracedLaunch, TracedTensor, TraceRequest, TraceResult
from playground.ui.answer import ask
from playground.ui.context import Context

HERE = "this device"
FIRST_GPU = "H200"
MATRIX_OPS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_dot_product")  # as PyTorch names them
KEPT = 24  # traces that are kept, so that another GPU, or another person, asks for none again


@dataclass(frozen=True)
class Rates:
    """Bytes/s by level and FLOP/s, with the source: a Source, or None for the datasheet's.

    matrix: of products in the dtype at hand; vector: of any other arithmetic, which is in float32.
    """

    memory: float
    l2: float | None
    l1: float | None
    matrix: float
    vector: float
    source: Source | None


@dataclass(frozen=True)
class Facts:
    """Everything the tab draws. code is None where the GPU's compiler refuses the kernel, and `refused` says why.

    host: this device, with what has been measured of it. roofs: measured ones by GPU, this device's among them.
    """

    request: Request
    trace: TraceResult
    gpu: Gpu
    host: HostResult | None
    rates: Rates
    code: CodeResult | None = None
    refused: str = ""
    residents: tuple[Residency, ...] = ()
    recorded: tuple[BenchResult, ...] = ()
    counted: tuple[DramRecording, DramBytes, bool] | None = None
    roofs: Mapping[str, Roofs] = field(default_factory=dict)
    devices: Mapping[str, HostResult] = field(default_factory=dict)

    @property
    def cpu(self) -> bool:
        """The levels shown are a CPU's."""
        return self.gpu.arch == "cpu"

    @property
    def products(self) -> bool:
        """The kernel computes with the matrix units; without its code, eager does."""
        if self.code is None:
            return any(step.kernel.startswith(MATRIX_OPS) for step in self.trace.chain)
        return any("tt.dot" in row.text for launch in self.code.launches for row in launch.stages.get("ttir", ()))

    @property
    def arithmetic(self) -> float:
        """FLOP/s that bound this kernel."""
        return self.rates.matrix if self.products else self.rates.vector


class Traces:
    """The last traces, by what was asked. Safe to use from any thread."""

    def __init__(self) -> None:
        self._kept: dict[str, TraceResult] = {}
        self._lock = threading.Lock()

    def get(self, request: TraceRequest) -> TraceResult | None:
        with self._lock:
            return self._kept.get(request.model_dump_json())

    def keep(self, request: TraceRequest, result: TraceResult) -> None:
        with self._lock:
            while len(self._kept) >= KEPT:
                self._kept.pop(next(iter(self._kept)))
            self._kept[request.model_dump_json()] = result


def gpu_named(name: str, host: HostResult | None) -> Gpu:
    """The catalogue's card, or this device as it describes itself; a CPU has no SMs and no limits of its own."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    if host is not None and host.kind == "gpu":
        return this_device(host)
    cores = host.units if host else 1
    rate = host.roofs.copy_gbps * 1e9 if host and host.roofs else 0.0
    flops = max(host.roofs.matmul_tflops.values(), default=0.0) * 1e12 if host and host.roofs else 0.0
    caches = host.caches if host else {}
    last = list(caches.values())[-1] if caches else 0
    memory = host.memory_bytes if host else 0
    return Gpu(host.device if host else HERE, "cpu", cores, 0.0, 0, 0, 0, last, memory, rate, flops, flops, "DRAM",
               "read from the device")  # fmt: skip


def rates_of(gpu: Gpu, dtype: str, known: Mapping[str, Roofs]) -> Rates:
    """Measured or recorded rates of the GPU where there are any, else the datasheet's."""
    roofs = known.get(gpu.name)
    if roofs is None:
        return Rates(gpu.memory_rate, None, None, gpu.matrix_rate(dtype), gpu.vector_flops, None)
    level = {name: gbps * 1e9 for name, gbps in roofs.levels_gbps.items()}
    products = {name: tflops * 1e12 for name, tflops in roofs.matmul_tflops.items()}
    vector = products.get("float32", gpu.vector_flops)
    matrix = products.get(dtype, vector)  # what a device has no rate of its own for, it computes in float32
    return Rates(roofs.copy_gbps * 1e9, level.get("l2"), level.get("l1"), matrix, vector, roofs.source)


def known_roofs(directory: Path, host: HostResult | None) -> tuple[dict[str, Roofs], dict[str, HostResult]]:
    """Roofs by the catalogue's name (or the device's own): recorded ones, and this device's where measured.

    And the devices that were recorded with more: levels, and bandwidth against size.
    """
    found: dict[str, Roofs] = {}
    devices: dict[str, HostResult] = {}
    for path in sorted(directory.glob("*/*.json")):
        try:
            recording = recordings.load(path)
        except ValueError:
            continue
        found.setdefault(_name(recording.gpu), _recorded(recording.roofs))
    for path in sorted(directory.glob("*/dram/device.json")):
        device = HostResult.model_validate_json(path.read_text())
        devices[_name(device.device)] = device
        if device.roofs:
            found[_name(device.device)] = _recorded(device.roofs)
    if host is not None and host.roofs:
        devices[host.device] = host
        found[host.device] = host.roofs
    return found, devices


def _recorded(roofs: Roofs) -> Roofs:
    return roofs.model_copy(update={"source": roofs.source.model_copy(update={"kind": "recorded"})})


def _name(device: str) -> str:
    known = listed(device)
    return known.name if known else device


def ask_for(
    context: Context, request: Request, gpu_name: str, traces: Traces, measured: HostResult | None,
    cancel: threading.Event,
) -> Iterator[Progress | Facts]:  # fmt: skip
    """Progress, and the facts last. Raises EngineError where the kernel cannot be traced."""
    asked = ask(TraceRequest, request)
    trace = traces.get(asked)
    if trace is None:
        for event in context.engine.stream(asked, cancel):
            if isinstance(event, Progress):
                yield event
            else:
                trace = event
                traces.keep(asked, event)
    assert trace is not None
    host = measured or context.known_host or context.host()
    gpu = gpu_named(gpu_name, host)
    yield Progress(what=f"Compiling {request.kernel} for {gpu.arch}")
    code, refused = _compiled(context, request, gpu, cancel)
    roofs, devices = known_roofs(context.settings.recordings, host)
    chosen = choose.validate(request, context.gpu)
    yield Facts(
        request=request,
        trace=trace,
        gpu=gpu,
        host=host,
        rates=rates_of(gpu, chosen.dtype, roofs),
        code=code,
        refused=refused,
        residents=_residents(code, gpu),
        recorded=tuple(context.engine.recorded(ask(BenchRequest, request))),
        counted=dram.find(context.settings.recordings, chosen),
        roofs=roofs,
        devices=devices,
    )


def _compiled(context: Context, request: Request, gpu: Gpu, cancel: threading.Event) -> tuple[CodeResult | None, str]:
    if gpu.arch == "cpu":
        return None, "a CPU runs a program on a core; it has no SMs that programs share"
    try:
        *_, result = context.engine.stream(ask(CodeRequest, request, target=gpu.arch, stages=("ttir",)), cancel)
    except EngineError as error:
        if error.failure.kind == "cancelled":
            raise
        return None, str(error)
    return (result, "") if isinstance(result, CodeResult) else (None, "the compiler gave no code")


def _residents(code: CodeResult | None, gpu: Gpu) -> tuple[Residency, ...]:
    if code is None:
        return ()
    try:
        return tuple(residency(launch.resources, launch.grid, gpu) for launch in code.launches)
    except KeyError:
        return ()


def fresh_bytes(launch: TracedLaunch, tensor: TracedTensor, kind: str) -> int:
    """Distinct bytes that the whole launch loads from (or stores to) a tensor.

    Of a sampled launch only the sample's are known; then no more than the tensor holds, and no more than is asked.
    """
    asked, seen = (
        (tensor.bytes_loaded, tensor.unique_loaded) if kind == "load" else (tensor.bytes_stored, tensor.unique_stored)
    )
    if launch.programs_traced == launch.programs_total:
        return seen
    return min(asked, tensor.bytes_total)
