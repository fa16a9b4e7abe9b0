"""How near times come to the roofs: the floor of a shape, and each time's share of it. Pure arithmetic."""

from __future__ import annotations

import math
from typing import Literal

from playground.engine.messages import BenchResult, ProviderBench, Roofs

# FLOP per byte above which products bind on any device, for as long as its roofs are not measured.
COMPUTE_BOUND = 10.0


def floor(bytes_moved: int, flops: int, peaks: Roofs | None, dtype: str) -> tuple[Literal["memory", "compute"], float]:
    """The roof that binds, and the microseconds it allows: 0 without roofs. A dtype without one takes float32's."""
    if peaks is None:
        return ("compute" if flops > COMPUTE_BOUND * bytes_moved else "memory"), 0.0
    memory = bytes_moved / peaks.copy_gbps / 1e3 if peaks.copy_gbps else 0.0
    tflops = peaks.matmul_tflops.get(dtype) or peaks.matmul_tflops.get("float32") or math.inf
    compute = flops / tflops / 1e6
    return ("compute", compute) if compute > memory else ("memory", memory)


def against(result: BenchResult, peaks: Roofs, cached: int) -> BenchResult:
    """The result with the roofs, its floor, and what share of it each time reaches. cached: the last-level cache."""
    bound, floor_us = floor(result.bytes_moved, result.flops, peaks, result.choice.dtype)
    why = over(result.bytes_moved, cached)
    providers = {name: _share(p, floor_us, why) for name, p in result.providers.items()}
    return result.model_copy(update={"providers": providers, "roofs": peaks, "bound": bound, "floor_us": floor_us})


def over(bytes_moved: int, cached: int) -> str:
    """Why more than the roof is reached. cached: bytes of the last-level cache."""
    if bytes_moved < 4 * cached:
        return "over 100 %: part of the data is served from cache, not from memory"
    return "over 100 %: the roof is a copy's, and this reads more than it writes"


def _share(p: ProviderBench, floor_us: float, why: str) -> ProviderBench:
    share = floor_us / p.us.p50 if p.us and p.us.p50 else None
    note = "; ".join(filter(None, (p.note, why))) if share and share > 1 else p.note
    return p.model_copy(update={"share_of_peak": share, "note": note})
