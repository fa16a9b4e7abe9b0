"""One decode step taken apart: the time of each kernel, and what each box of the decoder block reads and gives.

The rows are made up: they read pages of their own, so no conversation notices. On a CPU each call is timed as it runs.
On a GPU events stand between the calls, behind a pause long enough for the host to have launched them all, so no
launch is measured; the events themselves add about a microsecond to each.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import torch

import kernels
from kernels.spec import KernelSpec, nbytes
from playground.decoder.batch import Batch
from playground.decoder.cache import CachedSequence, OutOfPages
from playground.decoder.looks import KernelBox, ProfileRequest, ProfileResult, Shape
from playground.decoder.program import Call, Program
from playground.decoder.runner import Row
from playground.decoder.sampler import Sampling
from playground.engine.messages import Source

RUNS = 5  # of which the median counts
CHUNK = 100  # calls that fit into a GPU's queue with their events
PAUSE_CYCLES = 20_000_000  # about 10 ms, in which the host launches a chunk
NOT_READ = ("cos", "sin", "block_table")  # of which a call reads a few rows


@torch.no_grad()
def profile(batch: Batch, request: ProfileRequest, source: Source) -> ProfileResult:
    """What is in flight is to be looked at first (`batch.drain`). Raises LookupError where no page is left."""
    runner, device = batch.runner, batch.runner.model.device
    count = min(request.batch or max(1, len(batch.decoding)), batch.max_batch)
    with _rows(batch, count, min(request.context, batch.max_context - 1)) as rows:
        runner.swap({**batch.table, **request.table})
        runner.prepare(count)
        batch.reload()

        def load() -> None:
            runner.rows.load(rows)

        program = runner.decode_program(count)
        load()
        runner.decode(count)  # what is compiled, is compiled now
        whole = min(_step_seconds(batch, count, load) for _ in range(3))
        measure = _on_gpu if device.type == "cuda" else _on_cpu
        seconds = measure(program, load)
    by_name: dict[str, float] = {}
    for call, spent in zip(program.calls, seconds, strict=True):
        by_name[call.name] = by_name.get(call.name, 0.0) + spent
    context = rows[0].position + 1
    return ProfileResult(
        batch=count,
        kernels=by_name,
        step_seconds=whole,
        source=source,
        boxes=boxes(program, seconds, context * count),
        context=context,
        how=f"median of {RUNS} steps, "
        + ("CUDA events around each kernel" if device.type == "cuda" else "call by call"),
    )


@contextlib.contextmanager
def _rows(batch: Batch, count: int, context: int) -> Iterator[list[Row]]:
    """Rows that read `context` tokens each, of pages of their own as far as there are any; shared ones for the rest."""
    held: list[CachedSequence] = []
    try:
        while len(held) < count:
            held.append(batch.pool.open("a profile", reuse=False))
            try:
                batch.pool.grow(held[-1], context + 1)
            except OutOfPages:
                batch.pool.close(held.pop())
                break
        if not held:
            raise LookupError("no page is free for a profile now; try again when a conversation has ended")
        pages = [[page.id for page in sequence.pages] for sequence in held]
        yield [Row(0, context - 1, pages[i % len(pages)], Sampling(), 0) for i in range(count)]
    finally:
        for sequence in held:
            batch.pool.close(sequence)


def _step_seconds(batch: Batch, count: int, load: Any) -> float:
    load()
    _wait(batch.runner.model.device)
    began = time.perf_counter()
    batch.runner.decode(count)["ids"].tolist()
    return time.perf_counter() - began


def _on_cpu(program: Program, load: Any) -> list[float]:
    """Seconds of each call."""
    runs = []
    for _ in range(RUNS):
        load()
        marks = [time.perf_counter()]
        for call in program.calls:
            call.run()
            marks.append(time.perf_counter())
        runs.append([after - before for before, after in itertools.pairwise(marks)])
    return [median(times) for times in zip(*runs, strict=True)]


def _on_gpu(program: Program, load: Any) -> list[float]:
    runs = []
    for _ in range(RUNS):
        load()
        spent: list[float] = []
        for start in range(0, len(program.calls), CHUNK):
            calls = program.calls[start : start + CHUNK]
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(calls) + 1)]
            torch.cuda._sleep(PAUSE_CYCLES)
            marks[0].record()
            for call, mark in zip(calls, marks[1:], strict=True):
                call.run()
                mark.record()
            torch.cuda.synchronize()
            spent += [before.elapsed_time(after) / 1e3 for before, after in itertools.pairwise(marks)]
        runs.append(spent)
    return [median(times) for times in zip(*runs, strict=True)]


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# The boxes of the block


def boxes(program: Program, seconds: Sequence[float], tokens: int) -> tuple[KernelBox, ...]:
    """In the order of the step; seconds: of each call; tokens: in the cache, of all rows."""
    calls: dict[str, list[Call]] = {}
    spent: dict[str, float] = {}
    for call, took in zip(program.calls, seconds, strict=True):
        calls.setdefault(call.box, []).append(call)
        spent[call.box] = spent.get(call.box, 0.0) + took
    total = sum(seconds) or 1.0
    return tuple(_box(name, calls[name], spent[name], spent[name] / total, tokens) for name in calls)


def _box(name: str, calls: list[Call], seconds: float, share: float, tokens: int) -> KernelBox:
    """As its last call has it: the first layer's norm is the only one that adds no residual."""
    last = calls[-1]
    # One operation may be several launches, and a box several operations: those of the last call's layer.
    here = [call for call in calls if call.layer == last.layer]
    operations = list({id(call.inputs): call for call in here}.values())
    return KernelBox(
        box=name,
        group=last.group,
        provider=last.provider,
        kernel=" + ".join(dict.fromkeys(call.name for call in here)),
        spec=_spec(last),
        calls=len({id(call.inputs) for call in calls}),
        inputs=_shapes(operations[0].inputs),
        outputs=tuple(shape for call in operations for shape in _shapes(call.outputs)),
        bytes=sum(_bytes(call, tokens) for call in operations),
        seconds=seconds,
        share=share,
    )


def _spec(call: Call) -> str | None:
    """The name of the kernel in the other tabs."""
    module = getattr(call.launch.kernel, "__module__", "") if call.launch else f"kernels.{call.op}"
    package, _, name = module.rpartition(".")
    return name if package == "kernels" and name in _known() else None


@functools.cache
def _known() -> Mapping[str, KernelSpec]:
    return kernels.all_kernels()


def _shapes(tensors: Mapping[str, Any]) -> tuple[Shape, ...]:
    return tuple(
        Shape(name=name, shape=tuple(value.shape), dtype=str(value.dtype).removeprefix("torch."))
        for name, value in tensors.items()
        if isinstance(value, torch.Tensor)
    )


def _bytes(call: Call, tokens: int) -> int:
    """What one operation must read and write. Of a cache that is what its rows hold, and what they write to it."""
    inputs = {name: value for name, value in call.inputs.items() if isinstance(value, torch.Tensor)}
    caches = [value for name, value in inputs.items() if name in ("k_cache", "v_cache")]
    reads_cache = call.op in ("decode_attention", "attend")
    if call.op in _known() and not reads_cache:
        return _known()[call.op].cost(dict(call.inputs)).bytes_moved
    plain = [
        value for name, value in inputs.items() if name not in (*NOT_READ, "k_cache", "v_cache", "k_scale", "v_scale")
    ]
    total = nbytes(*plain, *call.outputs.values())
    for cache in caches:
        heads, head_dim = cache.shape[1], cache.shape[3]
        scale = 4 if "k_scale" in inputs else 0
        total += tokens * heads * (head_dim * cache.element_size() + scale)
    return total
