"""Copies of a launch's tensors in one buffer, between red zones: an address tells its tensor even outside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

RED_ZONE = 1 << 20  # bytes; an address this near to a tensor is said to miss it


@dataclass
class Region:
    """One tensor's storage in the arena, with what may be touched and what has been, element by element.

    origin: the element where the tensor begins in its storage; indices are told from there.
    """

    name: str
    start: int  # address
    itemsize: int
    origin: int
    dtype: torch.dtype
    valid: np.ndarray  # bool: belongs to a view that the launch was given
    loaded: np.ndarray = field(init=False)
    stored: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.loaded = np.zeros_like(self.valid)
        self.stored = np.zeros_like(self.valid)

    @property
    def end(self) -> int:
        return self.start + self.valid.size * self.itemsize


class Arena:
    """Copies of tensors in one buffer, each between red zones; views of one storage stay views of one copy."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]):
        storages: dict[int, list[tuple[str, torch.Tensor]]] = {}
        for name, tensor in tensors.items():
            key = tensor.untyped_storage().data_ptr() or id(tensor)  # empty storages have no address
            storages.setdefault(key, []).append((name, tensor))
        sizes = [_aligned(views[0][1].untyped_storage().nbytes()) for views in storages.values()]
        self._buffer = torch.empty(sum(sizes) + (len(sizes) + 1) * RED_ZONE, dtype=torch.uint8)
        self._bytes = self._buffer.numpy()
        self._copies: dict[str, torch.Tensor] = {}
        self.regions: list[Region] = []
        offset = RED_ZONE
        for views, size in zip(storages.values(), sizes, strict=True):
            self._place(views, offset)
            offset += size + RED_ZONE
        self._starts = np.array([r.start for r in self.regions], dtype=np.int64)

    def _place(self, views: list[tuple[str, torch.Tensor]], offset: int) -> None:
        storage = views[0][1].untyped_storage()
        source = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        self._buffer[offset : offset + source.numel()].copy_(source)
        itemsize = min(view.element_size() for _, view in views)
        valid = torch.zeros(storage.nbytes() // itemsize, dtype=torch.bool)
        for name, view in views:
            first = offset // view.element_size() + view.storage_offset()
            self._copies[name] = self._buffer.view(view.dtype).as_strided(view.shape, view.stride(), first)
            _mark_view(valid, view, itemsize)
        name, view = views[0]
        origin = view.storage_offset() * view.element_size() // itemsize
        dtype = min((view for _, view in views), key=lambda v: v.element_size()).dtype
        self.regions.append(Region(name, self._buffer.data_ptr() + offset, itemsize, origin, dtype, valid.numpy()))

    def copy_of(self, name: str) -> torch.Tensor:
        return self._copies[name]

    def copy_back(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Give the tensors what a launch wrote into their copies, for the launch that follows."""
        for name, tensor in tensors.items():
            if tensor.numel():
                once = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())
                tensor[once].copy_(self._copies[name][once])  # PyTorch refuses to write an expanded element twice

    def values(self, region: Region, indices: np.ndarray) -> list[float]:
        """What memory holds at these elements of a region; NaN where an index lies outside."""
        inside = (indices >= 0) & (indices < region.valid.size)
        offset = region.start - self._buffer.data_ptr()
        size = region.valid.size * region.itemsize
        # Through numpy: torch would wake its threads for a handful of elements.
        raw = self._bytes[offset : offset + size].view(f"u{region.itemsize}")[np.where(inside, indices, 0)]
        held = torch.from_numpy(raw).view(region.dtype).double().tolist()
        return [value if ok else math.nan for value, ok in zip(held, inside, strict=True)]

    def nearest(self, address: int) -> Region:
        """The region that holds the address or lies nearest to it."""
        at = int(np.searchsorted(self._starts, address, side="right")) - 1
        near = self.regions[max(at, 0) : at + 2]
        return min(near, key=lambda r: max(r.start - address, address - r.end + 1, 0))

    def split(self, addresses: np.ndarray) -> Iterator[tuple[Region, np.ndarray]]:
        """The regions that the addresses belong to (or are nearest to), each with the positions that do."""
        low, high = self.nearest(int(addresses.min())), self.nearest(int(addresses.max()))
        if low is high:
            yield low, np.arange(addresses.size)
            return
        middles = np.array([(a.end + b.start) // 2 for a, b in zip(self.regions, self.regions[1:], strict=False)])
        owner = np.searchsorted(middles, addresses, side="right")
        for i in np.unique(owner):
            yield self.regions[i], np.flatnonzero(owner == i)


def _aligned(size: int) -> int:
    return -(-size // 512) * 512


def _mark_view(valid: torch.Tensor, view: torch.Tensor, itemsize: int) -> None:
    """Mark the elements that the view reaches, holes between its rows left out."""
    ratio = view.element_size() // itemsize
    for part in range(ratio):
        strides = [s * ratio for s in view.stride()]
        valid.as_strided(view.shape, strides, view.storage_offset() * ratio + part).fill_(True)
