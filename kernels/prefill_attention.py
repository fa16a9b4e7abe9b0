"""Attention of several prompts at once over a paged KV cache that already holds their keys.

A server mixes prompts of any length, some of them continued ones of which the first part is cached already. Their
queries stand end to end in one tensor, q_starts says where each sequence begins, and no padding is computed: the
grid holds enough blocks of BLOCK_M queries for any division of the tokens among the sequences (tokens / BLOCK_M, and
one more for each sequence), and each program finds its sequence from q_starts. So the grid depends on shapes alone,
and a captured CUDA graph serves any mixture of the same size; blocks too many end at once.

The rest is kernels/attention.py's online softmax with the pages of kernels/decode_attention.py: causal from the end,
query i of a sequence stands at position length - q_len + i. Tokens behind q_starts[-1] (padding of a captured
graph) and queries without a key get 0.

What to look at: how a program turns its number into a sequence, and what a prefix in the cache saves.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.checks import InputError, need_dtype, need_rank, need_same_device
from kernels.online_softmax import LOG2E, no_key_yet, normalised
from kernels.paged_kv import (
    attention_scale,
    cache_bytes,
    check_paged,
    eight_bits,
    far_out,
    gather_pages,
    need_pages,
    padded_pages,
    paged_args,
    paged_block,
    tokens_held,
)
from kernels.spec import Bug, Config, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan, nbytes
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def prefill_attention_kernel(
    q_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, block_table_ptr, q_starts_ptr, lengths_ptr, out_ptr,
    scale_log2, capacity, n_tokens, n_seqs, n_heads, group, stride_qt, stride_qh, stride_qd, stride_bs,
    stride_kp, stride_kh, stride_ks, stride_kd, stride_vp, stride_vh, stride_vs, stride_vd,
    stride_sp, stride_sh, stride_ss, PAGE_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (block of queries, head)."""
    head = (tl.program_id(0) % n_heads).to(tl.int64)
    block = tl.program_id(0) // n_heads
    # Sequence s owns the blocks from q_starts[s] // BLOCK_M + s on; the padding at the end counts as one more.
    s = tl.arange(0, BLOCK_S)
    starts = tl.load(q_starts_ptr + s, mask=(s > 0) & (s <= n_seqs), other=0x3FFFFFFF).to(tl.int32)
    seq = tl.sum(((starts // BLOCK_M + s <= block) & (s > 0) & (s <= n_seqs)).to(tl.int32))
    first = tl.load(q_starts_ptr + seq).to(tl.int32)
    padding = seq >= n_seqs
    last = tl.load(q_starts_ptr + seq + 1, mask=seq < n_seqs, other=0).to(tl.int32)
    last = tl.where(padding, n_tokens, tl.minimum(last, n_tokens))
    offset = (block - first // BLOCK_M - seq) * BLOCK_M
    if first + offset >= last:
        return
    length = tl.minimum(tl.load(lengths_ptr + seq, mask=seq < n_seqs, other=0), capacity)
    length = tl.maximum(length, 0).to(tl.int32)
    tokens = first + offset + tl.arange(0, BLOCK_M)
    position = length - (last - first) + offset + tl.arange(0, BLOCK_M)  # [M]
    d = tl.arange(0, BLOCK_D)
    mask = (tokens < last)[:, None] & (d < HEAD_DIM)[None, :]  # [M, D]
    at = tokens[:, None].to(tl.int64) * stride_qt + head * stride_qh + d[None, :] * stride_qd
    q = tl.load(q_ptr + at, mask=mask, other=0.0)
    kv_head = head // group
    k_ptr += kv_head * stride_kh
    v_ptr += kv_head * stride_vh
    if k_scale_ptr is not None:
        k_scale_ptr += kv_head * stride_sh
        v_scale_ptr += kv_head * stride_sh
    table = block_table_ptr + seq.to(tl.int64) * stride_bs
    acc, m, denom = no_key_yet(BLOCK_M, BLOCK_D)
    # Keys behind the block's last query are met by none of it.
    high = tl.minimum(length, length - (last - first) + offset + BLOCK_M)
    for start in range(0, high, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        live = n < length
        page = tl.load(table + n // PAGE_SIZE, mask=live, other=0)
        seen = live[None, :] & (n[None, :] <= position[:, None])
        acc, m, denom = paged_block(
            q, acc, m, denom, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, page, n % PAGE_SIZE, live, seen, scale_log2,
            stride_kp, stride_ks, stride_kd, stride_vp, stride_vs, stride_vd, stride_sp, stride_ss, HEAD_DIM, BLOCK_D,
        )  # fmt: skip
    row = tokens[:, None].to(tl.int64) * n_heads + head
    tl.store(out_ptr + row * HEAD_DIM + d[None, :], normalised(acc, denom), mask=mask)


def prefill_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    q_starts: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """Causal attention of several sequences' new queries over their cached keys, the new ones included.

    q: [tokens, heads, head_dim], the sequences end to end; k_cache, v_cache: [pages, kv_heads, page_size, head_dim];
    block_table: integers [seqs, max_pages]; q_starts: integers [seqs + 1], rising from 0; lengths: integers [seqs],
    tokens in the cache with the new ones, at most max_pages * page_size; scale: 1 / sqrt(head_dim) by default; k_scale,
    v_scale as in decode_attention. Tokens behind q_starts[-1] get 0. Returns [tokens, heads, head_dim], contiguous.
    Raises InputError, on the CPU for a page outside the cache too.
    """
    return SPEC.run(
        q=q, k_cache=k_cache, v_cache=v_cache, block_table=block_table, q_starts=q_starts, lengths=lengths,
        scale=scale, k_scale=k_scale, v_scale=v_scale,
    )  # fmt: skip


def reference(q, k_cache, v_cache, block_table, q_starts, lengths, scale=None, k_scale=None, v_scale=None):
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    keys = gather_pages(k_cache, k_scale, block_table, wide)
    values = gather_pages(v_cache, v_scale, block_table, wide)
    scale = q.shape[2] ** -0.5 if scale is None else scale
    group = q.shape[1] // keys.shape[1]
    token = torch.arange(q.shape[0], device=q.device)
    key = torch.arange(keys.shape[2], device=q.device)
    by_head = q.to(wide).transpose(0, 1)  # [heads, tokens, head_dim]
    out = torch.zeros_like(by_head)
    for seq in range(block_table.shape[0]):
        first, last, length = q_starts[seq], q_starts[seq + 1], lengths[seq].clamp(max=keys.shape[2])
        mine = (token >= first) & (token < last)
        position = length - last + token
        seen = mine[:, None] & (key < length) & (key <= position[:, None])  # [tokens, keys]
        k, v = (x[seq].repeat_interleave(group, dim=0) for x in (keys, values))
        weights = torch.softmax((by_head @ k.transpose(1, 2) * scale).masked_fill(~seen, float("-inf")), dim=-1)
        # A page that was never written may hold NaN, and 0 * NaN is NaN.
        v = torch.where((key < length)[:, None], v, 0.0)
        out = out + torch.where(seen.any(-1)[:, None], weights @ v, 0.0)
    return out.transpose(0, 1).to(q.dtype)


def make_inputs(dims, draw):
    seqs, q_len, page_size, kv_heads = dims["seqs"], dims["q_len"], dims["page_size"], dims["kv_heads"]
    context = max(dims["context"], q_len)
    max_pages = triton.cdiv(context, page_size)
    cache = seqs * max_pages, kv_heads, page_size, dims["head_dim"]
    return {
        "q": draw.normal(seqs * q_len, kv_heads * dims["group"], dims["head_dim"]),
        "k_cache": draw.normal(*cache),
        "v_cache": draw.normal(*cache),
        "block_table": draw.permutation(seqs * max_pages).view(seqs, max_pages).to(torch.int32),
        # Made on the host: arange on "meta" imports the compiler, seconds of it.
        "q_starts": (torch.arange(seqs + 1, dtype=torch.int32) * q_len).to(draw.device),
        "lengths": torch.full((seqs,), context, dtype=torch.int32, device=draw.device),
    }


def check(inputs):
    check_paged(inputs)
    starts, table = inputs["q_starts"], inputs["block_table"]
    need_rank(starts, "q_starts", 1)
    need_dtype(starts, "q_starts", (torch.int32, torch.int64))
    need_same_device(q=inputs["q"], q_starts=starts)
    if starts.shape[0] != table.shape[0] + 1:
        raise InputError(
            f"q_starts has {starts.shape[0]} entries and block_table {table.shape[0]} sequences; it needs one more",
            "q_starts",
        )  # fmt: skip
    need_pages(table, inputs["k_cache"], inputs["lengths"], starts)


def plan(inputs, config, target):
    q, table = inputs["q"], inputs["block_table"]
    tokens, heads = q.shape[:2]
    seqs = table.shape[0]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    table = table if table.stride(-1) == 1 else table.contiguous()
    args = {
        "q_ptr": q,
        "block_table_ptr": table,
        "q_starts_ptr": inputs["q_starts"].contiguous(),
        "lengths_ptr": inputs["lengths"].contiguous(),
        "out_ptr": out,
        "scale_log2": attention_scale(inputs) * LOG2E,
        "capacity": table.shape[1] * inputs["k_cache"].shape[2],
        "n_tokens": tokens,
        "n_seqs": seqs,
        "n_heads": heads,
        "group": heads // inputs["k_cache"].shape[1],
        **{f"stride_q{d}": q.stride(i) for i, d in enumerate("thd")},
        "stride_bs": table.stride(0),
        **paged_args(inputs, target),
        "BLOCK_S": pow2(seqs + 1),
    }
    blocks = tokens // config.meta["BLOCK_M"] + seqs + 1 if tokens else 0
    return Plan((Launch(prefill_attention_kernel, (blocks * heads,), args, config),), {"out": out})


def configs(inputs, target):
    q = inputs["q"]
    if target.kind == "cpu":
        choices = [(32, 32, 1, 1), (64, 32, 1, 1), (32, 64, 1, 1), (16, 32, 1, 1)]
    elif q.dtype == torch.float32:  # exact products keep the tiles in registers
        choices = [(32, 32, 4, 2), (16, 32, 4, 2)]
    else:
        stages = 1 if target.kind == "hip" else 3
        choices = [(64, 64, 4, stages), (128, 64, 8, stages), (128, 32, 4, stages), (32, 64, 4, stages)]
    width = max(pow2(q.shape[2]), 16) * max(q.element_size(), inputs["k_cache"].element_size())
    room = [c for c in choices if (c[0] + 2 * c[1] * c[3]) * width <= 0.9 * target.shared_bytes]
    short = pow2(max(q.shape[0], 16))  # a block of more queries than there are would be idle
    for block_m, block_n, num_warps, stages in dict.fromkeys((min(c[0], short), *c[1:]) for c in room or choices[-1:]):
        yield Config({"BLOCK_M": block_m, "BLOCK_N": block_n}, num_warps, stages)


def cost(inputs):
    """Of the lengths and new tokens; where they have no values, of tokens divided evenly and pages that are full."""
    q, k_cache, table, starts = (inputs[name] for name in ("q", "k_cache", "block_table", "q_starts"))
    held = tokens_held(inputs["lengths"], table, k_cache.shape[2])
    evenly = torch.full_like(held, q.shape[0] // max(table.shape[0], 1))
    new = torch.minimum(held, evenly if starts.is_meta else starts.to("cpu", torch.int64).diff().clamp_min(0))
    pairs = int((new * (held - new) + new * (new + 1) // 2).sum())
    cache = cache_bytes(k_cache, inputs.get("k_scale"), int(held[new > 0].sum()))
    flops = 4 * q.shape[1] * q.shape[2] * pairs
    return Cost(nbytes(q, table, starts, inputs["lengths"]) + cache, q.numel() * q.element_size(), flops)


def _ragged(inputs):
    """Sequences of 0, 1, 5 ... new tokens, of lengths that end anywhere, and padding behind the last."""
    starts, lengths = inputs["q_starts"], inputs["lengths"]
    total, most, seqs = int(starts[-1]), int(lengths.max()), lengths.numel()
    new = [(0, 1, 5, 17)[i % 4] for i in range(seqs)]
    starts.copy_(torch.tensor([min(sum(new[:i]), total) for i in range(seqs + 1)]))
    lengths.copy_(torch.tensor([min(n + 7 * i, most) for i, n in enumerate(new)]))
    return inputs


def _nothing_cached(inputs):
    inputs["lengths"].zero_()
    return inputs


def _sliced(inputs):
    q = inputs["q"]
    return {**inputs, "q": torch.cat((q, q), dim=1)[:, q.shape[1] :]}


_SMALL = {"seqs": 4, "q_len": 20, "context": 50, "kv_heads": 2, "group": 3, "head_dim": 64, "page_size": 16}

SPEC = KernelSpec(
    name="prefill_attention",
    title="Prefill attention, paged",
    doc="Several prompts of any length at once, over caches in pages. Look at how a program finds its sequence, and at "
    "what a cached prefix saves.",
    function=prefill_attention,
    reference=reference,
    dims=(
        Dim("seqs", "sequences"),
        Dim("q_len", "new tokens of each"),
        Dim("context", "tokens in the cache of each, the new ones included"),
        Dim("kv_heads", "key and value heads", high=1024),
        Dim("group", "query heads for each of them", high=128),
        Dim("head_dim", "elements of a head", high=256),
        Dim("page_size", "slots of a page", high=4096),
    ),
    presets={
        "decode": {**_SMALL, "seqs": 64, "q_len": 1, "context": 1024, "kv_heads": 8, "group": 4, "head_dim": 128},
        "prefill": {**_SMALL, "q_len": 512, "context": 2048, "kv_heads": 8, "group": 4, "head_dim": 128},
        "odd": {**_SMALL, "seqs": 3, "q_len": 77, "context": 131, "kv_heads": 3, "group": 7, "head_dim": 80},
        "largest": {**_SMALL, "seqs": 8, "q_len": 2048, "context": 8192, "kv_heads": 8, "group": 4, "head_dim": 128},
    },
    default={"seqs": 3, "q_len": 64, "context": 100, "kv_heads": 3, "group": 3, "head_dim": 64, "page_size": 16},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="q_len",
    shrinks="context",
    edges=(
        Edge("Ragged", "0, 1, 5 and 17 new tokens, and padding behind them", _SMALL, _ragged),
        Edge("Whole prompts", "context = q_len: nothing cached before", {**_SMALL, "context": 20}),
        Edge("One query each", "q_len=1: a decode step", {**_SMALL, "q_len": 1}),
        Edge("Empty lengths", "lengths of 0: no key is met, zeros", _SMALL, _nothing_cached),
        Edge("Many sequences", "33 sequences: more blocks than tokens fill", {**_SMALL, "seqs": 33, "q_len": 3}),
        Edge("Scores far out", "scores of about 10^10: the maximum comes off exactly", _SMALL, far_out),
        Edge("Eight bits", "an int8 cache of values near 0.001, with its scales", _SMALL, eight_bits),
        Edge("Padded pages", "pages with gaps: the cache's real strides", _SMALL, padded_pages),
        Edge("Slice of heads", "q is a slice: strides, not widths", _SMALL, _sliced),
        Edge("No tokens", "q_len 1, seqs 0: nothing to do", {**_SMALL, "seqs": 0}),
    ),
    bugs=(
        Bug(
            "Prefix forgotten",
            find="position = length - (last - first) + offset + tl.arange(0, BLOCK_M)",
            replace="position = offset + tl.arange(0, BLOCK_M)",
            hint="Where in its context does the first new token stand?",
            symptom="right for a whole prompt, wrong for a continued one",
            dims=_SMALL,
        ),
        Bug(
            "Blocks miscounted",
            find="starts // BLOCK_M + s <= block",
            replace="starts // BLOCK_M <= block",
            hint="Two sequences of 20 tokens, blocks of 32: how many blocks do they need?",
            symptom="short sequences are skipped",
            dims=_SMALL,
        ),
    ),
)
