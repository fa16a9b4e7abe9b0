"""Writes new keys and values into a paged KV cache.

A cache in pages lets sequences grow without a copy: token i of a sequence lives in slot
`block_table[i // page_size] * page_size + i % page_size`. The kernel copies each token's heads to its slot, and on
the way changes the layout: tokens come as [tokens, kv_heads, head_dim], while a page holds
[kv_heads, page_size, head_dim], so that attention reads one head of a page as one stretch of memory.

The work is a pure copy: bandwidth is all that matters. k and v go in one launch, BLOCK_T tokens by BLOCK_H heads a
program. A slot of -1 skips its token (a padded lane of a captured batch), and a slot outside the cache is never
written: a wrong slot must not overwrite another conversation.

With an int8 or fp8 cache each (token, head) is quantized as it is written, with a float32 scale of its own: half the
bytes of bf16 to keep and to read at every later step. What to look at: random slots against consecutive ones. With
random slots each head of a token is a stretch of 256 bytes alone; consecutive ones fill whole pages.
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
from kernels.codes import LARGEST, code_reference, need_fp8, scale_of, scale_reference, to_code
from kernels.paged_kv import need_scales, padded_pages
from kernels.spec import Baseline, Bug, Config, Cost, Dim, Edge, Inputs, KernelSpec, Launch, Output, Plan, nbytes
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def write_rows(
    x, cache_ptr, scale_ptr, cols, mask, page, place, heads,
    stride_p, stride_h, stride_s, stride_d, stride_sp, stride_sh, stride_ss, LARGEST: tl.constexpr,
    PTX: tl.constexpr,
):  # fmt: skip
    """One tensor's tile [T, H, D] to (page, head, place), quantized where LARGEST is not 0."""
    out = cache_ptr + page * stride_p + heads * stride_h + place * stride_s + cols * stride_d
    if LARGEST > 0:
        x = x.to(tl.float32)
        scale = scale_of(x, LARGEST, 2)  # [T, H, 1]
        tl.store(out, to_code(x, scale, LARGEST, cache_ptr.dtype.element_ty, PTX), mask=mask)
        live = mask & (cols == 0)
        at = scale_ptr + page * stride_sp + heads * stride_sh + place * stride_ss
        tl.store(at + cols * 0, tl.broadcast_to(scale, live.shape), mask=live)
    else:
        tl.store(out, x.to(cache_ptr.dtype.element_ty), mask=mask)


@triton.jit
def kv_cache_write_kernel(
    k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, k_scale_ptr, v_scale_ptr, slots_ptr, n_tokens, n_slots,
    stride_kt, stride_kh, stride_kd, stride_vt, stride_vh, stride_vd,
    stride_kcp, stride_kch, stride_kcs, stride_kcd, stride_vcp, stride_vch, stride_vcs, stride_vcd,
    stride_sp, stride_sh, stride_ss, N_HEADS: tl.constexpr, PAGE_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr,
    LARGEST: tl.constexpr, PTX: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(N_HEADS, BLOCK_H)
    tokens = (tl.program_id(0) // blocks).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    heads = ((tl.program_id(0) % blocks).to(tl.int64) * BLOCK_H + tl.arange(0, BLOCK_H))[None, :, None]  # [1, H, 1]
    cols = tl.arange(0, BLOCK_D)[None, None, :]
    slots = tl.load(slots_ptr + tokens, mask=tokens < n_tokens, other=-1).to(tl.int64)
    given = (tokens < n_tokens)[:, None, None] & (heads < N_HEADS) & (cols < HEAD_DIM)  # [T, H, D]
    tokens = tokens[:, None, None]
    # Nothing of k and v depends on a slot, so they are asked for before the slots are looked at.
    k = tl.load(k_ptr + tokens * stride_kt + heads * stride_kh + cols * stride_kd, mask=given, other=0.0)
    v = tl.load(v_ptr + tokens * stride_vt + heads * stride_vh + cols * stride_vd, mask=given, other=0.0)
    mask = given & ((slots >= 0) & (slots < n_slots))[:, None, None]
    page = (slots // PAGE_SIZE)[:, None, None]
    place = (slots % PAGE_SIZE)[:, None, None]
    write_rows(
        k, k_cache_ptr, k_scale_ptr, cols, mask, page, place, heads,
        stride_kcp, stride_kch, stride_kcs, stride_kcd, stride_sp, stride_sh, stride_ss, LARGEST, PTX,
    )  # fmt: skip
    write_rows(
        v, v_cache_ptr, v_scale_ptr, cols, mask, page, place, heads,
        stride_vcp, stride_vch, stride_vcs, stride_vcd, stride_sp, stride_sh, stride_ss, LARGEST, PTX,
    )  # fmt: skip


def kv_cache_write(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> tuple[torch.Tensor, ...]:
    """Writes k and v into their slots, in place; returns the caches (and the scales, where given).

    k, v: [tokens, kv_heads, head_dim], any strides; k_cache, v_cache: [pages, kv_heads, page_size, head_dim]; slots:
    int64 [tokens], page * page_size + offset, -1 skips, no slot twice. int8 and fp8 (e4m3) caches need k_scale and
    v_scale, float32 [pages, kv_heads, page_size]. Raises InputError; on the CPU for a slot outside the cache too,
    which a GPU skips.
    """
    inputs: Inputs = {
        "k": k, "v": v, "k_cache": k_cache, "v_cache": v_cache, "slots": slots, "k_scale": k_scale, "v_scale": v_scale,
    }  # fmt: skip
    check(inputs)
    if slots.device.type == "cpu" and slots.numel():
        n_slots, low, high = k_cache.shape[0] * k_cache.shape[2], int(slots.min()), int(slots.max())
        if low < -1 or high >= n_slots:
            wrong = low if low < -1 else high
            raise InputError(f"slots holds {wrong}; the cache has slots 0 to {n_slots - 1}, and -1 skips", "slots")
    return SPEC.run(**inputs)


def reference(k, v, k_cache, v_cache, slots, k_scale=None, v_scale=None):
    n_slots = k_cache.shape[0] * k_cache.shape[2]
    slots = slots.long()
    slots = torch.where((slots >= 0) & (slots < n_slots), slots, n_slots)  # what is skipped goes behind the end
    caches, scales = [], []
    for x, cache, scale in ((k, k_cache, k_scale), (v, v_cache, v_scale)):
        if scale is not None:
            values = scale_reference(x, LARGEST[cache.dtype])
            x = code_reference(x, values[..., None], cache.dtype)
            scales.append(_put(scale[..., None], values[..., None].to(scale.dtype), slots)[..., 0])
        caches.append(_put(cache, x.to(cache.dtype), slots))
    return (*caches, *scales)


def _put(cache, rows, slots):
    """A copy of the cache [pages, heads, page_size, d] with rows [tokens, heads, d] in their slots."""
    by_slot = cache.transpose(1, 2).flatten(0, 1)
    by_slot = torch.cat((by_slot, by_slot[:1]))
    if cache.dtype == torch.float8_e4m3fn:  # has no indexed assignment, as bytes it has
        by_slot.view(torch.uint8)[slots] = rows.view(torch.uint8)
    else:
        by_slot[slots] = rows
    return by_slot[:-1].view(cache.shape[0], cache.shape[2], *by_slot.shape[1:]).transpose(1, 2)


def eager(k, v, k_cache, v_cache, slots, k_scale=None, v_scale=None):
    """As PyTorch code writes it: no slot of -1, a cache of the tensors' own dtype."""
    page_size = k_cache.shape[2]
    k_cache[slots // page_size, :, slots % page_size] = k
    v_cache[slots // page_size, :, slots % page_size] = v
    return k_cache, v_cache


def make_inputs(dims, draw):
    tokens, heads, page_size = dims["tokens"], dims["kv_heads"], dims["page_size"]
    pages = max(triton.cdiv(2 * tokens, page_size), 1)
    cache = pages, heads, page_size, dims["head_dim"]
    return {
        "k": draw.normal(tokens, heads, dims["head_dim"]),
        "v": draw.normal(tokens, heads, dims["head_dim"]),
        "k_cache": draw.normal(*cache),
        "v_cache": draw.normal(*cache),
        "slots": draw.permutation(pages * page_size)[:tokens],
    }


def check(inputs):
    k, v, k_cache, v_cache, slots = (inputs[name] for name in ("k", "v", "k_cache", "v_cache", "slots"))
    need_rank(k, "k", 3)
    need_dtype(k, "k", FLOATS)
    need_shape(v, "v", k.shape, "k")
    need_same_dtype(v, "v", k, "k")
    need_rank(k_cache, "k_cache", 4)
    need_shape(k_cache, "k_cache", (k_cache.shape[0], k.shape[1], k_cache.shape[2], k.shape[2]), "k")
    need_shape(v_cache, "v_cache", k_cache.shape, "k_cache")
    need_same_dtype(v_cache, "v_cache", k_cache, "k_cache")
    need_shape(slots, "slots", k.shape[:1], "k")
    need_dtype(slots, "slots", (torch.int64, torch.int32))
    need_scales(k_cache, inputs.get("k_scale"), inputs.get("v_scale"))
    need_same_device(k=k, v=v, k_cache=k_cache, v_cache=v_cache, slots=slots)
    for name in ("k", "v"):
        need_near(inputs[name], name, 2)
    for name in ("k_cache", "v_cache"):
        need_near(inputs[name], name, 3)
    scales = {name: inputs.get(name) for name in ("k_scale", "v_scale")}
    need_no_grad(k=k, v=v, k_cache=k_cache, v_cache=v_cache, **scales)


def plan(inputs, config, target):
    k_scale, v_scale = inputs.get("k_scale"), inputs.get("v_scale")
    k, v, k_cache, v_cache, slots = (inputs[name] for name in ("k", "v", "k_cache", "v_cache", "slots"))
    if k_cache.dtype == torch.float8_e4m3fn:
        need_fp8(target, "k_cache")
    n_tokens, n_heads, head_dim = k.shape
    pages, _, page_size, _ = k_cache.shape
    strides = zip(("k", "v", "kc", "vc"), (k, v, k_cache, v_cache), ("thd", "thd", "phsd", "phsd"), strict=True)
    args = {
        "k_ptr": k,
        "v_ptr": v,
        "k_cache_ptr": k_cache,
        "v_cache_ptr": v_cache,
        "k_scale_ptr": k_scale,
        "v_scale_ptr": v_scale,
        "slots_ptr": slots.contiguous(),
        "n_tokens": n_tokens,
        "n_slots": pages * page_size,
        **{f"stride_{name}{d}": x.stride(i) for name, x, axes in strides for i, d in enumerate(axes)},
        **{f"stride_s{d}": 0 if k_scale is None else k_scale.stride(i) for i, d in enumerate("phs")},
        "N_HEADS": n_heads,
        "PAGE_SIZE": page_size,
        "HEAD_DIM": head_dim,
        "LARGEST": LARGEST.get(k_cache.dtype, 0),
        "PTX": target.kind == "cuda",
        "BLOCK_D": pow2(head_dim),
    }
    empty = not (n_heads and head_dim and pages and page_size)
    blocks = triton.cdiv(n_heads, config.meta["BLOCK_H"])
    grid = (0 if empty else triton.cdiv(n_tokens, config.meta["BLOCK_T"]) * blocks,)
    outputs = {"k_cache": k_cache, "v_cache": v_cache}
    if k_scale is not None:
        outputs |= {"k_scale": k_scale, "v_scale": v_scale}
    return Plan((Launch(kv_cache_write_kernel, grid, args, config),), outputs)


def configs(inputs, target):
    heads = inputs["k"].shape[1]
    block_h = min(pow2(max(heads, 1)), 8 if target.kind == "cpu" else 4)
    if target.kind == "cpu":
        choices = [(1, block_h, 1), (8, 1, 1)]
    else:
        # Measured on an H200: 2 tokens by 4 heads are the fastest for 64 tokens, for 65,536 within 1 % of it.
        choices = [(2, block_h, 4), (1, block_h, 2), (1, 2 * block_h, 4), (2, 2 * block_h, 8), (4, block_h, 4)]
        choices += [(4, 2 * block_h, 8), (16, 2, 8), (16, 1, 4), (8, 1, 2), (1, block_h, 1)]
    for block_t, block_h, num_warps in dict.fromkeys(choices):
        yield Config({"BLOCK_T": block_t, "BLOCK_H": block_h}, num_warps)


def cost(inputs):
    k, cache = inputs["k"], inputs["k_cache"]
    scales = 2 * 4 * k.shape[0] * k.shape[1] if inputs.get("k_scale") is not None else 0
    return Cost(nbytes(k, inputs["v"], inputs["slots"]), 2 * k.numel() * cache.element_size() + scales, 0)


def _vllm():
    from vllm import _custom_ops as ops

    def run(k, v, k_cache, v_cache, slots):
        one = torch.ones((), dtype=torch.float32, device=k.device)
        pages = (c.transpose(1, 2) for c in (k_cache, v_cache))  # vLLM's shape over our memory, by strides
        ops.reshape_and_cache_flash(k, v, *pages, slots, "auto", one, one)
        return k_cache, v_cache

    return run


def _skip_some(inputs):
    inputs["slots"][::3] = -1
    return inputs


def _sliced_qkv(inputs):
    k, v = inputs["k"], inputs["v"]
    qkv = torch.cat((k, k, v), dim=1)
    return {**inputs, "k": qkv[:, k.shape[1] : 2 * k.shape[1]], "v": qkv[:, 2 * k.shape[1] :]}


_SMALL = {"tokens": 21, "kv_heads": 3, "head_dim": 64, "page_size": 16}

SPEC = KernelSpec(
    name="kv_cache_write",
    title="KV cache write",
    doc="Copies new keys and values into the slots of a paged cache, changing the layout on the way. Look at how "
    "random slots cost more than consecutive ones, and at the check that no slot outside is written.",
    function=kv_cache_write,
    reference=reference,
    eager=eager,
    dims=(
        Dim("tokens", "new tokens of all sequences"),
        Dim("kv_heads", "key and value heads", high=1024),
        Dim("head_dim", "elements of a head", high=1024),
        Dim("page_size", "slots of a page", high=4096),
    ),
    presets={
        "decode": {"tokens": 64, "kv_heads": 8, "head_dim": 128, "page_size": 16},
        "prefill": {"tokens": 65_536, "kv_heads": 8, "head_dim": 128, "page_size": 16},
        "odd": {"tokens": 777, "kv_heads": 3, "head_dim": 80, "page_size": 10},
        "largest": {"tokens": 524_288, "kv_heads": 8, "head_dim": 128, "page_size": 16},
    },
    default={"tokens": 64, "kv_heads": 3, "head_dim": 64, "page_size": 16},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("k_cache", "bits"), Output("v_cache", "bits")),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="tokens",
    shrinks="tokens",
    in_place=("k_cache", "v_cache", "k_scale", "v_scale"),
    baselines=(Baseline("vLLM", _vllm, "pip install vllm"),),
    edges=(
        Edge("Skipped tokens", "a slot of -1 writes nothing", _SMALL, _skip_some),
        Edge("Slices of qkv", "k and v are slices: strides, not widths", _SMALL, _sliced_qkv),
        Edge("Padded pages", "pages with gaps: the cache's real strides", _SMALL, padded_pages),
        Edge("Page of one", "page_size=1: every slot is a page", {**_SMALL, "page_size": 1}),
        Edge("Odd head", "head_dim=40: a mask on the lanes", {**_SMALL, "head_dim": 40}),
        Edge("No tokens", "tokens=0: nothing to do", {**_SMALL, "tokens": 0}),
    ),
    bugs=(
        Bug(
            "One place too far",
            find="place = (slots % PAGE_SIZE)[:, None, None]",
            replace="place = ((slots + 1) % PAGE_SIZE)[:, None, None]",
            hint="Where in its page does slot 0 lie?",
            symptom="every token sits one place beside its own, and overwrites another",
            dims=_SMALL,
        ),
        Bug(
            "Same source for both",
            find="v = tl.load(v_ptr + tokens",
            replace="v = tl.load(k_ptr + tokens",
            hint="Where do the values come from?",
            symptom="the value cache holds keys",
            dims=_SMALL,
        ),
        Bug(
            "Token mask on heads",
            find="(heads < N_HEADS) & (cols < HEAD_DIM)  # [T, H, D]",
            replace="(cols < HEAD_DIM)  # [T, H, D]",
            hint="3 heads in a block of 4: where does the fourth one go?",
            symptom="a head that does not exist is written over another page",
            dims=_SMALL,
        ),
    ),
)
