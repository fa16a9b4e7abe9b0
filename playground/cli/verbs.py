"""What each verb does: options in, an answer and an exit code out. Everything goes through the engine."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playground.cli import arguments, interrupt
from playground.cli.answers import (
    Answer,
    BenchAnswer,
    BenchOverAnswer,
    BenchStep,
    BugEntry,
    ConfigEntry,
    DimEntry,
    EdgeEntry,
    KernelEntry,
    KernelsAnswer,
    RecordAnswer,
)
from playground.cli.doctor import doctor, stale_recordings
from playground.engine.engine import Engine, compiler_environment
from playground.engine.messages import BenchRequest, BenchResult, EngineError, Failure, Progress, RunRequest, RunResult
from playground.engine.protocol import AnyRequest
from playground.settings import Settings

WRONG = 1
FAILED = 4
WARM_SECONDS = 120.0  # the most that `record --warm` compiles beforehand
LISTED_ARCH = "sm_90"  # whose configs `kernels` lists on a GPU host whose own architecture is not known


@contextmanager
def opened(device: str | None = None) -> Iterator[Engine]:
    """device: its worker starts at once, while this process still imports torch to check the request."""
    try:
        settings = Settings.from_env()
    except ValueError as e:
        raise arguments.bad(str(e).split()[0], str(e)) from None
    with Engine(settings) as engine:
        if device is not None:
            engine.warm(device)
            with interrupt.held():  # an exception while C++ sets itself up can abort the process
                import torch  # noqa: F401
        yield engine


def _spec(name: str) -> Any:
    with interrupt.held():
        from kernels import InputError, get

    try:
        return get(name)
    except InputError as e:
        raise arguments.bad(e.argument, str(e)) from None


def fields(options: argparse.Namespace) -> dict[str, Any]:
    """A request's fields, the preset's dims below those given."""
    fields = arguments.as_request(options)
    if options.preset is not None:
        spec = _spec(options.kernel)
        if options.preset not in spec.presets:
            message = f"{spec.name} has no preset {options.preset[:60]!r}; choose {', '.join(spec.presets)}"
            raise arguments.bad("preset", message)
        fields["dims"] = {**spec.presets[options.preset], **fields["dims"]}
    return fields


def result_of(engine: Engine, request: AnyRequest, prefix: str = "") -> Any:
    """The result, with progress on stderr where someone may be looking."""
    shown = sys.stderr.isatty()
    result = None
    try:
        for result in engine.stream(request, interrupt.stopped):
            if shown and isinstance(result, Progress):
                print(f"\r\x1b[K{prefix}{progress_line(result)}", end="", file=sys.stderr, flush=True)
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return result


def progress_line(progress: Progress) -> str:
    if progress.place:
        return f"{progress.what}: {progress.place} before this one"
    if progress.total:
        return f"{progress.what}: {progress.done} of {progress.total} {progress.unit}".rstrip()
    return progress.what


def run(options: argparse.Namespace) -> tuple[RunResult, int]:
    request = RunRequest(**fields(options), checked=options.checked)
    with opened(request.device) as engine:
        result = result_of(engine, request)
    if result.ok:
        return result, 0
    return result, WRONG if result.outputs or result.out_of_bounds else FAILED


def bench(options: argparse.Namespace) -> tuple[BenchAnswer | BenchOverAnswer, int]:
    request = BenchRequest(**fields(options), quick=options.quick or options.over is not None)
    if options.over is None and options.steps is not None:
        raise arguments.bad("steps", "--steps needs a range; give --over, such as n=256..16384")
    with opened(request.device) as engine:
        if options.over is None:
            answer = _bench(engine, request)
            return answer, 0 if answer.ok else _bench_code(answer)
        name, low, high = options.over
        return _bench_over(engine, request, name, arguments.sizes(low, high, options.steps))


def _bench_code(answer: BenchAnswer) -> int:
    """A kernel without an answer has failed; one with a wrong answer is wrong."""
    own = answer.providers.get("triton")
    return FAILED if own and own.ulps is None else WRONG


def _bench(engine: Engine, request: BenchRequest, prefix: str = "") -> BenchAnswer:
    """Measured here, with what GPUs reached beside it where this is a CPU; the recording alone where it cannot be."""
    try:
        result = result_of(engine, request, prefix)
    except EngineError as e:
        if e.failure.kind != "unavailable":
            raise
        recorded = _recorded(engine, request)
        if not recorded:
            raise EngineError(_unrecorded(e.failure)) from None
        first = recorded[0]
        note = "; ".join(filter(None, (f"not measured here: {e.failure.message}", first.note)))
        return _as_answer(first.model_copy(update={"note": note}), recorded[1:])
    on_gpu = engine.default_device.startswith("cuda") and request.device != "cpu"
    return _as_answer(result, () if on_gpu else _recorded(engine, request))


def _recorded(engine: Engine, request: BenchRequest) -> tuple[BenchResult, ...]:
    """The nearest shape of each GPU."""
    nearest: dict[str, BenchResult] = {}
    for result in engine.recorded(request):
        nearest.setdefault(result.source.device, result)
    return tuple(nearest.values())


def _unrecorded(failure: Failure) -> Failure:
    message = f"{failure.message}; and no GPU's result is recorded for this kernel"
    return failure.model_copy(update={"message": message})


def _as_answer(result: BenchResult, recorded: tuple[BenchResult, ...]) -> BenchAnswer:
    return BenchAnswer(**{name: getattr(result, name) for name in BenchResult.model_fields}, recorded=recorded)


def _bench_over(engine: Engine, request: BenchRequest, over: str, values: list[int]) -> tuple[BenchOverAnswer, int]:
    """Every size, even where one has no result. An unknown dim is the person's mistake and ends it."""
    steps: list[BenchStep] = []
    for i, value in enumerate(values, 1):
        sized = request.model_copy(update={"dims": {**request.dims, over: value}})
        try:
            engine.validate(sized)
            steps.append(BenchStep(value=value, result=_bench(engine, sized, f"{over}={value:,} ({i}/{len(values)}) ")))
        except EngineError as e:
            if e.failure.kind == "cancelled" or (e.failure.kind == "input" and len(values) == len(steps) + 1 == 1):
                raise
            steps.append(BenchStep(value=value, error=e.failure))
    results = [step.result for step in steps if step.result]
    if not results and steps[0].error:
        raise EngineError(steps[0].error)
    ok = all(result.ok for result in results)
    return BenchOverAnswer(ok=ok, kernel=request.kernel, over=over, steps=tuple(steps)), 0 if ok else WRONG


def kernels(options: argparse.Namespace) -> tuple[KernelsAnswer, int]:
    from kernels import all_kernels
    from kernels.targets import TARGETS

    specs = list(all_kernels().values()) if options.kernel is None else [_spec(options.kernel)]
    with opened() as engine:
        arch = "cpu"
        if engine.default_device != "cpu":
            arch = engine.host().arch
            arch = arch if arch in TARGETS else LISTED_ARCH
    return KernelsAnswer(kernels=tuple(_entry(spec, TARGETS[arch]) for spec in specs)), 0


def _entry(spec: Any, target: Any) -> KernelEntry:
    inputs = spec.inputs(spec.default, spec.dtypes[0], "meta")
    configs = (
        ConfigEntry(meta=dict(c.meta), num_warps=c.num_warps, num_stages=c.num_stages, text=c.label)
        for c in spec.configs(inputs, target)
    )
    return KernelEntry(
        name=spec.name,
        title=spec.title,
        doc=spec.doc,
        dims={d.name: DimEntry(doc=d.doc, low=d.low, high=d.high, default=spec.default[d.name]) for d in spec.dims},
        presets={name: dict(dims) for name, dims in spec.presets.items()},
        dtypes=tuple(spec.dtypes),
        configs=tuple(configs),
        configs_for=target.arch,
        outputs=tuple(output.name for output in spec.outputs),
        edges=tuple(EdgeEntry(name=e.name, attacks=e.attacks, dtype=e.dtype) for e in spec.edges),
        bugs=tuple(BugEntry(name=b.name, hint=b.hint, symptom=b.symptom, dtype=b.dtype) for b in spec.bugs),
        baselines=("eager", "torch.compile", *(b.name for b in spec.baselines)),
        variant_of=spec.variant_of,
    )


def record(options: argparse.Namespace) -> tuple[RecordAnswer, int]:
    """Measured in this process, which has nothing else to do. A file is kept after each step."""
    if options.check:
        return record_check(options)
    for name in options.kernels:
        _spec(name)
    with opened() as engine:
        found, why = engine.gpus()
        out = Path(options.out) if options.out else engine.settings.recordings
    if not found:
        raise EngineError(Failure(kind="unavailable", message=f"record needs a GPU, and {why}"))
    os.environ.update(compiler_environment())  # as in every worker
    from playground.engine.record import record as measure

    seconds = float("inf") if options.seconds is None else options.seconds
    report = functools.partial(print, file=sys.stderr, flush=True)
    from playground.engine.record_sweeps import SWEPT, record_sweeps

    if options.warm:
        from playground.engine.record_warm import warm

        names = options.kernels or (SWEPT if options.sweeps else _all_names())
        warm(names, options.warm, min(seconds, WARM_SECONDS), report, options.sweeps)
    if options.sweeps:
        written = record_sweeps(options.kernels or None, out, seconds, report)
    else:
        written = measure(options.kernels or None, out, seconds, report, options.force)
    return RecordAnswer(verb="record", ok=True, lines=tuple(f"wrote {path}" for path in written)), 0


def _all_names() -> list[str]:
    from kernels import all_kernels

    return list(all_kernels())


def record_check(options: argparse.Namespace) -> tuple[RecordAnswer, int]:
    with opened() as engine:
        lines = stale_recordings(engine.settings.recordings)
    return RecordAnswer(verb="record-check", ok=not lines, lines=lines), WRONG if lines else 0


def _doctor(options: argparse.Namespace) -> tuple[Answer, int]:
    with opened() as engine:
        answer = doctor(engine)
    return answer, 0 if answer.ok else 3


def _later(name: str, module: str = "code_verbs") -> Callable[[argparse.Namespace], tuple[Answer, int]]:
    """A verb of a module that itself stands on this one."""

    def verb(options: argparse.Namespace) -> tuple[Answer, int]:
        return getattr(importlib.import_module(f"playground.cli.{module}"), name)(options)

    return verb


VERBS = {
    "doctor": _doctor,
    "kernels": kernels,
    "run": run,
    "bench": bench,
    "sweep": _later("sweep"),
    "compile": _later("compile_"),
    "trace": _later("trace", "trace_verb"),
    "chat": _later("chat", "chat_verbs"),
    "record": record,
    "record-check": record_check,
}
