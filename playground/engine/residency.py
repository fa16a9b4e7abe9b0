"""How a kernel's programs sit on a GPU: what each holds, how many an SM holds at once, and in how many waves they go.

Pure arithmetic over compiled resources and the catalogue's limits. It says nothing of time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from playground.engine import occupancy
from playground.engine.gpus import Gpu
from playground.engine.messages import Resources


@dataclass(frozen=True)
class Residency:
    """One launch on one GPU.

    register_bytes, shared_bytes: of one program. on_sm: what the resident programs of one SM hold together.
    resident: programs on the whole GPU at once. waves: how many times that many the grid is.
    """

    kernel: str
    programs: int
    register_bytes: int
    shared_bytes: int
    held: occupancy.Occupancy
    resident: int
    waves: float
    registers_on_sm: int
    shared_on_sm: int

    @property
    def rounds(self) -> int:
        """Times that an SM is filled, the last of them perhaps in part."""
        return math.ceil(self.waves)


def residency(used: Resources, grid: Sequence[int], gpu: Gpu) -> Residency:
    """Where the programs of a launch sit. Raises KeyError for an architecture without known limits."""
    held = occupancy.occupancy(gpu.arch, used.num_warps, used.registers, used.shared_bytes)
    programs = math.prod(grid)
    lanes = 64 if gpu.arch.startswith("gfx9") else 32
    registers = used.registers * 4 * used.num_warps * lanes
    resident = held.blocks * gpu.sms
    busy = min(held.blocks, math.ceil(programs / gpu.sms)) if gpu.sms else 0
    return Residency(
        kernel=used.kernel,
        programs=programs,
        register_bytes=registers,
        shared_bytes=used.shared_bytes,
        held=held,
        resident=resident,
        waves=programs / resident if resident else math.inf,
        registers_on_sm=busy * registers,
        shared_on_sm=busy * used.shared_bytes,
    )
