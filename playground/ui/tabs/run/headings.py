"""What a chart shows, in its heading: the times of a benchmark, and the best rate of a sweep. Plain text."""

from __future__ import annotations

from collections.abc import Sequence

from playground.engine.messages import BenchResult
from playground.ui import words


def times(bench: BenchResult) -> str:
    """Triton's time and eager's; "Time" where Triton has none."""
    found = {name: p.us.p50 for name, p in bench.providers.items() if p.us and p.ok}
    if "triton" not in found:
        return "Time"
    ours = f"Triton {words.text(found['triton'], words.MICROSECONDS)}"
    return f"{ours}, eager {words.text(found['eager'], words.MICROSECONDS)}" if "eager" in found else ours


def best(points: Sequence[BenchResult]) -> str:
    """Led by a colon: Triton's best rate and its share of the ceiling there; "" where it has no rate."""
    compute = bool(points) and points[-1].bound == "compute"
    units = words.TERAFLOPS if compute else words.GIGABYTES
    ours = [p.providers["triton"] for p in points if "triton" in p.providers]
    rated = [(p.tflops if compute else p.gbps, p.share_of_peak) for p in ours if p.ok and p.us]
    rate, share = max(((r, s) for r, s in rated if r is not None), default=(None, None), key=lambda pair: pair[0] or 0)
    if rate is None:
        return ""
    of = f", {words.percent(share)} % of the ceiling" if share is not None else ""
    return f": Triton up to {words.text(rate, units)}{of}"
