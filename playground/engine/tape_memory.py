"""Loads and stores whose place in a tensor is known before a program runs, as NumPy slices of that tensor.

The interpreter reads and writes lane by lane, by a list of addresses. Where the addresses are an argument's pointer
plus offsets that are the same at every run, and the mask is the same as well, the lanes are found once: a box of
the block that lies evenly in memory is copied as a whole, others by a list of places; and what is neither, such as
lanes that overlap, is left to the interpreter's own load and store.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from triton.runtime.interpreter import _interpreter

Array = np.ndarray


@dataclass(frozen=True)
class Lanes:
    """The lanes of a block that are active, and where they lie: at `first` bytes from the pointer, `count` elements.

    box: the active lanes are this corner of the block, at `strides` elements; else `lanes` (flat) lie at `places`.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    first: int
    count: int
    box: tuple[slice, ...] | None
    strides: tuple[int, ...]
    lanes: Array | None
    places: Array | None

    def view(self, address: int) -> Array:
        """The memory at a pointer of this value: the box itself, or all that the places reach."""
        memory: Any = (ctypes.c_char * (self.count * self.dtype.itemsize)).from_address(address + self.first)
        if self.box is None:
            return np.ndarray((self.count,), self.dtype, memory)
        shape = tuple(part.stop for part in self.box)
        return np.ndarray(shape, self.dtype, memory, strides=tuple(s * self.dtype.itemsize for s in self.strides))


def find_lanes(offsets: Array, mask: Array, dtype: np.dtype) -> Lanes | None:
    """offsets: bytes from the pointer, uint64 (they wrap below zero); mask: which of them count. None: none such."""
    shape, width = offsets.shape, dtype.itemsize
    signed = offsets.view(np.int64)
    box = _corner(mask)
    if box is not None:
        steps = _steps(signed[box])
        if steps is not None and not any(step % width for step in steps):
            reach = sum(step * (part.stop - 1) for step, part in zip(steps, box, strict=True))
            strides = tuple(step // width for step in steps)
            return Lanes(shape, dtype, int(signed.flat[0]), reach // width + 1, box, strides, None, None)
    active = signed[mask]
    if not active.size:
        return None
    first = int(active.min())
    places, rest = np.divmod(active - first, width)
    if rest.any():
        return None
    return Lanes(shape, dtype, first, int(places.max()) + 1, None, (), np.flatnonzero(mask), places)


def _corner(mask: Array) -> tuple[slice, ...] | None:
    """The corner of the block that the mask is, if it is one."""
    if mask.all():
        return tuple(slice(0, n) for n in mask.shape)
    lines = (mask[tuple(slice(None) if a == axis else 0 for a in range(mask.ndim))] for axis in range(mask.ndim))
    ends = [int(line.sum()) for line in lines]
    box = tuple(slice(0, end) for end in ends)
    inside = int(np.prod(ends))
    return box if inside and mask[box].all() and np.count_nonzero(mask) == inside else None


def _steps(places: Array) -> tuple[int, ...] | None:
    """Bytes from one place to the next along each axis, where they are the same everywhere and lead forward."""
    even, steps = places.flat[0], []
    for axis, n in enumerate(places.shape):
        line = places[tuple(slice(None) if a == axis else 0 for a in range(places.ndim))]
        steps.append(int(line[1] - line[0]) if n > 1 else 0)
        even = even + (np.arange(n) * steps[-1]).reshape([n if a == axis else 1 for a in range(places.ndim)])
    return tuple(steps) if min(steps, default=0) >= 0 and (places == even).all() else None


def loader(offsets: Array, mask: Array, other: Array) -> Callable[[int], Callable[[], Array]]:
    """Given an address, reads a block there; lanes left out by the mask get `other`."""
    mask, other = np.broadcast_to(mask, offsets.shape), np.broadcast_to(other, offsets.shape)
    lanes = find_lanes(offsets, mask, other.dtype)
    if lanes is None:
        whole = np.ascontiguousarray(other)
        return lambda address: lambda: _interpreter.load(offsets + np.uint64(address), mask, whole, whole.dtype)
    if lanes.box is None or not (other == other.flat[0]).all():
        rest = np.ascontiguousarray(other)
        return lambda address: _over(lanes, lanes.view(address), rest)
    fill = other.flat[0]  # kept instead of a block of it: a launch may have thousands of programs
    outside = _outside(lanes)
    return lambda address: _corner_at(lanes, outside, lanes.view(address), fill)


def _outside(lanes: Lanes) -> list[tuple[slice, ...]]:
    """What of the block is not the corner."""
    assert lanes.box is not None
    return [
        tuple(slice(part.stop, None) if a == axis else slice(None) for a in range(len(lanes.shape)))
        for axis, part in enumerate(lanes.box)
        if part.stop < lanes.shape[axis]
    ]


def _corner_at(lanes: Lanes, outside: list[tuple[slice, ...]], view: Array, fill: Any) -> Callable[[], Array]:
    """The lanes are the corner `view` of a block that is `fill` elsewhere."""
    if not outside:
        return view.copy
    shape, dtype, box = lanes.shape, lanes.dtype, lanes.box

    def load() -> Array:
        block = np.empty(shape, dtype)
        block[box] = view
        for part in outside:
            block[part] = fill
        return block

    return load


def _over(lanes: Lanes, view: Array, whole: Array) -> Callable[[], Array]:
    """The lanes are laid over the block `whole`."""
    box, active, places = lanes.box, lanes.lanes, lanes.places

    def load() -> Array:
        block = whole.copy()
        if box is None:
            block.reshape(-1)[active] = view[places]
        else:
            block[box] = view
        return block

    return load


def storer(offsets: Array, mask: Array, dtype: np.dtype) -> Callable[[int], Callable[[Array], None]]:
    """Given an address, writes a block there."""
    mask = np.broadcast_to(mask, offsets.shape)
    lanes = find_lanes(offsets, mask, dtype)
    if lanes is None or not _apart(lanes):  # where two lanes write to one place, their order counts
        return lambda address: lambda block: _interpreter.store(offsets + np.uint64(address), block, mask)
    return lambda address: _store(lanes, lanes.view(address))


def _store(lanes: Lanes, view: Array) -> Callable[[Array], None]:
    box, active, places = lanes.box, lanes.lanes, lanes.places

    def store(block: Array) -> None:
        view[...] = block[box]

    def scatter(block: Array) -> None:
        view[places] = block.reshape(-1)[active]

    return scatter if box is None else store


def _apart(lanes: Lanes) -> bool:
    """Whether no two lanes have one place. Of a box: each stride steps over all that the smaller ones reach."""
    if lanes.box is None:
        assert lanes.places is not None
        return len(np.unique(lanes.places)) == len(lanes.places)
    reach = 0
    for step, part in sorted((step, part.stop) for step, part in zip(lanes.strides, lanes.box, strict=True)):
        if part > 1:
            if step <= reach:
                return False
            reach += step * (part - 1)
    return True


def row_loader(cells: Array, dtype: np.dtype) -> Callable[[Array, Array, Array], Array]:
    """Reads whole rows, such as the keys of a page: (addresses [N, 1], mask [N, D], other [N, D]) -> [N, D].

    cells: the bytes from a row's address to each of its elements, side by side.
    """
    first, width = int(cells[0, 0]), cells.shape[1]

    def load(rows: Array, mask: Array, other: Array) -> Array:
        live = mask[:, 0]
        at = rows[live, 0]
        low = int(at.min()) if at.size else 0
        places, rest = np.divmod(at - np.uint64(low), np.uint64(dtype.itemsize))
        if rest.any() or not (mask == live[:, None]).all():
            return _interpreter.load(rows + cells, mask, other, dtype)
        block = np.array(other, dtype, order="C")
        if at.size:
            count = int(places.max()) + 1
            memory: Any = (ctypes.c_char * ((count - 1 + width) * dtype.itemsize)).from_address(low + first)
            windows = np.ndarray((count, width), dtype, memory, strides=(dtype.itemsize,) * 2)
            block[live] = windows[places.astype(np.intp)]
        return block

    return load


def agrees(step: Any, address: int) -> bool:
    """Whether a load or store at known places does what the interpreter has just done."""
    offsets, mask, block = (operand.seen for operand in step.operands)
    if not step.effect:
        made, seen = loader(offsets, mask, block)(address)(), step.out[0].seen
        return made.dtype == seen.dtype and made.strides == seen.strides and made.tobytes() == seen.tobytes()
    mask = np.broadcast_to(mask, offsets.shape)
    stored = loader(offsets, mask, block)(address)()
    return stored.tobytes() == np.ascontiguousarray(block).tobytes()
