"""An engine that answers at once with made-up figures: for tests of the page alone. It judges and times nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import kernels
from kernels.spec import Target
from playground.engine import choose
from playground.engine.code_messages import CodeRequest
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    Failure,
    HostResult,
    OutOfBounds,
    OutputVerdict,
    Progress,
    ProviderBench,
    ProviderRun,
    Resources,
    ResourcesRequest,
    ResourcesResult,
    Roofs,
    RunRequest,
    RunResult,
    Source,
    Times,
    Wrong,
)
from playground.engine.trace_messages import TraceRequest

VERSIONS = {"torch": "2.13.0", "triton": "3.7.1"}
HERE = Source(kind="measured", device="Test CPU", date="2026-11-29T12:00:00+00:00", versions=VERSIONS)
H200 = Source(kind="recorded", device="NVIDIA H200", date="2026-11-20T12:00:00+00:00", versions=VERSIONS)
SPEEDS = {"triton": 0.9, "eager": 0.25, "torch.compile": 0.8, "Liger": 0.75}  # shares of the copy roof


class FakeEngine:
    """gpu: say that this host is an H200. `steps`: pause between two events, which a test may hold back."""

    def __init__(self, gpu: bool = False, pause: threading.Event | None = None):
        self.gpu, self.pause, self.closed = gpu, pause, False
        self.asked: list[Any] = []

    def host(self) -> HostResult:
        if self.gpu:
            return HostResult(kind="gpu", device="NVIDIA H200", detail="132 SMs, 140 GiB", arch="sm_90",
                              memory_bytes=150 * 10**9, versions=VERSIONS | {"driver": "580.1"})  # fmt: skip
        return HostResult(kind="cpu", device="Test CPU", detail="2 cores, no GPU", arch="cpu", memory_bytes=8 * 10**9,
                          versions=VERSIONS)  # fmt: skip

    def warm(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def on_close(self, close: Any) -> None:
        """The engine closes its clients with itself; this one has nothing that outlives it."""

    def run(self, request: Any, cancel: threading.Event | None = None) -> Any:
        *_, result = self.stream(request, cancel or threading.Event())
        return result

    def stream(self, request: Any, cancel: threading.Event) -> Iterator[Any]:
        self.asked.append(request)
        try:
            chosen = choose.validate(request, self.gpu)
        except kernels.InputError as error:
            raise EngineError(Failure(kind="input", message=str(error), argument=error.argument)) from None
        yield Progress(what="Working", done=0, total=2, unit="steps")
        paused = self.pause and not isinstance(request, ResourcesRequest)
        while paused and not self.pause.wait(0.02):
            if cancel.is_set():
                break
        if cancel.is_set():
            raise EngineError(Failure(kind="cancelled", message="stopped"))
        choice = self.choice(request, chosen)
        if isinstance(request, RunRequest):
            yield run_result(request, choice)
        elif isinstance(request, TraceRequest | CodeRequest):
            from tests.ui import memory_samples

            made = memory_samples.trace if isinstance(request, TraceRequest) else memory_samples.code
            yield made(choice)
        elif isinstance(request, BenchRequest):
            source = HERE.model_copy(update={"device": "NVIDIA H200"}) if self.gpu else HERE
            yield bench_result(choice, source, 4200.0 if self.gpu else 9.0)
        else:
            used = Resources(kernel=choice.kernel, target=request.target, registers=34, spills=0, shared_bytes=4096,
                             num_warps=8, instructions={"ld.global.v4": 6})  # fmt: skip
            compiled = HERE.model_copy(update={"kind": "compiled", "device": request.target})
            chain = {"eager_kernels": ("add", "rsqrt", "mul"), "eager_bytes": 6_000_000} if request.chain else {}
            yield ResourcesResult(choice=choice, launches=(used,), source=compiled, **chain)

    def choice(self, request: Any, chosen: Any) -> Any:
        inputs = chosen.spec.inputs(chosen.dims, chosen.dtype, "meta")
        config, origin = choose.choose_config(
            chosen.spec, request, inputs, Target.named("cpu"), chosen.dims, chosen.dtype
        )
        return choose.as_choice(request, chosen, config, origin)

    def recorded_sweeps(self, request: Any) -> tuple:
        return ()

    def recorded(self, request: Any) -> list[BenchResult]:
        chosen = choose.validate(request, True)
        sizes = [2**k for k in range(2, 14)]
        found = []
        for size in sizes:
            dims = {**chosen.spec.presets["prefill"], chosen.spec.sweep_dim: size}
            own = request.model_copy(update={"dims": dims, "config": None, "edge": None, "bug": None})
            found.append(bench_result(self.choice(own, choose.validate(own, True)), H200, 4200.0))
        return sorted(
            found, key=lambda r: abs(r.choice.dims[chosen.spec.sweep_dim] - chosen.dims[chosen.spec.sweep_dim])
        )


def run_result(request: Any, choice: Any) -> RunResult:
    """Right, or wrong where a bug is planted; one that forgets a mask goes out of bounds."""
    wrong = None
    if request.bug:
        picture = tuple(tuple(float(c >= 36) for c in range(48)) for _ in range(12))
        wrong = Wrong(index=(0, 3000), got=7134.2, expected=0.4219, count=70, total=192, picture=picture, cell=(6, 63))
    bad = OutputVerdict(ok=False, error=9e3, bar=5e-7, rms_error=1, rms_bar=1e-7, ulps=7e9, ulps_bar=1.4, wrong=wrong)
    good = OutputVerdict(ok=True, error=2e-7, bar=5e-7, rms_error=3e-8, rms_bar=1e-7, ulps=0.81, ulps_bar=1.5)
    names = [o.name for o in kernels.get(choice.kernel).outputs]
    outputs = {name: bad if request.bug and name == names[0] else good for name in names}
    outside = None
    if request.bug == "Forgotten mask":
        message = "load outside x at element 192,000, in program (63, 0, 0), lane 17, line 53"
        outside = OutOfBounds(kind="load", tensor="x", index=192000, program=(63, 0, 0), lane=17, line=53,
                              message=message)  # fmt: skip
    own = ProviderRun(ok=not request.bug, outputs=outputs)
    return RunResult(ok=not request.bug, choice=choice, outputs={} if outside else outputs, source=HERE,
                     providers={"triton": own, "eager": ProviderRun(ok=True, outputs={n: good for n in names})},
                     checked=True, out_of_bounds=outside)  # fmt: skip


def bench_result(choice: Any, source: Source, copy_gbps: float) -> BenchResult:
    spec = kernels.get(choice.kernel)
    cost = spec.cost(spec.inputs(choice.dims, choice.dtype, "meta"))
    floor = max(cost.bytes_moved / copy_gbps / 1e3, 1e-3)
    providers = {}
    for name, share in SPEEDS.items():
        us = 2.0 + floor / share
        gbps = cost.bytes_moved / us / 1e3
        providers[name] = ProviderBench(
            ok=True, us=Times(p20=us * 0.98, p50=us, p80=us * 1.05), method="cold L2", calls=200, gbps=gbps,
            tflops=cost.flops / us / 1e6, share_of_peak=gbps / copy_gbps,
            speedup=(2.0 + floor / SPEEDS["eager"]) / us, ulps=0.81 if name != "eager" else 1.37,
        )  # fmt: skip
    providers["FlagGems"] = ProviderBench(ok=False, missing="not installed: pip install flag-gems")
    roofs = Roofs(copy_gbps=copy_gbps, matmul_tflops={choice.dtype: 700.0}, source=source)
    return BenchResult(ok=True, choice=choice, providers=providers, bytes_moved=cost.bytes_moved, flops=cost.flops,
                       roofs=roofs, bound="memory", floor_us=floor, source=source)  # fmt: skip
