"""Rotary position embedding of q and k in one launch.

    pair (a, b) at position p:   a' = a cos(p f) - b sin(p f)      b' = b cos(p f) + a sin(p f)

Each pair of a head's elements turns by an angle that grows with the position, so that the product of a query and
a key depends on their distance alone. PyTorch code builds a rotated copy and runs five operations for q and five
for k, each through memory; here q and k are read once and written once, in one launch, and the tables are shared by
every head of a token.

Which two elements make a pair is a convention, and the classic mistake: "half" (Llama, Qwen, GPT-NeoX) pairs
element i with i + rotary_dim / 2, "interleaved" (GPT-J, the paper) pairs 2i with 2i + 1. Position 0 turns by
nothing and hides every fault. Elements from rotary_dim on are not turned: they are copied.

One program turns BLOCK_T tokens by BLOCK_H heads, of q or of k. What to look at: neighbouring programs work on
neighbouring memory, since the head blocks of one token come first; and with 8 heads of 128 each load is 2 KB long.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.checks import (
    FLOATS,
    InputError,
    need_dtype,
    need_near,
    need_no_grad,
    need_rank,
    need_same_device,
    need_same_dtype,
    need_shape,
)
from kernels.spec import Baseline, Bug, Config, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan, nbytes
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def rotate(
    x_ptr, out_ptr, cos_ptr, sin_ptr, positions_ptr, tokens, n_tokens, max_position, first_head,
    stride_xt, stride_xh, stride_xd, N_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_TAIL: tl.constexpr,
):  # fmt: skip
    """BLOCK_T tokens by BLOCK_H heads of one tensor. HALF: rotary_dim / 2; BLOCK_D: a power of two that holds it."""
    heads = first_head + tl.arange(0, BLOCK_H)
    live = (tokens < n_tokens)[:, None, None] & (heads < N_HEADS)[None, :, None]  # [T, H, 1]
    rows = tokens[:, None, None] * stride_xt + heads[None, :, None].to(tl.int64) * stride_xh
    out_rows = (tokens[:, None, None] * N_HEADS + heads[None, :, None]) * HEAD_DIM
    pair = tl.arange(0, BLOCK_D)
    position = tl.load(positions_ptr + tokens, mask=tokens < n_tokens, other=0).to(tl.int64)
    # The heads are asked for before the position is looked at: only the tables need it.
    if INTERLEAVED:
        cols = tl.arange(0, 2 * BLOCK_D)[None, None, :]
        mask = live & (cols < 2 * HALF)
        x = tl.load(x_ptr + rows + cols * stride_xd, mask=mask, other=0.0)
        a, b = tl.split(tl.reshape(x, [x.shape[0], BLOCK_H, BLOCK_D, 2]))  # [T, H, D] each
    else:
        cols = pair[None, None, :]
        mask = live & (cols < HALF)
        a = tl.load(x_ptr + rows + cols * stride_xd, mask=mask, other=0.0)
        b = tl.load(x_ptr + rows + (cols + HALF) * stride_xd, mask=mask, other=0.0)
    # A position outside the table would read wild memory: it turns into NaN instead.
    known = ((position >= 0) & (position < max_position))[:, None] & (pair < HALF)[None, :]  # [T, D]
    angle = position[:, None] * HALF + pair[None, :]
    cos = tl.load(cos_ptr + angle, mask=known, other=float("nan")).to(tl.float32)[:, None, :]  # [T, 1, D]
    sin = tl.load(sin_ptr + angle, mask=known, other=float("nan")).to(tl.float32)[:, None, :]
    a, b = a.to(tl.float32), b.to(tl.float32)
    if INTERLEAVED:
        tl.store(out_ptr + out_rows + cols, tl.interleave(a * cos - b * sin, b * cos + a * sin), mask=mask)
    else:
        tl.store(out_ptr + out_rows + cols, a * cos - b * sin, mask=mask)
        tl.store(out_ptr + out_rows + cols + HALF, b * cos + a * sin, mask=mask)
    if BLOCK_TAIL > 0:
        tail = (2 * HALF + tl.arange(0, BLOCK_TAIL))[None, None, :]
        mask = live & (tail < HEAD_DIM)
        tl.store(out_ptr + out_rows + tail, tl.load(x_ptr + rows + tail * stride_xd, mask=mask), mask=mask)


@triton.jit
def rope_kernel(
    q_ptr, k_ptr, q_out_ptr, k_out_ptr, cos_ptr, sin_ptr, positions_ptr, n_tokens, max_position,
    stride_qt, stride_qh, stride_qd, stride_kt, stride_kh, stride_kd, N_HEADS: tl.constexpr, N_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, HALF: tl.constexpr, INTERLEAVED: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_TAIL: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Grid: for each block of tokens, first the head blocks of q, then those of k."""
    q_blocks = tl.cdiv(N_HEADS, BLOCK_H)
    blocks = q_blocks + tl.cdiv(N_KV_HEADS, BLOCK_H)
    tokens = (tl.program_id(0) // blocks).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    block = tl.program_id(0) % blocks
    if block < q_blocks:
        rotate(
            q_ptr, q_out_ptr, cos_ptr, sin_ptr, positions_ptr, tokens, n_tokens, max_position, block * BLOCK_H,
            stride_qt, stride_qh, stride_qd, N_HEADS, HEAD_DIM, HALF, INTERLEAVED, BLOCK_H, BLOCK_D, BLOCK_TAIL,
        )  # fmt: skip
    else:
        rotate(
            k_ptr, k_out_ptr, cos_ptr, sin_ptr, positions_ptr, tokens, n_tokens, max_position,
            (block - q_blocks) * BLOCK_H, stride_kt, stride_kh, stride_kd, N_KV_HEADS, HEAD_DIM, HALF, INTERLEAVED,
            BLOCK_H, BLOCK_D, BLOCK_TAIL,
        )  # fmt: skip


def rope(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    positions: torch.Tensor,
    interleaved: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k, each pair turned by its position's angle.

    q: [tokens, heads, head_dim]; k: [tokens, kv_heads, head_dim], the same dtype, any strides; cos, sin:
    [max_position, rotary_dim / 2] with rotary_dim <= head_dim; positions: int32 or int64 [tokens], each in
    [0, max_position); one outside gives NaN. Computed in float32, rounded once. Returns new contiguous (q, k).
    Raises InputError.
    """
    return SPEC.run(q=q, k=k, cos=cos, sin=sin, positions=positions, interleaved=interleaved)


def _turn(x, cos, sin, positions, interleaved, wide):
    half = cos.shape[1]
    c, s = (t.to(wide)[positions.long()][:, None] for t in (cos, sin))  # [tokens, 1, half]
    rotary, tail = x[..., : 2 * half].to(wide), x[..., 2 * half :].to(wide)
    a, b = (rotary[..., 0::2], rotary[..., 1::2]) if interleaved else rotary.split(half, dim=-1)
    turned = (a * c - b * s, b * c + a * s)
    joined = torch.stack(turned, dim=-1).flatten(-2) if interleaved else torch.cat(turned, dim=-1)
    return torch.cat((joined, tail), dim=-1).to(x.dtype)


def reference(q, k, cos, sin, positions, interleaved=False):
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    return tuple(_turn(x, cos, sin, positions, interleaved, wide) for x in (q, k))


def eager(q, k, cos, sin, positions, interleaved=False):
    """As modelling code writes it, in the tensors' own dtype."""
    return tuple(_turn(x, cos, sin, positions, interleaved, q.dtype) for x in (q, k))


def rope_tables(max_position: int, rotary_dim: int, theta: float = 10_000.0, dtype=torch.float32, device="cpu"):
    """cos and sin [max_position, rotary_dim / 2] of the angles p * theta^(-2i / rotary_dim)."""
    pair = torch.arange(0, rotary_dim, 2, dtype=torch.float64, device=device)
    angle = torch.arange(max_position, dtype=torch.float64, device=device)[:, None] * theta ** (-pair / rotary_dim)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def make_inputs(dims, draw):
    tokens, head_dim = dims["tokens"], dims["head_dim"]
    if draw.device.type == "meta":  # the angles of a long table take seconds, even without values
        cos = sin = torch.empty(max(tokens, 64), head_dim // 2, dtype=draw.dtype, device="meta")
    else:
        cos, sin = rope_tables(max(tokens, 64), head_dim // 2 * 2, 10_000.0, draw.dtype, draw.device)
    return {
        "q": draw.normal(tokens, dims["heads"], head_dim),
        "k": draw.normal(tokens, dims["kv_heads"], head_dim),
        "cos": cos,
        "sin": sin,
        "positions": draw.integers(tokens, low=0, high=cos.shape[0]),
        "interleaved": False,
    }


def check(inputs):
    q, k, cos, sin, positions = (inputs[name] for name in ("q", "k", "cos", "sin", "positions"))
    need_rank(q, "q", 3)
    need_dtype(q, "q", FLOATS)
    need_rank(k, "k", 3)
    need_shape(k, "k", (q.shape[0], k.shape[1], q.shape[2]), "q")
    need_same_dtype(k, "k", q, "q")
    need_rank(cos, "cos", 2)
    need_dtype(cos, "cos", FLOATS)
    need_rank(sin, "sin", 2)
    need_same_dtype(sin, "sin", cos, "cos")
    need_shape(sin, "sin", cos.shape, "cos")
    need_shape(positions, "positions", q.shape[:1], "q")
    need_dtype(positions, "positions", (torch.int32, torch.int64))
    if 2 * cos.shape[1] > q.shape[2]:
        raise InputError(
            f"cos has {cos.shape[1]} columns and q a head_dim of {q.shape[2]}; cos and sin hold one column for each "
            f"pair, {q.shape[2] // 2} at most: pass the first half of a table that repeats itself",
            "cos",
        )
    need_same_device(q=q, k=k, cos=cos, sin=sin, positions=positions)
    need_near(q, "q", 2)
    need_near(k, "k", 2)
    need_no_grad(q=q, k=k, cos=cos, sin=sin)


def plan(inputs, config, target):
    q, k, cos, sin, positions = (inputs[name] for name in ("q", "k", "cos", "sin", "positions"))
    n_tokens, n_heads, head_dim = q.shape
    n_kv_heads, half = k.shape[1], cos.shape[1]
    q_out, k_out = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k))
    block_h = config.meta["BLOCK_H"]
    blocks = triton.cdiv(n_heads, block_h) + triton.cdiv(n_kv_heads, block_h)
    args = {
        "q_ptr": q,
        "k_ptr": k,
        "q_out_ptr": q_out,
        "k_out_ptr": k_out,
        "cos_ptr": cos.contiguous(),
        "sin_ptr": sin.contiguous(),
        "positions_ptr": positions.contiguous(),
        "n_tokens": n_tokens,
        "max_position": cos.shape[0],
        "N_HEADS": n_heads,
        "N_KV_HEADS": n_kv_heads,
        **{f"stride_{n}{d}": x.stride(i) for n, x in (("q", q), ("k", k)) for i, d in enumerate("thd")},
        "HEAD_DIM": head_dim,
        "HALF": half,
        "INTERLEAVED": bool(inputs.get("interleaved", False)),
        "BLOCK_D": pow2(half),
        "BLOCK_TAIL": pow2(head_dim - 2 * half) if head_dim > 2 * half else 0,
    }
    grid = (triton.cdiv(n_tokens, config.meta["BLOCK_T"]) * blocks if head_dim else 0,)
    return Plan((Launch(rope_kernel, grid, args, config),), {"q": q_out, "k": k_out})


def configs(inputs, target):
    tokens, heads, _ = inputs["q"].shape
    if target.kind == "cpu":
        yield from _configs((1, pow2(max(heads, 1)), 1), (1, 1, 1), (1, 4, 1), (4, 4, 1), (8, 1, 1))
        return
    fit = min(8, pow2(max(inputs["k"].shape[1], 1)))
    default = (16, 1, 4) if tokens >= 512 else (1, fit, 4)  # a head of many tokens: their rows of the tables stay near
    yield from _configs(
        default, (4, fit, 4), (1, 8, 4), (2, 8, 4), (4, 8, 4), (8, 8, 8), (4, 4, 4), (8, 2, 4), (16, 1, 4)
    )


def _configs(*choices):
    """(BLOCK_T, BLOCK_H, warps), each once."""
    for block_t, block_h, num_warps in dict.fromkeys(choices):
        yield Config({"BLOCK_T": block_t, "BLOCK_H": block_h}, num_warps)


def cost(inputs):
    q, k = inputs["q"], inputs["k"]
    rows = min(inputs["cos"].shape[0], q.shape[0])  # of the tables, each row read once
    tables = 2 * rows * inputs["cos"].shape[1] * inputs["cos"].element_size()
    n = q.numel() + k.numel()
    return Cost(nbytes(q, k, inputs["positions"]) + tables, n * q.element_size(), 3 * n)


def _liger():
    from liger_kernel.ops.rope import LigerRopeFunction

    def run(q, k, cos, sin, positions, interleaved):
        c, s = (torch.cat((t, t), -1)[positions][None] for t in (cos, sin))
        # Liger turns q and k in place, and wants [batch, heads, tokens, head_dim].
        out = LigerRopeFunction.apply(*(x.clone()[None].transpose(1, 2) for x in (q, k)), c, s)
        return tuple(x.transpose(1, 2)[0] for x in out)

    return run


def _partial(inputs):
    return {**inputs, "cos": inputs["cos"][:, :12], "sin": inputs["sin"][:, :12]}


def _sliced_qkv(inputs):
    # As a model has it: q and k are slices of one wide projection.
    q, k = inputs["q"], inputs["k"]
    qkv = torch.cat((q, k, k), dim=1)
    return {**inputs, "q": qkv[:, : q.shape[1]], "k": qkv[:, q.shape[1] : q.shape[1] + k.shape[1]]}


def _last_position(inputs):
    return {**inputs, "positions": torch.full_like(inputs["positions"], inputs["cos"].shape[0] - 1)}


_SMALL = {"tokens": 40, "heads": 6, "kv_heads": 2, "head_dim": 64}

SPEC = KernelSpec(
    name="rope",
    title="Rotary embedding",
    doc="Turns each pair of a head's elements by an angle that grows with the token's position, q and k in one launch. "
    "Look at which elements make a pair, and why position 0 hides every fault.",
    function=rope,
    reference=reference,
    eager=eager,
    dims=(
        Dim("tokens", "tokens of all sequences"),
        Dim("heads", "query heads", high=1024),
        Dim("kv_heads", "key heads", high=1024),
        Dim("head_dim", "elements of a head", low=2, high=1024),
    ),
    presets={
        "decode": {"tokens": 1, "heads": 32, "kv_heads": 8, "head_dim": 128},
        "prefill": {"tokens": 16384, "heads": 32, "kv_heads": 8, "head_dim": 128},
        "odd": {"tokens": 333, "heads": 9, "kv_heads": 3, "head_dim": 80},
        "largest": {"tokens": 131_072, "heads": 32, "kv_heads": 8, "head_dim": 128},
    },
    default={"tokens": 64, "heads": 9, "kv_heads": 3, "head_dim": 64},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("q"), Output("k")),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="tokens",
    shrinks="tokens",
    baselines=(Baseline("Liger", _liger, "pip install liger-kernel"),),
    edges=(
        Edge("Interleaved", "pairs (2i, 2i + 1) instead of halves", _SMALL, lambda i: {**i, "interleaved": True}),
        Edge("Partial rotary", "24 of 64 elements turn, the tail is copied", _SMALL, _partial),
        Edge("Slices of qkv", "q and k are slices: strides, not widths", _SMALL, _sliced_qkv),
        Edge("Last position", "the last row of the tables", _SMALL, _last_position),
        Edge("Odd sizes", "7 heads of 80: nothing is a power of two", {**_SMALL, "heads": 7, "head_dim": 80}),
        Edge("No tokens", "tokens=0: nothing to do", {**_SMALL, "tokens": 0}),
    ),
    bugs=(
        Bug(
            "Wrong partner",
            find="b = tl.load(x_ptr + rows + (cols + HALF) * stride_xd, mask=mask, other=0.0)",
            replace="b = tl.load(x_ptr + rows + (cols + HALF - 1) * stride_xd, mask=mask, other=0.0)",
            hint="Which element is the partner of element 0?",
            symptom="every pair is turned with its neighbour's element",
            dims=_SMALL,
        ),
        Bug(
            "Sign of the sine",
            find="tl.store(out_ptr + out_rows + cols, a * cos - b * sin, mask=mask)",
            replace="tl.store(out_ptr + out_rows + cols, a * cos + b * sin, mask=mask)",
            hint="A turn by 90 degrees maps (0, 1) to what?",
            symptom="the length of a pair changes, except at position 0",
            dims=_SMALL,
        ),
        Bug(
            "Counted, not looked up",
            find="position = tl.load(positions_ptr + tokens, mask=tokens < n_tokens, other=0).to(tl.int64)",
            replace="position = tokens",
            hint="Where does a token's position come from when several sequences share a batch?",
            symptom="right for one prompt from its start, wrong for a decode step",
            dims=_SMALL,
        ),
    ),
)
