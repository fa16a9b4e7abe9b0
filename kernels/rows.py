"""How a kernel that reduces over rows divides them: the configs that softmax and the norms share. No kernel itself."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from kernels.spec import Config, next_power_of_2
from kernels.targets import Target

MAX_BLOCK = 16384  # columns that one program keeps in registers


def row_configs(x: torch.Tensor, target: Target) -> Iterator[Config]:
    """{"BLOCK_M", "BLOCK_N"} configs for x [..., n], n up to MAX_BLOCK; the first is the default.

    A row wider than BLOCK_N is the kernel's own affair: it loops.
    """
    n_rows, n_cols = math.prod(x.shape[:-1]), x.shape[-1]
    block_n = min(next_power_of_2(n_cols), MAX_BLOCK)
    # A short row does not fill a program: several share one, as long as enough programs remain.
    block_m = max(1, min(1024 // block_n, n_rows // (4 * target.num_sms)))
    block_m = next_power_of_2(block_m + 1) // 2
    warps = min(max(block_m * block_n // 512, 1), 16)
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
