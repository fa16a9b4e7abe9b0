"""What the kernels over rows share: how they divide the rows, and how they say that rows are aligned. No kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from kernels.spec import Config, next_power_of_2
from kernels.targets import Target

MAX_BLOCK = 16384  # columns that one program keeps in registers


@triton.jit
def aligned(size, VECTOR: tl.constexpr):
    """`size`, known to be a multiple of VECTOR, in a form from which the compiler sees it.

    Triton itself tells apart only multiples of 16. A row of 3,000 float16 is a multiple of 8, which is enough for
    loads of 16 bytes; without being told, the compiler loads 2 bytes at a time.
    """
    return size // VECTOR * VECTOR


def vector_width(*sizes: int) -> int:
    """The largest power of two, up to 16, that divides the width and strides of a kernel's rows: its VECTOR."""
    return math.gcd(16, *sizes)


def row_configs(
    x: torch.Tensor, target: Target, many: tuple[int, int, int] = (1, 512, 16), few: int = 512
) -> Iterator[Config]:
    """{"BLOCK_M", "BLOCK_N"} configs for x [..., n], n up to MAX_BLOCK; the first is the default.

    many: (BLOCK_M, columns to a warp, most warps) that suit the kernel where there are rows enough to fill the GPU
    several times over; few: columns to a warp where there are not. Both are measured, on an H200. A row wider than
    BLOCK_N is the kernel's own affair: it loops.
    """
    n_rows, n_cols = math.prod(x.shape[:-1]), x.shape[-1]
    block_n = min(next_power_of_2(n_cols), MAX_BLOCK)
    block_m, columns_per_warp, max_warps = many if n_rows >= 8 * target.num_sms else (1, few, 16)
    if x.element_size() == 4:  # measured with 16-bit values, which need half the registers
        columns_per_warp = max(512, columns_per_warp // 2)
    # A short row does not fill a program: several share one, as long as enough programs remain.
    sharing = min(1024 // block_n, n_rows // (4 * target.num_sms))
    block_m = next_power_of_2(max(block_m, sharing) + 1) // 2
    warps = min(max(block_m * block_n // columns_per_warp, 1), max_warps)
    default = Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, warps)
    yield default
    for rows in (1, 2, 4, 8):
        for num_warps in (1, 2, 4, 8, 16, 32):
            each = Config({"BLOCK_M": rows, "BLOCK_N": block_n}, num_warps)
            if each != default and 1 <= rows * block_n // (32 * num_warps) <= 64 and rows * block_n <= MAX_BLOCK:
                yield each
    if n_cols > MAX_BLOCK:
        for block in (2048, 4096, 8192):
            yield Config({"BLOCK_M": 1, "BLOCK_N": block}, 8)
