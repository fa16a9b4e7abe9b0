"""The Memory tab's answer, the levels of a GPU with the kernel in them, and the journey's data. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from playground.engine.gpus import Gpu
from playground.engine.messages import Source
from playground.ui import panels, words
from playground.ui.tabs.memory import journey as memory_journey
from playground.ui.tabs.memory import method
from playground.ui.tabs.memory.facts import Facts, fresh_bytes
from playground.ui.tabs.memory.text import bytes_text, cache_size, rate_text

# The answer


def banner(facts: Facts) -> str:
    """What moves, against the least that must, and what eager would move."""
    trace = facts.trace
    if trace.out_of_bounds:
        count = words.count(len(trace.out_of_bounds), "access") if len(trace.out_of_bounds) == 1 else (
            f"{len(trace.out_of_bounds)} accesses"
        )  # fmt: skip
        return panels.verdict("wrong", f"Out of bounds: {count}", trace.out_of_bounds[0].message, trace.source)
    if not trace.launches:
        return panels.verdict("unknown", "Nothing moves", "This shape has no elements, so no kernel runs.")
    asked = trace.bytes_loaded + trace.bytes_stored
    ours, eager = memory_journey.saved(facts)
    least = f"{bytes_text(trace.compulsory_bytes)} is the least"
    headline = (
        f"{least}; too little was traced to say more" if trace.steered else f"{bytes_text(asked)} asked for, {least}"
    )
    detail = f"{_beside_eager(ours, eager)} {trace.note[:1].upper()}{trace.note[1:]}{'.' if trace.note else ''}"
    return panels.verdict("code", headline, detail.strip(), trace.source)


def _beside_eager(ours: float, eager: float) -> str:
    if eager > 1.02 * ours > 0:
        less = f"{bytes_text(eager - ours)}, or {words.percent(1 - ours / eager)} %, less"
        return f"Through memory it moves {bytes_text(ours)}, {less} than eager's {bytes_text(eager)}."
    return f"Through memory it moves {bytes_text(ours)}; eager moves {bytes_text(eager)}."


# The levels


@dataclass(frozen=True)
class Level:
    """One level: css key, name, capacity, rates as (text, badge or "datasheet"), use in words and as a share."""

    key: str
    name: str
    capacity: str
    rates: Sequence[tuple[str, Source | str]]
    use: str
    share: float | None = None


def levels(facts: Facts) -> list[Level]:
    return _cpu_levels(facts) if facts.cpu else _gpu_levels(facts)


def _gpu_levels(facts: Facts) -> list[Level]:
    gpu, rates = facts.gpu, facts.rates
    datasheet = gpu.source != "read from the device"
    on_chip: list[tuple[str, Source | str]] = (
        [] if not gpu.clock_hz else [(f"{rate_text(gpu.shared_rate)}", "modelled")]
    )
    registers: list[tuple[str, Source | str]] = (
        [] if not gpu.clock_hz else [(f"{rate_text(gpu.register_rate)}", "modelled")]
    )
    memory: list[tuple[str, Source | str]] = [(rate_text(rates.memory), rates.source)] if rates.source else []
    if datasheet:
        memory.append((rate_text(gpu.memory_rate), "datasheet"))
    found = [
        Level(
            "registers", "Registers", f"{cache_size(gpu.register_bytes)} per {gpu.unit}", registers, *_registers(facts)
        ),
        Level(
            "sram", "Shared memory", f"{cache_size(gpu.shared_bytes)} per {gpu.unit}",
            [*([(rate_text(rates.l1), rates.source)] if rates.l1 and rates.source else []), *on_chip], *_shared(facts),
        ),
        Level("l2", "L2", cache_size(gpu.l2_bytes),
              [(rate_text(rates.l2), rates.source)] if rates.l2 and rates.source else [], *_l2(facts)),
    ]  # fmt: skip
    if gpu.infinity_bytes:
        found.append(Level("l2", "Infinity Cache", cache_size(gpu.infinity_bytes), [], "AMD's cache beside the memory"))
    moved = facts.trace.bytes_loaded + facts.trace.bytes_stored
    footprint = sum(t.bytes_total for launch in facts.trace.launches for t in launch.tensors)
    ours, _ = memory_journey.saved(facts)
    found += [
        Level("hbm", gpu.memory_kind, bytes_text(gpu.memory_bytes), memory,
              f"{bytes_text(ours)} a launch of {bytes_text(moved)} asked for", footprint / gpu.memory_bytes),
        Level("dram", "Host DRAM", "over PCIe", [(rate_text(gpu.host_rate), "datasheet")], "not touched", 0.0),
    ]  # fmt: skip
    return found


def _registers(facts: Facts) -> tuple[str, float | None]:
    if not facts.residents:
        return facts.refused or "not known", None
    held = facts.residents[0]
    programs = f"{words.count(held.held.blocks, 'program')} on {facts.gpu.one_unit}"
    text = f"{cache_size(held.register_bytes)} a program, {programs}"
    return text, held.registers_on_sm / facts.gpu.register_bytes


def _shared(facts: Facts) -> tuple[str, float | None]:
    if not facts.residents:
        return "not known", None
    held = facts.residents[0]
    if not held.shared_bytes:
        return "none used", 0.0
    return f"{cache_size(held.shared_bytes)} a program", held.shared_on_sm / facts.gpu.shared_bytes


def _l2(facts: Facts) -> tuple[str, float | None]:
    again = [
        (t, fresh_bytes(launch, t, "load"))
        for launch in facts.trace.launches
        for t in launch.tensors
        if t.bytes_loaded > 1.02 * max(fresh_bytes(launch, t, "load"), 1)
    ]
    if not again:
        return "nothing is asked for twice", 0.0
    size = sum(fresh for _, fresh in again)
    names = ", ".join(dict.fromkeys(memory_journey.short(t.name) for t, _ in again))
    return f"{names} asked for again: {bytes_text(size)}", size / max(facts.gpu.l2_bytes, 1)


def _cpu_levels(facts: Facts) -> list[Level]:
    host, rates = facts.host, facts.rates
    caches = host.caches if host else {}
    keys = ("sram", "sram", "l2", "hbm")
    footprint = sum(t.bytes_total for launch in facts.trace.launches for t in launch.tensors)
    curve = host.curve if host else None
    found = [Level("registers", "Registers", "of a core", [], "a block of a program at a time")]
    best = [
        max((g for b, g in zip(curve.bytes, curve.gbps, strict=True) if b <= size / 2), default=0.0) if curve else 0.0
        for size in caches.values()
    ]
    for i, (name, size) in enumerate(caches.items()):
        # Where a larger cache seems faster, a copy that fits into this one is mostly the cost of its call.
        told = best[i] > 0 and best[i] >= max(best[i + 1 :], default=0.0)
        speed = [(rate_text(best[i] * 1e9), curve.source)] if told and curve else []
        fits = "holds every tensor" if footprint <= size else "less than the tensors"
        found.append(Level(keys[min(i + (len(caches) < 3), 2)], name, cache_size(size), speed, fits,
                           min(1.0, footprint / size)))  # fmt: skip
    memory = [(rate_text(rates.memory), rates.source)] if rates.source else []
    total = host.memory_bytes if host else 0
    found.append(Level("hbm", "DRAM", bytes_text(total), memory, f"{bytes_text(footprint)} of tensors",
                       footprint / total if total else None))  # fmt: skip
    return found


def hierarchy(facts: Facts) -> str:
    """The levels as a water column: the deeper, the larger, slower and darker."""
    found = levels(facts)
    body = "".join(_level(level, i, len(found)) for i, level in enumerate(found))
    return (
        '<div class="hier"><div class="heads" aria-hidden="true"><span>level and capacity</span><span>bandwidth</span>'
        f"<span>this kernel</span></div><ol>{body}</ol></div>{_waves(facts)}{method.levels(facts)}"
    )


def _level(level: Level, i: int, count: int) -> str:
    wide = 56 + 44 * i / max(count - 1, 1)
    speeds = [(text, origin) for text, origin in level.rates if text]
    if speeds:
        first, *rest = speeds
        speed = f"<b>{escape(first[0])}</b> {_origin(first[1])}" + "".join(
            f"<small>{escape(text)} {_word(origin)}</small>" for text, origin in rest
        )
    else:
        speed = "<b>not measured</b>"
    meter = ""
    if level.share is not None:
        share = min(100.0, 100 * level.share)
        meter = f'<meter min="0" max="100" value="{share:.1f}" aria-label="{share:.0f} % used"></meter>'
    return (
        f'<li class="lv {level.key}"><div class="band" style="--w:{wide:.0f}%"><b>{escape(level.name)}</b>'
        f'<span>{escape(level.capacity)}</span></div><div class="speed">{speed}</div>'
        f'<div class="use"><span>{escape(level.use)}</span>{meter}</div></li>'
    )


def _origin(origin: Source | str) -> str:
    return "<small>datasheet</small>" if origin == "datasheet" else panels.badge(origin)


def _word(origin: Source | str) -> str:
    return origin if isinstance(origin, str) else origin.kind


def _waves(facts: Facts) -> str:
    """How the grid goes over the SMs, in a line."""
    lines = []
    for held in facts.residents:
        if not held.held.blocks:
            lines.append(f"{held.kernel}: one program does not fit on {facts.gpu.one_unit} of this GPU.")
            continue
        if held.waves <= 1:
            share = held.programs / held.resident
            rest = f"all at once: they fill {words.percent(share)} % of the {held.resident:,} places"
        else:
            rest = f"in {held.waves:.2f} waves of {held.resident:,}"
            tail = held.waves - math.floor(held.waves)
            rest += f"; the last wave fills {words.percent(tail)} % of the places" if 0 < tail < 0.98 else ""
        lines.append(
            f"{held.kernel}: {words.count(held.programs, 'program')} over {facts.gpu.sms} {facts.gpu.unit}s, {rest}."
        )
    body = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f'<div class="waves">{body} {panels.badge("compiled")}</div>' if lines else ""


def levels_note(gpu: Gpu) -> str:
    origin = gpu.source if gpu.source == "read from the device" else f"Datasheet: {gpu.source}"
    return f"the deeper, the larger and the slower. {origin[:1].upper()}{origin[1:]}"


UNMEASURED = "no rates are known of this device: Measure this device, below, then Trace"


def no_roofline(facts: Facts) -> str:
    """Why there is no roofline."""
    why = "This kernel moves data and computes nothing, so only bandwidth bounds it"
    if facts.trace.flops:
        why = f"{UNMEASURED[:1].upper()}{UNMEASURED[1:]}"
    return f'<div class="nochart"><p>{why}.</p></div>'


def journey(facts: Facts) -> str:
    """The value of journey.js."""
    ours, eager = memory_journey.saved(facts)
    less = eager - ours
    fused = f"Fusion keeps {bytes_text(less)} out of memory." if less > 0.02 * eager else ""
    rate = facts.rates.memory
    return json.dumps(
        {"lanes": memory_journey.lanes(facts), "saved": fused, "memory": facts.gpu.memory_kind, "rate": rate},
        separators=(",", ":"),
    )
