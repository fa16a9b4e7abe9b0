"""SiLU and multiply: the activation of a gated feed-forward layer (SwiGLU).

    out = gate * sigmoid(gate) * up

Eager PyTorch writes silu(gate) to memory and reads it back for the product: five transfers of the tensor. Here it
never leaves the registers: three transfers, and only the answer is rounded. Nothing but memory bandwidth matters.

`gate` and `up` are often the two halves of one wide tensor, so their rows are apart by more than their width. What to
look at: each tensor is addressed by its own strides, so no copy makes them contiguous first; where both are contiguous
the rows are run together, and only the very last block is masked.
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
    need_same_device,
    need_same_dtype,
    need_shape,
)
from kernels.rows import aligned, vector_width
from kernels.spec import Baseline, Bug, Config, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan, nbytes
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def silu_mul_kernel(
    gate_ptr, up_ptr, out_ptr, stride_gm, stride_gn, stride_um, stride_un, n_cols,
    ONE_ROW: tl.constexpr, VECTOR: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    stride_gm, stride_um = aligned(stride_gm, VECTOR), aligned(stride_um, VECTOR)
    n_cols = aligned(n_cols, VECTOR)
    # All blocks of all rows lie on grid axis 0: axes 1 and 2 end at 65,535.
    pid = tl.program_id(0)
    n_blocks = tl.cdiv(n_cols, BLOCK)
    # Divided first: a 64-bit division costs as much as all the rest; and not at all where all is one row.
    row = 0 if ONE_ROW else (pid // n_blocks).to(tl.int64)
    block = pid if ONE_ROW else pid % n_blocks
    cols = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = cols < n_cols
    gate = tl.load(gate_ptr + row * stride_gm + cols * stride_gn, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + row * stride_um + cols * stride_un, mask=mask).to(tl.float32)
    tl.store(out_ptr + row * n_cols + cols, gate / (1.0 + tl.exp(-gate)) * up, mask=mask)


def silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, computed in float32 and rounded once.

    gate, up: [..., n], the same shape and dtype (float32, float16 or bfloat16), any strides. Returns a contiguous
    tensor of that shape and dtype. Raises InputError.
    """
    return SPEC.run(gate=gate, up=up)


def reference(gate, up):
    return torch.nn.functional.silu(gate) * up


def make_inputs(dims, draw):
    shape = dims["rows"], dims["n"]
    return {"gate": draw.normal(*shape, std=2.0), "up": draw.normal(*shape)}


def check(inputs):
    gate, up = inputs["gate"], inputs["up"]
    need_min_rank(gate, "gate", 1)
    need_dtype(gate, "gate", FLOATS)
    need_shape(up, "up", gate.shape, "gate")
    need_same_dtype(up, "up", gate, "gate")
    need_same_device(gate=gate, up=up)
    need_no_grad(gate=gate, up=up)


def plan(inputs, config, target):
    gate, up = inputs["gate"], inputs["up"]
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if gate.is_contiguous() and up.is_contiguous():
        gate, up = gate.reshape(1, -1), up.reshape(1, -1)
    else:
        gate, up = as_rows(gate), as_rows(up)
    n_rows, n_cols = gate.shape
    launch = Launch(
        silu_mul_kernel,
        (n_rows * triton.cdiv(n_cols, config.meta["BLOCK"]),),
        {
            "gate_ptr": gate,
            "up_ptr": up,
            "out_ptr": out,
            "stride_gm": gate.stride(0),
            "stride_gn": gate.stride(1),
            "stride_um": up.stride(0),
            "stride_un": up.stride(1),
            "n_cols": n_cols,
            "ONE_ROW": n_rows == 1,
            "VECTOR": vector_width(n_cols, gate.stride(0), up.stride(0)),
        },
        config,
    )
    return Plan((launch,), {"out": out})


def configs(inputs, target):
    gate, up = inputs["gate"], inputs["up"]
    together = gate.is_contiguous() and up.is_contiguous()
    widest = pow2(gate.numel() if together else gate.shape[-1])
    seen = []
    for block, num_warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (8192, 8), (512, 4), (256, 2), (128, 1)):
        each = Config({"BLOCK": max(min(block, widest), 32)}, num_warps)
        if each not in seen:
            seen.append(each)
            yield each


def cost(inputs):
    gate = inputs["gate"]
    # negate, exp, add, divide, multiply
    return Cost(nbytes(gate, inputs["up"]), gate.numel() * gate.element_size(), 5 * gate.numel())


def _liger():
    from liger_kernel.ops.swiglu import LigerSiLUMulFunction

    return lambda gate, up: LigerSiLUMulFunction.apply(gate, up)


def _unsloth():
    from unsloth.kernels.swiglu import swiglu_fg_kernel

    return lambda gate, up: swiglu_fg_kernel(*(x.reshape(1, -1, x.shape[-1]) for x in (gate, up))).view(gate.shape)


def _flag_gems():
    import flag_gems

    return lambda gate, up: flag_gems.silu_and_mul(gate, up)


def _halves(inputs):
    gate, up = torch.cat([inputs["gate"], inputs["up"]], dim=-1).chunk(2, dim=-1)
    return {"gate": gate, "up": up}


def _transposed(inputs):
    return {**inputs, "gate": inputs["gate"].t().contiguous().t()}


def _every_second(inputs):
    return {name: t.repeat_interleave(2, dim=-1)[..., ::2] for name, t in inputs.items()}


def _expanded(inputs):
    return {**inputs, "up": inputs["up"][:1].expand_as(inputs["up"])}


def _large(inputs):
    # exp(-gate) overflows to infinity where gate is far below zero; the answer there is -0, not NaN.
    return {"gate": inputs["gate"] * 200, "up": inputs["up"]}


def _not_finite(inputs):
    inputs["gate"][0, :3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    return inputs


SPEC = KernelSpec(
    name="silu_mul",
    title="SiLU x up",
    doc="The gate of a SwiGLU feed-forward layer: silu(gate) times up, in one pass. Eager PyTorch sends silu(gate) "
    "through memory; fused, three of five transfers remain. Look at the strides: halves of one tensor need no copy.",
    function=silu_mul,
    reference=reference,
    dims=(Dim("rows", "tokens"), Dim("n", "feed-forward size", high=2**24)),
    presets={
        "decode": {"rows": 1, "n": 14_336},
        "prefill": {"rows": 4096, "n": 14_336},
        "odd": {"rows": 33, "n": 4097},
        "largest": {"rows": 8192, "n": 28_672},
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
        Edge("One element", "rows=1, n=1: a block with one live lane", {"rows": 1, "n": 1}),
        Edge("One past a block", "n=1025: the mask of the last block", {"rows": 1, "n": 1025}),
        Edge("No rows", "rows=0: a grid of no programs", {"rows": 0, "n": 64}),
        Edge("Halves of one tensor", "rows lie 2 n apart", {"rows": 7, "n": 1000}, _halves),
        Edge("Transposed gate", "gate and up have different strides", {"rows": 64, "n": 100}, _transposed),
        Edge("Every second column", "[..., ::2]: neighbours are not adjacent", {"rows": 5, "n": 999}, _every_second),
        Edge("Expanded up", "one row for all, stride 0", {"rows": 5, "n": 1500}, _expanded),
        Edge("Large values", "exp overflows on the way to 0", {"rows": 4, "n": 1000}, _large),
        Edge("NaN and infinity", "stay where they are", {"rows": 4, "n": 1000}, _not_finite),
    ),
    bugs=(
        Bug(
            "Forgotten mask",
            find="tl.store(out_ptr + row * n_cols + cols, gate / (1.0 + tl.exp(-gate)) * up, mask=mask)",
            replace="tl.store(out_ptr + row * n_cols + cols, gate / (1.0 + tl.exp(-gate)) * up)",
            hint="What does the last program do with the lanes beyond n?",
            symptom="the last block writes past the end of out",
            dims={"rows": 1, "n": 1025},
        ),
        Bug(
            "Sigmoid of the wrong sign",
            find="gate / (1.0 + tl.exp(-gate))",
            replace="gate / (1.0 + tl.exp(gate))",
            hint="What should a large positive gate do, and what does it do?",
            symptom="large gates close where they should open",
            dims={"rows": 64, "n": 3000},
        ),
        Bug(
            "The wrong stride",
            find="tl.load(up_ptr + row * stride_um + cols * stride_un, mask=mask)",
            replace="tl.load(up_ptr + row * stride_um + cols * (stride_un + 1), mask=mask)",
            hint="How far apart are two neighbours in a row of up?",
            symptom="up is read with gaps, and past its end",
            dims={"rows": 2, "n": 3000},
        ),
    ),
)
