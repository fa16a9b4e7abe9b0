"""Measures kernels on this GPU and writes what `recordings` shows on hosts without one.

Every kernel over its presets and dtypes, and over sizes of the dim that its spec sweeps, beside eager, torch.compile
and the baselines that are installed. A file is written after each step, so a recording that is stopped goes on where
it was; what is recorded with the same kernel and versions is not measured again. Times and sweeps of an older kernel
stay, marked as stale, until their shape is measured anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import kernels
from kernels.spec import InputError, KernelSpec, Target
from playground.engine import bench, execute, fingerprint, host, recordings, roofs
from playground.engine import compile as offline
from playground.engine.errors import describe
from playground.engine.job import Job, is_fatal
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    Failure,
    ResourcesRequest,
    RunRequest,
    Source,
)
from playground.engine.recordings import Recording

MOST_BYTES, MOST_FLOPS, SIZES = 2**32, 2e13, 10
KEPT = ("benches", "sweeps")  # of an older kernel's recording
SMALLEST_BYTES = 2**16


@dataclass(frozen=True)
class Step:
    """One shape to measure. A preset gets a verdict and resources as well; a size of a sweep its times alone."""

    spec: KernelSpec
    dims: Mapping[str, int]
    dtype: str
    preset: str = ""

    @property
    def label(self) -> str:
        return f"{', '.join(f'{name}={value}' for name, value in self.dims.items())} {self.dtype}"


def record(
    names: Iterable[str] | None,
    out: Path,
    seconds: float = float("inf"),
    report: Callable[[str], None] = print,
    force: bool = False,
    device: str = "cuda:0",
) -> list[Path]:
    """Record these kernels (None: all) into `out`; returns the files written.

    One step is always made; it stops before the next that would probably pass `seconds`. Raises
    InputError for an unknown kernel, and EngineError where there is no GPU.
    """
    if not torch.cuda.is_available():
        raise EngineError(Failure(kind="unavailable", message="recording needs a GPU, and PyTorch finds none here"))
    specs = [kernels.get(name) for name in names or kernels.all_kernels()]
    job = Job(torch.device(device))
    peaks = roofs.roofs(job)
    open_ = {spec.name: opened(spec, out, peaks, job, force) for spec in specs}
    began, longest = time.monotonic(), 0.0
    written: dict[Path, None] = {}
    for step in steps(specs):
        recording = open_[step.spec.name]
        if has(recording, step):
            continue
        started = time.monotonic()
        if written and started - began + longest > seconds:
            report("out of time; run it again to go on")
            break
        recording, line = measure(recording, step, job)
        open_[step.spec.name] = recording
        written[recordings.save(out, recording)] = None
        longest = max(0.8 * longest, time.monotonic() - started)
        report(f"{step.spec.name} {step.label}: {line}")
    return list(written)


def opened(spec: KernelSpec, out: Path, peaks: roofs.Roofs, job: Job, force: bool) -> Recording:
    """The kernel's recording so far, or a new one where the kernel or the versions have changed.

    Of an older kernel the new one keeps the times and the sweeps, as stale.
    """
    gpu, arch = host.name(job.device), Target.of(job.device).arch
    source = execute.source(job)
    fresh = Recording(
        gpu=gpu, arch=arch, kernel=spec.name, date=source.date, versions=source.versions,
        source_hash=fingerprint.source_hash(spec), roofs=peaks,
    )  # fmt: skip
    path = recordings.path_of(out, gpu, spec.name)
    if force or not path.exists():
        return fresh
    old = recordings.load(path)
    if old.source_hash != fresh.source_hash:
        older = {name: tuple(x.model_copy(update={"stale": True}) for x in getattr(old, name)) for name in KEPT}
        return fresh.model_copy(update=older)
    return old.model_copy(update={"date": fresh.date}) if old.versions == fresh.versions else fresh


def steps(specs: Sequence[KernelSpec]) -> Iterator[Step]:
    """What to measure, the most telling first: presets and sweep in each kernel's first dtype, then the others."""
    for spec in specs:
        yield from presets(spec, spec.dtypes[0])
    for spec in specs:
        yield from sweep(spec, spec.dtypes[0])
    for spec in specs:
        for dtype in spec.dtypes[1:]:
            yield from presets(spec, dtype)
    for spec in specs:
        for dtype in spec.dtypes[1:]:
            yield from sweep(spec, dtype)


def presets(spec: KernelSpec, dtype: str) -> Iterator[Step]:
    for name, dims in {**spec.presets, "default": spec.default}.items():
        yield Step(spec, dims, dtype, name)


def sweep(spec: KernelSpec, dtype: str) -> Iterator[Step]:
    """Powers of two of the swept dim, the others as in the prefill preset, from some KB to a few GB."""
    dim = next(dim for dim in spec.dims if dim.name == spec.sweep_dim)
    start = spec.presets.get("prefill", spec.default)
    found = []
    for power in range(max(0, (dim.low - 1).bit_length()), dim.high.bit_length()):
        dims = {**start, dim.name: 2**power}
        cost = spec.cost(spec.inputs(dims, dtype, "meta"))
        if cost.bytes_moved > MOST_BYTES or cost.flops > MOST_FLOPS:
            break
        if cost.bytes_moved >= SMALLEST_BYTES:
            found.append(Step(spec, dims, dtype))
    yield from found[-SIZES:]


def has(recording: Recording, step: Step) -> bool:
    """Whether the step is done, or gave no result for a reason that is noted."""
    if step.label in recording.skipped:
        return True
    return any(not b.stale and _is_of(b, step) for b in recording.benches)


def _is_of(bench: BenchResult, step: Step) -> bool:
    return bench.choice.dims == step.dims and bench.choice.dtype == step.dtype


def measure(recording: Recording, step: Step, job: Job) -> tuple[Recording, str]:
    """The recording with one step more, and a line on it. A step that fails is noted and ends nothing."""
    asked: dict[str, Any] = {"kernel": step.spec.name, "dims": dict(step.dims), "dtype": step.dtype}
    try:
        timed = bench.bench(BenchRequest(**asked, quick=not step.preset), job)
        others = tuple(b for b in recording.benches if not _is_of(b, step))
        update: dict[str, object] = {"benches": (*others, _as_recorded(timed))}
        if step.preset:
            ran = execute.run(RunRequest(**asked, baselines=()), job)
            update["runs"] = (*recording.runs, _as_recorded(ran))
            update["resources"] = (*recording.resources, *_resources(asked, recording.arch, job))
    except (InputError, EngineError, torch.cuda.OutOfMemoryError) as error:
        torch.cuda.empty_cache()
        return _skipped(recording, step, describe(error) if isinstance(error, RuntimeError) else str(error))
    except Exception as error:
        if is_fatal(error):
            raise
        return _skipped(recording, step, describe(error))
    return recording.model_copy(update=update), _line(timed)


def _resources(asked: dict[str, Any], arch: str, job: Job) -> list[Any]:
    """What the compiler used; nothing where that cannot be read, which costs no measured time."""
    try:
        return [_as_recorded(offline.resources(ResourcesRequest(**asked, target=arch), job))]
    except EngineError as error:
        print(f"no resources: {error}", flush=True)
        return []


def _skipped(recording: Recording, step: Step, why: str) -> tuple[Recording, str]:
    return recording.model_copy(update={"skipped": {**recording.skipped, step.label: why}}), f"skipped: {why}"


def _as_recorded(result):
    """The same result with its source marked as recorded."""
    own = result.source
    source = Source(kind="recorded", device=own.device, date=own.date, versions=own.versions, note=own.note)
    return result.model_copy(update={"source": source})


def _line(timed: BenchResult) -> str:
    parts = []
    for name, provider in timed.providers.items():
        if provider.us:
            parts.append(f"{name} {provider.us.p50:.1f} us")
        elif provider.failure:
            parts.append(f"{name} failed ({provider.failure})")
    own = timed.providers["triton"]
    share = f", {own.share_of_peak:.1%} of the {timed.bound} roof" if own.share_of_peak else ""
    return ", ".join(parts) + share
