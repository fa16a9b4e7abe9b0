"""Clocks for one call: on a GPU by CUDA events and by the host, on a CPU by the host.

Three ways, each named (triton#10149): cold, where the last-level cache holds other data before each call; warm,
where the call is repeated; launched, where the host's time is included. On a GPU also a graph replay, for kernels
shorter than their launch. A timer knows no kernel and judges nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from playground.engine import host
from playground.engine.messages import Times

Call = Callable[[], object]

MOST_FLUSHES = 50  # in a row, to hide the host behind
HOT_BURST = 20  # calls between two rests
GRAPH_CALLS = 20  # in one graph: the replay's own few microseconds are shared by so many


@dataclass
class Timer:
    """seconds: what one way of timing one call may take. rest: pause between bursts, for work that heats the chip."""

    device: torch.device
    seconds: float = 0.4
    rest: float = 0.0


def timer(device: torch.device, quick: bool = False) -> AnyTimer:
    seconds = 0.1 if quick else 0.4
    return GpuTimer(device, seconds) if device.type == "cuda" else CpuTimer(device, seconds)


def percentiles(microseconds: Sequence[float]) -> Times:
    """Median, 20th and 80th percentile, by the nearest rank."""
    ordered = sorted(microseconds)

    def rank(share: float) -> float:
        return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]

    return Times(p20=rank(0.2), p50=rank(0.5), p80=rank(0.8))


@dataclass
class GpuTimer(Timer):
    """Times by CUDA events around each call.

    Before a timed call the GPU is kept busy with flushes for as long as the host needs to enqueue it, so that the
    events stand around the kernel and not around the host.
    """

    _flush: torch.Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Four times L2: what stays of the call's data is nothing, and what is dirty is the flush's own.
        size = max(4 * host.last_level_cache(self.device), 2**28)
        self._flush = torch.empty(size // 4, dtype=torch.int32, device=self.device)
        self._flush_us = self._between(self._flush.zero_)

    def _between(self, call: Call, repeats: int = 5) -> float:
        """Microseconds of the GPU for a call, roughly: the mean of a few in a row."""
        call()
        start, end = _event(), _event()
        start.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / repeats

    def _enqueue_us(self, call: Call) -> float:
        """Microseconds that the host needs to enqueue a call between two events."""
        spent = []
        for _ in range(5):
            torch.cuda.synchronize(self.device)
            began = time.perf_counter()
            _timed(call)
            spent.append((time.perf_counter() - began) * 1e6)
        return sorted(spent)[2]

    def _flushes(self, host_us: float) -> int:
        """How many flushes last longer than the host needs for what it enqueues behind them."""
        return min(MOST_FLUSHES, max(1, math.ceil(1.5 * host_us / self._flush_us)))

    def cold(self, call: Call) -> list[float]:
        """Microseconds of calls, each after L2 has been overwritten."""
        flushes = self._flushes(self._enqueue_us(call))
        first = self._flushed(call, flushes, 5)
        each = sum(first) / len(first) + flushes * self._flush_us
        return first + self._flushed(call, flushes, _count(self.seconds * 1e6 / each, 5, 195))

    def _flushed(self, call: Call, flushes: int, count: int) -> list[float]:
        times: list[float] = []
        while len(times) < count:
            pairs = []
            for _ in range(min(count - len(times), self._burst)):
                for _ in range(flushes):
                    self._flush.zero_()
                pairs.append(_timed(call))
            times += self._read(pairs)
        return times

    def warm(self, call: Call) -> list[float]:
        """Microseconds of calls that follow one another; the first of each burst is left out."""
        host_us = self._enqueue_us(call)
        own = min(self._flushed(call, self._flushes(host_us), 5))
        count = _count(self.seconds * 1e6 / max(own, host_us), 10, 200)
        # As many in a row as the host enqueues while the flushes before them keep the GPU busy.
        hidden = int(MOST_FLUSHES * self._flush_us / (1.5 * host_us))
        burst = min(self._burst, count + 1, max(3, hidden))
        flushes = self._flushes(burst * host_us)
        times: list[float] = []
        while len(times) < count:
            for _ in range(flushes):
                self._flush.zero_()
            times += self._read([_timed(call) for _ in range(burst)])[1:]
        return times

    def launched(self, call: Call) -> list[float]:
        """Microseconds of the host from before a call until its result is there."""
        torch.cuda.synchronize(self.device)
        times: list[float] = []
        until = time.perf_counter() + self.seconds / 2
        while len(times) < 10 or (len(times) < 200 and time.perf_counter() < until):
            began = time.perf_counter()
            call()
            torch.cuda.synchronize(self.device)
            times.append((time.perf_counter() - began) * 1e6)
        return times

    def graphed(self, calls: Sequence[Call]) -> list[float]:
        """Microseconds of one call within a CUDA graph that takes the calls in turn. Raises what the capture raises."""
        order = list(calls) * max(1, math.ceil(GRAPH_CALLS / len(calls)))
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):  # as torch asks before a capture
            for call in calls:
                call()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        kept: list[object] = []  # results stay alive, or the allocator would hand every call the same few blocks
        with torch.cuda.graph(graph):
            kept.extend(call() for call in order)
        each = self._between(graph.replay, 3)
        count = _count(self.seconds * 1e6 / each, 5, 100)
        times: list[float] = []
        while len(times) < count:
            for _ in range(self._flushes(20)):
                self._flush.zero_()
            graph.replay()  # brings the graph's own nodes back, and is not timed
            times += [t / len(order) for t in self._read([_timed(graph.replay)])]
        del kept
        graph.reset()
        return times

    @property
    def _burst(self) -> int:
        """Calls between two rests, few where the work heats the chip."""
        return HOT_BURST if self.rest else 1000

    def _read(self, pairs: list[tuple[torch.cuda.Event, torch.cuda.Event]]) -> list[float]:
        torch.cuda.synchronize(self.device)
        if self.rest:
            time.sleep(self.rest)
        return [start.elapsed_time(end) * 1e3 for start, end in pairs]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


def _timed(call: Call) -> tuple[torch.cuda.Event, torch.cuda.Event]:
    start, end = _event(), _event()
    start.record()
    call()
    end.record()
    return start, end


def _count(wanted: float, low: int, high: int) -> int:
    return int(min(high, max(low, wanted)))


@dataclass
class CpuTimer(Timer):
    """Times by the host's clock around each call."""

    _flush: torch.Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # A server's last level may be half a gigabyte shared by many; a quarter of the free memory is the most.
        size = min(host.last_level_cache(self.device), 2**29, host.available_bytes(self.device) // 4)
        self._flush = torch.zeros(max(size, 2**20) // 4, dtype=torch.int32)

    def cold(self, call: Call) -> list[float]:
        """Microseconds of calls, each after every core has been through a buffer as large as the cache."""
        call()
        each = _clock(lambda: (self._flush.add_(1), call()))
        times = []
        for _ in range(_count(2 * self.seconds * 1e6 / each, 3, 50)):
            self._flush.add_(1)
            times.append(_clock(call))
        return times

    def warm(self, call: Call) -> list[float]:
        """Microseconds of calls that follow one another."""
        call()
        times: list[float] = []
        until = time.perf_counter() + self.seconds
        while len(times) < 5 or (len(times) < 2000 and time.perf_counter() < until):
            times.append(_clock(call))
        return times

    def launched(self, call: Call) -> list[float]:
        """The same clock: on a CPU a call is its own launch. The caller passes one that plans and allocates as well."""
        return self.warm(call)


def _clock(call: Call) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e6


AnyTimer = GpuTimer | CpuTimer
