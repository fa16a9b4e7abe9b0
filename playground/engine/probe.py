"""Watches every load and store of a kernel that the interpreter runs: exact addresses, program by program.

The tensors of a launch are moved into an arena where a red zone parts each from the next, so that an address
tells its tensor even when it lies outside. An access outside is noted and masked off: it can hurt nothing. Lanes
are the elements of a block in row-major order; which thread of a GPU holds which lane is the compiler's choice
and unknown here, so sectors are counted for a whole block access.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, TensorHandle, interpreter_builder
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.spec import Launch
from playground.engine.arena import Arena, Region

Kind = Literal["load", "store"]
KEPT_PASSES = 4  # of a line in a loop, for each program whose accesses are kept
MOST_TURNS = 2000  # at one atomic in one program
SAMPLES = 48  # lanes of an access whose values are kept
# Instructions of PTX whose values are known, where one stands alone.
ASSEMBLY = {"ex2.approx.ftz.f32": np.exp2, "lg2.approx.ftz.f32": np.log2, "mov.b32": np.copy}
SECTOR = 32  # bytes: the smallest piece that a GPU moves between L2 and DRAM or L1


@dataclass
class Site:
    """All accesses of one line to one tensor: how often, how many lanes, bytes and sectors.

    distinct: active lanes, those of one access that share an element counted once.
    """

    kind: Kind
    line: int
    tensor: str
    itemsize: int
    calls: int = 0
    lanes: int = 0
    active: int = 0
    distinct: int = 0
    sectors: int = 0

    @property
    def bytes(self) -> int:
        return self.active * self.itemsize


@dataclass(frozen=True)
class Miss:
    """The first lane of an access that lies outside."""

    kind: Kind
    line: int
    tensor: str
    index: int
    program: tuple[int, ...]
    lane: int


@dataclass
class Touch:
    """One access of one program, as runs (first element index, step, count) over its active lanes.

    samples: (lane, element index, value), evenly spread over the active lanes. A store's values are what memory
    holds in the end.
    """

    kind: Kind
    line: int
    tensor: str
    lanes: int
    active: int
    runs: tuple[tuple[int, int, int], ...]
    samples: tuple[tuple[int, int, float], ...] = ()


class ProgramsWait(Exception):
    """A program waits for another one, which in the interpreter runs only after it."""


class Probe:
    """Stands between the interpreter and memory for one launch; see `watching`."""

    def __init__(self, arena: Arena, source_file: str, keep: frozenset[tuple[int, ...]]):
        self.sites: dict[tuple[str, int, str], Site] = {}
        self.misses: list[Miss] = []
        self.waits = False
        self._turning: tuple[int, ...] = ()
        self._turns = 0
        self.assembly = False  # inline assembly was met, and its first operand taken for its result
        self.touches: dict[tuple[int, ...], list[Touch]] = {program: [] for program in keep}
        self._arena = arena
        self.source_file = source_file

    def turn(self) -> None:
        """Called at each atomic. One that a program repeats without end is a wait for another program."""
        at = (*interpreter_builder.grid_idx, self._line())
        self._turns = self._turns + 1 if at == self._turning else 1
        self._turning = at
        if self._turns > MOST_TURNS:
            self.waits = True
            raise ProgramsWait

    def access(self, kind: Kind, pointers: np.ndarray, mask: np.ndarray, itemsize: int) -> np.ndarray:
        """Record one block access; returns the mask without the lanes that lie outside."""
        addresses = np.ascontiguousarray(pointers).reshape(-1).view(np.int64)
        active = np.broadcast_to(mask, pointers.shape).reshape(-1).astype(bool)
        line, lanes = self._line(), np.flatnonzero(active)
        if not lanes.size:
            self._site(kind, line, "", itemsize, active.size, np.empty(0, np.int64))
            return active.reshape(pointers.shape)  # the interpreter may hold a mask as integers
        allowed = active.copy()
        for region, chosen in self._arena.split(addresses[lanes]):
            mine = lanes[chosen]
            self._record(kind, line, region, addresses[mine], mine, itemsize, active.size, allowed)
        return allowed.reshape(pointers.shape)

    def _record(self, kind, line, region, addresses, lanes, itemsize, block, allowed) -> None:
        indices = (addresses - region.start) // region.itemsize
        last = indices + max(itemsize // region.itemsize, 1) - 1
        inside = (indices >= 0) & (last < region.valid.size)
        inside[inside] = region.valid[indices[inside]] & region.valid[last[inside]]
        program = tuple(int(i) for i in interpreter_builder.grid_idx)
        if not inside.all():
            first = int(np.flatnonzero(~inside)[0])
            index = int(indices[first]) - region.origin
            self.misses.append(Miss(kind, line, region.name, index, program, int(lanes[first])))
            allowed[lanes[~inside]] = False
        seen = region.loaded if kind == "load" else region.stored
        for part in range(max(itemsize // region.itemsize, 1)):
            seen[indices[inside] + part] = True
        self._site(kind, line, region.name, itemsize, block, addresses[inside])
        if program in self.touches:
            self._keep(program, Touch(kind, line, region.name, block, int(inside.sum()), ()), region, indices, lanes)

    def _keep(self, program, touch: Touch, region: Region, indices: np.ndarray, lanes: np.ndarray) -> None:
        """Keep one access of a chosen program: a line in a loop the first few times only."""
        kept = self.touches[program]
        if sum((t.kind, t.line, t.tensor) == (touch.kind, touch.line, touch.tensor) for t in kept) >= KEPT_PASSES:
            return
        own = indices - region.origin
        touch.runs = _runs(own)
        at = np.unique(np.linspace(0, own.size - 1, min(own.size, SAMPLES)).astype(int))
        values = self._arena.values(region, indices[at])
        touch.samples = tuple(zip(lanes[at].tolist(), own[at].tolist(), values, strict=True))
        kept.append(touch)

    def read_back(self) -> None:
        """What the stores have left in memory becomes their samples' values."""
        regions = {region.name: region for region in self._arena.regions}
        for touch in (t for kept in self.touches.values() for t in kept if t.kind == "store"):
            region = regions[touch.tensor]
            indices = np.array([index + region.origin for _, index, _ in touch.samples])
            values = self._arena.values(region, indices)
            touch.samples = tuple((a, b, v) for (a, b, _), v in zip(touch.samples, values, strict=True))

    def _site(self, kind, line, tensor, itemsize, lanes, addresses: np.ndarray) -> None:
        site = self.sites.setdefault((kind, line, tensor), Site(kind, line, tensor, itemsize))
        site.calls += 1
        site.lanes += lanes
        site.active += addresses.size
        site.distinct += _distinct(addresses)
        site.sectors += _distinct(addresses // SECTOR)

    def _line(self) -> int:
        """The line of the kernel's file that is at work: the innermost frame of that file."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.source_file:
                return frame.f_lineno
            frame = frame.f_back
        return 0


def _distinct(values: np.ndarray) -> int:
    """How many different values; they mostly come in order, which spares the sort."""
    steps = np.diff(values)
    return int(np.count_nonzero(steps)) + 1 if values.size and (steps >= 0).all() else np.unique(values).size


def _runs(indices: np.ndarray, most: int = 160) -> tuple[tuple[int, int, int], ...]:
    """Element indices as runs of one step each: (first, step, count); the first `most` runs."""
    runs: list[tuple[int, int, int]] = []
    at = 0
    while at < indices.size and len(runs) < most:
        if at + 1 == indices.size:
            runs.append((int(indices[at]), 1, 1))
            break
        step = indices[at + 1] - indices[at]
        breaks = np.flatnonzero(np.diff(indices[at:]) != step)
        count = int(breaks[0]) + 1 if breaks.size else indices.size - at
        runs.append((int(indices[at]), int(step), count))
        at += count
    return tuple(runs)


@dataclass(frozen=True)
class _Call:
    """What Triton's language takes for the operation that has been built."""

    results: tuple[TensorHandle, ...]

    def get_result(self, index: int) -> TensorHandle:
        return self.results[index]


@contextmanager
def watching(probe: Probe) -> Iterator[None]:
    """Route the interpreter's loads, stores and atomics through the probe."""
    builder = interpreter_builder
    load, store = builder.create_masked_load, builder.create_masked_store
    rmw, cas = builder.create_atomic_rmw, builder.create_atomic_cas

    def narrowed(kind: Kind, ptrs: TensorHandle, mask: TensorHandle | np.ndarray) -> TensorHandle:
        # A descriptor's loads and stores bring their mask as a bare array.
        asked = mask if isinstance(mask, np.ndarray) else mask.data
        itemsize = max(ptrs.get_element_ty().primitive_bitwidth // 8, 1)
        return TensorHandle(probe.access(kind, ptrs.data, asked, itemsize), tl.int1)

    def watched_load(ptrs, mask, *rest, **named):
        return load(ptrs, narrowed("load", ptrs, mask), *rest, **named)

    def watched_store(ptrs, value, mask, *rest, **named):
        return store(ptrs, value, narrowed("store", ptrs, mask), *rest, **named)

    def watched_rmw(op, ptr, value, mask, *rest):
        probe.turn()
        narrowed("load", ptr, mask)
        return rmw(op, ptr, value, narrowed("store", ptr, mask), *rest)

    def watched_cas(ptr, *rest):
        probe.turn()
        kinds: tuple[Kind, ...] = ("load", "store")
        for kind in kinds:
            narrowed(kind, ptr, np.ones(ptr.data.shape, dtype=bool))
        return cas(ptr, *rest)

    def assembled(asm, constraints, values, types, *rest):
        # The interpreter has no inline assembly. What is not known passes its first operand on, and the trace says so.
        known = ASSEMBLY.get(asm.split()[0]) if asm.count(";") == 1 else None
        probe.assembly |= known is None
        with np.errstate(all="ignore"):
            data = known(values[0].data) if known else values[0].data
        return _Call(tuple(TensorHandle(data, values[0].dtype) for _ in types))

    watched = {
        "create_inline_asm": assembled,
        "create_masked_load": watched_load,
        "create_masked_store": watched_store,
        "create_atomic_rmw": watched_rmw,
        "create_atomic_cas": watched_cas,
    }
    for name, function in watched.items():
        setattr(builder, name, function)
    try:
        yield
    finally:
        for name in watched:
            delattr(builder, name)


class ChosenPrograms(GridExecutor):
    """The interpreter's grid, over some programs only, in the order given."""

    def __init__(self, launch: Launch, programs: Iterator[tuple[int, ...]]):
        super().__init__(launch.kernel.rewrite(), launch.kernel.arg_names, launch.grid)
        self._programs = programs

    def __call__(self, **arguments: Any) -> None:
        _, held = self._init_args_hst((), {k: v for k, v in arguments.items() if k in self.arg_names})
        scope = interpreter._patch_lang(self.fn)
        try:
            signature = inspect.signature(self.fn)
            bound = signature.bind(**held)
            bound.apply_defaults()
            ready = {
                name: value if name in self.constexprs else interpreter._implicit_cvt(value)
                for name, value in bound.arguments.items()
            }
            interpreter_builder.set_grid_dim(*(*self.grid, 1, 1)[:3])
            for program in self._programs:
                interpreter_builder.set_grid_idx(*program)
                self.fn(**ready)
        finally:
            scope.restore()


def tensors_of(launch: Launch) -> dict[str, torch.Tensor]:
    """The launch's tensors by argument name; a host descriptor counts as its base."""
    found = {}
    for name, value in launch.args.items():
        if isinstance(value, TensorDescriptor):
            found[name] = value.base
        elif isinstance(value, torch.Tensor):
            found[name] = value
    return found
