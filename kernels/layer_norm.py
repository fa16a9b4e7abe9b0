"""LayerNorm: each row shifted to mean 0, scaled to variance 1, then scaled and shifted by learned weights.

    out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias

Two reductions, and the second needs the first: the variance is the mean of (x - mean)^2. The short cut
mean(x^2) - mean(x)^2 needs only one pass, but subtracts two nearly equal numbers where the mean is large, and loses
all digits. Here the row waits in registers, so the second reduction costs no memory traffic.

The trap is the mask: lanes beyond the row were loaded as 0, and 0 - mean is not 0. `x - mean` is masked before it is
squared, or every row whose length is no power of two gets too large a variance.

A row wider than MAX_BLOCK is looped over. Each block's mean and sum of squared deviations are merged into the running
ones (Chan, Golub and LeVeque 1979), so that one pass gives both without the short cut's cancellation; the second pass
reads from L2. Everything is computed in float32 and rounded once, at the store.
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
def layer_norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, stride_xm, stride_xn, n_rows, n_cols, eps,
    VECTOR: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows of up to BLOCK_N columns."""
    stride_xm, n_cols = aligned(stride_xm, VECTOR), aligned(n_cols, VECTOR)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    cols = tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    mask = (rows < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows * stride_xm + cols.to(tl.int64) * stride_xn, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    # Rounded as IEEE says: `/` is off by an ulp on a GPU, which 1 / sqrt(eps) makes visible in a constant row.
    mean = tl.div_rn(tl.sum(x, axis=1, keep_dims=True), n_cols.to(tl.float32))
    centred = tl.where(mask, x - mean, 0.0)  # a lane beyond the row holds -mean until here
    variance = tl.sum(centred * centred, axis=1, keep_dims=True) / n_cols
    tl.store(out_ptr + rows * n_cols + cols, centred * tl.rsqrt(variance + eps) * weight + bias, mask=mask)


@triton.jit
def layer_norm_wide_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, stride_xm, stride_xn, n_cols, eps,
    VECTOR: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A row wider than a block: one program loops over it twice."""
    stride_xm, n_cols = aligned(stride_xm, VECTOR), aligned(n_cols, VECTOR)
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    out_ptr += row * n_cols
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)
    mean = 0.0
    deviations = 0.0  # the sum of (x - mean)^2 so far
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + cols * stride_xn, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        count = tl.minimum(n_cols - start, BLOCK_N).to(tl.float32)
        block_mean = tl.div_rn(tl.sum(x, axis=0), count)
        centred = tl.where(mask, x - block_mean, 0.0)
        share = tl.div_rn(count, start + count)  # the block's share of all columns up to here
        apart = block_mean - mean
        deviations += tl.sum(centred * centred, axis=0) + apart * apart * start * share
        mean += apart * share
    scale = tl.rsqrt(deviations / n_cols + eps)
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + cols * stride_xn, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + cols, (x - mean) * scale * weight + bias, mask=mask)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last dimension, with the biased variance.

    x: [..., n], float32, float16 or bfloat16, any strides; weight, bias: [n]. Computed in float32 and rounded once.
    Returns a contiguous tensor of x's shape and dtype. Raises InputError.
    """
    return SPEC.run(x=x, weight=weight, bias=bias, eps=eps)


def reference(x, weight, bias, eps=1e-5):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def make_inputs(dims, draw):
    return {
        "x": draw.normal(dims["rows"], dims["n"], mean=1.0),
        "weight": draw.normal(dims["n"], mean=1.0, std=0.1),
        "bias": draw.normal(dims["n"], std=0.1),
        "eps": 1e-5,
    }


def check(inputs):
    x, weight, bias = inputs["x"], inputs["weight"], inputs["bias"]
    need_min_rank(x, "x", 1)
    need_dtype(x, "x", FLOATS)
    for name, tensor in (("weight", weight), ("bias", bias)):
        need_dtype(tensor, name, FLOATS)
        need_shape(tensor, name, x.shape[-1:], "the last dimension of x")
    need_same_device(x=x, weight=weight, bias=bias)
    need_no_grad(x=x, weight=weight, bias=bias)
    need_number(inputs.get("eps", 1e-5), "eps")


def plan(inputs, config, target):
    x, weight, bias = inputs["x"], inputs["weight"], inputs["bias"]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    x = as_rows(x)
    n_rows, n_cols = x.shape
    args = {
        "x_ptr": x,
        "weight_ptr": weight.contiguous(),
        "bias_ptr": bias.contiguous(),
        "out_ptr": out,
        "stride_xm": x.stride(0),
        "stride_xn": x.stride(1),
        "n_cols": n_cols,
        "VECTOR": vector_width(n_cols, x.stride(0)),
        "eps": inputs.get("eps", 1e-5),
    }
    if n_cols > config.meta["BLOCK_N"]:
        narrow = Config({"BLOCK_N": config.meta["BLOCK_N"]}, config.num_warps, config.num_stages)
        launch = Launch(layer_norm_wide_kernel, (n_rows,), args, narrow)
    else:
        grid = (triton.cdiv(n_rows, config.meta["BLOCK_M"]) if n_cols else 0,)
        launch = Launch(layer_norm_kernel, grid, {**args, "n_rows": n_rows}, config)
    return Plan((launch,), {"out": out})


def configs(inputs, target):
    return row_configs(inputs["x"], target, many=(2, 1024, 8))


def cost(inputs):
    x = inputs["x"]
    # add, subtract, square, add, scale, weight, bias
    return Cost(nbytes(x, inputs["weight"], inputs["bias"]), x.numel() * x.element_size(), 7 * x.numel())


def _liger():
    from liger_kernel.ops.layer_norm import LigerLayerNormFunction

    return lambda x, weight, bias, eps: LigerLayerNormFunction.apply(x, weight, bias, eps)


def _flag_gems():
    import flag_gems

    return lambda x, weight, bias, eps: flag_gems.layer_norm(x, list(x.shape[-1:]), weight, bias, eps)[0]


def _unsloth():
    from unsloth.kernels.layernorm import Fast_Layernorm

    return lambda x, weight, bias, eps: Fast_Layernorm.apply(x, weight, bias, eps)


def _far_from_zero(inputs):
    # mean(x^2) - mean(x)^2 would subtract 1,000,001 - 1,000,000 with seven digits.
    return {**inputs, "x": inputs["x"] + 1000}


def _constant(inputs):
    return {**inputs, "x": torch.full_like(inputs["x"], 3.0)}


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


SPEC = KernelSpec(
    name="layer_norm",
    title="LayerNorm",
    doc="Shifts and scales each row to mean 0 and variance 1. Two reductions over a row that is read once: look at "
    "the mask between them, without which lanes beyond the row add mean^2 to the variance.",
    function=layer_norm,
    reference=reference,
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
    ),
    edges=(
        Edge("Three columns", "n=3: a quarter of the lanes are masked", {"rows": 4, "n": 3}),
        Edge("17 columns", "n=17: nearly half the lanes are masked", {"rows": 4, "n": 17}),
        Edge("768 columns", "n=768: BERT's width is no power of two", {"rows": 4, "n": 768}),
        Edge("One column", "n=1: the variance is 0, the answer is the bias", {"rows": 5, "n": 1}),
        Edge("Wider than a block", "n=20,000: means of blocks are merged", {"rows": 3, "n": 20_000}),
        Edge("No rows", "rows=0: a grid of no programs", {"rows": 0, "n": 64}),
        Edge(
            "Far from zero", "x + 1000: the mean dwarfs the variance", {"rows": 4, "n": 1000}, _far_from_zero, "float32"
        ),
        Edge("Constant rows", "eps keeps 0 / 0 away", {"rows": 4, "n": 1000}, _constant),
        Edge("Every second column", "[..., ::2]: neighbours are not adjacent", {"rows": 5, "n": 999}, _every_second),
        Edge("Transposed", "neighbours in a row are far apart", {"rows": 32, "n": 32}, _transposed),
        Edge("Expanded", "one row for all, stride 0", {"rows": 5, "n": 1000}, _expanded),
        Edge("Large values", "squares overflow float16", {"rows": 4, "n": 4096}, _huge),
        Edge("NaN in one row", "must not spread to other rows", {"rows": 4, "n": 1000}, _nan_in_one_row),
    ),
    bugs=(
        Bug(
            "No mask before squaring",
            find="centred = tl.where(mask, x - mean, 0.0)",
            replace="centred = x - mean",
            hint="What do the lanes beyond the row hold once the mean is subtracted?",
            symptom="right for powers of two; elsewhere the variance is too large",
            dims={"rows": 64, "n": 3000},
        ),
        Bug(
            "Short cut to the variance",
            find="variance = tl.sum(centred * centred, axis=1, keep_dims=True) / n_cols",
            replace="variance = tl.sum(x * x, axis=1, keep_dims=True) / BLOCK_N - mean * mean",
            hint="Two reductions became one. What is the mean of x^2 taken over?",
            symptom="the variance comes out too small, or negative",
            dims={"rows": 64, "n": 3000},
        ),
        Bug(
            "Blocks averaged as equals",
            find="share = tl.div_rn(count, start + count)",
            replace="share = BLOCK_N / (start + BLOCK_N)",
            hint="How many columns has the last block?",
            symptom="rows wider than a block get a mean that leans to their end",
            dims={"rows": 4, "n": 20_000},
        ),
    ),
)
