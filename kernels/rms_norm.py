"""RMSNorm: each row divided by its root mean square, and scaled.

    out = x / sqrt(mean(x^2) + eps) * (offset + weight)

offset 0 is Llama's, offset 1 is Gemma's, whose weights are stored as the difference from 1. The 1 is added in float32:
in bfloat16, 1 + 0.0039 would be 1.

Written as single PyTorch operations, square, mean, rsqrt and two products send the row through memory again and again;
here it is loaded once, waits in registers while its squares are summed, and is written once. The sum is in float32:
float16 overflows at 65,504, and bfloat16 would lose the small terms.

Everything is computed in float32 and rounded once, at the store, as Gemma does. Llama's own code rounds the normalised
row to the tensor's dtype first and multiplies by the weight then: one rounding more, of the same size as the first.

What to look at: the single reduction; and, for a row wider than MAX_BLOCK, that the second read comes from L2.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.checks import (
    FLOATS,
    as_rows,
    need_dtype,
    need_min_rank,
    need_no_grad,
    need_number,
    need_same_device,
    need_shape,
)
from kernels.rows import aligned, row_configs, vector_width
from kernels.spec import Baseline, Bug, Config, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan, nbytes


@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, out_ptr, stride_xm, stride_xn, n_rows, n_cols, eps, offset,
    VECTOR: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows of up to BLOCK_N columns."""
    stride_xm, n_cols = aligned(stride_xm, VECTOR), aligned(n_cols, VECTOR)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    cols = tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    mask = (rows < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows * stride_xm + cols.to(tl.int64) * stride_xn, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=1, keep_dims=True) / n_cols
    tl.store(out_ptr + rows * n_cols + cols, x * tl.rsqrt(mean_square + eps) * (offset + weight), mask=mask)


@triton.jit
def rms_norm_wide_kernel(
    x_ptr, weight_ptr, out_ptr, stride_xm, stride_xn, n_cols, eps, offset,
    VECTOR: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A row wider than a block: one program loops over it twice."""
    stride_xm, n_cols = aligned(stride_xm, VECTOR), aligned(n_cols, VECTOR)
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    out_ptr += row * n_cols
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)
    squares = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        x = tl.load(x_ptr + cols * stride_xn, mask=cols < n_cols, other=0.0, eviction_policy="evict_last")
        squares += x.to(tl.float32) * x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + cols * stride_xn, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + cols, x * scale * (offset + weight), mask=mask)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, offset: float = 0.0) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * (offset + weight) over the last dimension.

    x: [..., n], float32, float16 or bfloat16, any strides; weight: [n]. offset 1.0 is Gemma's. Computed in float32 and
    rounded once. Returns a contiguous tensor of x's shape and dtype. Raises InputError.
    """
    return SPEC.run(x=x, weight=weight, eps=eps, offset=offset)


def reference(x, weight, eps=1e-6, offset=0.0):
    wide = x if x.dtype == torch.float64 else x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * (offset + weight.to(wide.dtype))).to(x.dtype)


def eager(x, weight, eps=1e-6, offset=0.0):
    """PyTorch's own operation; Gemma's, which it lacks, as Gemma's modelling code writes it."""
    return reference(x, weight, eps, offset) if offset else torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)


def make_inputs(dims, draw):
    return {
        "x": draw.normal(dims["rows"], dims["n"]),
        "weight": draw.normal(dims["n"], mean=1.0, std=0.1),
        "eps": 1e-6,
        "offset": 0.0,
    }


def check(inputs):
    x, weight = inputs["x"], inputs["weight"]
    need_min_rank(x, "x", 1)
    need_dtype(x, "x", FLOATS)
    need_dtype(weight, "weight", FLOATS)
    need_shape(weight, "weight", x.shape[-1:], "the last dimension of x")
    need_same_device(x=x, weight=weight)
    need_no_grad(x=x, weight=weight)
    need_number(inputs.get("eps", 1e-6), "eps")
    need_number(inputs.get("offset", 0.0), "offset")


def plan(inputs, config, target):
    x, weight = inputs["x"], inputs["weight"]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    x = as_rows(x)
    n_rows, n_cols = x.shape
    args = {
        "x_ptr": x,
        "weight_ptr": weight.contiguous(),
        "out_ptr": out,
        "stride_xm": x.stride(0),
        "stride_xn": x.stride(1),
        "n_cols": n_cols,
        "VECTOR": vector_width(n_cols, x.stride(0)),
        "eps": inputs.get("eps", 1e-6),
        "offset": float(inputs.get("offset", 0.0)),
    }
    if n_cols > config.meta["BLOCK_N"]:
        narrow = Config({"BLOCK_N": config.meta["BLOCK_N"]}, config.num_warps, config.num_stages)
        launch = Launch(rms_norm_wide_kernel, (n_rows,), args, narrow)
    else:
        grid = (triton.cdiv(n_rows, config.meta["BLOCK_M"]) if n_cols else 0,)
        launch = Launch(rms_norm_kernel, grid, {**args, "n_rows": n_rows}, config)
    return Plan((launch,), {"out": out})


def configs(inputs, target):
    return row_configs(inputs["x"], target, many=(1, 512, 8))


def cost(inputs):
    x, weight = inputs["x"], inputs["weight"]
    # square, add, scale, weight
    return Cost(nbytes(x, weight), x.numel() * x.element_size(), 4 * x.numel())


def _liger():
    from liger_kernel.ops.rms_norm import LigerRMSNormFunction

    def run(x, weight, eps, offset):
        return LigerRMSNormFunction.apply(x, weight, eps, offset, "gemma" if offset else "llama", False)

    return run


def _flag_gems():
    import flag_gems

    def run(x, weight, eps, offset):
        if offset:
            raise ValueError(f"FlagGems adds no offset to the weight, and offset is {offset}")
        return flag_gems.rms_norm(x, list(x.shape[-1:]), weight, eps)

    return run


def _unsloth():
    from unsloth.kernels.rms_layernorm import Fast_RMS_Layernorm

    def run(x, weight, eps, offset):
        if offset not in (0, 1):
            raise ValueError(f"Unsloth adds 0 or 1 to the weight, and offset is {offset}")
        return Fast_RMS_Layernorm.apply(x, weight, eps, bool(offset))

    return run


def _quack():
    import quack

    return lambda x, weight, eps, offset: quack.rmsnorm(x, weight, eps=eps, weight_offset=float(offset))


def _gemma(inputs):
    # Weights that 1 would swallow if the sum were taken in bfloat16.
    return {**inputs, "weight": torch.full_like(inputs["weight"], 0.00390625), "offset": 1.0}


def _every_second(inputs):
    return {**inputs, "x": inputs["x"].repeat_interleave(2, dim=-1)[..., ::2]}


def _transposed(inputs):
    return {**inputs, "x": inputs["x"].t().contiguous().t()}


def _expanded(inputs):
    return {**inputs, "x": inputs["x"][:1].expand_as(inputs["x"])}


def _huge(inputs):
    return {**inputs, "x": inputs["x"] * 200}


def _nan_in_one_row(inputs):
    inputs["x"][1, 2] = float("nan")
    return inputs


def _zeros(inputs):
    return {**inputs, "x": torch.zeros_like(inputs["x"])}


SPEC = KernelSpec(
    name="rms_norm",
    title="RMSNorm",
    doc="Divides each row by its root mean square. As single operations it goes through memory again and again; "
    "here it is read once and written once. Look at the single reduction, and at the dtype it is taken in.",
    function=rms_norm,
    reference=reference,
    eager=eager,
    dims=(Dim("rows", "tokens"), Dim("n", "hidden size", high=2**20)),
    presets={
        "decode": {"rows": 1, "n": 4096},
        "prefill": {"rows": 4096, "n": 4096},
        "odd": {"rows": 33, "n": 4097},
        "largest": {"rows": 16_384, "n": 8192},
    },
    default={"rows": 64, "n": 3000},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    check=check,
    plan=plan,
    configs=configs,
    cost=cost,
    sweep_dim="rows",
    shrinks="rows",
    baselines=(
        Baseline("Liger", _liger, "pip install liger-kernel"),
        Baseline("FlagGems", _flag_gems, "pip install flag-gems"),
        Baseline("Unsloth", _unsloth, "pip install unsloth"),
        Baseline("quack", _quack, "pip install quack-kernels"),
    ),
    edges=(
        Edge("Gemma's offset", "1 + 0.0039 is 1 in bfloat16", {"rows": 4, "n": 1000}, _gemma),
        Edge("One column", "n=1: a reduction over one element", {"rows": 5, "n": 1}),
        Edge("One past a block", "n=4097: the mask of the last lanes", {"rows": 3, "n": 4097}),
        Edge("Wider than a block", "n=20,000: the row is looped over", {"rows": 3, "n": 20_000}),
        Edge("No rows", "rows=0: a grid of no programs", {"rows": 0, "n": 64}),
        Edge("Every second column", "[..., ::2]: neighbours are not adjacent", {"rows": 5, "n": 999}, _every_second),
        Edge("Transposed", "neighbours in a row are far apart", {"rows": 32, "n": 32}, _transposed),
        Edge("Expanded", "one row for all, stride 0", {"rows": 5, "n": 1000}, _expanded),
        Edge("Large values", "squares overflow float16", {"rows": 4, "n": 4096}, _huge),
        Edge("NaN in one row", "must not spread to other rows", {"rows": 4, "n": 1000}, _nan_in_one_row),
        Edge("All zeros", "eps keeps 0 / 0 away", {"rows": 4, "n": 1000}, _zeros),
    ),
    bugs=(
        Bug(
            "Mean over the block",
            find="mean_square = tl.sum(x * x, axis=1, keep_dims=True) / n_cols",
            replace="mean_square = tl.sum(x * x, axis=1, keep_dims=True) / BLOCK_N",
            hint="How many elements does the mean have?",
            symptom="right for powers of two, and too large elsewhere",
            dims={"rows": 64, "n": 3000},
        ),
        Bug(
            "The wrong weight",
            find="weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)",
            replace="weight = tl.load(weight_ptr + cols - 1, mask=cols < n_cols, other=0.0).to(tl.float32)",
            hint="Which weight belongs to column 0?",
            symptom="every column gets its left neighbour's weight, and column 0 what lies before the tensor",
            dims={"rows": 64, "n": 3000},
        ),
        Bug(
            "Last block left out",
            find="squares = tl.zeros([BLOCK_N], tl.float32)\n    for start in range(0, n_cols, BLOCK_N):",
            replace="squares = tl.zeros([BLOCK_N], tl.float32)\n    for start in range(0, n_cols - BLOCK_N, BLOCK_N):",
            hint="Where does the first loop end?",
            symptom="rows wider than a block are scaled as if their end were zero",
            dims={"rows": 4, "n": 20_000},
        ),
    ),
)
