"""Bandwidth against size: a copy from a few KB to far beyond every cache, so that the caches show as plateaus.

The copy is PyTorch's own, warm, the best of a few bursts: what fits into a cache is served from there,
and that is the point. On a GPU each size is timed in a CUDA graph, since a small copy is shorter than its launch.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from playground.engine import execute, host, timing
from playground.engine.job import Job
from playground.engine.messages import Curve

SMALLEST, LARGEST = 2**14, 2**30  # bytes touched
SECONDS, BURST = 0.08, 2e-3  # for each size, and the least of one burst
FEWEST = 5  # bursts, on a busy host too


def curve(job: Job) -> Curve:
    """Raises Cancelled."""
    most = min(LARGEST, host.available_bytes(job.device) // 2)
    sizes = [2**power for power in range(14, 31) if SMALLEST <= 2**power <= most]
    rates = []
    for i, touched in enumerate(sizes):
        job.progress("measuring copies", i, len(sizes), "sizes")
        rates.append(touched / _copy_us(touched // 2, job.device) / 1e3)
    return Curve(bytes=tuple(sizes), gbps=tuple(rates), caches=host.caches(job.device), source=execute.source(job))


def _copy_us(size: int, device: torch.device) -> float:
    src = torch.zeros(size // 4, dtype=torch.float32, device=device)
    dst = torch.zeros_like(src)

    def copy() -> None:
        dst.copy_(src)

    if device.type == "cuda":
        return timing.percentiles(timing.GpuTimer(device, 0.1).graphed([copy])).p50
    return _burst_us(copy)


def _burst_us(call: Callable[[], None]) -> float:
    """Microseconds of one call: the best of a few bursts, each long enough for the clock."""
    call()
    until = time.perf_counter() + SECONDS
    best, calls, bursts = float("inf"), 1, 0
    while bursts < FEWEST or time.perf_counter() < until:
        bursts += 1
        began = time.perf_counter()
        for _ in range(calls):
            call()
        spent = time.perf_counter() - began
        best = min(best, spent / calls * 1e6)
        calls = min(calls * 2, 1024) if spent < BURST else calls
    return best
