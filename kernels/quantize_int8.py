"""Quantizes each row to int8 with a scale of its own.

    scale = max |row| / 127        q = round(row / scale)        row ~ q * scale

Half the bytes of bf16 to store and to read again, and int8 tensor cores take the codes as they are. The row is read
once, kept in registers for its maximum and for the codes, and half as many bytes are written: PyTorch's chain (abs,
amax, divide, round, clamp, cast) moves the row seven times.

What is easily done wrong, in kernels/codes.py: `.to(tl.int8)` truncates towards zero and wraps 200 to -56, where
rounding to the nearest, ties to even, is asked for; a row of zeros has no scale; and an infinity would turn a whole
row to zeros. What to look at: one read, one write of half the size, and that the two share no pass.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.checks import FLOATS, need_dtype, need_min_rank, need_no_grad, need_same_device
from kernels.codes import LARGEST, code_reference, quantized, quotient_reference, scale_of, scale_reference, to_code
from kernels.rows import aligned, row_configs, vector_width
from kernels.spec import Bug, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan, nbytes


@triton.jit
def quantize_rows_kernel(
    x_ptr, q_ptr, scale_ptr, stride_xm, stride_xn, n_rows, n_cols,
    LARGEST: tl.constexpr, PTX: tl.constexpr, VECTOR: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows of up to BLOCK_N columns, kept in registers."""
    stride_xm, n_cols = aligned(stride_xm, VECTOR), aligned(n_cols, VECTOR)
    rows = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    cols = tl.arange(0, BLOCK_N)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    x = tl.load(x_ptr + rows * stride_xm + cols.to(tl.int64) * stride_xn, mask=mask, other=0.0).to(tl.float32)
    codes, scale = quantized(x, LARGEST, 1, q_ptr.dtype.element_ty, PTX)
    tl.store(q_ptr + rows * n_cols + cols, codes, mask=mask)
    tl.store(scale_ptr + rows, scale, mask=rows < n_rows)


@triton.jit
def quantize_wide_rows_kernel(
    x_ptr, q_ptr, scale_ptr, stride_xm, stride_xn, n_rows, n_cols,
    LARGEST: tl.constexpr, PTX: tl.constexpr, VECTOR: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """A row wider than a block: once for its maximum, and again, from L2, for its codes. BLOCK_M is 1."""
    stride_xm, n_cols = aligned(stride_xm, VECTOR), aligned(n_cols, VECTOR)
    row = tl.program_id(0).to(tl.int64)
    largest = tl.zeros([1, BLOCK_N], tl.float32)
    for start in range(0, n_cols, BLOCK_N):
        cols = (start + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
        x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=cols < n_cols, other=0.0).to(tl.float32)
        magnitude = tl.abs(x)
        largest = tl.maximum(largest, tl.where(magnitude < float("inf"), magnitude, 0.0))
    scale = scale_of(largest, LARGEST, 1)
    for start in range(0, n_cols, BLOCK_N):
        cols = (start + tl.arange(0, BLOCK_N))[None, :].to(tl.int64)
        x = tl.load(x_ptr + row * stride_xm + cols * stride_xn, mask=cols < n_cols, other=0.0).to(tl.float32)
        codes = to_code(x, scale, LARGEST, q_ptr.dtype.element_ty, PTX)
        tl.store(q_ptr + row * n_cols + cols, codes, mask=cols < n_cols)
    tl.store(scale_ptr + row + tl.zeros([1, 1], tl.int32), scale)


def quantize_int8(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(q, scale): int8 codes of each row and its scale.

    x: [..., n], float32, float16 or bfloat16, any strides. q: int8, x's shape; scale: float32 [...]. Codes are
    rounded to the nearest, ties to even; infinities become +-127, NaN becomes 0, and neither counts for the scale; a
    row of zeros has the scale 1. Returns new contiguous tensors. Raises InputError.
    """
    return SPEC.run(x=x)


def reference(x):
    scale = scale_reference(x, LARGEST[torch.int8])
    # In float64 the quotient as it is: only then can a border between two codes be told from a mistake.
    codes = quotient_reference if x.dtype == torch.float64 else code_reference
    return codes(x, scale[..., None], torch.int8), scale


def make_inputs(dims, draw):
    return {"x": draw.normal(dims["rows"], dims["n"])}


def check(inputs):
    x = inputs["x"]
    need_min_rank(x, "x", 1)
    need_dtype(x, "x", FLOATS)
    need_same_device(x=x)
    need_no_grad(x=x)


def plan(inputs, config, target):
    x = inputs["x"]
    q = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scale = torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])  # rows of no width have a scale as well
    return Plan((launch_rows(rows, q, scale, 127.0, config, target),), {"q": q, "scale": scale})


def launch_rows(x, q, scale, largest, config, target):
    """The launch that quantizes rows [rows, n] to q's dtype, for every kernel that does."""
    n_rows, n_cols = x.shape
    wide = n_cols > config.meta["BLOCK_N"]
    args = {
        "x_ptr": x,
        "q_ptr": q,
        "scale_ptr": scale,
        "stride_xm": x.stride(0),
        "stride_xn": x.stride(1),
        "n_rows": n_rows,
        "n_cols": n_cols,
        "LARGEST": largest,
        "PTX": target.kind == "cuda",
        "VECTOR": vector_width(n_cols, x.stride(0)) if n_cols else 1,
    }
    programs = n_rows if wide else triton.cdiv(n_rows, config.meta["BLOCK_M"])
    return Launch(quantize_wide_rows_kernel if wide else quantize_rows_kernel, (programs,), args, config)


def configs(inputs, target):
    return row_configs(inputs["x"], target, many=(1, 1024, 16))


def cost(inputs):
    """Read, take the magnitude, compare, multiply, round."""
    x = inputs["x"]
    rows = x.numel() // max(x.shape[-1], 1)
    return Cost(nbytes(x), x.numel() + 4 * rows, 4 * x.numel())


def not_finite(inputs):
    inputs["x"][0, :3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    return inputs


def halves(inputs):
    # A row whose scale is exactly 1: what is between two codes must go to the even one.
    x = inputs["x"].fill_(0.5)
    x[:, 1::2] = 2.5
    x[:, 2] = -1.5
    x[:, 0] = 127.0
    return inputs


def every_second_column(inputs):
    return {**inputs, "x": inputs["x"].repeat_interleave(2, dim=-1)[..., ::2]}


def one_zero_row(inputs):
    inputs["x"][1] = 0.0
    return inputs


SPEC = KernelSpec(
    name="quantize_int8",
    title="Quantize to int8",
    doc="Each row to int8 codes with a scale of its own, in one pass. Look at the rounding: a plain cast truncates.",
    function=quantize_int8,
    reference=reference,
    dims=(Dim("rows", "tokens"), Dim("n", "width of a row", high=2**20)),
    presets={
        "decode": {"rows": 1, "n": 4096},
        "prefill": {"rows": 16_384, "n": 4096},
        "odd": {"rows": 33, "n": 4097},
        "largest": {"rows": 65_536, "n": 8192},
    },
    default={"rows": 64, "n": 3000},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("q", "codes"), Output("scale")),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="rows",
    shrinks="rows",
    edges=(
        Edge("Halves", "0.5, -1.5, 2.5 at a scale of 1: ties to even", {"rows": 4, "n": 64}, halves),
        Edge("NaN and infinity", "they do not spoil the scale of their row", {"rows": 4, "n": 64}, not_finite),
        Edge("A row of zeros", "0 / 0: its scale is 1", {"rows": 4, "n": 64}, one_zero_row),
        Edge("Wider than a block", "n=20,000: the row is looped over", {"rows": 3, "n": 20_000}),
        Edge("Every second column", "x[:, ::2]", {"rows": 4, "n": 64}, every_second_column),
        Edge("Width 1", "n=1: every code is 127 or -127", {"rows": 5, "n": 1}),
        Edge("No rows", "rows=0: nothing to do", {"rows": 0, "n": 64}),
    ),
    bugs=(
        Bug(
            "Truncated",
            find="tl.store(q_ptr + rows * n_cols + cols, codes, mask=mask)",
            replace="tl.store(q_ptr + rows * n_cols + cols, (x / scale).to(tl.int8), mask=mask)",
            hint="What does a cast do with 1.9?",
            symptom="codes are one too small in magnitude, half of the time",
            dims={"rows": 64, "n": 3000},
        ),
        Bug(
            "One scale for a block of rows",
            find="    tl.store(scale_ptr + rows, scale, mask=rows < n_rows)",
            replace="    tl.store(scale_ptr + rows, scale * 0 + tl.max(scale), mask=rows < n_rows)",
            hint="Several short rows share a program. Do they share a scale?",
            symptom="short rows come back too large",
            dims={"rows": 64, "n": 24},
        ),
        Bug(
            "Scale of 128",
            find="codes, scale = quantized(x, LARGEST, 1,",
            replace="codes, scale = quantized(x, LARGEST + 1.0, 1,",
            hint="Which code should the largest element get?",
            symptom="the largest element is clamped, and every scale is off by a 127th",
            dims={"rows": 64, "n": 3000},
        ),
    ),
)
