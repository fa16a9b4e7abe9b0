"""`bench`: how long each implementation takes, beside the roof that binds it.

No implementation gets a time without a passed verdict, before the timing and after it. On a GPU the figure to quote
is the cold one, and a graph replay where the kernel is shorter than its launch; on a CPU, where a time is never a
forecast for a GPU, the warm one. All implementations of one result are quoted by the same method.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kernels.spec import Cost, InputError, Inputs
from playground.engine import choose, execute, host, roofs, shares, timing
from playground.engine.baselines import EAGER, TRITON, Loader, Unavailable, implementations, named
from playground.engine.errors import describe
from playground.engine.execute import Case, OutsideTensor, Verdicts
from playground.engine.guards import Overwritten
from playground.engine.job import Cancelled, Job, NeedsInterpreter, is_fatal
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    Failure,
    OutputVerdict,
    ProviderBench,
    Roofs,
    Times,
)

COLD, WARM_CPU = "cold L2", "warm cache"
GRAPH_COLD, GRAPH_WARM = "CUDA graph, rotating inputs", "CUDA graph, warm L2"
SHORT = 2.0  # a kernel below this many times its launch is timed in a graph too
MAX_SETS = 128  # of inputs, for a graph whose calls find L2 cold
HOT_US = 100.0  # products longer than this are timed in bursts, with rests between
REST = 0.06


@dataclass
class Measured:
    """One implementation's times by field name of ProviderBench, and the verdict on what it last wrote."""

    times: dict[str, Times] = field(default_factory=dict)
    calls: int = 0
    graph: str = ""  # the method of its graph replay
    note: str = ""
    outputs: dict[str, OutputVerdict] = field(default_factory=dict)
    first_seconds: float = 0.0


def bench(request: BenchRequest, job: Job) -> BenchResult:
    """The handler of `bench`. Raises InputError, EngineError, NeedsInterpreter, Cancelled."""
    if job.interpreted:
        raise EngineError(Failure(kind="unavailable", message="an interpreted kernel's time is not a kernel's time"))
    with execute.prepare(request, job) as case:
        # Peaks of a CPU take seconds, and nothing that is timed depends on them.
        wait = request.roofs or job.device.type == "cuda"
        peaks = roofs.roofs(job) if wait else roofs.known(job.device)
        with execute.arithmetic(case.dtype):
            return _bench(case, request, peaks)


def _bench(case: Case, request: BenchRequest, peaks: Roofs | None) -> BenchResult:
    job, cost = case.job, case.spec.cost(case.inputs)
    job.progress("reference in float64")
    verdicts = Verdicts(case)
    bound, floor_us = shares.floor(cost.bytes_moved, cost.flops, peaks, case.dtype)
    clock = timing.timer(job.device, request.quick)
    clock.rest = REST if bound == "compute" and floor_us > HOT_US else 0.0
    measured: dict[str, Measured | ProviderBench] = {}
    short: bool | None = None  # shorter than its launch: Triton's own is the first, and decides for all
    listed = implementations(case.spec, request.baselines, job.device)[: 1 if request.alone else None]
    for done, (name, load) in enumerate(listed):
        job.progress(f"timing {name}", done, len(listed), "implementations")
        found = measured[name] = _measure(case, verdicts, clock, name, load, short)
        if name == TRITON and isinstance(found, Measured):
            short = "graph_us" in found.times
    timed = {name: m for name, m in measured.items() if isinstance(m, Measured)}
    quoted = headline(timed, job.device)
    base = timed.get(EAGER)
    providers = {
        name: _figures(m, base, quoted, cost) if isinstance(m, Measured) else m for name, m in measured.items()
    }
    result = BenchResult(
        ok=providers[TRITON].ok, choice=choose.as_choice(request, case.chosen, case.config, case.origin),
        providers=providers, bytes_moved=cost.bytes_moved, flops=cost.flops, roofs=None, bound=bound,
        floor_us=floor_us, source=execute.source(job),
        note="; ".join(filter(None, (*case.notes, host.busy() if job.device.type == "cpu" else ""))),
    )  # fmt: skip
    return shares.against(result, peaks, host.last_level_cache(job.device)) if peaks else result


def headline(timed: dict[str, Measured], device: torch.device) -> str:
    """The field that the figures to quote come from: one for all implementations."""
    if device.type != "cuda":
        return "warm_us"
    own = timed.get(TRITON)
    return "graph_us" if own and "graph_us" in own.times else "cold_us"


def _figures(m: Measured, base: Measured | None, quoted: str, cost: Cost) -> ProviderBench:
    """All but the share of a roof."""
    field_ = quoted if quoted in m.times else "cold_us"
    us = m.times[field_]
    methods = {"cold_us": COLD, "warm_us": WARM_CPU, "graph_us": m.graph}
    return ProviderBench(
        ok=True, us=us, method=methods[field_], calls=m.calls, gbps=cost.bytes_moved / us.p50 / 1e3,
        tflops=cost.flops / us.p50 / 1e6,
        speedup=base.times[field_].p50 / us.p50 if base and field_ in base.times else None,
        ulps=max((v.ulps for v in m.outputs.values()), default=0.0),
        error=max((v.error for v in m.outputs.values()), default=0.0), note=m.note,
        cold_us=m.times["cold_us"], warm_us=m.times["warm_us"], launch_us=m.times["launch_us"],
        graph_us=m.times.get("graph_us"), first_seconds=m.first_seconds,
    )  # fmt: skip


# One implementation


def _measure(
    case: Case,
    verdicts: Verdicts,
    clock: timing.AnyTimer,
    name: str,
    load: Loader,
    short: bool | None,
) -> Measured | ProviderBench:
    """Verify, time, verify again; a line instead where that cannot be."""
    try:
        calls = _triton_calls(case) if name == TRITON else _other_calls(case, load())
        began = time.perf_counter()
        first = calls.verify()
        first_seconds = time.perf_counter() - began
        found = verdicts.of(named(first, verdicts.names))
        if not all(v.ok for v in found.values()):
            return _wrong(found, "wrong, so not timed")
        result = _time(case, calls, clock, short)
        result.first_seconds = first_seconds
        after = calls.verify() if case.spec.in_place else calls.last()
        result.outputs = verdicts.of(named(after, verdicts.names))
    except Unavailable as reason:
        return ProviderBench(ok=False, missing=str(reason))
    except (OutsideTensor, Overwritten) as outside:
        return ProviderBench(ok=False, failure=str(outside))
    except (Cancelled, NeedsInterpreter):
        raise
    except Exception as error:
        if is_fatal(error) or (name == TRITON and isinstance(error, InputError)):
            raise
        return ProviderBench(ok=False, failure=describe(error, case.spec if name == TRITON else None))
    if not all(v.ok for v in result.outputs.values()):
        return _wrong(result.outputs, "right at first and wrong after the benchmark, so without a time")
    return result


def _wrong(found: dict[str, OutputVerdict], note: str) -> ProviderBench:
    bad = ", ".join(name for name, v in found.items() if not v.ok)
    return ProviderBench(
        ok=False, failure=f"{bad}: {note}", ulps=max(v.ulps for v in found.values()),
        error=max(v.error for v in found.values()),
    )  # fmt: skip


@dataclass
class Calls:
    """One implementation as calls without arguments.

    kernel: the work on inputs that are there. whole: as a person's program calls it, allocation and planning
    included. verify: once, on fresh inputs; its results. last: the results of the last `kernel`.
    on: a `kernel` on other inputs, for rotating through more data than L2 holds.
    """

    kernel: Callable[[], object]
    whole: Callable[[], object]
    verify: Callable[[], object]
    last: Callable[[], object]
    on: Callable[[Inputs], Callable[[], object]]


def _triton_calls(case: Case) -> Calls:
    plan = case.plan()
    spec, config, target = case.spec, case.config, case.target
    inputs = case.fresh()

    # What a planted bug or an edit does outside its tensors would end the worker.
    checked = (case.request.bug or case.request.source) is not None and execute.wants_checked(case)

    def verify() -> object:
        fresh = case.plan(guard=not checked)
        execute.launch(fresh, case.job, checked)
        execute.synchronize(case.job.device)
        return tuple(fresh.outputs.values())

    return Calls(
        kernel=plan.run,
        whole=lambda: spec.plan(inputs, config, target).run(),
        verify=verify,
        last=lambda: tuple(plan.outputs.values()),
        on=lambda others: spec.plan(others, config, target).run,
    )


def _other_calls(case: Case, function: Callable[..., object]) -> Calls:
    inputs = case.fresh()
    kept: list[object] = [None]

    def kernel() -> None:
        kept[0] = function(**inputs)

    return Calls(
        kernel=kernel,
        whole=kernel,
        verify=lambda: function(**case.fresh()),
        last=lambda: kept[0],
        on=lambda others: functools.partial(function, **others),
    )


def _time(case: Case, calls: Calls, clock: timing.AnyTimer, short: bool | None) -> Measured:
    """short: whether to replay it in a graph; None where that is for its own times to say."""
    cold, warm, launched = clock.cold(calls.kernel), clock.warm(calls.kernel), clock.launched(calls.whole)
    found = Measured(calls=len(cold) + len(warm) + len(launched))
    found.times = {
        "cold_us": timing.percentiles(cold),
        "warm_us": timing.percentiles(warm),
        "launch_us": timing.percentiles(launched),
    }
    if isinstance(clock, timing.GpuTimer) and (is_short(found.times) if short is None else short):
        _time_graph(case, calls, clock, found)
    return found


def is_short(times: dict[str, Times]) -> bool:
    """Whether the kernel takes less than SHORT times what its launch adds."""
    own = min(times["cold_us"].p50, times["warm_us"].p50)
    return own < SHORT * (times["launch_us"].p50 - own)


def _time_graph(case: Case, calls: Calls, clock: timing.GpuTimer, found: Measured) -> None:
    """Adds a graph replay. What cannot be captured says so."""
    sets = rotation(case)
    try:
        times = clock.graphed([calls.on(inputs) for inputs in sets] if sets else [calls.kernel])
    except RuntimeError as error:
        if is_fatal(error) and "capture" not in str(error):
            raise
        torch.cuda.synchronize(case.job.device)
        found.note = f"cannot be captured in a CUDA graph: {describe(error)}"
        return
    found.times["graph_us"] = timing.percentiles(times)
    found.graph = GRAPH_COLD if sets else GRAPH_WARM
    found.calls += len(times)


def rotation(case: Case) -> list[Inputs]:
    """Copies of the inputs that together are more than twice L2, so that each call finds its data gone from there.

    Empty where that takes too many copies, or where a copy would not keep the strides.
    """
    tensors = [v for v in case.inputs.values() if isinstance(v, torch.Tensor)]
    size = sum(t.numel() * t.element_size() for t in tensors)
    if not size or any(t.clone().stride() != t.stride() for t in tensors):
        return []
    count = math.ceil(2.5 * host.last_level_cache(case.job.device) / size)
    if count > MAX_SETS:
        return []
    return [_copies(case.inputs) for _ in range(max(2, count))]


def _copies(inputs: Inputs) -> Inputs:
    return {name: v.clone() if isinstance(v, torch.Tensor) else v for name, v in inputs.items()}
