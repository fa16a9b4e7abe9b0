"""An answer as HTML and figures: the verdict across the page, tables, charts and reasons. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from playground.engine.host import BUSY
from playground.engine.messages import BenchResult, OutputVerdict, ProviderBench, RunResult
from playground.ui import charts, panels, words
from playground.ui.answer import Answer, exact
from playground.ui.panels import Reason, Row, Stat
from playground.ui.tabs.run import method

NAMES = {"triton": "Triton"}
NOTHING = "Not run yet"
NO_TIME = "No time is shown beside a wrong answer."
OVER = "More than 100 % of copy: served from cache, which the copy roof of memory does not count."


def name_of(provider: str) -> str:
    return NAMES.get(provider, provider)


# The verdict


def banner(answer: Answer) -> str:
    """The outcome, first and across the page."""
    if answer.failure:
        return _failure(answer)
    if answer.run is None:
        return panels.busy(answer.progress) if answer.progress else ""
    return _right(answer, answer.run) if answer.right else _wrong(answer.run)


def empty(what: str) -> str:
    """Before the first run; `what` says what Run brings on this host."""
    return panels.verdict("unknown", NOTHING, what)


def _failure(answer: Answer) -> str:
    assert answer.failure
    if answer.failure.kind == "cancelled":
        return panels.verdict("unknown", "Stopped", "Nothing was judged. Run starts afresh.")
    ran = answer.failure.kind in ("crashed", "timeout", "failed")
    message = answer.failure.message
    edited = "mend the edit, and run it again" if answer.request.source is not None else ""
    return panels.failed(message if "; " in message else f"{message}; {edited or _next(answer.failure.kind)}", not ran)


def _next(kind: str) -> str:
    return {
        "crashed": "press Run again",
        "timeout": "the worker was replaced; choose a smaller shape",
        "unavailable": "choose another kernel, dtype, shape or config",
    }.get(kind, "change the choice above, and run again")


def _right(answer: Answer, run: RunResult) -> str:
    stats = key_figures(answer.timed, answer.progress is not None) if answer.timed else []
    figures = panels.stats(stats, answer.timed.source) if answer.timed else ""
    said = [_error_line(run)]
    if run.choice.edge:
        said.append("An edge case is judged, not timed.")
    if run.choice.bug:
        said.append("The planted bug does not bite at this shape.")
    timed_note = answer.timed.note if answer.timed else ""
    said += [_sentence(note) for note in dict.fromkeys((run.note, answer.untimed, timed_note)) if note]
    return panels.verdict("right", headline(answer), " ".join(said), run.source, figures)


def headline(answer: Answer) -> str:
    """The result in words. It joins a verdict and a time of one device alone."""
    bench = answer.timed
    gain = bench.providers["triton"].speedup if bench and "triton" in bench.providers else None
    if bench is None or gain is None:
        return "Right"
    ours, eager = bench.providers["triton"].us, bench.providers["eager"].us
    busy = BUSY in bench.note
    if (busy and gain < 1.05) or (not 0.95 <= gain < 1.05 and ours and eager and ours.overlaps(eager)):
        return "Right; the times are too noisy to say which is faster"
    if busy:
        return "Right, and faster than eager; how much, a busy host cannot say"
    if gain >= 1.05:
        return f"Right, and {words.speedup(gain)[:-1]} times as fast as eager"
    return "Right, and as fast as eager" if gain >= 0.95 else f"Right, at {words.speedup(gain)[:-1]} of eager's speed"


def _error_line(run: RunResult) -> str:
    if not run.outputs:
        return "There is nothing to compare."
    name, worst = worst_output(run.outputs)
    of = f" in {name}" if len(run.outputs) > 1 else ""
    if worst.error == 0 and worst.ulps == 0:
        return "Every element equals the float64 reference, rounded."
    eager = f"PyTorch eager's is {words.ulps(worst.ulps_bar)}" if worst.ulps_bar else "PyTorch eager is exact"
    allowed = f"{words.percent(worst.error / worst.bar)} % of the error allowed" if worst.bar else "none is allowed"
    return f"Worst error {words.ulps(worst.ulps)} ulp{of}; {eager}; {allowed}."


def worst_output(outputs: Mapping[str, OutputVerdict]) -> tuple[str, OutputVerdict]:
    """The output nearest to its bar, or farthest beyond it."""
    return max(outputs.items(), key=lambda item: (not item[1].ok, item[1].error / (item[1].bar or 1e-300)))


def _wrong(run: RunResult) -> str:
    if run.ok:
        detail = f"The verdict after the benchmark differs from the first one. {NO_TIME}"
        return panels.verdict("wrong", "Right once, and wrong when repeated", detail, run.source)
    if run.out_of_bounds:
        outside = run.out_of_bounds
        head = f"Out of bounds: a {outside.kind} outside {outside.tensor}"
        where = f"Element {outside.index:,}, by program ({', '.join(map(str, outside.program))}), lane {outside.lane}, "
        where += f"line {outside.line}. {NO_TIME}"
        return panels.verdict("wrong", head, where, run.source)
    triton = run.providers.get("triton")
    if triton and triton.failure:
        what, _, rest = triton.failure.partition(": ")
        if what.startswith("wrote outside"):  # found by the zones that guard each output
            return panels.verdict("wrong", _sentence(what)[:-1], f"{_sentence(rest)} {NO_TIME}", run.source)
        return panels.verdict("wrong", "The kernel failed", _sentence(triton.failure), run.source)
    name, worst = worst_output(run.outputs)
    if worst.wrong is None:
        return panels.verdict("wrong", f"Wrong in {name}", _sentence(worst.note or "beyond the bar"), run.source)
    at = "[" + ", ".join(map(str, worst.wrong.index)) + "]"
    others = [n for n, v in run.outputs.items() if not v.ok and n != name]
    said = [f"Got {words.number(worst.wrong.got)}, expected {words.number(worst.wrong.expected)}."]
    said += [f"Worst error {words.ulps(worst.ulps)} ulp; PyTorch eager's is {words.ulps(worst.ulps_bar)}."]
    said += [f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} wrong too."] if others else []
    said += [_sentence(run.note)] if run.note else []
    first = f"Wrong from index {at} of {name} on" if len(run.outputs) > 1 else f"Wrong from index {at} on"
    if worst.error <= worst.bar:  # it is the rms that is over its bar; the element shown is the worst
        first = f"Wrong all over{f' in {name}' if len(run.outputs) > 1 else ''}, a little everywhere"
        said = [_sentence(worst.note), f"The worst is {at}:", *said]
    said.append(NO_TIME)
    return panels.verdict("wrong", first, " ".join(said), run.source)


def picture(answer: Answer) -> str:
    """Where the answer is wrong, "" where it is not."""
    if not answer.run or answer.run.ok or not answer.run.outputs:
        return ""
    _, worst = worst_output(answer.run.outputs)
    return panels.error_picture(worst.wrong) if worst.wrong else ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


# Figures of one benchmark


def key_figures(bench: BenchResult, pending: bool = False) -> list[Stat]:
    """pending: a share that is not there yet will come, and has its place already."""
    own = bench.providers.get("triton")
    if own is None or own.us is None:
        return []
    value, unit = words.quantity(own.us.p50, words.MICROSECONDS)
    _, size = words.unit_for(own.us.p50, words.MICROSECONDS)
    spread = f"{words.digits(own.us.p20 / size)} to {words.digits(own.us.p80 / size)}"
    found = [Stat(value, unit, "time", spread)]
    if bench.bound == "compute" and own.tflops is not None:
        found.append(
            Stat(*words.quantity(own.tflops, words.TERAFLOPS), "throughput", f"{bench.flops / 1e9:,.3g} GFLOP")
        )
    elif own.gbps is not None:
        moved = words.text(bench.bytes_moved, words.BYTES) + " moved"
        found.append(Stat(*words.quantity(own.gbps, words.GIGABYTES), "bandwidth", moved))
    if own.share_of_peak is not None:
        found.append(Stat(words.percent(own.share_of_peak), "%", f"of {roof_name(bench)}", share_note(own, bench)))
    elif pending and bench.roofs is None:
        found.append(Stat("…", "%", f"of {roof_name(bench)}", "being measured"))
    eager = bench.providers.get("eager")
    if own.speedup is not None and eager and eager.us:
        found.append(
            Stat(words.speedup(own.speedup)[:-1], "×", "against eager", words.text(eager.us.p50, words.MICROSECONDS))
        )
    return found


def share_note(own: ProviderBench, bench: BenchResult) -> str:
    if own.share_of_peak and own.share_of_peak > 1.0:
        return "over 100 %: served from cache"
    peak, units = _roof(bench), words.TERAFLOPS if bench.bound == "compute" else words.GIGABYTES
    return words.text(peak, units) if peak else ""


def _roof(bench: BenchResult) -> float:
    """The roof that binds, in TFLOP/s or GB/s: 0 where it is not known."""
    if bench.roofs is None:
        return 0.0
    return bench.roofs.matmul_tflops.get(bench.choice.dtype, 0.0) if bench.bound == "compute" else bench.roofs.copy_gbps


def roof_name(bench: BenchResult) -> str:
    return "matmul roof" if bench.bound == "compute" else "copy roof"


def conditions(bench: BenchResult) -> str:
    """What was timed and how, for the head of a section."""
    own = bench.providers.get("triton")
    how = f", {own.method}" if own and own.method else ""
    calls = f", median of {own.calls:,}" if own and own.calls else ""
    return f"{words.place(bench.source)}, {bench.choice.dtype}, {words.shape(bench.choice.dims)}{how}{calls}"


def ordered(bench: BenchResult) -> list[tuple[str, ProviderBench]]:
    """Triton first, then from the fastest to the slowest, then those without a time."""
    return sorted(
        bench.providers.items(),
        key=lambda item: (item[0] != "triton", item[1].us is None, item[1].us.p50 if item[1].us else 0.0),
    )


def table(bench: BenchResult, run: RunResult | None = None, label: str = "Implementations") -> str:
    """Every implementation in this benchmark. `run` adds verdicts that the benchmark lacks."""
    timed = [p.us.p50 for p in bench.providers.values() if p.us]
    unit, size = words.unit_for(max(timed, default=1.0), words.MICROSECONDS)
    compute = bench.bound == "compute"
    rates = [r for p in bench.providers.values() if (r := p.tflops if compute else p.gbps)]
    units = words.TERAFLOPS if compute else words.GIGABYTES
    rate_unit, rate_size = words.unit_for(max(rates, default=1.0), units)
    rows = [_row(name, p, size, rate_size, compute, run) for name, p in ordered(bench)]
    made = panels.compare_table(rows, unit, rate_unit, "matmul" if compute else "copy", label)
    over = any((p.share_of_peak or 0) > 1.005 for p in bench.providers.values())
    return made + (f'<p class="quiet">{OVER}</p>' if over else "") + method.timed(bench)


def _row(name: str, p: ProviderBench, size: float, rate_size: float, compute: bool, run: RunResult | None) -> Row:
    if p.missing or p.failure:
        return Row(name_of(name), gone=p.missing or f"failed: {p.failure}")
    ulps = p.ulps
    if ulps is None and run and name in run.providers and run.providers[name].outputs:
        ulps = worst_output(run.providers[name].outputs)[1].ulps
    shown = words.ulps(ulps) if ulps is not None else "–"
    if not p.ok or p.us is None:
        return Row(name_of(name), p.ok, shown, *["–"] * 5)
    rate = p.tflops if compute else p.gbps
    return Row(
        name_of(name), p.ok, shown, words.digits(p.us.p50 / size),
        f"{words.digits(p.us.p20 / size)}–{words.digits(p.us.p80 / size)}",
        words.digits(rate / rate_size) if rate is not None else "–",
        f"{words.percent(p.share_of_peak)}&nbsp;%" if p.share_of_peak is not None else "–",
        words.speedup(p.speedup) if p.speedup is not None else "–",
    )  # fmt: skip


def bars(bench: BenchResult) -> go.Figure | None:
    """The times of this benchmark; None where nothing was timed."""
    found = [charts.Bar(name_of(n), p.us.p50, p.us.p20, p.us.p80) for n, p in ordered(bench) if p.us and p.ok]
    if not found:
        return None
    return charts.provider_bars(found, bench.floor_us, "matmul floor" if bench.bound == "compute" else "copy floor")


def sweep_chart(points: list[BenchResult] | tuple[BenchResult, ...], dim: str) -> go.Figure | None:
    """Throughput against size for every provider, and the roof that binds; None without points."""
    if not points:
        return None
    compute = points[-1].bound == "compute"
    names = list(dict.fromkeys(n for p in points for n, _ in ordered(p)))

    def rate(point: BenchResult, name: str) -> float | None:
        p = point.providers.get(name)
        return (p.tflops if compute else p.gbps) if p and p.ok and p.us else None

    lines = [charts.Line(name_of(n), [rate(p, n) for p in points]) for n in names]
    lines = [line for line in lines if any(v is not None for v in line.values)]
    if not lines:
        return None
    xs = [float(p.choice.dims[dim]) if compute else float(p.bytes_moved) for p in points]
    binding = sorted({"matmul" if p.bound == "compute" else "copy" for p in points})
    across = dim if compute else "bytes moved"
    ceiling = [_ceiling(p, compute) for p in points]
    return charts.throughput(xs, across, lines, ceiling, f"{' and '.join(binding)} ceiling", compute)


def _ceiling(bench: BenchResult, compute: bool) -> float:
    """The rate at the floor, in TFLOP/s or GB/s, whichever roof it is that binds; 0 where none is known."""
    if not bench.floor_us:
        return 0.0
    return bench.flops / bench.floor_us / 1e6 if compute else bench.bytes_moved / bench.floor_us / 1e3


# Why


def why(answer: Answer) -> list[Reason]:
    """What explains the speed, each with its source."""
    bench = answer.timed or answer.recorded
    found = _bound(bench) if bench else []
    if answer.resources:
        found += _compiled(answer)
    if answer.run:
        found.append(_config(answer.run))
    return found


def _bound(bench: BenchResult) -> list[Reason]:
    intensity = bench.flops / bench.bytes_moved if bench.bytes_moved else 0.0
    device = words.place(bench.source)
    own = bench.providers.get("triton")
    share = f", and Triton is at {words.percent(own.share_of_peak)} % of it" if own and own.share_of_peak else ""
    peak, units = _roof(bench), words.TERAFLOPS if bench.bound == "compute" else words.GIGABYTES
    roof = f"the {roof_name(bench)} of {device} stands at {words.text(peak, units)}{share}" if peak else device
    moved = words.text(bench.bytes_moved, words.BYTES)
    floor = words.text(bench.floor_us, words.MICROSECONDS)
    return [
        Reason(f"Bound by {bench.bound}", f"{words.digits(intensity)} FLOP per byte: {roof}", bench.source),
        Reason(
            f"Must move {moved}",
            f"each input read once, each output written once{f'; that roof allows {floor}' if bench.floor_us else ''}",
            "modelled",
        ),
    ]


def _compiled(answer: Answer) -> list[Reason]:
    assert answer.resources
    found = []
    for launch in answer.resources.launches[:1]:
        spills = f"{launch.spills:,} B spilled" if launch.spills else "no spills"
        shared = f"{_shared(launch.shared_bytes)} of shared memory" if launch.shared_bytes else "no shared memory"
        loads = ", ".join(f"{launch.instructions[name]} × {name}" for name in _telling(launch.instructions)[:3])
        evidence = f"{spills}, {shared}, {words.count(launch.num_warps, 'warp')} on {launch.target}"
        claim = f"{launch.registers} registers a thread"
        found.append(Reason(claim, f"{evidence}{'; ' + loads if loads else ''}", answer.resources.source))
    return found


def _shared(size: int) -> str:
    """Shared memory is told in KB of 1024, as vendors do."""
    return f"{size / 1024:.3g} KB" if size >= 1024 else f"{size} B"


# Instructions that say the most about a kernel's speed, first: its matrix products, and how it reaches memory.
TELLING = ("wgmma", "tcgen05", "mma", "cp.async.bulk", "ld.global", "cp.async", "st.global")


def _telling(instructions: Mapping[str, int]) -> list[str]:
    rank = {
        name: i for i, start in reversed(list(enumerate(TELLING))) for name in instructions if name.startswith(start)
    }
    return sorted(rank, key=lambda name: rank[name])


def _config(run: RunResult) -> Reason:
    origin = {
        "given": "chosen by you",
        "tuned": "the fastest when this device was tuned",
        "spec": "the kernel's default for this device; others are in the list",
    }[run.choice.config_origin]
    return Reason(run.choice.config.label, origin, None)


def recorded_note(answer: Answer) -> str:
    """What a reader must know of the recording: that it is another shape, or of an older kernel."""
    recorded = answer.recorded
    if recorded is None:
        return ""
    stale = "recorded with an older kernel; " if recorded.stale else ""
    near = "" if exact(recorded, answer.request) else "the nearest shape that was recorded; "
    return stale + near + conditions(recorded)
