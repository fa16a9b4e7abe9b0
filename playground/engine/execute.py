"""`run`: inputs, launches, and a verdict for every implementation, against float64.

It runs inside a worker, on the job's device: a GPU, this CPU natively, or the interpreter. Nothing is timed here
beyond what a person waits for; times are `bench`'s. A provider that raises is a line of its own and never ends the
run.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from kernels.spec import Config, InputError, Inputs, KernelSpec, Plan, Target
from playground.engine import choose, edits, host
from playground.engine.baselines import TRITON, Loader, Unavailable, eager_of, implementations, named
from playground.engine.choose import Chosen, Origin
from playground.engine.errors import describe
from playground.engine.guards import Guarded, Overwritten, guarded
from playground.engine.job import Cancelled, Job, NeedsInterpreter, is_fatal
from playground.engine.messages import (
    OutOfBounds,
    ProviderRun,
    Request,
    RunRequest,
    RunResult,
    Source,
)
from playground.engine.verdicts import Verdicts

CHECKED_BYTES = 64 * 2**20  # checked mode is the default on a CPU up to this much traffic


@dataclass
class Case:
    """A request made real on a device: the inputs, the plan's ingredients, and the answer in float64."""

    request: Request
    chosen: Chosen
    spec: KernelSpec  # as planted or edited
    dtype: str  # of the data; float32 where the interpreter cannot do bfloat16
    inputs: Inputs
    config: Config
    origin: Origin
    target: Target
    job: Job
    notes: list[str] = field(default_factory=list)

    def fresh(self) -> Inputs:
        """The inputs, with copies of those that are overwritten."""
        written = self.spec.in_place
        return {
            name: v.clone() if name in written and isinstance(v, torch.Tensor) else v for name, v in self.inputs.items()
        }

    def plan(self, guard: bool = True) -> Plan:
        """A plan on fresh inputs, whose outputs are poisoned. guard: with zones that show what is written outside."""
        inputs = self.fresh()
        plan, self.config = choose.planned(self.spec, inputs, self.config, self.target)
        poison(plan, inputs)
        return guarded(plan, inputs) if guard else plan


@contextmanager
def prepare(request: Request, job: Job) -> Iterator[Case]:
    """Everything before the first launch. Raises InputError or EngineError for what cannot run here."""
    chosen = choose.validate(request, gpu=job.device.type == "cuda")
    target = Target.of(job.device)
    choose.need_support(chosen.spec, chosen.dtype, target)
    dtype, notes = data_dtype(chosen.dtype, job)
    choose.fit(chosen.spec, chosen.dims, dtype, target, host.available_bytes(job.device), job.interpreted)
    with edits.edited(chosen.spec, chosen.bug, request.source) as spec:
        inputs = spec.inputs(chosen.dims, dtype, job.device, request.seed)
        if chosen.edge and chosen.edge.change:
            inputs = chosen.edge.change(inputs)
        config, origin = choose.choose_config(spec, request, inputs, target, chosen.dims, dtype)
        if job.interpreted and origin == "spec" and not chosen.bug:
            config = choose.for_interpreter(spec, inputs, target)
        yield Case(request, chosen, spec, dtype, inputs, config, origin, target, job, notes)


def data_dtype(dtype: str, job: Job) -> tuple[str, list[str]]:
    """The dtype that the data really has, and what to say where it is not the one asked for."""
    if job.interpreted and dtype == "bfloat16":
        return "float32", ["float32 stood in for bfloat16, whose sums and products the interpreter gets wrong"]
    return dtype, []


def run(request: RunRequest, job: Job) -> RunResult:
    """The handler of `run`. Raises InputError, EngineError, NeedsInterpreter, Cancelled."""
    began = time.perf_counter()
    with prepare(request, job) as case, arithmetic(case.dtype):
        job.progress("reference in float64")
        verdicts = Verdicts(case)
        checked = wants_checked(case)
        providers: dict[str, ProviderRun] = {}
        outside: OutOfBounds | None = None
        for name, load in implementations(case.spec, case.request.baselines, job.device):
            job.progress(f"running {name}")
            if name == TRITON:
                with compile_clock(job) as compiling:
                    providers[name], outside = _run_triton(case, verdicts, checked)
            else:
                providers[name] = _run_other(case, verdicts, load)
        own = providers[TRITON]
        return RunResult(
            ok=own.ok, choice=choose.as_choice(request, case.chosen, case.config, case.origin), outputs=own.outputs,
            providers=providers, source=source(job), note="; ".join(case.notes), checked=checked,
            out_of_bounds=outside, compile_seconds=compiling.seconds, seconds=time.perf_counter() - began,
        )  # fmt: skip


def poison(plan: Plan, inputs: Inputs) -> None:
    """Fill fresh outputs with NaN, or with a pattern where they hold integers: an unwritten element then fails.

    An output that is one of the inputs, written in place, is left as it is.
    """
    given = {v.untyped_storage().data_ptr() for v in inputs.values() if isinstance(v, torch.Tensor)}
    for tensor in plan.outputs.values():
        if tensor.untyped_storage().data_ptr() in given and tensor.numel():
            continue
        if tensor.is_floating_point():
            tensor.fill_(float("nan"))
        else:
            tensor.fill_(torch.iinfo(tensor.dtype).max - 5 if tensor.dtype != torch.bool else True)


def _run_other(case: Case, verdicts: Verdicts, load: Loader) -> ProviderRun:
    began = time.perf_counter()
    try:
        function = load()
        if function is eager_of(case.spec):
            outputs = verdicts.eager
            if outputs is None:
                return ProviderRun(ok=False, failure=verdicts.eager_failure)
        else:
            outputs = named(function(**case.fresh()), verdicts.names)
        synchronize(case.job.device)
        seconds = time.perf_counter() - began
        found = verdicts.of(outputs)
    except Unavailable as reason:
        return ProviderRun(ok=False, missing=str(reason))
    except Cancelled:
        raise
    except Exception as error:
        if is_fatal(error):
            raise
        return ProviderRun(ok=False, failure=describe(error), seconds=time.perf_counter() - began)
    return ProviderRun(ok=all(v.ok for v in found.values()), outputs=found, seconds=seconds)


def _run_triton(case: Case, verdicts: Verdicts, checked: bool) -> tuple[ProviderRun, OutOfBounds | None]:
    """The verdict on the kernel, and the first access out of bounds."""
    began = time.perf_counter()
    try:
        plan = case.plan(guard=not checked)  # checked mode looks at every access, and knows the tensors' own bounds
        launch(plan, case.job, checked)
        synchronize(case.job.device)
        seconds = time.perf_counter() - began
        found = verdicts.of(plan.outputs)
    except OutsideTensor as outside:
        seconds = time.perf_counter() - began
        return ProviderRun(ok=False, failure=outside.found.message, seconds=seconds), outside.found
    except Overwritten as outside:
        seconds = time.perf_counter() - began
        return ProviderRun(ok=False, outputs=verdicts.of(plan.outputs), failure=str(outside), seconds=seconds), None
    except (Cancelled, NeedsInterpreter, InputError):
        raise
    except Exception as error:
        if is_fatal(error):
            raise
        return ProviderRun(ok=False, failure=describe(error, case.spec), seconds=time.perf_counter() - began), None
    return ProviderRun(ok=all(v.ok for v in found.values()), outputs=found, seconds=seconds), None


# Launching


class OutsideTensor(Exception):
    """An access out of bounds that checked mode found."""

    def __init__(self, found: OutOfBounds):
        super().__init__(found.message)
        self.found = found


def wants_checked(case: Case) -> bool:
    """Checked mode: on a CPU, natively, as asked for, else where the launch is small enough that it does not hurt."""
    if case.job.device.type != "cpu" or case.job.interpreted:
        return False
    if case.request.checked is not None:
        return case.request.checked
    return case.spec.cost(case.inputs).bytes_moved <= CHECKED_BYTES


def launch(plan: Plan, job: Job, checked: bool = False) -> None:
    """Run the plan on the job's device.

    Raises OutsideTensor, Overwritten, and NeedsInterpreter where the native path cannot.
    """
    if job.device.type != "cpu" or job.interpreted:
        plan.run()
    else:
        _launch_natively(plan, checked)
    if isinstance(plan, Guarded):
        plan.need_intact()


def _launch_natively(plan: Plan, checked: bool) -> None:
    try:
        from playground import native
    except ImportError as error:
        raise NeedsInterpreter(f"kernels cannot run natively here: {edits.first_line(error)}") from None
    try:
        with native.checked() if checked else contextlib.nullcontext():
            plan.run()
    except native.Unsupported as error:
        raise NeedsInterpreter(f"the native path cannot run this kernel: {edits.first_line(error)}") from None
    except native.OutOfBounds as error:
        raise OutsideTensor(
            OutOfBounds(
                kind=error.kind,
                tensor=error.tensor,
                index=error.index,
                program=tuple(error.program),
                lane=error.lane,
                line=error.line,
                message=_outside(error),
            )
        ) from None


def _outside(error: Any) -> str:
    program = ", ".join(map(str, error.program))
    return (
        f"{error.kind} outside {error.tensor} at element {error.index:,}, in program ({program}), "
        f"lane {error.lane}, line {error.line}"
    )


@dataclass
class _Clock:
    seconds: float = 0.0


@contextmanager
def compile_clock(job: Job) -> Iterator[_Clock]:
    """Counts the seconds spent compiling within it; code that comes from a cache counts nothing on a GPU."""
    clock = _Clock()
    if job.device.type == "cpu":
        before = _native_seconds(job)
        try:
            yield clock
        finally:
            clock.seconds = _native_seconds(job) - before
        return
    from triton import knobs

    listener = knobs.compilation.listener

    def count(*, src, metadata, metadata_group, times, cache_hit, **_):
        clock.seconds += 0.0 if cache_hit else times.total / 1e6
        if listener:
            listener(src=src, metadata=metadata, metadata_group=metadata_group, times=times, cache_hit=cache_hit)

    knobs.compilation.listener = count
    try:
        yield clock
    finally:
        knobs.compilation.listener = listener


def _native_seconds(job: Job) -> float:
    if job.interpreted:
        return 0.0  # the interpreter compiles nothing
    from playground import native

    spent = native.stats()
    return spent["cold_seconds"] + spent["cached_seconds"]


@contextmanager
def arithmetic(dtype: str) -> Iterator[None]:
    """PyTorch's float32 products in TF32 where the dtype is that, and in full float32 elsewhere."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    try:
        with torch.no_grad():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def source(job: Job, note: str = "") -> Source:
    """Where this worker's figures come from, now."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Source(
        kind="interpreted" if job.interpreted else "measured", device=host.name(job.device), date=now,
        versions=host.versions(), note=note,
    )  # fmt: skip
