"""Fused residual add + RMSNorm: the most valuable fusion of a decoder.

    new_residual = x + residual
    out = new_residual / sqrt(mean(new_residual^2) + eps) * weight

A chain of PyTorch operations sends the row through memory five times; here it is loaded once, kept in registers
while it is added, squared, summed and scaled, and two outputs are written: 4 transfers of the tensor instead
of 10.

One program owns one row, or several short ones. A row wider than MAX_BLOCK is looped over: the first pass adds
and sums, the second reads back the sum it has just written, from L2.

The sum of squares is in float32: float16 overflows at 65,504, and bfloat16 would lose the small terms. As in
Llama, the sum x + residual is rounded to the tensor's dtype (that is the residual the next layer sees), the
normalisation is computed from the rounded value in float32, and the product with the weight is rounded once, at
the store. What to look at: the single reduction, and that nothing is read back.
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
    need_same_dtype,
    need_shape,
)
from kernels.rows import aligned, row_configs, vector_width
from kernels.spec import Baseline, Bug, Config, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan, nbytes


@triton.jit
def add_rms_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, new_residual_ptr,
    stride_xm, stride_xn, stride_rm, stride_rn, n_rows, n_cols, eps,
    VECTOR: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A row in one block: BLOCK_M rows of up to BLOCK_N columns."""
    stride_xm, stride_rm = aligned(stride_xm, VECTOR), aligned(stride_rm, VECTOR)
    n_cols = aligned(n_cols, VECTOR)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    cols = tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    mask = (rows < n_rows) & (cols < n_cols)
    far = cols.to(tl.int64)  # a column's stride may be large: in a transposed tensor it is the number of rows
    x = tl.load(x_ptr + rows * stride_xm + far * stride_xn, mask=mask, other=0.0)
    residual = tl.load(residual_ptr + rows * stride_rm + far * stride_rn, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    total = (x.to(tl.float32) + residual.to(tl.float32)).to(new_residual_ptr.dtype.element_ty)
    tl.store(new_residual_ptr + rows * n_cols + cols, total, mask=mask)
    total = total.to(tl.float32)
    mean_square = tl.sum(total * total, axis=1, keep_dims=True) / n_cols
    tl.store(out_ptr + rows * n_cols + cols, total * tl.rsqrt(mean_square + eps) * weight, mask=mask)


@triton.jit
def add_rms_norm_wide_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, new_residual_ptr,
    stride_xm, stride_xn, stride_rm, stride_rn, n_cols, eps,
    VECTOR: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A row wider than a block: one program loops over it twice."""
    stride_xm, stride_rm = aligned(stride_xm, VECTOR), aligned(stride_rm, VECTOR)
    n_cols = aligned(n_cols, VECTOR)
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride_xm
    residual_ptr += row * stride_rm
    out_ptr += row * n_cols
    new_residual_ptr += row * n_cols
    lanes = tl.arange(0, BLOCK_N).to(tl.int64)
    squares = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        mask = cols < n_cols
        x = tl.load(x_ptr + cols * stride_xn, mask=mask, other=0.0)
        residual = tl.load(residual_ptr + cols * stride_rn, mask=mask, other=0.0)
        total = (x.to(tl.float32) + residual.to(tl.float32)).to(new_residual_ptr.dtype.element_ty)
        tl.store(new_residual_ptr + cols, total, mask=mask)
        squares += total.to(tl.float32) * total.to(tl.float32)
    scale = tl.rsqrt(tl.sum(squares, axis=0) / n_cols + eps)
    tl.debug_barrier()  # the second pass reads what other lanes of this program wrote
    for start in range(0, n_cols, BLOCK_N):
        cols = start + lanes
        mask = cols < n_cols
        total = tl.load(new_residual_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + cols, total * scale * weight, mask=mask)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """The residual sum, and its RMSNorm, in one pass.

    x, residual: [..., n], the same shape and dtype (float32, float16, bfloat16), any strides; weight: [n].
    Returns (out, new_residual), contiguous, of x's shape and dtype. Raises InputError.
    """
    return SPEC.run(x=x, residual=residual, weight=weight, eps=eps)


def reference(x, residual, weight, eps=1e-6):
    # The rounded sum is what the next layer sees and what is normalised; in float64 nothing is rounded.
    total = x + residual
    wide = total if total.dtype == torch.float64 else total.float()
    out = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (out * weight.to(wide.dtype)).to(x.dtype), total


def eager(x, residual, weight, eps=1e-6):
    """As Llama's modelling code writes it: normalise in float32, cast, multiply by the weight."""
    total = x + residual
    wide = total.float()
    out = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * out.to(x.dtype), total


def make_inputs(dims, draw):
    shape = dims["rows"], dims["n"]
    return {
        "x": draw.normal(*shape),
        "residual": draw.normal(*shape),
        "weight": draw.normal(dims["n"], mean=1.0, std=0.1),
        "eps": 1e-6,
    }


def check(inputs):
    x, residual, weight = inputs["x"], inputs["residual"], inputs["weight"]
    need_min_rank(x, "x", 1)
    need_dtype(x, "x", FLOATS)
    need_shape(residual, "residual", x.shape, "x")
    need_same_dtype(residual, "residual", x, "x")
    need_dtype(weight, "weight", FLOATS)
    need_shape(weight, "weight", x.shape[-1:], "the last dimension of x")
    need_same_device(x=x, residual=residual, weight=weight)
    need_no_grad(x=x, residual=residual, weight=weight)
    need_number(inputs.get("eps", 1e-6), "eps")


def plan(inputs, config, target):
    x, residual, weight = inputs["x"], inputs["residual"], inputs["weight"]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    new_residual = torch.empty_like(out)
    x, residual = as_rows(x), as_rows(residual)
    n_rows, n_cols = x.shape
    args = {
        "x_ptr": x,
        "residual_ptr": residual,
        "weight_ptr": weight.contiguous(),
        "out_ptr": out,
        "new_residual_ptr": new_residual,
        "stride_xm": x.stride(0),
        "stride_xn": x.stride(1),
        "stride_rm": residual.stride(0),
        "stride_rn": residual.stride(1),
        "n_cols": n_cols,
        "VECTOR": vector_width(n_cols, x.stride(0), residual.stride(0)),
        "eps": inputs.get("eps", 1e-6),
    }
    if n_cols > config.meta["BLOCK_N"]:
        narrow = Config({"BLOCK_N": config.meta["BLOCK_N"]}, config.num_warps, config.num_stages)
        launch = Launch(add_rms_norm_wide_kernel, (n_rows,), args, narrow)
    else:
        grid = (triton.cdiv(n_rows, config.meta["BLOCK_M"]) if n_cols else 0,)
        launch = Launch(add_rms_norm_kernel, grid, {**args, "n_rows": n_rows}, config)
    return Plan((launch,), {"out": out, "new_residual": new_residual})


def configs(inputs, target):
    return row_configs(inputs["x"], target, many=(1, 2048, 8))


def cost(inputs):
    x = inputs["x"]
    return Cost(nbytes(x, inputs["residual"], inputs["weight"]), 2 * x.numel() * x.element_size(), 5 * x.numel())


def _liger():
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction as Fused

    return lambda x, residual, weight, eps: Fused.apply(x, residual, weight, eps, 0.0, "llama", False)


def _quack():
    import quack

    return lambda x, residual, weight, eps: quack.rmsnorm(x, weight, residual=residual, eps=eps, prenorm=True)


def _every_second_column(inputs):
    for name in ("x", "residual"):
        inputs[name] = inputs[name].repeat_interleave(2, dim=-1)[..., ::2]
    return inputs


def _one_residual_for_all(inputs):
    return {**inputs, "residual": inputs["residual"][:1].expand_as(inputs["x"])}


def _huge(inputs):
    # 200^2 * 4096 is far beyond float16's 65,504: the sum must be taken in float32.
    return {**inputs, "x": inputs["x"] * 200, "residual": inputs["residual"] * 200}


def _nan_in_one_row(inputs):
    inputs["x"][1, 2] = float("nan")
    return inputs


def _zeros(inputs):
    return {**inputs, "x": torch.zeros_like(inputs["x"]), "residual": torch.zeros_like(inputs["residual"])}


SPEC = KernelSpec(
    name="add_rms_norm",
    title="Add + RMSNorm",
    doc="Adds the residual and normalises the row, in one pass. Eager runs a chain of kernels, each through memory; "
    "the fused kernel keeps the row in registers. Look at the bytes it saves, and at its single reduction.",
    function=add_rms_norm,
    reference=reference,
    eager=eager,
    dims=(Dim("rows", "tokens"), Dim("n", "hidden size", high=2**20)),
    presets={
        "decode": {"rows": 1, "n": 4096},
        "prefill": {"rows": 4096, "n": 4096},
        "odd": {"rows": 33, "n": 4097},
        "largest": {"rows": 16384, "n": 8192},
    },
    default={"rows": 64, "n": 3000},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"), Output("new_residual")),
    make_inputs=make_inputs,
    check=check,
    plan=plan,
    configs=configs,
    cost=cost,
    sweep_dim="rows",
    shrinks="rows",
    baselines=(
        Baseline("Liger", _liger, "pip install liger-kernel"),
        Baseline("quack", _quack, "pip install quack-kernels"),
    ),
    edges=(
        Edge("One row", "rows=1: a grid of one program", {"rows": 1, "n": 4096}),
        Edge("Width 1", "n=1: a reduction over one element", {"rows": 5, "n": 1}),
        Edge("One past a block", "n=4097: the mask on the last lane", {"rows": 8, "n": 4097}),
        Edge("Wider than a block", "n=20,000: the row is looped over", {"rows": 3, "n": 20_000}),
        Edge("No rows", "rows=0: nothing to do", {"rows": 0, "n": 64}),
        Edge("Strided rows", "x[:, ::2]: last dimension not contiguous", {"rows": 8, "n": 1000}, _every_second_column),
        Edge("Expanded residual", "residual is one row, stride 0", {"rows": 8, "n": 1000}, _one_residual_for_all),
        Edge("Large values", "squares overflow float16", {"rows": 8, "n": 4096}, _huge),
        Edge("NaN in one row", "must not spread to other rows", {"rows": 4, "n": 1000}, _nan_in_one_row),
        Edge("All zeros", "eps keeps 0 / 0 away", {"rows": 4, "n": 1000}, _zeros),
    ),
    bugs=(
        Bug(
            "Forgotten mask",
            find="    mask = (rows < n_rows) & (cols < n_cols)\n",
            replace="    mask = (rows < n_rows) & (cols < BLOCK_N)\n",
            hint="How wide is the block, and how wide is the row?",
            symptom="each row reads on into the next one",
            dims={"rows": 64, "n": 3000},
        ),
        Bug(
            "Mean over the block",
            find="mean_square = tl.sum(total * total, axis=1, keep_dims=True) / n_cols",
            replace="mean_square = tl.sum(total * total, axis=1, keep_dims=True) / BLOCK_N",
            hint="How many elements does the mean have?",
            symptom="right for powers of two, and too large elsewhere",
            dims={"rows": 64, "n": 3000},
        ),
        Bug(
            "Residual handed on unchanged",
            find="tl.store(new_residual_ptr + rows * n_cols + cols, total, mask=mask)",
            replace="tl.store(new_residual_ptr + rows * n_cols + cols, residual, mask=mask)",
            hint="What does the next layer add to?",
            symptom="out is right, and the next layer goes on from the old residual",
            dims={"rows": 64, "n": 3000},
        ),
    ),
)
