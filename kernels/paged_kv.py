"""A KV cache in pages, as the attention kernels read it; a part of them, no kernel of its own.

Token i of a sequence lies in page `block_table[i // page_size]`, at place `i % page_size`; a page holds
[kv_heads, page_size, head_dim]. The kernels honour the caches' real strides, from page to page and from head to head in
int64: a padded page or a cache of more than 2^31 elements is read where it lies. Within a page 32 bits are enough, and
`check_paged` refuses what reaches further.
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
    need_number,
    need_rank,
    need_same_device,
    need_shape,
)
from kernels.codes import LARGEST, need_fp8
from kernels.online_softmax import attend_block
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def paged_block(
    q, acc, m, denom, k_ptr, v_ptr, k_scale_ptr, v_scale_ptr, page, place, live, seen, scale_log2,
    stride_kp, stride_ks, stride_kd, stride_vp, stride_vs, stride_vd, stride_sp, stride_ss,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One block of keys at (page, place) [N], read where live [N] and attended to where seen [M or 1, N].

    The pointers already point at the kv head.
    """
    d = tl.arange(0, BLOCK_D)[None, :]
    mask = live[:, None] & (d < HEAD_DIM)  # [N, D]
    page = page.to(tl.int64)
    k_rows = (page * stride_kp + place * stride_ks)[:, None]
    v_rows = (page * stride_vp + place * stride_vs)[:, None]
    # Each byte is used once: it should not push anything else out of the cache.
    k = tl.load(k_ptr + k_rows + d * stride_kd, mask=mask, other=0.0, eviction_policy="evict_first")
    v = tl.load(v_ptr + v_rows + d * stride_vd, mask=mask, other=0.0, eviction_policy="evict_first")
    products = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision="ieee")  # [M, N]
    v_scale = None
    if k_scale_ptr is not None:
        at = page * stride_sp + place * stride_ss
        products *= tl.load(k_scale_ptr + at, mask=live, other=0.0)[None, :]
        v_scale = tl.load(v_scale_ptr + at, mask=live, other=0.0)
        if q.dtype == tl.float16:
            # A weight times a scale is often too small for its exponents. A value is not, and seldom too large.
            large = v_scale > 128.0  # times 448, the largest code, still a float16
            v = v.to(tl.float32) * tl.where(large, 128.0, v_scale)[:, None]
            v_scale = tl.where(large, v_scale * (1.0 / 128), 1.0)
    products = tl.where(seen, products, float("-inf"))
    return attend_block(acc, m, denom, products, scale_log2, v.to(q.dtype), v_scale)


def gather_pages(cache, scale, block_table, wide):
    """Every sequence's tokens in order, [seqs, kv_heads, max_pages * page_size, head_dim], in PyTorch."""
    pages = block_table.long()
    tokens = cache[pages].to(wide)
    if scale is not None:
        tokens = tokens * scale[pages].to(wide)[..., None]
    return tokens.transpose(1, 2).flatten(2, 3)


def tokens_held(lengths, block_table, page_size):
    """Tokens of each sequence, int64 [seqs] on the host: as its length says, or all that its pages hold where meta."""
    capacity = block_table.shape[1] * page_size
    if lengths.is_meta:
        return torch.full((block_table.shape[0],), capacity)
    return lengths.to("cpu", torch.int64).clamp(0, capacity)


def cache_bytes(k_cache, k_scale, tokens):
    """Bytes of so many tokens' keys, values and scales."""
    rows = 2 * tokens * k_cache.shape[1]
    return rows * (k_cache.shape[3] * k_cache.element_size() + (4 if k_scale is not None else 0))


def need_scales(k_cache, k_scale, v_scale):
    """Eight-bit caches come with two scales [pages, kv_heads, page_size], others without."""
    if k_cache.dtype not in LARGEST:
        need_dtype(k_cache, "k_cache", (*FLOATS, *LARGEST))
        for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
            if scale is not None:
                raise InputError(f"{name} is given and k_cache is {k_cache.dtype}; only int8 and fp8 take it", name)
        return
    for name, scale in (("k_scale", k_scale), ("v_scale", v_scale)):
        if scale is None:
            raise InputError(f"{name} is missing; a cache of {k_cache.dtype} needs float32 scales", name)
        need_shape(scale, name, k_cache.shape[:3], "k_cache")
        need_dtype(scale, name, (torch.float32,))
        need_same_device(k_cache=k_cache, **{name: scale})
        need_near(scale, name, 2)
    lie = ([step for n, step in zip(x.shape, x.stride(), strict=True) if n > 1] for x in (k_scale, v_scale))
    if next(lie) != next(lie):
        raise InputError("v_scale has other strides than k_scale: make both contiguous", "v_scale")


def check_paged(inputs):
    """What decode and prefill attention over pages both need."""
    q, k_cache, v_cache = inputs["q"], inputs["k_cache"], inputs["v_cache"]
    block_table, lengths = inputs["block_table"], inputs["lengths"]
    need_rank(q, "q", 3)
    need_dtype(q, "q", FLOATS)
    need_rank(k_cache, "k_cache", 4)
    need_shape(k_cache, "k_cache", (*k_cache.shape[:3], q.shape[2]), "the head_dim of q")
    need_shape(v_cache, "v_cache", k_cache.shape, "k_cache")
    need_dtype(v_cache, "v_cache", (k_cache.dtype,))
    kv_heads = k_cache.shape[1]
    if not kv_heads or q.shape[1] % kv_heads:
        raise InputError(
            f"q has {q.shape[1]} heads and k_cache {kv_heads}; the heads of q must be a multiple of the kv heads", "q"
        )
    if not q.shape[2]:
        raise InputError("q has a head_dim of 0; it needs at least 1", "q")
    need_rank(block_table, "block_table", 2)
    need_dtype(block_table, "block_table", (torch.int32, torch.int64))
    if block_table.shape[1] * k_cache.shape[2] >= 2**30:
        raise InputError(
            f"block_table has {block_table.shape[1]:,} pages of {k_cache.shape[2]} tokens for a sequence; "
            "fewer than 2^30 tokens are counted",
            "block_table",
        )
    need_shape(lengths, "lengths", block_table.shape[:1], "block_table")
    need_dtype(lengths, "lengths", (torch.int32, torch.int64))
    need_scales(k_cache, inputs.get("k_scale"), inputs.get("v_scale"))
    need_scale(inputs)
    need_same_device(q=q, k_cache=k_cache, v_cache=v_cache, block_table=block_table, lengths=lengths)
    need_near(q, "q", 2)
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        need_near(cache, name, 2, 3)
    scales = {name: inputs.get(name) for name in ("k_scale", "v_scale")}
    need_no_grad(q=q, k_cache=k_cache, v_cache=v_cache, **scales)


def need_pages(block_table, k_cache, lengths, q_starts=None):
    """On the CPU alone, where it costs no wait: each page that holds one of `lengths` tokens lies in the cache.

    Those of a sequence without queries are not looked up.
    """
    if block_table.device.type != "cpu" or not lengths.numel():
        return
    lengths = lengths if q_starts is None else lengths * (q_starts.diff() > 0)
    page_size = k_cache.shape[2]
    block_table = block_table[:, : triton.cdiv(max(int(lengths.max()), 0), max(page_size, 1))]  # what is read at all
    starts = torch.arange(block_table.shape[1], device="cpu") * page_size
    live = block_table[starts < lengths[:, None]]
    wrong = live[(live < 0) | (live >= k_cache.shape[0])]
    if wrong.numel():
        raise InputError(
            f"block_table holds page {int(wrong[0])}; k_cache has {k_cache.shape[0]} pages, numbered from 0",
            "block_table",
        )


def need_scale(inputs):
    if inputs.get("scale") is not None:
        need_number(inputs["scale"], "scale", positive=True)
        if not 1e-30 <= inputs["scale"] <= 1e30:  # in units of log2, and as a power of two, a float32
            raise InputError(f"scale is {inputs['scale']}; it needs a number from 1e-30 to 1e30", "scale")


def attention_scale(inputs):
    """The scale given, or 1 / sqrt(head_dim)."""
    scale = inputs.get("scale")
    return inputs["q"].shape[-1] ** -0.5 if scale is None else scale


def paged_args(inputs, target):
    """The arguments that say where the pages lie."""
    k_cache, v_cache = inputs["k_cache"], inputs["v_cache"]
    k_scale, v_scale = inputs.get("k_scale"), inputs.get("v_scale")
    if k_cache.dtype == torch.float8_e4m3fn:
        need_fp8(target, "k_cache")
    caches = (("k", k_cache, "phsd"), ("v", v_cache, "phsd"))
    return {
        "k_ptr": k_cache,
        "v_ptr": v_cache,
        "k_scale_ptr": k_scale,
        "v_scale_ptr": v_scale,
        **{f"stride_{name}{d}": x.stride(i) for name, x, axes in caches for i, d in enumerate(axes)},
        **{f"stride_s{d}": 0 if k_scale is None else k_scale.stride(i) for i, d in enumerate("phs")},
        "PAGE_SIZE": k_cache.shape[2],
        "HEAD_DIM": k_cache.shape[3],
        "BLOCK_D": max(pow2(k_cache.shape[3]), 16),
    }


def far_out(inputs):
    """An edge case of attention: scores far beyond what float32 holds to the unit."""
    return {**inputs, "scale": 1e9}


def eight_bits(inputs):
    """An edge case of every paged kernel: int8 codes with scales, of values so small that float16 holds them barely."""
    coded = {}
    for name, size in (("k", 1.0), ("v", 1e-3)):
        cache = inputs[f"{name}_cache"].float() * size
        scale = cache.abs().amax(-1).clamp(min=1e-12) / LARGEST[torch.int8]
        coded |= {f"{name}_cache": (cache / scale[..., None]).round().to(torch.int8), f"{name}_scale": scale}
    return {**inputs, **coded}


def padded_pages(inputs):
    """An edge case of every paged kernel: pages with gaps between rows and heads."""

    def padded(cache):
        return torch.nn.functional.pad(cache, (0, 8, 0, 3))[:, :, : cache.shape[2], : cache.shape[3]]

    return {**inputs, "k_cache": padded(inputs["k_cache"]), "v_cache": padded(inputs["v_cache"])}
