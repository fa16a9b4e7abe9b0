"""Memory in huge pages, for what is read from end to end again and again.

A CPU finds a page's place in memory by a table that it caches; a matrix of a
hundred megabytes in pages of 4 KB overflows that cache at every step, and a
matrix-vector product then waits for the table as long as for the numbers. In
pages of 2 MB it does not. Where the system has no such pages, tensors stay where they
are and nothing else changes.
"""

from __future__ import annotations

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

    def place(self, tensor: torch.Tensor) -> torch.Tensor:
        """A contiguous copy of a CPU tensor; anything else as it is."""
        if not self._wanted or not tensor.is_cpu or not tensor.numel():
            return tensor
        out = self._take(tensor.nbytes).view(tensor.dtype).view(tensor.shape)
        return out.copy_(tensor)

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
