"""What a launch found wrong: read from the job's report after the threads are done."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from typing import Any

from triton.tools.tensor_descriptor import TensorDescriptor

from .bounds import ANY
from .errors import DeviceAssertError, OutOfBounds

WORDS = 8


def tensors_of(names, bound) -> list[tuple[str, Any]]:
    """Every tensor among the arguments, by name, in the order of the kernel's pointers."""
    return [found for name, value in zip(names, bound, strict=True) for found in _tensors_in(name, value)]


def _tensors_in(name: str, value) -> Iterator[tuple[str, Any]]:
    if isinstance(value, TensorDescriptor):
        yield name, value.base
    elif isinstance(value, tuple | list):
        for i, v in enumerate(value):
            yield from _tensors_in(f"{name}[{i}]", v)
    elif hasattr(value, "data_ptr"):
        yield name, value


def reach_in_bytes(tensor) -> int:
    """From a tensor's first byte to the end of its furthest element."""
    if tensor.numel() == 0:
        return 0
    furthest = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (furthest + 1) * tensor.element_size()


def extents(names, bound) -> list[int]:
    """First byte and size of each tensor, as checked code expects them after the arguments."""
    words = []
    for _, tensor in tensors_of(names, bound):
        words += [tensor.data_ptr(), reach_in_bytes(tensor)]
    return words


class Report:
    """Memory that the threads of one launch write their first fault to."""

    def __init__(self, kernel, names, bound, grid: tuple[int, int]):
        self.kernel, self.names, self.bound, self.grid = kernel, names, bound, grid
        self._words = (ctypes.c_int64 * WORDS)()

    @property
    def address(self) -> int:
        return ctypes.addressof(self._words)

    def finish(self) -> None:
        """Show what the kernel printed; raise what it reported."""
        if self.kernel.prints:
            sys.stdout.flush()
            ctypes.CDLL(None).fflush(None)
        _, program, site, address, lane = self._words[:5]
        if not program:
            return
        x, y = self.grid
        where = ((program - 1) % x, (program - 1) // x % y, (program - 1) // (x * y))
        kind, file, line, root, size, text = self.kernel.about["sites"][site]
        if kind == "assert":
            raise DeviceAssertError(f"{text} (program {where}, lane {lane}, {file}:{line})")
        name, tensor = self._tensor(root, address)
        raise OutOfBounds(
            tensor=name, index=(address - tensor.data_ptr()) // size, program=where, lane=lane,
            file=file, line=line, kind=kind, elements=reach_in_bytes(tensor) // size,
        )  # fmt: skip

    def _tensor(self, root: int, address: int):
        """The tensor meant, or, where the kernel's text does not say, the nearest."""
        tensors = tensors_of(self.names, self.bound)
        if root != ANY:
            return tensors[self._pointer_number(root)]

        def distance(pair) -> int:
            first = pair[1].data_ptr()
            return min(abs(address - first), abs(address - first - reach_in_bytes(pair[1])))

        return min(tensors, key=distance)

    def _pointer_number(self, argument: int) -> int:
        return self.kernel.about["pointers"].index(argument)
