"""How many programs of a kernel an SM holds at once, and what stops it from holding more.

NVIDIA: the rules and limits of the CUDA programming guide (compute capabilities) and of the occupancy calculator:
registers are given to a warp in pieces of 256, one KiB of shared memory is kept back for each block from compute
capability 8.0 on. AMD: the CDNA and RDNA ISA guides: vector registers are shared by the waves of a SIMD.
"""

from __future__ import annotations

from dataclasses import dataclass

REGISTERS = 65_536  # 32-bit, in one NVIDIA SM
REGISTER_UNIT = 256  # a warp gets its registers in pieces of this many
RESERVED_SHARED = 1024  # bytes a block, from compute capability 8.0 on


@dataclass(frozen=True)
class Limits:
    """What one SM (or CU) holds at the most. shared_unit: bytes that shared memory is rounded up to."""

    warps: int
    blocks: int
    shared_bytes: int
    shared_unit: int = 128
    reserved: int = RESERVED_SHARED


NVIDIA = {
    "sm_75": Limits(32, 16, 64 * 1024, 256, 0),
    "sm_80": Limits(64, 32, 164 * 1024),
    "sm_86": Limits(48, 16, 100 * 1024),
    "sm_89": Limits(48, 24, 100 * 1024),
    "sm_90": Limits(64, 32, 228 * 1024),
    "sm_100": Limits(64, 32, 228 * 1024),
    "sm_120": Limits(48, 24, 100 * 1024),
}


@dataclass(frozen=True)
class Simd:
    """AMD: a CU's SIMDs, waves on each, vector registers for each lane of one SIMD, and their unit."""

    count: int
    waves: int
    registers: int
    unit: int
    shared_bytes: int


AMD = {
    "gfx90a": Simd(4, 8, 512, 8, 64 * 1024),
    "gfx942": Simd(4, 8, 512, 8, 64 * 1024),
    "gfx950": Simd(4, 8, 512, 8, 160 * 1024),
    "gfx1100": Simd(2, 16, 1536, 24, 64 * 1024),
}


@dataclass(frozen=True)
class Occupancy:
    """blocks: programs resident on one SM. occupancy: warps held over warps possible.

    limit: "registers", "shared memory", "warps", "programs", or "does not fit". by_limit: programs that each limit
    alone would allow.
    """

    blocks: int
    warps: int
    occupancy: float
    limit: str
    by_limit: dict[str, int]

    @property
    def deciding(self) -> tuple[str, ...]:
        """Every limit that allows no more: to raise one of several changes nothing."""
        if self.limit not in self.by_limit or self.occupancy == 1:
            return (self.limit,)
        return tuple(name for name, blocks in self.by_limit.items() if blocks == self.blocks)


def occupancy(arch: str, num_warps: int, registers: int, shared_bytes: int) -> Occupancy:
    """For a program of `num_warps` warps with this many registers a thread and bytes of shared memory.

    Raises KeyError for an architecture that has no entry here.
    """
    if arch in NVIDIA:
        limits = NVIDIA[arch]
        return _result(limits.warps, num_warps, _nvidia(limits, num_warps, registers, shared_bytes))
    simd = AMD[arch]
    return _result(simd.count * simd.waves, num_warps, _amd(simd, num_warps, registers, shared_bytes))


def _nvidia(limits: Limits, num_warps: int, registers: int, shared_bytes: int) -> dict[str, int]:
    a_warp = _up(max(registers, 1) * 32, REGISTER_UNIT)
    # The SM's four partitions each have a quarter of the registers, so warps are counted in fours.
    warps_by_registers = REGISTERS // a_warp // 4 * 4
    a_block = _up(shared_bytes + limits.reserved, limits.shared_unit)
    return {
        "registers": warps_by_registers // num_warps,
        "shared memory": limits.shared_bytes // a_block if a_block else limits.blocks,
        "warps": limits.warps // num_warps,
        "programs": limits.blocks,
    }


def _amd(simd: Simd, num_warps: int, registers: int, shared_bytes: int) -> dict[str, int]:
    waves = min(simd.registers // _up(max(registers, 1), simd.unit), simd.waves)
    return {
        "registers": waves * simd.count // num_warps,
        "shared memory": simd.shared_bytes // shared_bytes if shared_bytes else simd.count * simd.waves,
        "warps": simd.count * simd.waves // num_warps,
        "programs": simd.count * simd.waves,
    }


def _result(most_warps: int, num_warps: int, by_limit: dict[str, int]) -> Occupancy:
    limit = min(by_limit, key=lambda name: by_limit[name])
    blocks = by_limit[limit]
    # Where full, no limit is to blame but the number of warps itself.
    if blocks * num_warps == most_warps:
        limit = "warps"
    return Occupancy(
        blocks, blocks * num_warps, blocks * num_warps / most_warps, limit if blocks else "does not fit", by_limit
    )


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
