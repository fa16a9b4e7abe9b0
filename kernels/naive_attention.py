"""Attention written step by step, to see what the fused kernel saves. A variant to read, not to use.

Three launches, as a chain of PyTorch operations makes them: the scores q k^T go to memory in float32, a softmax over
each row reads and writes them, and the product with v reads them again. For a prompt of 4,096 tokens and 32 heads
that is 2 GB of scores, written twice and read twice, where kernels/attention.py moves Q, K, V and the answer only:
134 MB.

What to look at: the bytes of the three launches beside those of `attention`, and that the time follows them, not the
arithmetic, which is the same. Causal, every head with kv heads of its own group, as there.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.attention import SPEC as FUSED
from kernels.attention import eager
from kernels.spec import Bug, Config, Edge, KernelSpec, Launch, Output, Plan
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def scores_kernel(
    q_ptr, k_ptr, scores_ptr, scale, q_len, kv_len, head_dim, group, row_blocks, col_blocks,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (head, block of scores): q k^T, or -inf where a key comes later than its query."""
    pid = tl.program_id(0)
    head = (pid // (row_blocks * col_blocks)).to(tl.int64)
    rows = (pid // col_blocks % row_blocks) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (pid % col_blocks) * BLOCK_N + tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    row_mask, col_mask = (rows < q_len)[:, None], (cols < kv_len)[:, None]
    inside = (d < head_dim)[None, :]
    q = tl.load(q_ptr + (head * q_len + rows[:, None]) * head_dim + d[None, :], mask=row_mask & inside, other=0.0)
    at = (head // group * kv_len + cols[:, None]) * head_dim + d[None, :]
    k = tl.load(k_ptr + at, mask=col_mask & inside, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    seen = cols[None, :] <= rows[:, None] + kv_len - q_len
    at = (head * q_len + rows[:, None]) * kv_len + cols[None, :]
    tl.store(scores_ptr + at, tl.where(seen, scores, float("-inf")), mask=row_mask & (cols < kv_len)[None, :])


@triton.jit
def weights_kernel(scores_ptr, kv_len, BLOCK_N: tl.constexpr):
    """Program (head and query): the softmax of its row of scores, in place."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_N)
    scores = tl.load(scores_ptr + row * kv_len + cols, mask=cols < kv_len, other=float("-inf"))
    top = tl.max(scores, axis=0)
    weights = tl.exp(scores - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(weights, axis=0)
    tl.store(scores_ptr + row * kv_len + cols, weights / tl.where(total == 0.0, 1.0, total), mask=cols < kv_len)


@triton.jit
def values_kernel(
    scores_ptr, v_ptr, out_ptr, q_len, kv_len, head_dim, group, row_blocks,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Program (head, block of queries): the weighted sum of the values."""
    head = (tl.program_id(0) // row_blocks).to(tl.int64)
    rows = (tl.program_id(0) % row_blocks) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    inside = (d < head_dim)[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(0, kv_len, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        mask = (rows < q_len)[:, None] & (cols < kv_len)[None, :]
        weights = tl.load(scores_ptr + (head * q_len + rows[:, None]) * kv_len + cols[None, :], mask=mask, other=0.0)
        at = (head // group * kv_len + cols[:, None]) * head_dim + d[None, :]
        v = tl.load(v_ptr + at, mask=(cols < kv_len)[:, None] & inside, other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")
    at = (head * q_len + rows[:, None]) * head_dim + d[None, :]
    tl.store(out_ptr + at, acc, mask=(rows < q_len)[:, None] & inside)


def naive_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention in three launches, the scores in memory.

    q: [batch, heads, q_len, head_dim]; k, v: [batch, kv_heads, kv_len, head_dim], as `attention` takes them. Returns
    [batch, heads, q_len, head_dim], contiguous. Raises InputError.
    """
    return SPEC.run(q=q, k=k, v=v)


def reference(q, k, v):
    return FUSED.reference(q, k, v)


def make_inputs(dims, draw):
    made = FUSED.make_inputs(dims, draw)
    return {name: made[name] for name in ("q", "k", "v")}


def plan(inputs, config, target):
    q, k, v = (inputs[name].contiguous() for name in ("q", "k", "v"))
    batch, heads, q_len, head_dim = q.shape
    kv_len = k.shape[2]
    scores = torch.empty(batch, heads, q_len, kv_len, dtype=torch.float32, device=q.device)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    block_m, block_n = config.meta["BLOCK_M"], config.meta["BLOCK_N"]
    row_blocks, col_blocks = triton.cdiv(q_len, block_m), triton.cdiv(kv_len, block_n)
    shape = {"q_len": q_len, "kv_len": kv_len, "head_dim": head_dim, "group": heads // k.shape[1]}
    shape |= {"row_blocks": row_blocks, "BLOCK_D": max(pow2(head_dim), 16)}
    first = {"q_ptr": q, "k_ptr": k, "scores_ptr": scores, "scale": head_dim**-0.5, "col_blocks": col_blocks, **shape}
    last = {"scores_ptr": scores, "v_ptr": v, "out_ptr": out, **shape}
    rows = Config({"BLOCK_N": pow2(max(kv_len, 1))}, 1 if target.kind == "cpu" else 8)
    some = batch * heads * (kv_len > 0)
    return Plan(
        (
            Launch(scores_kernel, (some * row_blocks * col_blocks,), first, config),
            Launch(weights_kernel, (some * q_len,), {"scores_ptr": scores, "kv_len": kv_len}, rows),
            Launch(values_kernel, (batch * heads * row_blocks,), last, config),
        ),
        {"out": out},
    )


def configs(inputs, target):
    exact = inputs["q"].dtype == torch.float32
    choices = ((32, 32), (16, 32)) if exact else ((64, 64), (32, 64), (64, 32))
    for block_m, block_n in choices:
        yield Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, 1 if target.kind == "cpu" else 4, 2)


def _sliced(inputs):
    return {n: x.transpose(1, 2).contiguous().transpose(1, 2) for n, x in inputs.items()}


_SMALL = {"batch": 2, "kv_heads": 2, "group": 2, "q_len": 40, "kv_len": 40, "head_dim": 32}

SPEC = KernelSpec(
    name="naive_attention",
    title="Attention, step by step",
    doc="The scores go to memory and back twice. Look at the bytes beside those of the fused kernel.",
    function=naive_attention,
    reference=reference,
    eager=lambda q, k, v: eager(q, k, v),
    dims=FUSED.dims,
    presets={
        "decode": {"batch": 1, "kv_heads": 8, "group": 4, "q_len": 1, "kv_len": 4096, "head_dim": 128},
        "prefill": {"batch": 1, "kv_heads": 8, "group": 4, "q_len": 4096, "kv_len": 4096, "head_dim": 128},
        "odd": {"batch": 2, "kv_heads": 3, "group": 3, "q_len": 77, "kv_len": 101, "head_dim": 80},
        "largest": {"batch": 1, "kv_heads": 8, "group": 4, "q_len": 16_384, "kv_len": 16_384, "head_dim": 128},
    },
    default={"batch": 1, "kv_heads": 3, "group": 3, "q_len": 128, "kv_len": 128, "head_dim": 64},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    plan=plan,
    check=FUSED.check,
    configs=configs,
    cost=FUSED.cost,
    sweep_dim="q_len",
    shrinks="q_len",
    variant_of="attention",
    edges=(
        Edge("One query", "q_len=1, kv_len=20: the offset is kv_len - q_len", {**_SMALL, "q_len": 1, "kv_len": 20}),
        Edge("Fewer keys than queries", "the first queries meet no key, and get 0", {**_SMALL, "kv_len": 13}),
        Edge("Heads inside", "[batch, tokens, heads, head_dim] in memory: strides", _SMALL, _sliced),
        Edge("No batch", "batch=0: nothing to do", {**_SMALL, "batch": 0}),
    ),
    bugs=(
        Bug(
            "Sees the future",
            find="seen = cols[None, :] <= rows[:, None] + kv_len - q_len",
            replace="seen = cols[None, :] <= rows[:, None] + kv_len",
            hint="Which keys may the first query meet?",
            symptom="every query attends to all keys",
            dims=_SMALL,
        ),
        Bug(
            "Not divided",
            find="weights / tl.where(total == 0.0, 1.0, total)",
            replace="weights",
            hint="What do the weights of one query add up to?",
            symptom="answers too large by the sum of the exponentials",
            dims=_SMALL,
        ),
    ),
)
