"""Attention with linear biases (ALiBi): positions as a penalty on distance, made in registers. A variant to read.

    score(i, j) = scale * q_i . k_j - slope_h * (i - j)

A model trained like this (BLOOM, MPT) has no position embedding: each head dislikes distant keys with a slope of its
own, 2^(-8 h / heads) for heads h = 1 ... (Press, Smith and Lewis, 2021). PyTorch's fused attention takes such a bias as
a tensor [heads, q_len, kv_len] that must be made, stored and read: 2 GB for 32 heads and a prompt of 4,096 tokens in
float32, more than everything else that attention touches. Here it is two operations on numbers that are there
already: the places of the query and of the key.

What to look at: what changes in the kernel beside it (one line, and the slope), and what eager pays for the tensor.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from kernels.attention import SPEC as FUSED
from kernels.attention_problem import SMALL, seen_keys
from kernels.attention_problem import check as check_attention
from kernels.attention_problem import cost as attention_cost
from kernels.attention_problem import make_inputs as attention_inputs
from kernels.checks import need_dtype, need_no_grad, need_same_device, need_shape
from kernels.online_softmax import LOG2E, attend_block, no_key_yet, normalised
from kernels.paged_kv import attention_scale
from kernels.spec import Bug, Config, Edge, KernelSpec, Launch, Output, Plan, nbytes
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def alibi_attention_kernel(
    q_ptr, k_ptr, v_ptr, slopes_ptr, out_ptr, scale, n_heads, group, q_len, kv_len, q_blocks,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (batch and head, block of queries), causal."""
    pid = tl.program_id(0)
    block = q_blocks - 1 - pid % q_blocks
    batch = (pid // q_blocks // n_heads).to(tl.int64)
    head = (pid // q_blocks % n_heads).to(tl.int64)
    kv_head = head // group
    queries = block * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    mask = (queries < q_len)[:, None] & (d < HEAD_DIM)[None, :]  # [M, D]
    q_ptr += batch * stride_qb + head * stride_qh
    q = tl.load(q_ptr + queries[:, None].to(tl.int64) * stride_qm + d[None, :] * stride_qd, mask=mask, other=0.0)
    k_ptr += batch * stride_kb + kv_head * stride_kh
    v_ptr += batch * stride_vb + kv_head * stride_vh
    # The products are scaled later, so the slope is divided by the scale, which is the same. Finite: 0 * inf is NaN.
    slope = tl.load(slopes_ptr + head).to(tl.float32) * 1.4426950408889634 / scale
    slope = tl.minimum(tl.maximum(slope, -3e38), 3e38)
    position = queries + kv_len - q_len  # a query's own place among the keys
    acc, m, denom = no_key_yet(BLOCK_M, BLOCK_D)
    for start in range(0, tl.minimum((block + 1) * BLOCK_M + kv_len - q_len, kv_len), BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        rows = n[:, None].to(tl.int64)
        inside = (n < kv_len)[:, None] & (d < HEAD_DIM)[None, :]
        k = tl.load(k_ptr + rows * stride_kn + d[None, :] * stride_kd, mask=inside, other=0.0)  # [N, D]
        v = tl.load(v_ptr + rows * stride_vn + d[None, :] * stride_vd, mask=inside, other=0.0)
        distance = position[:, None] - n[None, :]
        products = tl.dot(q, tl.trans(k), input_precision="ieee") - slope * distance.to(tl.float32)  # [M, N]
        products = tl.where((distance >= 0) & (n < kv_len)[None, :], products, float("-inf"))
        acc, m, denom = attend_block(acc, m, denom, products, scale, v, None)
    row = (batch * n_heads + head) * q_len + queries
    tl.store(out_ptr + row[:, None] * HEAD_DIM + d[None, :], normalised(acc, denom), mask=mask)


def alibi_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    """Causal softmax(scale * q k^T - slopes * distance) v.

    q: [batch, heads, q_len, head_dim]; k, v: [batch, kv_heads, kv_len, head_dim], as `attention` takes them; slopes:
    float32 [heads], alibi_slopes(heads) as published; scale: 1 / sqrt(head_dim) by default. A query that meets no key
    gets 0. Returns [batch, heads, q_len, head_dim], contiguous. Raises InputError.
    """
    return SPEC.run(q=q, k=k, v=v, slopes=slopes, scale=scale)


def alibi_slopes(heads: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """float32 [heads]: a geometric series, the published rule for counts that are no power of two included."""
    whole = 2 ** int(math.log2(max(heads, 1)))
    slopes = [2.0 ** (-8.0 * (i + 1) / whole) for i in range(whole)]
    slopes += [2.0 ** (-4.0 * (2 * i + 1) / whole) for i in range(heads - whole)]  # every second of twice as many
    return torch.tensor(slopes[:heads], dtype=torch.float32, device=device)


def _bias(q, k, slopes, wide):
    """The penalty as a tensor [heads, q_len, kv_len], -inf where a key comes later than its query."""
    q_len, kv_len = q.shape[2], k.shape[2]
    place = torch.arange(q_len, device=q.device)[:, None] + kv_len - q_len
    distance = place - torch.arange(kv_len, device=q.device)[None]
    bias = -slopes.to(wide)[:, None, None] * distance
    return torch.where(seen_keys(q_len, kv_len, True, None, q.device), bias, float("-inf"))


def reference(q, k, v, slopes, scale=None):
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    group = q.shape[1] // k.shape[1]
    k, v = (x.to(wide).repeat_interleave(group, dim=1) for x in (k, v))
    scores = q.to(wide) @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    bias = _bias(q, k, slopes, wide)
    weights = torch.softmax(scores + bias, dim=-1)
    return torch.where((bias > float("-inf")).any(-1, keepdim=True), weights @ v, 0.0).to(q.dtype)


def eager(q, k, v, slopes, scale=None):
    """PyTorch's fused attention, with the penalty as a tensor."""
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=_bias(q, k, slopes, torch.float32).to(q.dtype), scale=scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )  # fmt: skip


def make_inputs(dims, draw):
    made = attention_inputs(dims, draw)
    heads = dims["kv_heads"] * dims["group"]
    slopes = torch.empty(heads, device="meta") if draw.device.type == "meta" else alibi_slopes(heads, draw.device)
    return {**{name: made[name] for name in ("q", "k", "v")}, "slopes": slopes, "scale": None}


def check(inputs):
    check_attention(inputs)
    slopes = inputs["slopes"]
    need_shape(slopes, "slopes", (inputs["q"].shape[1],), "the heads of q")
    need_dtype(slopes, "slopes", (torch.float32,))
    need_same_device(q=inputs["q"], slopes=slopes)
    need_no_grad(slopes=slopes)


def plan(inputs, config, target):
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    batch, heads, q_len, head_dim = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    q_blocks = triton.cdiv(q_len, config.meta["BLOCK_M"])
    strides = {f"stride_{n}{d}": x.stride(i) for n, x in (("k", k), ("v", v)) for i, d in enumerate("bhnd")}
    args = {
        "q_ptr": q,
        "k_ptr": k,
        "v_ptr": v,
        "slopes_ptr": inputs["slopes"].contiguous(),
        "out_ptr": out,
        "scale": attention_scale(inputs) * LOG2E,
        "n_heads": heads,
        "group": heads // k.shape[1],
        "q_len": q_len,
        "kv_len": k.shape[2],
        "q_blocks": q_blocks,
        **{f"stride_q{d}": q.stride(i) for i, d in enumerate("bhmd")},
        **strides,
        "HEAD_DIM": head_dim,
        "BLOCK_D": max(pow2(head_dim), 16),
    }
    return Plan((Launch(alibi_attention_kernel, (batch * heads * q_blocks,), args, config),), {"out": out})


def configs(inputs, target):
    q = inputs["q"]
    narrow = q.shape[3] <= 128
    if target.kind == "cpu":
        choices = [(64, 64, 1, 1), (32, 64, 1, 1)]
    elif q.dtype == torch.float32:  # exact products keep the tiles in registers
        choices = [(32, 32, 4, 2), (16, 32, 4, 2)]
    elif target.kind == "hip" or target.shared_bytes < 128 * 1024:
        choices = [(64, 64, 4, 1), (64, 32, 4, 1)] if narrow else [(32, 32, 4, 1)]
    else:
        choices = [(64, 64, 4, 3), (128, 64, 8, 3), (64, 32, 4, 3)] if narrow else [(64, 32, 4, 2)]
    for block_m, block_n, num_warps, num_stages in choices:
        yield Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_warps, num_stages)


def cost(inputs):
    """As attention: the penalty itself need not move, but for a slope a head."""
    plain = attention_cost({**inputs, "causal": True})
    return type(plain)(plain.bytes_read + nbytes(inputs["slopes"]), plain.bytes_written, plain.flops)


def _one_slope(inputs):
    return {**inputs, "slopes": inputs["slopes"][:1].expand_as(inputs["slopes"])}


def _steep(inputs):
    return {**inputs, "slopes": inputs["slopes"] * 1e4}


SPEC = KernelSpec(
    name="alibi_attention",
    title="Attention with linear biases",
    doc="Attention whose positions are a penalty on distance, computed in registers where PyTorch reads a tensor of "
    "the size of the scores. Look at the one line that differs from plain attention.",
    function=alibi_attention,
    reference=reference,
    eager=eager,
    dims=FUSED.dims,
    presets={
        "decode": {"batch": 1, "kv_heads": 8, "group": 4, "q_len": 1, "kv_len": 4096, "head_dim": 128},
        "prefill": {"batch": 1, "kv_heads": 32, "group": 1, "q_len": 4096, "kv_len": 4096, "head_dim": 128},
        "odd": {"batch": 2, "kv_heads": 3, "group": 3, "q_len": 333, "kv_len": 401, "head_dim": 80},
        "largest": {"batch": 1, "kv_heads": 8, "group": 4, "q_len": 8192, "kv_len": 8192, "head_dim": 128},
    },
    default=FUSED.default,
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="q_len",
    shrinks="q_len",
    variant_of="attention",
    edges=(
        Edge("One query", "q_len=1, kv_len=20: the offset is kv_len - q_len", {**SMALL, "q_len": 1, "kv_len": 20}),
        Edge("Fewer keys than queries", "the first queries meet no key, and get 0", {**SMALL, "kv_len": 33}),
        Edge("Steep", "slopes in the thousands: all but the nearest key vanish", SMALL, _steep),
        Edge("One slope", "slopes expanded from one, stride 0", SMALL, _one_slope),
        Edge("No keys", "kv_len=0: zeros", {**SMALL, "kv_len": 0}),
    ),
    bugs=(
        Bug(
            "The same slope for all",
            find="tl.load(slopes_ptr + head)",
            replace="tl.load(slopes_ptr + kv_head)",
            hint="How many slopes are there: one for each head, or one for each kv head?",
            symptom="right without groups, wrong with them",
            dims=SMALL,
        ),
        Bug(
            "Reward for distance",
            find='input_precision="ieee") - slope',
            replace='input_precision="ieee") + slope',
            hint="Should a distant key count for more or for less?",
            symptom="the first tokens of the prompt drown out all others",
            dims=SMALL,
        ),
    ),
)
