"""A matmul whose programs run through the tiles row by row, to see what grouping them saves. A variant to read.

Every program computes one tile of the answer, and the order of the programs decides what is still in L2 when the
next one asks. Row by row, as here, the programs that run at one time share a few rows of a, but need all of b: for
4096 x 4096 in bfloat16 b has 32 MB, and it is read again for every row of tiles. kernels/matmul.py lets GROUP_M rows
of tiles go together, so that the programs at work share both a and b, and L2 serves most of the reads.

What to look at: the answer is the same, the code differs by four lines, and the time grows with the size of b: a GPU
whose L2 holds all of b shows no difference, and on a CPU there is none.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.matmul import SPEC as GROUPED
from kernels.spec import Bug, Config, Edge, KernelSpec, Launch, Output, Plan


@triton.jit
def matmul_ungrouped_kernel(
    a_ptr, b_ptr, out_ptr, m_size, n_size, k_size, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    n_tiles = tl.cdiv(n_size, BLOCK_N)
    rows = (tl.program_id(0) // n_tiles).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) % n_tiles).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, k_size, BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K)).to(tl.int64)
        a_mask = (rows < m_size)[:, None] & (k < k_size)[None, :]
        b_mask = (k < k_size)[:, None] & (cols < n_size)[None, :]
        a = tl.load(a_ptr + rows[:, None] * stride_am + k[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + k[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    mask = (rows < m_size)[:, None] & (cols < n_size)[None, :]
    tl.store(out_ptr + rows[:, None] * n_size + cols[None, :], acc, mask=mask)


def matmul_ungrouped(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b, tile by tile in the order of the rows; float32 exactly (IEEE).

    a: [M, K]; b: [K, N], the same dtype (float32, float16, bfloat16), any strides. Returns [M, N], contiguous.
    Raises InputError.
    """
    return SPEC.run(a=a, b=b)


def reference(a, b):
    return GROUPED.reference(a, b, "ieee")


def make_inputs(dims, draw):
    made = GROUPED.make_inputs(dims, draw)
    return {"a": made["a"], "b": made["b"]}


def plan(inputs, config, target):
    a, b = inputs["a"], inputs["b"]
    (m_size, k_size), n_size = a.shape, b.shape[1]
    out = torch.empty(m_size, n_size, dtype=a.dtype, device=a.device)
    args = {
        "a_ptr": a,
        "b_ptr": b,
        "out_ptr": out,
        "m_size": m_size,
        "n_size": n_size,
        "k_size": k_size,
        "stride_am": a.stride(0),
        "stride_ak": a.stride(1),
        "stride_bk": b.stride(0),
        "stride_bn": b.stride(1),
    }
    grid = (triton.cdiv(m_size, config.meta["BLOCK_M"]) * triton.cdiv(n_size, config.meta["BLOCK_N"]),)
    return Plan((Launch(matmul_ungrouped_kernel, grid, args, config),), {"out": out})


def configs(inputs, target):
    if target.kind == "cpu":
        choices = [(64, 64, 32, 1, 1), (32, 64, 32, 1, 1)]
    elif inputs["a"].dtype == torch.float32:  # exact products keep the tiles in registers
        choices = [(64, 64, 16, 4, 2), (32, 64, 16, 4, 2)]
    else:
        choices = [(128, 128, 32, 8, 2 if target.kind == "hip" else 3), (64, 64, 32, 4, 2)]
    for m, n, k, num_warps, stages in choices:
        yield Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps, stages)


def _transposed(inputs):
    return {name: x.T.contiguous().T for name, x in inputs.items()}


_SMALL = {"m": 70, "n": 90, "k": 50}

SPEC = KernelSpec(
    name="matmul_ungrouped",
    title="Matmul, ungrouped",
    doc="The tiles in the order of their rows: b is read again for each row of tiles. Compare with matmul's time.",
    function=matmul_ungrouped,
    reference=reference,
    dims=GROUPED.dims,
    presets=GROUPED.presets,
    default=GROUPED.default,
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    plan=plan,
    check=GROUPED.check,
    configs=configs,
    cost=GROUPED.cost,
    sweep_dim=GROUPED.sweep_dim,
    shrinks=GROUPED.shrinks,
    variant_of="matmul",
    edges=(
        Edge("Odd sizes", "70 x 50 x 90: masks on every side", _SMALL),
        Edge("Nothing to sum", "k=0: zeros", {**_SMALL, "k": 0}),
        Edge("Transposed", "both stored the other way round: strides", _SMALL, _transposed),
    ),
    bugs=(
        Bug(
            "Sum started anew",
            find='acc = tl.dot(a, b, acc, input_precision="ieee")',
            replace='acc = tl.dot(a, b, input_precision="ieee")',
            hint="What is left of the first block of K after the second?",
            symptom="only the last block of K is summed",
            dims=_SMALL,
        ),
        Bug(
            "Tiles mixed up",
            find="(tl.program_id(0) % n_tiles).to(tl.int64) * BLOCK_N",
            replace="(tl.program_id(0) // n_tiles).to(tl.int64) * BLOCK_N",
            hint="Which tile does program 1 compute?",
            symptom="only the tiles on the diagonal are written",
            dims={"m": 200, "n": 200, "k": 50},
        ),
    ),
)
