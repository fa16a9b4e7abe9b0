"""Attention of one new query per sequence over a paged KV cache: the kernel of every decode step.

    out[s, h] = softmax(scale * q[s, h] . K[s, h / group]) V[s, h / group]        over lengths[s] tokens

One query meets thousands of keys, so there is nothing to compute with: two operations for each byte of the cache. All
that counts is to read K and V once, at full bandwidth. Two ideas serve that.

Split the length ("flash decoding"): one program per (sequence, kv head) would leave a GPU idle at batch 1, so each
takes SPLIT_KV tokens only, and leaves its unnormalised sum, maximum and sum of exponentials; a second, tiny kernel
joins them (where the splits are few, on Hopper and later, it is there before they end, and waits). The grid depends on
the shapes alone, never on a length's value, so a captured CUDA graph serves any context: programs beyond a sequence's
end find nothing to do.

Group the heads: the query heads that share a kv head (GQA) are the rows of one small matrix, so the cache is read
once for all of them; a group of any size is padded to BLOCK_G rows. With int8 or fp8 caches the scales multiply the
scores and the weights instead of the tiles of K and V; in float16, which weights would leave, the tile of V after all.

What to look at: bytes per second against the measured bandwidth, and what a batch of 1 changes about the split.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.checks import need_shape
from kernels.decode_attention_peers import BASELINES, eager
from kernels.dependent import let_next_begin, wait_for_last
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

MOST_ELEMENTS = 2**20  # of a tile, in Triton


@triton.jit
def decode_attention_kernel(
    q_ptr, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, block_table_ptr, lengths_ptr, out_ptr, acc_ptr, stats_ptr,
    scale_log2, capacity, n_splits, stride_qs, stride_qh, stride_qd, stride_bs,
    stride_kp, stride_kh, stride_ks, stride_kd, stride_vp, stride_vh, stride_vs, stride_vd,
    stride_sp, stride_sh, stride_ss, N_KV_HEADS: tl.constexpr, GROUP: tl.constexpr, PAGE_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, ONE_SPLIT: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK_N: tl.constexpr, SPLIT_KV: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (sequence and kv head, split): SPLIT_KV tokens for the GROUP heads of a kv head."""
    let_next_begin(PDL)
    # Two axes and a constant: a division by a number that is not known would stand before every load.
    split = tl.program_id(1)
    head = (tl.program_id(0) % N_KV_HEADS).to(tl.int64)
    seq = (tl.program_id(0) // N_KV_HEADS).to(tl.int64)
    first = split * SPLIT_KV
    n = first + tl.arange(0, BLOCK_N)
    table = block_table_ptr + seq * stride_bs
    # Loaded together, so that three latencies pass at once: the length, the first page ids, the queries.
    length = tl.maximum(tl.minimum(tl.load(lengths_ptr + seq), capacity), 0).to(tl.int32)
    page = tl.load(table + n // PAGE_SIZE, mask=n < capacity, other=0)
    g = tl.arange(0, BLOCK_G)
    d = tl.arange(0, BLOCK_D)
    rows = head * GROUP + g
    mask = (g < GROUP)[:, None] & (d < HEAD_DIM)[None, :]  # [G, D]
    at = seq * stride_qs + rows[:, None] * stride_qh + d[None, :] * stride_qd
    q = tl.load(q_ptr + at, mask=mask, other=0.0)
    k_ptr += head * stride_kh
    v_ptr += head * stride_vh
    if k_scale_ptr is not None:
        k_scale_ptr += head * stride_sh
        v_scale_ptr += head * stride_sh
    acc, m, denom = no_key_yet(BLOCK_G, BLOCK_D)
    if SPLIT_KV == BLOCK_N:
        live = n < length
        acc, m, denom = paged_block(
            q, acc, m, denom, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, page, n % PAGE_SIZE, live, live[None, :],
            scale_log2, stride_kp, stride_ks, stride_kd, stride_vp, stride_vs, stride_vd, stride_sp, stride_ss,
            HEAD_DIM, BLOCK_D,
        )  # fmt: skip
    else:
        for start in range(first, tl.minimum(first + SPLIT_KV, length), BLOCK_N):
            n = start + tl.arange(0, BLOCK_N)
            inside = n < length
            page = tl.load(table + n // PAGE_SIZE, mask=n < capacity, other=0)
            acc, m, denom = paged_block(
                q, acc, m, denom, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, page, n % PAGE_SIZE, inside,
                inside[None, :], scale_log2, stride_kp, stride_ks, stride_kd, stride_vp, stride_vs, stride_vd,
                stride_sp, stride_ss, HEAD_DIM, BLOCK_D,
            )  # fmt: skip
    row = seq * N_KV_HEADS * GROUP + rows  # of [seqs * heads]
    if ONE_SPLIT:
        tl.store(out_ptr + row[:, None] * HEAD_DIM + d[None, :], normalised(acc, denom), mask=mask)
    else:
        part = row * n_splits + split
        some = first < length
        tl.store(acc_ptr + part[:, None] * HEAD_DIM + d[None, :], acc, mask=mask & some)
        tl.store(stats_ptr + 2 * part, m, mask=(g < GROUP) & some)
        tl.store(stats_ptr + 2 * part + 1, denom, mask=(g < GROUP) & some)


@triton.jit
def join_splits_kernel(
    acc_ptr, stats_ptr, lengths_ptr, out_ptr, n_splits, N_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr,
    SPLIT_KV: tl.constexpr, BLOCK_S: tl.constexpr, BLOCK_D: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (row, block of head_dim): the splits of one query head, weighted by their maxima."""
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, BLOCK_S)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    # Before the wait: the splits are launched without PDL, so what is older than they are is complete.
    used = (s < n_splits) & (s * SPLIT_KV < tl.load(lengths_ptr + row // N_HEADS))
    wait_for_last(PDL)
    part = row * n_splits + s
    mask = used[:, None] & (d < HEAD_DIM)[None, :]  # [S, D]
    acc = tl.load(acc_ptr + part[:, None] * HEAD_DIM + d[None, :], mask=mask, other=0.0)
    m = tl.load(stats_ptr + 2 * part, mask=used, other=float("-inf"))
    denom = tl.load(stats_ptr + 2 * part + 1, mask=used, other=0.0)
    top = tl.max(m, axis=0)
    weight = tl.where(used, tl.exp2(m - top), 0.0)
    total = tl.sum(weight * denom, axis=0)
    joined = tl.sum(acc * weight[:, None], axis=0) / tl.where(total == 0.0, 1.0, total)
    tl.store(out_ptr + row * HEAD_DIM + d, joined, mask=d < HEAD_DIM)


def decode_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of one query per sequence over its first `lengths` tokens.

    q: [seqs, heads, head_dim]; k_cache, v_cache: [pages, kv_heads, page_size, head_dim], heads a multiple of kv_heads;
    block_table: integers [seqs, max_pages], the page of each page_size tokens; lengths: integers [seqs], at most
    max_pages * page_size are read, a length of 0 gives zeros; scale: 1 / sqrt(head_dim) by default. int8 and fp8
    caches come with k_scale, v_scale float32 [pages, kv_heads, page_size]. Returns [seqs, heads, head_dim], q's dtype.
    Raises InputError, on the CPU for a page outside the cache too.
    """
    return SPEC.run(
        q=q, k_cache=k_cache, v_cache=v_cache, block_table=block_table, lengths=lengths, scale=scale,
        k_scale=k_scale, v_scale=v_scale,
    )  # fmt: skip


def reference(q, k_cache, v_cache, block_table, lengths, scale=None, k_scale=None, v_scale=None):
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    k = gather_pages(k_cache, k_scale, block_table, wide)
    v = gather_pages(v_cache, v_scale, block_table, wide)
    live = (torch.arange(k.shape[2], device=q.device) < lengths[:, None])[:, None, None]  # [seqs, 1, 1, tokens]
    # A page that was never written may hold NaN, and 0 * NaN is NaN.
    v = torch.where(live.transpose(2, 3), v, 0.0)
    grouped = q.to(wide).unflatten(1, (k.shape[1], -1))  # [seqs, kv_heads, group, head_dim]
    scores = grouped @ k.transpose(2, 3) * (q.shape[2] ** -0.5 if scale is None else scale)
    weights = torch.softmax(torch.where(live, scores, float("-inf")), dim=-1)
    out = torch.where(live.any(-1, keepdim=True), weights @ v, 0.0)
    return out.flatten(1, 2).to(q.dtype)


def make_inputs(dims, draw):
    seqs, context, page_size = dims["seqs"], dims["context"], dims["page_size"]
    kv_heads = dims["kv_heads"]
    max_pages = triton.cdiv(context, page_size)
    cache = seqs * max_pages, kv_heads, page_size, dims["head_dim"]
    return {
        "q": draw.normal(seqs, kv_heads * dims["group"], dims["head_dim"]),
        "k_cache": draw.normal(*cache),
        "v_cache": draw.normal(*cache),
        "block_table": draw.permutation(seqs * max_pages).view(seqs, max_pages).to(torch.int32),
        "lengths": torch.full((seqs,), context, dtype=torch.int32, device=draw.device),
    }


def check(inputs):
    check_paged(inputs)
    need_shape(inputs["block_table"], "block_table", (inputs["q"].shape[0], inputs["block_table"].shape[1]), "q")
    need_pages(inputs["block_table"], inputs["k_cache"], inputs["lengths"])


def plan(inputs, config, target):
    q, k_cache, table, lengths = (inputs[name] for name in ("q", "k_cache", "block_table", "lengths"))
    seqs, heads, head_dim = q.shape
    kv_heads, page_size = k_cache.shape[1:3]
    capacity = table.shape[1] * page_size
    n_splits = max(triton.cdiv(capacity, config.meta["SPLIT_KV"]), 1)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    programs = seqs * kv_heads * n_splits
    # The join begins once every split has begun, and then waits for them: worth it while they are about one wave.
    pdl = n_splits > 1 and target.capability >= 90 and programs <= 4 * target.num_sms
    parts = seqs * heads * n_splits if n_splits > 1 else 0
    acc = torch.empty(parts, head_dim, dtype=torch.float32, device=q.device)
    stats = torch.empty(parts, 2, dtype=torch.float32, device=q.device)
    table, lengths = table if table.stride(-1) == 1 else table.contiguous(), lengths.contiguous()
    args = {
        "q_ptr": q, "block_table_ptr": table, "lengths_ptr": lengths, "out_ptr": out, "acc_ptr": acc,
        "stats_ptr": stats, "scale_log2": attention_scale(inputs) * LOG2E, "capacity": capacity,
        "N_KV_HEADS": kv_heads, "n_splits": n_splits,
        **{f"stride_q{d}": q.stride(i) for i, d in enumerate("shd")},
        "stride_bs": table.stride(0), **paged_args(inputs, target), "GROUP": heads // kv_heads,
        "ONE_SPLIT": n_splits == 1, "PDL": pdl,
    }  # fmt: skip
    launches = [Launch(decode_attention_kernel, (seqs * kv_heads, n_splits), args, config)]
    if n_splits > 1:
        launches.append(_join(acc, stats, lengths, out, n_splits, config, target, pdl))
    return Plan(tuple(launches), {"out": out})


def _join(acc, stats, lengths, out, n_splits, config, target, pdl):
    seqs, heads, head_dim = out.shape
    # At batch 1 a head is cut into four, so that more multiprocessors share the little work.
    block_d = pow2(head_dim) if seqs * heads >= target.num_sms else min(pow2(head_dim), 32)
    args = {
        "acc_ptr": acc, "stats_ptr": stats, "lengths_ptr": lengths, "out_ptr": out, "n_splits": n_splits,
        "N_HEADS": heads, "HEAD_DIM": head_dim, "SPLIT_KV": config.meta["SPLIT_KV"], "PDL": pdl,
    }  # fmt: skip
    join = Config({"BLOCK_S": pow2(n_splits), "BLOCK_D": block_d}, num_warps=4)
    return Launch(join_splits_kernel, (seqs * heads, triton.cdiv(head_dim, block_d)), args, join, pdl=pdl)


def configs(inputs, target):
    q, k_cache, table = inputs["q"], inputs["k_cache"], inputs["block_table"]
    group = q.shape[1] // max(k_cache.shape[1], 1)
    capacity = max(table.shape[1] * k_cache.shape[2], 1)
    if target.kind == "cpu":
        # What joins the splits holds them all, head_dim elements of each: of a very long table they are longer.
        least = pow2(triton.cdiv(capacity, max(MOST_ELEMENTS // pow2(q.shape[2]), 1)))
        choices = ((32, 256), (64, 256), (32, 128), (16, 512))
        for block_n, split in dict.fromkeys((block_n, max(split, least)) for block_n, split in choices):
            yield Config({"BLOCK_G": pow2(group), "BLOCK_N": block_n, "SPLIT_KV": split}, num_warps=1)
        return
    block_g = max(pow2(group), 16)  # the smallest tile that a tensor core takes
    pairs = max(q.shape[0] * k_cache.shape[1], 1)
    choices = []
    for (block_n, num_warps, stages), each in _blocks(q, k_cache, pairs, target):
        # Whole blocks to a split: the tokens of one that reached beyond it would be counted twice.
        tokens = triton.cdiv(capacity, max(each * target.num_sms // pairs, 1))
        choices.append((block_n, triton.cdiv(tokens, block_n) * block_n, num_warps, stages))
    for block_n, split, num_warps, stages in dict.fromkeys(choices):
        yield Config({"BLOCK_G": block_g, "BLOCK_N": block_n, "SPLIT_KV": split}, num_warps, stages)


# (BLOCK_N, warps, stages) and programs for each SM, the default first, from so many pairs of sequence and kv head for
# each SM on. Heads of 64 and less fill a tile of the same bytes with twice the keys.
WIDE = {
    1.0: [((32, 2, 5), 2), ((32, 2, 7), 2), ((64, 2, 3), 2), ((128, 4, 2), 2), ((64, 2, 4), 8)],
    0.5: [((64, 2, 6), 2), ((64, 4, 6), 2), ((32, 2, 7), 2), ((128, 4, 2), 2), ((32, 2, 5), 3)],
    0.0: [((64, 2, 4), 4), ((64, 4, 3), 4), ((32, 2, 5), 4), ((128, 4, 2), 2), ((64, 2, 4), 2)],
}
NARROW = {
    3.0: [((128, 4, 2), 2), ((64, 2, 4), 2), ((128, 4, 2), 4), ((64, 4, 6), 2), ((64, 2, 4), 8)],
    1.0: [((256, 4, 2), 2), ((128, 4, 2), 2), ((128, 4, 2), 4), ((64, 4, 6), 2), ((64, 2, 4), 8)],
    0.3: [((64, 4, 6), 2), ((128, 4, 2), 4), ((256, 4, 2), 2), ((128, 4, 2), 2), ((64, 2, 4), 4)],
    0.1: [((128, 4, 2), 4), ((256, 4, 2), 2), ((64, 2, 4), 4), ((128, 4, 2), 2), ((64, 4, 6), 2)],
    0.0: [((64, 2, 4), 4), ((64, 2, 4), 2), ((128, 4, 2), 4), ((128, 4, 2), 2), ((64, 4, 4), 4)],
}


def _blocks(q, k_cache, pairs, target):
    """Blocks of keys whose pipeline fits into shared memory, (BLOCK_N, warps, stages), and programs for each SM."""
    by_load = NARROW if k_cache.shape[3] <= 64 and q.shape[1] <= 16 * k_cache.shape[1] else WIDE
    wish = next(wish for least, wish in by_load.items() if pairs >= least * target.num_sms)
    if q.dtype == torch.float32:  # exact products keep a whole tile in registers
        wish = [((32, num_warps, 2), wish[0][1]) for num_warps in (2, 4)]
    row = 2 * max(pow2(k_cache.shape[3]), 16) * max(k_cache.element_size(), q.element_size())  # k and v
    for (block_n, num_warps, stages), each in wish:
        if target.kind == "hip":
            stages = min(stages, 2)
        while stages > 1 and block_n * row * stages > 0.9 * target.shared_bytes:
            stages -= 1
        if block_n * row * stages <= 0.9 * target.shared_bytes:
            yield (block_n, num_warps, stages), each
    yield (16, 2, 1), 2


def cost(inputs):
    """Of the lengths, or where they have no values of contexts that fill their pages."""
    q, k_cache, table, lengths = (inputs[name] for name in ("q", "k_cache", "block_table", "lengths"))
    tokens = int(tokens_held(lengths, table, k_cache.shape[2]).sum())
    cache = cache_bytes(k_cache, inputs.get("k_scale"), tokens)
    flops = 4 * q.shape[1] * q.shape[2] * tokens
    return Cost(nbytes(q, table, lengths) + cache, q.numel() * q.element_size(), flops)


def _ragged(inputs):
    n = inputs["lengths"]
    n.copy_((torch.arange(n.numel(), device=n.device) * 37 + 1) % (int(n.max()) + 1))
    inputs["lengths"][:1] = 0
    return inputs


def _one_token(inputs):
    return {**inputs, "lengths": torch.ones_like(inputs["lengths"])}


def _far_apart(inputs):
    # Scores in the thousands: exp of one overflows, unless the maximum is subtracted first.
    return {**inputs, "q": inputs["q"] * 300}


_SMALL = {"seqs": 3, "context": 70, "kv_heads": 2, "group": 3, "head_dim": 64, "page_size": 16}

SPEC = KernelSpec(
    name="decode_attention",
    title="Decode attention",
    doc="One query per sequence over a paged KV cache, split over the length so that even one sequence fills the GPU. "
    "Look at the bytes per second: nothing but reading the cache costs time.",
    function=decode_attention,
    reference=reference,
    eager=eager,
    dims=(
        Dim("seqs", "sequences"),
        Dim("context", "tokens in the cache of each"),
        Dim("kv_heads", "key and value heads", high=1024),
        Dim("group", "query heads for each of them", high=128),
        Dim("head_dim", "elements of a head", high=256),
        Dim("page_size", "slots of a page", high=4096),
    ),
    presets={
        "decode": {"seqs": 1, "context": 4096, "kv_heads": 8, "group": 4, "head_dim": 128, "page_size": 16},
        "prefill": {"seqs": 64, "context": 4096, "kv_heads": 8, "group": 4, "head_dim": 128, "page_size": 16},
        "odd": {"seqs": 5, "context": 333, "kv_heads": 3, "group": 7, "head_dim": 80, "page_size": 10},
        "largest": {"seqs": 64, "context": 32_768, "kv_heads": 8, "group": 4, "head_dim": 128, "page_size": 16},
    },
    default={"seqs": 4, "context": 300, "kv_heads": 3, "group": 3, "head_dim": 64, "page_size": 16},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="context",
    shrinks="context",
    baselines=BASELINES,
    edges=(
        Edge("Ragged lengths", "lengths 0, 38, 4 ...: pages that end anywhere", _SMALL, _ragged),
        Edge("One token", "a length of 1: a page with one live slot", _SMALL, _one_token),
        Edge("One past a page", "context=17: one token in the second page", {**_SMALL, "context": 17}),
        Edge("Odd group", "7 heads share a kv head: padded rows", {**_SMALL, "group": 7}),
        Edge("Odd head", "head_dim=40, pages of 5", {**_SMALL, "head_dim": 40, "page_size": 5}),
        Edge("Scores far out", "scores of about 10^10: the maximum comes off exactly", _SMALL, far_out),
        Edge("Eight bits", "an int8 cache of values near 0.001, with its scales", _SMALL, eight_bits),
        Edge("Padded pages", "pages with gaps: the cache's real strides", _SMALL, padded_pages),
        Edge("Large scores", "scores in the thousands: the maximum comes off first", _SMALL, _far_apart),
        Edge("No sequences", "seqs=0: nothing to do", {**_SMALL, "seqs": 0}),
    ),
    bugs=(
        Bug(
            "Blind to the length",
            find="inside = n < length",
            replace="inside = n < capacity",
            hint="70 tokens in pages of 16: what lies in the last page's other slots?",
            symptom="stale slots of the last page are attended to",
            dims=_SMALL,
        ),
        Bug(
            "Splits not rescaled",
            find="weight = tl.where(used, tl.exp2(m - top), 0.0)",
            replace="weight = tl.where(used, 1.0, 0.0)",
            hint="Each split subtracted its own maximum. Are they the same?",
            symptom="long contexts come out wrong, those of one split right",
            dims={**_SMALL, "context": 1000},
        ),
        Bug(
            "Neighbour's head",
            find="rows = head * GROUP + g",
            replace="rows = head + g * N_KV_HEADS",
            hint="Which query heads share kv head 0?",
            symptom="right for as many kv heads as heads, wrong with groups",
            dims=_SMALL,
        ),
    ),
)
