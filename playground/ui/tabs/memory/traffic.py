"""Bytes three ways: the least, what the program asks for, what DRAM saw; and why they differ. Pure: facts to HTML."""

from __future__ import annotations

from html import escape

from playground.engine.messages import Source
from playground.ui import panels, words
from playground.ui.tabs.memory import journey
from playground.ui.tabs.memory.facts import Facts, fresh_bytes
from playground.ui.tabs.memory.text import bytes_text, times_text


def three_ways(facts: Facts) -> str:
    """The least, what is asked for and what DRAM saw, on one scale; an absent figure says why."""
    trace = facts.trace
    asked = trace.bytes_loaded + trace.bytes_stored
    rows: list[tuple[str, float | None, Source | str | None, str]] = [
        ("Compulsory", trace.compulsory_bytes, "modelled", "each input read once, each output written once"),
        ("Asked for", asked, trace.source, f"{bytes_text(trace.bytes_loaded)} loaded, "
         f"{bytes_text(trace.bytes_stored)} stored"),
        _dram_row(facts),
    ]  # fmt: skip
    top = max(size for _, size, *_ in rows if size) if asked else 1
    return f'<ul class="ways">{"".join(_way(*row, top) for row in rows)}</ul>'


def _dram_row(facts: Facts) -> tuple[str, float | None, Source | str | None, str]:
    if facts.counted is None:
        return ("DRAM saw", None, None, "not counted: ncu's counters need a GPU and the right to read them, and there "
                "is no recording of this kernel and dtype")  # fmt: skip
    recording, shape, stale = facts.counted
    older = "; recorded with an older kernel" if stale else ""
    moved = f"{bytes_text(shape.read)} read, {bytes_text(shape.written)} written"
    said = f"ncu on {words.place(recording.source)}: {moved}{older}"
    if shape.dims == facts.trace.choice.dims:
        return "DRAM saw", shape.moved, recording.source, said
    return ("DRAM saw", None, recording.source,
            f"not counted at this shape; at {words.shape(shape.dims)} it was {bytes_text(shape.moved)}. "
            f"{said}")  # fmt: skip


def _way(label: str, size: float | None, source: Source | str | None, note: str, top: float) -> str:
    wide = 0.0 if size is None else 100 * size / top
    figure = "absent" if size is None else bytes_text(size)
    tag = panels.badge(source) if source else "<span></span>"
    return (
        f'<li><span>{escape(label)}</span><div class="bar"><i style="width:{wide:.1f}%"></i></div><b>{figure}</b>{tag}'
        f"<small>{escape(note)}</small></li>"
    )


def differences(facts: Facts) -> str:
    """Why the three are not the same, each with its figures."""
    items = [*_masked(facts), *_again(facts), *_sectors(facts), *_fewer(facts), *_dram_differs(facts)]
    if not items:
        items = [
            (
                "Nothing is lost",
                "Each byte is asked for once, and every sector that is touched is used in full.",
                "interpreted",
            )
        ]
    body = "".join(
        f"<li><b>{escape(claim)}</b><span>{escape(plain)}</span><div>{panels.badge(source)}</div></li>"
        for claim, plain, source in items[:4]
    )
    return f'<ul class="why">{body}</ul>'


Difference = tuple[str, str, Source | str]


def _masked(facts: Facts) -> list[Difference]:
    share = facts.trace.masked_share
    if share < 0.005:
        return []
    return [(
        "Masked lanes",
        f"{words.percent(share)} % of the lanes ask for nothing, where a block reaches past the end of its data. They "
        "move no bytes, but are issued all the same.",
        facts.trace.source,
    )]  # fmt: skip


def _again(facts: Facts) -> list[Difference]:
    found = []
    for launch in facts.trace.launches:
        for t in launch.tensors:
            fresh = fresh_bytes(launch, t, "load")
            times = t.bytes_loaded / fresh if fresh else 0.0
            if times > 1.05:
                found.append((t.bytes_loaded - fresh, journey.short(t.name), times, fresh))
    if not found:
        return []
    extra, name, times, unique = max(found)
    others = f" {words.count(len(found) - 1, 'other tensor')} too." if len(found) > 1 else ""
    return [(
        "Read again",
        f"{name} is asked for {times_text(times)} times over: {bytes_text(extra)} more than its "
        f"{bytes_text(unique)}. What L2 or L1 still holds does not come from memory again.{others}",
        facts.trace.source,
    )]  # fmt: skip


def _sectors(facts: Facts) -> list[Difference]:
    weak = [a for a in facts.trace.accesses if a.sectors and a.efficiency < 0.9 and a.bytes]
    if not weak:
        return []
    worst = max(weak, key=lambda a: a.sectors * (1 - a.efficiency))
    return [(
        "Sectors half used",
        f"The {worst.kind} of {journey.short(worst.tensor)} in line {worst.line} uses "
        f"{words.percent(worst.efficiency)} % of the 32-byte sectors it touches: {bytes_text(worst.sectors * 32)} go "
        f"through L2 for {bytes_text(worst.bytes)}.",
        facts.trace.source,
    )]  # fmt: skip


def _fewer(facts: Facts) -> list[Difference]:
    unique = facts.trace.unique_bytes
    least = facts.trace.compulsory_bytes
    if not facts.trace.exact or unique >= 0.98 * least:
        return []
    return [(
        "Less than the least",
        f"The cost model counts every tensor whole, and {bytes_text(least - unique)} of them are never touched: rows "
        "that are skipped, or data that no program needs.",
        "modelled",
    )]  # fmt: skip


def _dram_differs(facts: Facts) -> list[Difference]:
    if facts.counted is None:
        return []
    recording, shape, _ = facts.counted
    if shape.dims != facts.trace.choice.dims:
        return []
    extra = shape.moved - facts.trace.compulsory_bytes
    if abs(extra) < 0.02 * facts.trace.compulsory_bytes:
        plain = "DRAM moved what the model says, within 2 %: re-reads are served by the caches."
    elif extra < 0:
        plain = (
            f"{bytes_text(-extra)} less than the least: written lines that L2 still held when the kernel ended were "
            "not in DRAM yet, or inputs were in L2 already."
        )
    else:
        plain = f"{bytes_text(extra)} more than the least: data that L2 could not keep until it was asked for again."
    return [("What DRAM saw", plain, recording.source)]
