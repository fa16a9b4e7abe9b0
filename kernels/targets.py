"""The devices that a plan can be made for, present or not.

A plan may depend on the number of multiprocessors or on the shared memory of the target; these come from the
device where there is one, and from the vendor's data for offline compilation.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Target:
    """kind "cuda", "hip" or "cpu"; arch "sm_90", "gfx942" or "cpu"; shared_bytes is the most one block may use."""

    kind: str
    arch: str
    num_sms: int
    shared_bytes: int
    warp_size: int = 32

    @property
    def capability(self) -> int:
        """90 for sm_90; 0 where the target is no NVIDIA GPU."""
        return int(self.arch.removeprefix("sm_")) if self.kind == "cuda" else 0

    @staticmethod
    def of(device: torch.device) -> Target:
        """The target that a tensor's device is; "meta" tensors have none of their own and count as the CPU."""
        return _of_gpu(device.index or 0) if device.type == "cuda" else _CPU

    @staticmethod
    def named(name: str) -> Target:
        """A target by architecture: "sm_90", "gfx942", "cpu". Raises KeyError where it is not known."""
        return TARGETS[name]


_CPU = Target("cpu", "cpu", os.cpu_count() or 1, 2**20, 1)


@functools.cache
def _of_gpu(index: int) -> Target:
    props = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        return Target("hip", props.gcnArchName.split(":")[0], props.multi_processor_count, 64 * 1024, props.warp_size)
    shared = getattr(props, "shared_memory_per_block_optin", 48 * 1024)
    return Target("cuda", f"sm_{props.major}{props.minor}", props.multi_processor_count, shared)


# One well-known card for each architecture. SMs and shared memory: the vendors' tuning and ISA guides.
TARGETS = {
    t.arch: t
    for t in (
        _CPU,
        Target("cuda", "sm_75", 40, 64 * 1024),  # T4
        Target("cuda", "sm_80", 108, 163 * 1024),  # A100
        Target("cuda", "sm_86", 84, 99 * 1024),  # RTX 3090, A40
        Target("cuda", "sm_89", 142, 99 * 1024),  # L40S
        Target("cuda", "sm_90", 132, 227 * 1024),  # H100, H200
        Target("cuda", "sm_100", 148, 227 * 1024),  # B200
        Target("cuda", "sm_120", 170, 99 * 1024),  # RTX 5090
        Target("hip", "gfx90a", 104, 64 * 1024, 64),  # MI250X, one die
        Target("hip", "gfx942", 304, 64 * 1024, 64),  # MI300X
        Target("hip", "gfx950", 256, 160 * 1024, 64),  # MI355X
        Target("hip", "gfx1100", 96, 64 * 1024, 32),  # RX 7900 XTX
    )
}
