"""The Memory tab's headings: each says what its picture shows. Pure."""

from __future__ import annotations

from playground.ui import words
from playground.ui.tabs.memory import drawn, journey
from playground.ui.tabs.memory.facts import Facts
from playground.ui.tabs.memory.text import bytes_text, rate_text, time_text, times_text


def of_flows(facts: Facts) -> str:
    ours, eager = journey.saved(facts)
    if not eager > 1.02 * ours > 0:
        return f"Fused {bytes_text(ours)}, and eager no more"
    return f"Fused {bytes_text(ours)}, eager {bytes_text(eager)}"


def of_roof(facts: Facts) -> str:
    """Which of the two roofs is the lower one at this shape, and where they meet."""
    trace, memory = facts.trace, facts.rates.memory
    if not (trace.flops and trace.compulsory_bytes and memory and facts.arithmetic):
        return "Roofline"
    intensity, ridge = trace.flops / trace.compulsory_bytes, facts.arithmetic / memory
    lower = "memory" if intensity < ridge else "arithmetic"
    return (
        f"Roofline: {lower} bounds it, at {words.digits(intensity)} FLOP per byte; "
        f"the roofs meet at {words.digits(ridge)}"
    )


def of_sizes(facts: Facts) -> str:
    found = [r.providers["triton"] for r in drawn.of_gpu(facts) if "triton" in r.providers]
    best = max((p.gbps for p in found if p.ok and p.gbps), default=None)
    if best:
        return f"Bandwidth against size: up to {rate_text(best * 1e9)}"
    device = facts.devices.get(facts.gpu.name)
    top = max(device.curve.gbps, default=None) if device and device.curve else None
    return f"Bandwidth against size: a copy, up to {rate_text(top * 1e9)}" if top else "Bandwidth against size"


def of_ways(facts: Facts) -> str:
    trace = facts.trace
    asked, least = trace.bytes_loaded + trace.bytes_stored, trace.compulsory_bytes
    if trace.steered or not (asked and least):
        return "Bytes three ways"
    if asked <= 1.02 * least:
        return "Bytes three ways: no more than the least is asked for"
    return f"Bytes three ways: {times_text(asked / least)} times the least is asked for"


def of_map(facts: Facts) -> str:
    """What share of the sectors' bytes is used, over all accesses."""
    trace = facts.trace
    if not trace.sectors:
        return "Access map"
    used = sum(a.efficiency * a.sectors for a in trace.accesses) / trace.sectors
    return f"Access map: {words.percent(used)} % of the sectors touched is used"


def of_occupancy(facts: Facts) -> str:
    if not facts.residents:
        return "Occupancy"
    least_of = min(facts.residents, key=lambda one: one.held.occupancy)
    least = least_of.held
    name = f" in {least_of.kernel}" if len(facts.residents) > 1 else ""
    why = "it does not fit" if not least.blocks else f"by {' and '.join(least.deciding)}"
    return f"Occupancy: {words.percent(least.occupancy)} %{name}, {why}"


def of_journey(facts: Facts) -> str:
    """Eager's time only where it is longer: what its kernels read again is not known, and so not in it."""
    ours, eager = (lane["floor"] for lane in journey.lanes(facts))
    if not ours:
        return "The journey of a tile"
    beside = f", eager's {time_text(eager)}" if eager > ours else ""
    return f"The journey of a tile: {time_text(ours)} at the least{beside}"
