"""Enough of a GPU driver for Triton's front end and autotuner on a host without one."""

from __future__ import annotations

import time

import torch
from triton.backends import backends

from .frontend import TARGET


def gpu_is_active() -> bool:
    return any(backend.driver.is_active() for backend in backends.values())


class StandIn:
    """Answers what Triton asks of its driver; launches never reach it."""

    def get_current_target(self):
        return TARGET

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device=None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self):
        return torch.cpu

    def get_empty_cache_for_benchmark(self):
        return torch.empty(1 << 20, dtype=torch.int32)

    def clear_cache(self, cache) -> None:
        cache.zero_()

    def get_benchmarker(self):
        return benchmark


def benchmark(call, quantiles=None, repeats: int = 7, **_):
    """Milliseconds: the quantiles asked for, or the median."""
    call()
    times = []
    for _turn in range(repeats):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    picked = [times[min(int(q * repeats), repeats - 1)] for q in quantiles or (0.5,)]
    return picked if quantiles else picked[0]
