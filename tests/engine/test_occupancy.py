"""Occupancy against cases worked out by hand from the CUDA programming guide's table of limits."""

import pytest

from playground.engine.occupancy import occupancy

# arch, warps a program, registers a thread, shared bytes -> programs on an SM, occupancy, limit
KNOWN = [
    ("sm_80", 8, 32, 0, 8, 1.0, "warps"),  # 2,048 threads of 32 registers use the file up exactly
    ("sm_80", 8, 64, 0, 4, 0.5, "registers"),  # 65,536 / (64 * 256)
    ("sm_80", 8, 255, 0, 1, 0.125, "registers"),  # 8,192 a warp: 8 warps
    ("sm_80", 4, 33, 0, 12, 0.75, "registers"),  # 33 * 32 rounds up to 1,280: 51 warps, in fours 48
    ("sm_80", 4, 32, 48 * 1024, 3, 0.1875, "shared memory"),  # 49 KiB with the reserved one; 164 / 49
    ("sm_90", 4, 32, 227 * 1024, 1, 0.0625, "shared memory"),  # all but the reserved KiB
    ("sm_90", 1, 32, 0, 32, 0.5, "programs"),  # 32 programs of one warp are half of 64 warps
    ("sm_89", 8, 32, 0, 6, 1.0, "warps"),  # 48 warps
    ("sm_86", 1, 32, 0, 16, 1 / 3, "programs"),
    ("sm_75", 8, 32, 0, 4, 1.0, "warps"),  # 32 warps
    ("sm_75", 4, 64, 32 * 1024, 2, 0.25, "shared memory"),  # nothing is reserved before Ampere
    ("sm_90", 4, 32, 228 * 1024, 0, 0.0, "does not fit"),
    ("sm_90", 8, 40, 32, 6, 0.75, "registers"),  # 40 * 32 is 1,280 exactly: 51 warps, in fours 48
    ("sm_90", 8, 168, 0, 1, 0.125, "registers"),  # 5,376 a warp: 12 warps hold one program of 8
    ("sm_90", 4, 168, 96 * 1024, 2, 0.125, "shared memory"),  # 97 KiB of 228, where registers allow 3
    ("sm_100", 8, 32, 0, 8, 1.0, "warps"),
    ("sm_100", 16, 64, 100 * 1024, 2, 0.5, "registers"),
    ("sm_120", 8, 40, 0, 6, 1.0, "warps"),  # 48 warps
    ("sm_120", 4, 64, 33 * 1024, 2, 1 / 6, "shared memory"),  # 34 KiB of 100
    ("sm_89", 4, 128, 0, 4, 1 / 3, "registers"),  # 4,096 a warp: 16 warps
    ("sm_80", 32, 64, 0, 1, 0.5, "registers"),  # 1,024 threads of 64 registers are the whole file
    ("sm_80", 32, 65, 0, 0, 0.0, "does not fit"),
    ("gfx942", 4, 128, 0, 4, 0.5, "registers"),  # 512 / 128 = 4 of 8 waves on each SIMD
    ("gfx942", 4, 64, 0, 8, 1.0, "warps"),
    ("gfx942", 4, 64, 64 * 1024, 1, 0.125, "shared memory"),
]


@pytest.mark.parametrize(("arch", "warps", "registers", "shared", "blocks", "share", "limit"), KNOWN)
def test_known_cases(arch, warps, registers, shared, blocks, share, limit):
    held = occupancy(arch, warps, registers, shared)
    assert (held.blocks, held.occupancy, held.limit) == (blocks, pytest.approx(share), limit)


def test_a_limit_alone_never_allows_fewer_than_all_together():
    held = occupancy("sm_90", 4, 72, 40_000)
    assert held.blocks == min(held.by_limit.values())
