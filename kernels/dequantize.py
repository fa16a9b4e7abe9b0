"""Turns eight-bit codes back into floats: code * scale.

The way back from quantize_int8 and quantize_fp8, with a scale for each row or each group of the last dimension. One
byte is read for each value and two or four are written, so the writes set the pace: a kernel that needs the values
only to multiply with them (decode_attention over an int8 cache) does better to scale its products instead.

Where a group is as wide as a program's block, its scale is read once and broadcast in registers; narrower ones are read
for each value, from L1. What to look at: 3 bytes moved for each value in bfloat16, and 16-byte stores.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.checks import FLOATS, InputError, as_rows, need_dtype, need_min_rank, need_no_grad, need_same_device
from kernels.codes import LARGEST, need_fp8
from kernels.rows import aligned, vector_width
from kernels.spec import Bug, Config, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan, nbytes
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def dequantize_kernel(
    q_ptr, scale_ptr, out_ptr, stride_qm, stride_qn, stride_sm, stride_sn, n_rows, n_cols, group,
    VECTOR: tl.constexpr, ONE_SCALE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (block of rows, block of columns); group: values that share a scale, a whole block of them or more where
    ONE_SCALE."""
    stride_qm, n_cols, group = aligned(stride_qm, VECTOR), aligned(n_cols, VECTOR), aligned(group, VECTOR)
    blocks = tl.cdiv(n_cols, BLOCK_N)
    row = (tl.program_id(0) // blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = row[:, None]
    cols = (tl.program_id(0) % blocks) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (rows < n_rows) & (cols < n_cols)
    q = tl.load(q_ptr + rows * stride_qm + cols.to(tl.int64) * stride_qn, mask=mask, other=0.0)
    if ONE_SCALE:
        block = (tl.program_id(0) % blocks) * BLOCK_N // group
        # In one dimension, so that a thread loads one scale for each of its rows, not for each of its values.
        scale = tl.load(scale_ptr + row * stride_sm + block * stride_sn, mask=row < n_rows, other=0.0)[:, None]
    else:
        scale = tl.load(scale_ptr + rows * stride_sm + cols // group * stride_sn, mask=mask, other=0.0)
    tl.store(out_ptr + rows * n_cols + cols, q.to(tl.float32) * scale, mask=mask)


def dequantize(q: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """q * scale in `dtype`.

    q: int8 or float8_e4m3fn [..., n], any strides; scale: float32 [...], one for each row, or [..., groups], one for
    each n / groups neighbours; dtype: float32, float16 or bfloat16. Multiplied in float32, rounded once. Returns a
    new contiguous tensor of q's shape. Raises InputError.
    """
    return SPEC.run(q=q, scale=scale, dtype=dtype)


def reference(q, scale, dtype=torch.bfloat16):
    wide = torch.float64 if scale.dtype == torch.float64 else torch.float32
    columns = scale if scale.ndim == q.ndim else scale[..., None]
    group = q.shape[-1] // columns.shape[-1] if columns.shape[-1] else 1
    out = q.to(wide) * columns.to(wide).repeat_interleave(group, dim=-1)
    return out if wide == torch.float64 else out.to(dtype)


def make_inputs(dims, draw):
    rows, n, group = dims["rows"], dims["n"], dims["group_size"]
    shape = (rows, n // group) if n % group == 0 else (rows,)
    return {
        "q": draw.integers(rows, n, low=-127, high=128, dtype=torch.int8),
        "scale": draw.uniform(*shape, low=0.001, high=0.1, dtype=torch.float32),
        "dtype": draw.dtype,
    }


def check(inputs):
    q, scale, dtype = inputs["q"], inputs["scale"], inputs.get("dtype", torch.bfloat16)
    need_min_rank(q, "q", 1)
    need_dtype(q, "q", tuple(LARGEST))
    need_dtype(scale, "scale", (torch.float32,))
    rows = tuple(q.shape[:-1])
    groups = scale.shape[-1] if scale.ndim == q.ndim else 1
    fits = tuple(scale.shape) == rows or (tuple(scale.shape[:-1]) == rows and scale.ndim == q.ndim)
    if not fits or (q.shape[-1] % groups if groups else q.shape[-1]):
        raise InputError(
            f"scale has shape {list(scale.shape)} and q {list(q.shape)}; scale needs {list(rows)}, or one more "
            "dimension that divides q's last", "scale",
        )  # fmt: skip
    if dtype not in FLOATS:
        raise InputError(f"dtype is {dtype}; it needs float32, float16 or bfloat16", "dtype")
    need_same_device(q=q, scale=scale)
    need_no_grad(scale=scale)


def plan(inputs, config, target):
    q, scale = inputs["q"], inputs["scale"]
    if q.dtype == torch.float8_e4m3fn:
        need_fp8(target, "q")
    out = torch.empty(q.shape, dtype=inputs.get("dtype", torch.bfloat16), device=q.device)
    columns = as_rows(scale if scale.ndim == q.ndim else scale[..., None])
    q = as_rows(q)
    n_rows, n_cols = q.shape
    group = max(n_cols // max(columns.shape[1], 1), 1)
    args = {
        "q_ptr": q,
        "scale_ptr": columns,
        "out_ptr": out,
        "stride_qm": q.stride(0),
        "stride_qn": q.stride(1),
        "stride_sm": columns.stride(0),
        "stride_sn": columns.stride(1),
        "n_rows": n_rows,
        "n_cols": n_cols,
        "group": group,
        "VECTOR": vector_width(n_cols, q.stride(0), group) if n_cols else 1,
        "ONE_SCALE": columns.shape[1] <= 1 or group % config.meta["BLOCK_N"] == 0,
    }
    blocks = triton.cdiv(n_cols, config.meta["BLOCK_N"])
    grid = (triton.cdiv(n_rows, config.meta["BLOCK_M"]) * blocks,)
    return Plan((Launch(dequantize_kernel, grid, args, config),), {"out": out})


def configs(inputs, target):
    n = inputs["q"].shape[-1]
    width = pow2(max(n, 1))
    choices = ((1, 2048, 4), (1, 4096, 8), (2, 2048, 8), (1, 1024, 4), (1, 8192, 8), (4, 1024, 8))
    cpu = target.kind == "cpu"
    for block_m, block_n, num_warps in dict.fromkeys((m, min(b, width), 1 if cpu else w) for m, b, w in choices):
        yield Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_warps)


def cost(inputs):
    q, dtype = inputs["q"], inputs.get("dtype", torch.bfloat16)
    return Cost(nbytes(q, inputs["scale"]), q.numel() * dtype.itemsize, q.numel())


def _fp8(inputs):
    return {**inputs, "q": inputs["q"].to(torch.float32).to(torch.float8_e4m3fn)}


def _transposed(inputs):
    return {**inputs, "q": inputs["q"].T.contiguous().T, "scale": inputs["scale"].T.contiguous().T}


def _infinite_scale(inputs):
    inputs["scale"].view(-1)[1] = float("inf")
    inputs["q"].view(-1)[0] = 1
    return inputs


_SMALL = {"rows": 5, "n": 192, "group_size": 64}

SPEC = KernelSpec(
    name="dequantize",
    title="Dequantize",
    doc="Eight-bit codes times the scale of their row or group. Look at the bytes: the writes set the pace.",
    function=dequantize,
    reference=reference,
    dims=(
        Dim("rows", "tokens"),
        Dim("n", "width of a row", high=2**20),
        Dim("group_size", "values that share a scale; one that does not divide n: the whole row", high=2**20),
    ),
    presets={
        "decode": {"rows": 1, "n": 4096, "group_size": 128},
        "prefill": {"rows": 16_384, "n": 4096, "group_size": 4096},
        "odd": {"rows": 33, "n": 4097, "group_size": 4097},
        "largest": {"rows": 65_536, "n": 8192, "group_size": 128},
    },
    default={"rows": 64, "n": 3072, "group_size": 128},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="rows",
    shrinks="rows",
    edges=(
        Edge("A scale a row", "scale [rows], without groups", {**_SMALL, "group_size": 100}),
        Edge("Groups of one", "as many scales as values", {**_SMALL, "group_size": 1}),
        Edge("Transposed", "q and scale by strides", _SMALL, _transposed),
        Edge("Infinite scale", "inf * code is inf, inf * 0 is NaN, in one group alone", _SMALL, _infinite_scale),
        Edge("Odd width", "n=4097: the mask of the second block", {"rows": 3, "n": 4097, "group_size": 4097}),
        Edge("No rows", "rows=0: nothing to do", {**_SMALL, "rows": 0}),
    ),
    bugs=(
        Bug(
            "Group counted in rows",
            find="scale_ptr + rows * stride_sm + cols // group * stride_sn",
            replace="scale_ptr + rows * stride_sm + rows // group * stride_sn",
            hint="Which scale belongs to column 64 when groups are 64 wide?",
            symptom="each row uses its first scale throughout",
            dims=_SMALL,
        ),
        Bug(
            "Unsigned codes",
            find="q.to(tl.float32) * scale",
            replace="tl.abs(q.to(tl.float32)) * scale",
            hint="What are codes below zero?",
            symptom="every value comes back positive",
            dims=_SMALL,
        ),
    ),
)
