"""Records sweeps over configs on this GPU, five shapes of a kernel, into the file that `record` keeps for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

import kernels
from kernels.spec import InputError, KernelSpec, Target
from playground.engine import bench, choose, record, recordings, roofs, sweep
from playground.engine import compile as offline
from playground.engine.errors import describe
from playground.engine.job import Job, is_fatal
from playground.engine.messages import EngineError, Failure, Progress, ResourcesRequest, Source
from playground.engine.recordings import Recording
from playground.engine.sweep_messages import SweepRequest, SweepResult

SWEPT = ("add_rms_norm", "softmax", "matmul", "attention")
SHAPES = 5


class Here:
    """The handlers themselves, in this process: what a sweep needs of the engine."""

    compilers = 1

    def __init__(self, job: Job):
        self._job = job

    def run(self, request: Any, cancel: threading.Event | None = None) -> Any:
        try:
            handler = offline.resources if isinstance(request, ResourcesRequest) else bench.bench
            return handler(request, self._job)
        except InputError as error:
            raise EngineError(Failure(kind="input", message=str(error), argument=error.argument)) from None
        except EngineError:
            raise
        except Exception as error:
            if is_fatal(error):
                raise
            raise EngineError(Failure(kind="failed", message=describe(error))) from None

    def recorded_sweeps(self, request: SweepRequest) -> tuple[SweepResult, ...]:
        return ()


def record_sweeps(
    names: Iterable[str] | None,
    out: Path,
    seconds: float = float("inf"),
    report: Callable[[str], None] = print,
    device: str = "cuda:0",
) -> list[Path]:
    """Sweep these kernels (None: those worth it) and write each shape as it is done; goes on where it stopped.

    Stops before the shape that would probably pass `seconds`. Raises InputError and EngineError as `record` does.
    """
    if not torch.cuda.is_available():
        raise EngineError(Failure(kind="unavailable", message="recording needs a GPU, and PyTorch finds none here"))
    job = Job(torch.device(device))
    began, longest = time.monotonic(), 0.0
    written: dict[Path, None] = {}
    for spec in [kernels.get(name) for name in names or [n for n in SWEPT if n in kernels.all_kernels()]]:
        recording = record.opened(spec, out, roofs.roofs(job), job, False)
        for dims in shapes(spec):
            had = [s for s in recording.sweeps if s.choice.dims == dims and s.choice.dtype == spec.dtypes[0]]
            if any(not s.stale for s in had):
                continue
            started = time.monotonic()
            if written and started - began + longest > seconds:
                report("out of time; run it again to go on")
                return list(written)
            result = one(spec, dims, recording, job)
            others = tuple(s for s in recording.sweeps if s not in had)
            recording = recording.model_copy(update={"sweeps": (*others, result)})
            written[recordings.save(out, recording)] = None
            longest = max(longest, time.monotonic() - started)
            report(f"{spec.name} {dims}: {_line(result)}")
    return list(written)


def shapes(spec: KernelSpec) -> Iterator[dict[str, int]]:
    """The presets and the default, each shape once."""
    found = [dict(dims) for dims in (*spec.presets.values(), spec.default)]
    yield from [dims for i, dims in enumerate(found) if dims not in found[:i]][:SHAPES]


def one(spec: KernelSpec, dims: dict[str, int], recording: Recording, job: Job) -> SweepResult:
    """One shape's sweep, its sources marked as recorded."""
    request = SweepRequest(kernel=spec.name, dims=dims, dtype=spec.dtypes[0], target=recording.arch)
    chosen = choose.validate(request, gpu=True)
    *_, result = sweep.sweep(Here(job), request, chosen, Target.of(job.device))
    assert not isinstance(result, Progress)
    return result.model_copy(update={"source": _recorded(result.source), "compiled": _recorded(result.compiled)})


def _recorded(source: Source | None) -> Source | None:
    return source and source.model_copy(update={"kind": "recorded"})


def _line(result: SweepResult) -> str:
    timed = sum(1 for c in result.configs if c.ok)
    if result.best is None:
        return f"none of {len(result.configs)} configs has a time"
    best = result.configs[result.best]
    assert best.us is not None
    gain = f", {result.speedup:.2f} times the default" if result.speedup else ""
    return f"{timed} of {len(result.configs)} configs timed, best {best.config.label} {best.us.p50:.1f} us{gain}"
