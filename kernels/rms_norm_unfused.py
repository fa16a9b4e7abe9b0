"""RMSNorm as a chain of launches, to see what fusing them saves. A variant to read, not to use.

Four operations, four kernels: square, mean of each row, scale, multiply with the weight. Each sends its whole answer
through memory, in float32 where the next one needs it exact: x is read twice, the squares and the scaled rows are
written and read again. kernels/rms_norm.py reads x once, writes the answer once, and keeps all between in registers.

In bfloat16 that is 2 + 4, 4, 2 + 4 and 4 + 2 bytes for each element, 22 in all, against 4. What to look at: the time
of the two beside each other, which follows those bytes, and how little of it is arithmetic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.checks import as_rows
from kernels.rms_norm import SPEC as FUSED
from kernels.spec import Bug, Config, Edge, KernelSpec, Launch, Output, Plan


@triton.jit
def square_kernel(x_ptr, squares_ptr, n_elements, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n_elements).to(tl.float32)
    tl.store(squares_ptr + i, x * x, mask=i < n_elements)


@triton.jit
def mean_kernel(squares_ptr, means_ptr, n_cols, BLOCK: tl.constexpr):
    """Program (row): the mean of its squares."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(squares_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0)
    tl.store(means_ptr + row, tl.sum(total, axis=0) / n_cols)


@triton.jit
def scale_kernel(x_ptr, means_ptr, scaled_ptr, n_elements, n_cols, eps, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n_elements).to(tl.float32)
    mean = tl.load(means_ptr + i // n_cols, mask=i < n_elements, other=1.0)
    tl.store(scaled_ptr + i, x * tl.rsqrt(mean + eps), mask=i < n_elements)


@triton.jit
def weight_kernel(scaled_ptr, weight_ptr, out_ptr, n_elements, n_cols, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    scaled = tl.load(scaled_ptr + i, mask=i < n_elements)
    weight = tl.load(weight_ptr + i % n_cols, mask=i < n_elements).to(tl.float32)
    tl.store(out_ptr + i, scaled * weight, mask=i < n_elements)


def rms_norm_unfused(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight, in four launches.

    x: [..., n], float32, float16 or bfloat16; weight: [n]. Returns x's shape and dtype, contiguous. Raises InputError.
    """
    return SPEC.run(x=x, weight=weight, eps=eps)


def reference(x, weight, eps=1e-6):
    return FUSED.reference(x, weight, eps)


def make_inputs(dims, draw):
    made = FUSED.make_inputs(dims, draw)
    return {name: made[name] for name in ("x", "weight", "eps")}


def plan(inputs, config, target):
    x, weight, eps = inputs["x"], inputs["weight"].contiguous(), inputs.get("eps", 1e-6)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    x = as_rows(x).contiguous()
    n_rows, n_cols = x.shape
    squares = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    means = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    scaled = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    blocks = (triton.cdiv(x.numel(), config.meta["BLOCK"]),)
    size = {"n_elements": x.numel()}
    wide = {**size, "n_cols": n_cols}
    return Plan(
        (
            Launch(square_kernel, blocks, {"x_ptr": x, "squares_ptr": squares, **size}, config),
            Launch(
                mean_kernel,
                (n_rows if n_cols else 0,),
                {"squares_ptr": squares, "means_ptr": means, "n_cols": n_cols},
                config,
            ),
            Launch(
                scale_kernel, blocks, {"x_ptr": x, "means_ptr": means, "scaled_ptr": scaled, "eps": eps, **wide}, config
            ),
            Launch(weight_kernel, blocks, {"scaled_ptr": scaled, "weight_ptr": weight, "out_ptr": out, **wide}, config),
        ),
        {"out": out},
    )


def configs(inputs, target):
    for block, num_warps in ((1024, 4), (2048, 8), (512, 4)):
        yield Config({"BLOCK": block}, 1 if target.kind == "cpu" else num_warps)


def _every_second_column(inputs):
    return {**inputs, "x": inputs["x"].repeat_interleave(2, dim=-1)[..., ::2]}


def _huge(inputs):
    return {**inputs, "x": inputs["x"] * 200}


SPEC = KernelSpec(
    name="rms_norm_unfused",
    title="RMSNorm, unfused",
    doc="Four launches instead of one, each through memory. Look at the bytes and the time beside the fused kernel's.",
    function=rms_norm_unfused,
    reference=reference,
    dims=FUSED.dims,
    presets=FUSED.presets,
    default=FUSED.default,
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    plan=plan,
    check=FUSED.check,
    configs=configs,
    cost=FUSED.cost,
    sweep_dim="rows",
    shrinks="rows",
    variant_of="rms_norm",
    edges=(
        Edge("Width 1", "n=1: a mean of one element", {"rows": 5, "n": 1}),
        Edge("Wider than a block", "n=5000: the mean loops", {"rows": 3, "n": 5000}),
        Edge("Large values", "squares overflow float16", {"rows": 4, "n": 1000}, _huge),
        Edge("Every second column", "x[:, ::2]", {"rows": 4, "n": 100}, _every_second_column),
        Edge("No rows", "rows=0: nothing to do", {"rows": 0, "n": 64}),
    ),
    bugs=(
        Bug(
            "Mean of a block",
            find="tl.sum(total, axis=0) / n_cols",
            replace="tl.sum(total, axis=0) / BLOCK",
            hint="How many elements does the mean have?",
            symptom="every row is scaled by the wrong factor",
            dims={"rows": 8, "n": 300},
        ),
        Bug(
            "Weight by element",
            find="weight_ptr + i % n_cols",
            replace="weight_ptr + i // n_cols % n_cols",
            hint="Which weight belongs to the second element of a row?",
            symptom="each row is multiplied with one weight",
            dims={"rows": 8, "n": 300},
        ),
    ),
)
