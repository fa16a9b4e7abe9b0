"""Memory in huge pages, for what is read from end to end again and again.

A CPU finds a page's place in memory by a table that it caches; a matrix of a
hundred megabytes in pages of 4 KB overflows that cache at every step, and a
matrix-vector product then waits for the table as long as for the numbers. In
pages of 2 MB it does not. Where the system has no such pages, tensors stay where they
are and nothing else changes.
"""

from __future__ import annotations

import math
import mmap
from pathlib import Path

import torch

HUGE = 2 << 20
_CHUNK = 32 * HUGE
_ALIGN = 64  # a cache line
_SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def are_available() -> bool:
    """Does Linux hand out huge pages to those who ask?"""
    try:
        return hasattr(mmap, "MADV_HUGEPAGE") and "[never]" not in _SWITCH.read_text()
    except OSError:
        return False


class HugePages:
    """Copies tensors into memory of its own, chunk by chunk. A chunk lives as long as a tensor in it."""

    def __init__(self) -> None:
        self._wanted = are_available()
        self._chunk: torch.Tensor = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def place(self, *parts: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
        """A contiguous copy of CPU tensors, one behind the other along their first dimension, in `dtype`.

        Where there are no huge pages, and on a GPU, one tensor that is as it should be stays where it is.
        """
        dtype = dtype or parts[0].dtype
        rows = [len(part) for part in parts]
        shape = (sum(rows), *parts[0].shape[1:])
        size = math.prod(shape) * dtype.itemsize
        if not self._wanted or not parts[0].is_cpu or not size:
            return (torch.cat(parts) if len(parts) > 1 else parts[0]).to(dtype)
        out = self._take(size).view(dtype).view(shape)
        # Each goes straight to its place: joined elsewhere first, a matrix would be written twice.
        for target, part in zip(out.split(rows), parts, strict=True):
            target.copy_(part)
        return out

    def _take(self, size: int) -> torch.Tensor:
        if self._used + size > self._chunk.numel():
            self._chunk, self._used = _map(max(size, _CHUNK)), 0
        taken = self._chunk[self._used : self._used + size]
        self._used += -(-size // _ALIGN) * _ALIGN
        return taken


def _map(size: int) -> torch.Tensor:
    """Zeros in huge pages."""
    size = -(-size // HUGE) * HUGE
    # A mapping may begin anywhere: the first huge page begins within the next 2 MB. Shared memory would get none.
    memory = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(memory, dtype=torch.uint8)
    return whole[-whole.data_ptr() % HUGE :][:size]
