"""Guard zones: known bytes on both sides of what a launch writes, looked at afterwards.

They show a store that went past an output, on any device, also where the answer itself is right. They see neither
loads nor the program or line that was at fault: that is what checked mode on a CPU is for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernels.spec import Inputs, Plan

ZONE = 2**16  # bytes on each side: a block of 16,384 float32 values
BYTE = 0xA5
MOST_BYTES = 2**28  # larger buffers are left as they are: a copy of them would not fit everywhere


class Overwritten(Exception):
    """A launch has written outside its output; the text says where."""


@dataclass(frozen=True)
class Zone:
    """One buffer with its guards; `name` is the first argument that lies in it."""

    name: str
    buffer: torch.Tensor  # bytes: ZONE of guard, size of data, ZONE or a little more of guard
    size: int
    itemsize: int

    def first_written(self) -> int | None:
        """The element, counted from the data's first, whose bytes are not as they were; None where all are."""
        before = torch.nonzero(self.buffer[:ZONE] != BYTE)
        if before.numel():
            return (int(before[-1]) - ZONE) // self.itemsize
        after = torch.nonzero(self.buffer[ZONE + self.size :] != BYTE)
        return (self.size + int(after[0])) // self.itemsize if after.numel() else None


@dataclass(frozen=True)
class Guarded(Plan):
    """A plan whose fresh buffers lie between guard zones."""

    zones: tuple[Zone, ...] = ()

    def need_intact(self) -> None:
        """Raises Overwritten. It waits for the device."""
        for zone in self.zones:
            index = zone.first_written()
            if index is not None:
                count = zone.size // zone.itemsize
                side = "before its first" if index < 0 else f"past its last of {count:,}"
                raise Overwritten(f"wrote outside {zone.name}: element {index:,}, {side}")


def guarded(plan: Plan, inputs: Inputs) -> Guarded:
    """The plan with every buffer that is not an input's moved between guard zones, contents and strides kept."""
    given = {_storage(v) for v in inputs.values() if isinstance(v, torch.Tensor)}
    moved: dict[int, Zone] = {}
    for name, tensor in _tensors(plan):
        key, size = _storage(tensor), tensor.untyped_storage().nbytes()
        if key not in given and key not in moved and 0 < size <= MOST_BYTES:
            moved[key] = _zone(name, tensor)
    launches = tuple(
        dataclasses.replace(launch, args={name: _moved(value, moved) for name, value in launch.args.items()})
        for launch in plan.launches
    )
    outputs = {name: _moved(tensor, moved) for name, tensor in plan.outputs.items()}
    return Guarded(launches, outputs, tuple(moved.values()))


def _tensors(plan: Plan) -> list[tuple[str, torch.Tensor]]:
    """Arguments before outputs: they are what a person reads in the kernel. Host-made descriptors by their base."""
    named = [(name, getattr(v, "base", v)) for launch in plan.launches for name, v in launch.args.items()]
    return [(name, t) for name, t in (*named, *plan.outputs.items()) if isinstance(t, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _zone(name: str, tensor: torch.Tensor) -> Zone:
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    whole = 2 * ZONE + -(-size // 16) * 16  # a whole number of elements of any dtype
    buffer = torch.full((whole,), BYTE, dtype=torch.uint8, device=tensor.device)
    buffer[ZONE : ZONE + size] = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    return Zone(name, buffer, size, tensor.element_size())


def _moved(value: Any, moved: Mapping[int, Zone]) -> Any:
    """The tensor (or the descriptor of one) in its guarded buffer; anything else as it is."""
    base = getattr(value, "base", None)
    if isinstance(base, torch.Tensor) and dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, base=_moved(base, moved))
    if not isinstance(value, torch.Tensor) or _storage(value) not in moved:
        return value
    flat = moved[_storage(value)].buffer.view(value.dtype)
    return flat.as_strided(value.shape, value.stride(), ZONE // value.element_size() + value.storage_offset())
