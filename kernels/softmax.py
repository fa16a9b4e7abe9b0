"""Softmax over the last dimension, of any width.

    out = exp(x - max(x)) / sum(exp(x - max(x)))

Subtracting the maximum changes nothing mathematically and keeps exp from overflowing. A chain of PyTorch operations
sends the row through memory once for each of max, subtract, exp, sum and divide; here it is read once and written
once. What to look at is where the row waits between its two uses, the reductions and the output:

- `softmax_kernel`: a row (or several short ones) waits in the registers of one program.
- `softmax_wide_kernel`: a row too long for that is looped over with an online maximum and sum: when a new block
  raises the maximum, the sum so far is scaled down to it. The last block waits in registers, 16-bit values two to a
  register; the others are read again, and the eviction hints make that second read come from L2.
- `softmax_split_kernel`: a row too long for one program's share of L2, or too few rows to fill the GPU. Neighbouring
  programs take a part each and trade their maximum and sum through memory. They wait for each other, so it needs
  programs that run at the same time: it is for NVIDIA GPUs, not for a CPU that may run them one after another.

A row that is -inf everywhere gives NaN, as in PyTorch: there is no maximum to subtract. So does a NaN or +inf.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.checks import FLOATS, as_rows, need_dtype, need_min_rank, need_no_grad, need_same_device
from kernels.rows import MAX_BLOCK, aligned, row_configs, vector_width
from kernels.spec import Baseline, Bug, Config, Cost, Dim, Edge, InputError, KernelSpec, Launch, Output, Plan, nbytes
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def _exp(x):
    # exp(x). The GPU has 2^x alone; written out, the product leaves the compiler at half the registers of tl.exp.
    return tl.exp2(x * 1.4426950408889634)


@triton.jit
def softmax_kernel(
    x_ptr, out_ptr, stride_xm, stride_xn, n_rows, n_cols,
    VECTOR: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows of up to BLOCK_N columns."""
    stride_xm, n_cols = aligned(stride_xm, VECTOR), aligned(n_cols, VECTOR)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    cols = tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    mask = (rows < n_rows) & (cols < n_cols)
    # -inf: a lane beyond the row never is the maximum, and adds exp(-inf) = 0 to the sum.
    x = tl.load(x_ptr + rows * stride_xm + cols.to(tl.int64) * stride_xn, mask=mask, other=-float("inf"))
    x = x.to(tl.float32)
    numerator = _exp(x - tl.max(x, axis=1, keep_dims=True))
    scale = 1.0 / tl.sum(numerator, axis=1, keep_dims=True)
    tl.store(out_ptr + rows * n_cols + cols, numerator * scale, mask=mask)


@triton.jit
def _finite_or_zero(maximum):
    # Until a finite value has been seen, -inf - -inf would be NaN; exp(-inf - 0) is the 0 that is meant.
    return tl.where(maximum == -float("inf"), 0.0, maximum)


@triton.jit
def _keep(x, PACK: tl.constexpr):
    # A move that the compiler cannot see through: 16-bit values then wait two to a register, not widened to float32.
    if PACK:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
    else:
        return x


@triton.jit
def _online(x, maximum, total, PACK: tl.constexpr):
    """Takes one more block into the running maximum and sum."""
    higher = tl.maximum(maximum, tl.max(x.to(tl.float32), axis=0))
    shift = _finite_or_zero(higher)
    x = _keep(x, PACK)
    total = total * _exp(maximum - shift) + tl.sum(_exp(x.to(tl.float32) - shift), axis=0)
    return x, higher, total


@triton.jit
def softmax_wide_kernel(
    x_ptr, out_ptr, stride_xm, stride_xn, n_cols,
    VECTOR: tl.constexpr, BLOCK_N: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """One row in blocks: the last one is kept, the full ones before it are read twice."""
    stride_xm, n_cols = aligned(stride_xm, VECTOR), aligned(n_cols, VECTOR)
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    out_ptr += row * n_cols
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)
    n_full = (n_cols - 1) // BLOCK_N * BLOCK_N
    kept = tl.load(
        x_ptr + (n_full + lanes) * stride_xn,
        mask=n_full + lanes < n_cols, other=-float("inf"), eviction_policy="evict_first",
    )  # fmt: skip
    maximum = -float("inf")
    total = 0.0
    for start in range(0, n_full, BLOCK_N):
        x = tl.load(x_ptr + (start + lanes) * stride_xn, eviction_policy="evict_last")
        x, maximum, total = _online(x, maximum, total, PACK)
    kept, maximum, total = _online(kept, maximum, total, PACK)
    shift = _finite_or_zero(maximum)
    scale = 1.0 / total
    kept = _keep(kept, PACK)
    out = _exp(kept.to(tl.float32) - shift) * scale
    tl.store(out_ptr + n_full + lanes, out, mask=n_full + lanes < n_cols, cache_modifier=".cs")
    for start in range(0, n_full, BLOCK_N):
        x = tl.load(x_ptr + (start + lanes) * stride_xn, eviction_policy="evict_first").to(tl.float32)
        tl.store(out_ptr + start + lanes, _exp(x - shift) * scale, cache_modifier=".cs")


@triton.jit
def softmax_split_kernel(
    x_ptr, out_ptr, parts_ptr, arrived_ptr, stride_xm, stride_xn, n_cols, n_parts,
    VECTOR: tl.constexpr, PARTS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCKS: tl.constexpr, PACK: tl.constexpr,
):  # fmt: skip
    """n_parts programs to a row, BLOCKS blocks to each: the first block is kept, the others are read twice.

    parts_ptr: float32 [rows, n_parts, 2], each program's maximum and sum. arrived_ptr: int32 [rows], which grows by
    n_parts with every launch, so that a launch can be repeated without clearing it.
    """
    stride_xm, n_cols = aligned(stride_xm, VECTOR), aligned(n_cols, VECTOR)
    pid = tl.program_id(0)
    row = (pid // n_parts).to(tl.int64)
    start = (pid % n_parts) * (BLOCK_N * BLOCKS)
    x_ptr += row * stride_xm + start.to(tl.int64) * stride_xn
    out_ptr += row * n_cols + start
    n_left = n_cols - start
    lanes = tl.arange(0, BLOCK_N)
    far = lanes.to(tl.int64) * stride_xn
    kept = tl.load(x_ptr + far, mask=lanes < n_left, other=-float("inf"), eviction_policy="evict_first")
    maximum = -float("inf")
    total = 0.0
    kept, maximum, total = _online(kept, maximum, total, PACK)
    for block in tl.static_range(1, BLOCKS):
        far = (lanes + block * BLOCK_N).to(tl.int64) * stride_xn
        mask = lanes + block * BLOCK_N < n_left
        x = tl.load(x_ptr + far, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        x, maximum, total = _online(x, maximum, total, PACK)

    tl.store(parts_ptr + 2 * pid, maximum)
    tl.store(parts_ptr + 2 * pid + 1, total)
    tl.debug_barrier()
    ticket = tl.atomic_add(arrived_ptr + row, 1, sem="acq_rel")
    everyone = (ticket // n_parts + 1) * n_parts
    arrived = ticket + 1
    while arrived < everyone:
        arrived = tl.atomic_add(arrived_ptr + row, 0, sem="acquire")

    part = tl.arange(0, PARTS)
    there = part < n_parts
    other = parts_ptr + 2 * (row * n_parts + part)
    maxima = tl.load(other, mask=there, other=-float("inf"), cache_modifier=".cg")
    totals = tl.load(other + 1, mask=there, other=0.0, cache_modifier=".cg")
    shift = _finite_or_zero(tl.max(maxima, axis=0))
    scale = 1.0 / tl.sum(totals * _exp(maxima - shift), axis=0)

    kept = _keep(kept, PACK)
    tl.store(out_ptr + lanes, _exp(kept.to(tl.float32) - shift) * scale, mask=lanes < n_left, cache_modifier=".cs")
    for block in tl.static_range(1, BLOCKS):
        far = (lanes + block * BLOCK_N).to(tl.int64) * stride_xn
        mask = lanes + block * BLOCK_N < n_left
        x = tl.load(x_ptr + far, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(out_ptr + block * BLOCK_N + lanes, _exp(x - shift) * scale, mask=mask, cache_modifier=".cs")


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension, computed in float32.

    x: [..., n], n of any size; float32, float16 or bfloat16, any strides. Returns a contiguous tensor of x's shape
    and dtype. A row of -inf alone, or with a NaN or +inf, is NaN, as in PyTorch. Raises InputError.
    """
    return SPEC.run(x=x)


def reference(x):
    return torch.softmax(x, dim=-1)


def make_inputs(dims, draw):
    return {"x": draw.normal(dims["rows"], dims["n"], std=2.0)}


def check(inputs):
    x = inputs["x"]
    need_min_rank(x, "x", 1)
    need_dtype(x, "x", FLOATS)
    need_same_device(x=x)
    need_no_grad(x=x)


def plan(inputs, config, target):
    x = inputs["x"]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    x = as_rows(x)
    n_rows, n_cols = x.shape
    args = {
        "x_ptr": x,
        "out_ptr": out,
        "stride_xm": x.stride(0),
        "stride_xn": x.stride(1),
        "n_cols": n_cols,
        "VECTOR": vector_width(n_cols, x.stride(0)),
    }
    pack = target.kind == "cuda" and x.element_size() == 2
    if "BLOCKS" in config.meta:
        launch = _split(args, n_rows, pack, config, target)
    elif n_cols > config.meta["BLOCK_N"]:
        narrow = Config({"BLOCK_N": config.meta["BLOCK_N"]}, config.num_warps, config.num_stages)
        launch = Launch(softmax_wide_kernel, (n_rows,), {**args, "PACK": pack}, narrow)
    else:
        grid = (triton.cdiv(n_rows, config.meta["BLOCK_M"]) if n_cols else 0,)
        launch = Launch(softmax_kernel, grid, {**args, "n_rows": n_rows}, config)
    return Plan((launch,), {"out": out})


def _split(args, n_rows, pack, config, target):
    if target.kind != "cuda":
        raise InputError("this config splits a row over programs that wait for each other; choose one without BLOCKS",
                         "config")  # fmt: skip
    x = args["x_ptr"]
    n_parts = triton.cdiv(args["n_cols"], config.meta["BLOCK_N"] * config.meta["BLOCKS"])
    workspace = {
        "parts_ptr": torch.empty(n_rows, n_parts, 2, dtype=torch.float32, device=x.device),
        "arrived_ptr": torch.zeros(n_rows, dtype=torch.int32, device=x.device),
        "n_parts": n_parts,
        "PARTS": pow2(n_parts),
        "PACK": pack,
    }
    return Launch(softmax_split_kernel, (n_rows * n_parts,), {**args, **workspace}, config)


def configs(inputs, target):
    n_rows, n_cols = math.prod(inputs["x"].shape[:-1]), inputs["x"].shape[-1]
    # Where few rows leave multiprocessors idle, smaller parts spread each over more of them.
    parts = [(8192, 2, 4), (4096, 1, 4), (4096, 2, 2), (8192, 2, 8), (4096, 2, 4), (8192, 1, 8), (16384, 2, 8)]
    if inputs["x"].element_size() == 4:
        parts.sort()  # twice the registers: the smallest parts first
    small = [(1024, 1, 4), (2048, 1, 4), (1024, 1, 2), (2048, 1, 8), (4096, 1, 8)]
    few = n_rows * 8 < target.num_sms
    split = [
        Config({"BLOCK_N": block, "BLOCKS": blocks}, num_warps)
        for block, blocks, num_warps in (small if few else parts)
        if target.kind == "cuda" and n_rows and n_cols > block * blocks
    ]
    if n_cols > 65_536 or (n_cols > MAX_BLOCK and few):
        yield from split
        split = []
    if n_cols > MAX_BLOCK:
        one_block = [Config({"BLOCK_M": 1, "BLOCK_N": 2 * MAX_BLOCK}, num_warps) for num_warps in (32, 16)]
        one_block = one_block if n_cols <= 2 * MAX_BLOCK else []
        # 16-bit values wait two to a register while others are read again; float32 leaves no room for that to pay.
        if inputs["x"].element_size() == 4:
            yield from one_block
            one_block = []
        wide = ((16384, 16), (16384, 32), (8192, 16), (8192, 32), (8192, 8), (4096, 8))
        yield from (Config({"BLOCK_M": 1, "BLOCK_N": block}, num_warps) for block, num_warps in wide)
        yield from one_block
    else:
        yield from row_configs(inputs["x"], target, many=(1, 1024 if 1024 < n_cols <= 4096 else 512, 16), few=1024)
    yield from split


def cost(inputs):
    x = inputs["x"]
    return Cost(nbytes(x), x.numel() * x.element_size(), 4 * x.numel())  # subtract, exp, add, scale


def _liger():
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return lambda x: LigerSoftmaxFunction.apply(x)


def _quack():
    import quack

    return lambda x: quack.softmax(x)


def _flag_gems():
    import flag_gems

    return lambda x: flag_gems.softmax(x, -1)


def _padded_vocabulary(inputs):
    # As logits come out of a padded language-model head: the row stride is more than the width.
    wide = torch.full((*inputs["x"].shape[:-1], inputs["x"].shape[-1] + 11), 50.0).to(inputs["x"])
    wide[..., :-11] = inputs["x"]
    return {"x": wide[..., :-11]}


def _transposed(inputs):
    return {"x": inputs["x"].t().contiguous().t()}


def _large(inputs):
    return {"x": inputs["x"] * 1000}


def _masked_row(inputs):
    inputs["x"][1] = float("-inf")
    inputs["x"][2, 1:] = float("-inf")
    return inputs


def _masked_start(inputs):
    # The first blocks hold nothing finite: an online maximum must not make NaN of -inf - -inf.
    inputs["x"][:, : inputs["x"].shape[1] - 7] = float("-inf")
    return inputs


def _not_finite(inputs):
    inputs["x"][1, 2] = float("nan")
    inputs["x"][2, 3] = float("inf")
    return inputs


SPEC = KernelSpec(
    name="softmax",
    title="Softmax",
    doc="Turns each row into probabilities. Eager PyTorch without fusion would read the row for the maximum, the sum "
    "and the division; here it is read once and written once. Look at where a long row waits in between: in "
    "registers, in L2, or shared out over several programs.",
    function=softmax,
    reference=reference,
    dims=(Dim("rows", "rows, each on its own"), Dim("n", "row length", high=2**24)),
    presets={
        "decode": {"rows": 1, "n": 128_256},
        "prefill": {"rows": 4096, "n": 4096},
        "odd": {"rows": 33, "n": 4097},
        "largest": {"rows": 4096, "n": 32_768},
    },
    default={"rows": 64, "n": 3000},
    dtypes=("float32", "bfloat16", "float16"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    check=check,
    plan=plan,
    configs=configs,
    cost=cost,
    sweep_dim="n",
    shrinks="rows",
    baselines=(
        Baseline("Liger", _liger, "pip install liger-kernel"),
        Baseline("FlagGems", _flag_gems, "pip install flag-gems"),
        Baseline("quack", _quack, "pip install quack-kernels"),
    ),
    edges=(
        Edge("One column", "n=1: every answer is 1", {"rows": 5, "n": 1}),
        Edge("One past a block", "n=1025: the mask of the last lanes", {"rows": 3, "n": 1025}),
        Edge("Just wider than a block", "n=16,385: one column in the second block", {"rows": 3, "n": 16_385}),
        Edge("150,000 columns", "no block is this wide: the row is looped over", {"rows": 2, "n": 150_000}),
        Edge("No rows", "rows=0: a grid of no programs", {"rows": 0, "n": 64}),
        Edge("Padded vocabulary", "the row stride is more than the width", {"rows": 4, "n": 1003}, _padded_vocabulary),
        Edge("Transposed", "neighbours in a row are far apart", {"rows": 32, "n": 32}, _transposed),
        Edge("Large values", "exp overflows unless the maximum goes first", {"rows": 4, "n": 1000}, _large),
        Edge("A masked row", "all -inf is NaN; one finite value is 1", {"rows": 4, "n": 1000}, _masked_row),
        Edge("A masked start", "blocks of -inf before a finite one", {"rows": 2, "n": 40_000}, _masked_start),
        Edge("NaN and infinity", "make their own row NaN and no other", {"rows": 4, "n": 1000}, _not_finite),
    ),
    bugs=(
        Bug(
            "Zero for the masked lanes",
            find="x = tl.load(x_ptr + rows * stride_xm + cols.to(tl.int64) * stride_xn, mask=mask, "
            'other=-float("inf"))',
            replace="x = tl.load(x_ptr + rows * stride_xm + cols.to(tl.int64) * stride_xn, mask=mask, other=0.0)",
            hint="What do the lanes beyond the row add to the sum?",
            symptom="right for powers of two; elsewhere each row sums to less than 1",
            dims={"rows": 64, "n": 3000},
        ),
        Bug(
            "Row stride forgotten",
            find="tl.store(out_ptr + rows * n_cols + cols, numerator * scale, mask=mask)",
            replace="tl.store(out_ptr + rows * BLOCK_N + cols, numerator * scale, mask=mask)",
            hint="How far apart are two rows of the output?",
            symptom="rows land in the wrong place, and the last ones past the end",
            dims={"rows": 64, "n": 3000},
        ),
        Bug(
            "Sum not scaled down",
            find="total = total * _exp(maximum - shift) + tl.sum(",
            replace="total = total + tl.sum(",
            hint="What was the maximum when the earlier blocks were summed?",
            symptom="rows wider than a block sum to less than 1",
            dims={"rows": 4, "n": 40_000},
        ),
    ),
)
