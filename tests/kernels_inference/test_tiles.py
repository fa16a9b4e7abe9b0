"""Which tile a matrix product takes first on a GPU: as many programs as the multiprocessors want, and none too tall."""

from __future__ import annotations

import pytest

import kernels
from kernels.spec import Target

H200 = Target.named("sm_90")


@pytest.mark.parametrize(
    "m, n, tile",
    (
        (4096, 4096, (128, 256)),
        (768, 4096, (128, 256)),  # 96 programs keep 73 % busy; 192 smaller ones would need a second round
        (512, 4096, (128, 128)),
        (256, 4096, (64, 128)),
        (64, 14_336, (64, 128)),  # no tile of twice the rows that there are
        (4096, 128, (64, 64)),
        (32, 4096, (32, 32)),
        (200, 300, (32, 32)),
    ),
)
def test_the_largest_tile_that_keeps_the_multiprocessors_busy(m, n, tile):
    spec = kernels.get("matmul")
    inputs = spec.inputs({"m": m, "n": n, "k": 4096}, "bfloat16", "meta")
    meta = spec.default_config(inputs, H200).meta
    assert (meta["BLOCK_M"], meta["BLOCK_N"]) == tile
