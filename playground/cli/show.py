"""Answers as people read them: a headline, a table, and what is to be said about it. `text` is the one door."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from playground.cli.answers import (
    Answer,
    BenchAnswer,
    BenchOverAnswer,
    DoctorAnswer,
    KernelEntry,
    KernelsAnswer,
    RecordAnswer,
)
from playground.engine.messages import (
    BenchResult,
    Choice,
    OutputVerdict,
    ProviderBench,
    ProviderRun,
    RunResult,
    Source,
    Times,
)

Row = Sequence[str]


@functools.singledispatch
def text(answer: Answer) -> str:
    """The answer for a terminal, several lines."""
    raise TypeError(f"no words for a {type(answer).__name__}")


def table(header: Row, rows: Sequence[Row], right: Sequence[int] = ()) -> str:
    """Columns two spaces apart, as wide as their widest cell. right: the columns of figures."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = []
    for row in (header, *rows):
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _join(*parts: str) -> str:
    return "\n".join(part for part in parts if part)


def _figure(value: float | None) -> str:
    """Three digits, and no more zeros than needed."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == 0 else f"{value:.3g}"


def _times(times: Times | None) -> str:
    return f"{_figure(times.p50)} ({_figure(times.p20)}-{_figure(times.p80)})" if times else ""


def _choice(choice: Choice) -> str:
    dims = ", ".join(f"{name}={value:,}" for name, value in choice.dims.items())
    extra = [f"edge case {choice.edge}" * bool(choice.edge), f"planted bug {choice.bug}" * bool(choice.bug)]
    parts = (choice.kernel, dims, choice.dtype, f"seed {choice.seed}", *extra, "edited" * choice.edited)
    return f"{'  '.join(filter(None, parts))}\n{choice.config.label} ({choice.config_origin} config)"


def _source(source: Source) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in source.versions.items())
    return f"{source.kind} on {source.device}, {source.date[:10]}" + (f" ({versions})" if versions else "")


@text.register
def _(answer: DoctorAnswer) -> str:
    rows = [("ok" if check.ok else "no", check.name, check.why) for check in answer.checks]
    verdict = "Kernels run here." if answer.ok else "Kernels cannot run here: see what is missing above."
    return _join(table(("", "what", "why"), rows), verdict)


@text.register
def _(answer: KernelsAnswer) -> str:
    if len(answer.kernels) == 1:
        return _kernel(answer.kernels[0])
    rows = [(k.name, k.title, ", ".join(k.dims), ", ".join(k.dtypes)) for k in answer.kernels]
    return table(("kernel", "title", "dims", "dtypes"), rows)


def _kernel(kernel: KernelEntry) -> str:
    dims = [(n, f"{d.default:,}", f"{d.low:,} to {d.high:,}", d.doc) for n, d in kernel.dims.items()]
    presets = [(name, ", ".join(f"{n}={v:,}" for n, v in dims_.items())) for name, dims_ in kernel.presets.items()]
    return _join(
        f"{kernel.name}: {kernel.doc}\n",
        table(("dim", "default", "from", "what"), dims, right=(1,)) + "\n",
        table(("preset", "dims"), presets) + "\n",
        f"dtypes: {', '.join(kernel.dtypes)}",
        f"configs for {kernel.configs_for}: {'; '.join(config.text for config in kernel.configs)}",
        f"edge cases: {', '.join(edge.name for edge in kernel.edges)}" if kernel.edges else "",
        f"planted bugs: {', '.join(bug.name for bug in kernel.bugs)}" if kernel.bugs else "",
        f"baselines: {', '.join(kernel.baselines)}",
    )


@text.register
def _(answer: RunResult) -> str:
    rows = [row for name, provider in answer.providers.items() for row in _verdicts(name, provider)]
    return _join(
        _choice(answer.choice),
        f"{_headline(answer)}, {_source(answer.source)}\n",
        table(("provider", "output", "", "worst error", "bar", "ulps", "bar", ""), rows, right=(3, 4, 5, 6)),
        answer.out_of_bounds.message if answer.out_of_bounds else "",
        *(_first_wrong(name, verdict) for name, verdict in answer.outputs.items()),
        answer.note,
    )


def _headline(answer: RunResult) -> str:
    if answer.ok:
        return "right"
    return "WRONG" if answer.outputs else "OUT OF BOUNDS" if answer.out_of_bounds else "NO ANSWER"


def _verdicts(name: str, provider: ProviderRun) -> list[Row]:
    if not provider.outputs:
        why = provider.missing or provider.failure or "no answer"
        return [(name, "-", "", "", "", "", "", why)]
    return [
        (name, output, "ok" if v.ok else "WRONG", *map(_figure, (v.error, v.bar, v.ulps, v.ulps_bar)), v.note)
        for output, v in provider.outputs.items()
    ]


def _first_wrong(name: str, verdict: OutputVerdict) -> str:
    wrong = verdict.wrong
    if not wrong:
        return ""
    index = ", ".join(map(str, wrong.index))
    share = f"{wrong.count:,} of {wrong.total:,} are wrong"
    return f"{name}[{index}] is {wrong.got:.6g} and should be {wrong.expected:.6g}; {share}"


@text.register
def _(answer: BenchAnswer) -> str:
    beside = [f"\n{_bench(result)}" for result in answer.recorded]
    return _join(_bench(answer), *beside)


def _bench(result: BenchResult) -> str:
    header = ("provider", "us (p20-p80)", "GB/s", "TFLOP/s", "of peak", "speed-up", "method")
    stale = "recorded with an older kernel" if result.stale else ""
    roof = f"bound by {result.bound}: the measured roof allows {_figure(result.floor_us)} us"
    return _join(
        _choice(result.choice),
        f"{'right' if result.ok else 'WRONG or no answer'}, {_source(result.source)}\n",
        table(header, [_times_row(name, p) for name, p in result.providers.items()], right=(1, 2, 3, 4, 5)),
        roof,
        stale,
        result.note,
    )


def _times_row(name: str, provider: ProviderBench) -> Row:
    if provider.us is None:
        return (name, "-", "", "", "", "", provider.missing or provider.failure or "no answer")
    share = f"{provider.share_of_peak:.0%}" if provider.share_of_peak is not None else ""
    speedup = f"{provider.speedup:.2f} x" if provider.speedup is not None else ""
    figures = (_times(provider.us), _figure(provider.gbps), _figure(provider.tflops), share, speedup)
    return (name, *figures, "; ".join(filter(None, (provider.method, provider.note))))


@text.register
def _(answer: BenchOverAnswer) -> str:
    results = [step.result for step in answer.steps if step.result]
    timed_at_all = {name for result in results for name, p in result.providers.items() if p.us}
    names = [name for name in results[0].providers if name in timed_at_all]
    rows = []
    for step in answer.steps:
        if step.result is None:
            rows.append((f"{step.value:,}", *("-" for _ in names), step.error.message if step.error else ""))
            continue
        timed = [step.result.providers.get(name) for name in names]
        rows.append((f"{step.value:,}", *(_figure(p.us.p50) if p and p.us else "-" for p in timed), ""))
    header = (answer.over, *(f"{name}, us" for name in names), "")
    return _join(
        _choice(results[0].choice),
        f"{'right' if answer.ok else 'WRONG somewhere'}, {_source(results[0].source)}\n",
        table(header, rows, right=range(len(names) + 1)),
    )


@text.register
def _(answer: RecordAnswer) -> str:
    if answer.verb == "record-check" and answer.ok:
        return "Every recording is of today's kernel."
    return "\n".join(answer.lines)
