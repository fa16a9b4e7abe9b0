"""The operations of a decoder: for each, its outputs, the Triton kernel that does it, and the same in PyTorch.

The PyTorch versions are the reference that a person can swap in, kernel by kernel, over the same paged cache. They
write into buffers given to them, so both kinds fit into one program.

Groups are what can be swapped: embedding, norm, linear, rope, cache_write, attention, activation, sampling, state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from playground.decoder import fused, interpreted, launches, sampler

Inputs = Mapping[str, Any]
Buffers = Mapping[str, torch.Tensor]
Likes = dict[str, tuple[tuple[int, ...], torch.dtype]]

GROUPS = (
    "embedding", "norm", "linear", "rope", "cache_write", "attention", "activation", "sampling", "state",
)  # fmt: skip


@dataclass(frozen=True)
class Op:
    """outputs: inputs -> (shape, dtype) by name; torch: (buffers, **inputs), fills the buffers.

    plan: (inputs, target) -> the Triton launches. capturable: the PyTorch version reads no value on the host.
    The group "fused" is Triton's alone: it stands for several operations, each of which has its PyTorch version.
    """

    name: str
    group: str
    outputs: Callable[[Inputs], Likes]
    torch: Callable[..., None] | None
    plan: launches.Planner
    capturable: bool = True


def _like(name: str, *outputs: str) -> Callable[[Inputs], Likes]:
    """Each output has the shape and dtype of input `name`."""
    return lambda inputs: {out: (tuple(inputs[name].shape), inputs[name].dtype) for out in outputs or ("out",)}


# Embedding, norms, linear layers, activation


def _embedding(out: Buffers, ids: torch.Tensor, table: torch.Tensor) -> None:
    torch.index_select(table, 0, ids, out=out["out"])


def _rms_norm(out: Buffers, x: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    out["out"].copy_(F.rms_norm(x, weight.shape, weight, eps))


def _add_rms_norm(out: Buffers, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float) -> None:
    torch.add(x, residual, out=out["new_residual"])
    out["out"].copy_(F.rms_norm(out["new_residual"], weight.shape, weight, eps))


def _linear(out: Buffers, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
    if bias is None:
        torch.mm(x, weight.t(), out=out["out"])
    else:
        torch.addmm(bias, x, weight.t(), out=out["out"])


def _linear_outputs(inputs: Inputs) -> Likes:
    return {"out": ((inputs["x"].shape[0], inputs["weight"].shape[0]), inputs["x"].dtype)}


def _silu_mul(out: Buffers, gate: torch.Tensor, up: torch.Tensor) -> None:
    torch.mul(F.silu(gate), up, out=out["out"])


# Positions and the cache


def _rope(
    out: Buffers, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor
) -> None:
    for name, x in (("q", q), ("k", k)):
        for result, turned in zip(out[name].chunk(2, -1), _turn(x, cos, sin, positions), strict=True):
            result.copy_(turned)


def _turn(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    known = positions.clamp(min=0)  # a padded row has position -1
    c, s = cos[known][:, None], sin[known][:, None]  # [tokens, 1, half]
    a, b = x.float().chunk(2, -1)
    return a * c - b * s, b * c + a * s


def _kv_cache_write(
    out: Buffers,
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    page_size = k_cache.shape[2]
    live = slots >= 0
    slots = slots[live]
    pages, places = slots // page_size, slots % page_size
    for x, cache, scales in ((k, k_cache, k_scale), (v, v_cache, v_scale)):
        rows = x[live]
        if scales is not None:
            rows, scale = quantize(rows, cache.dtype)
            scales[pages, :, places] = scale
        cache[pages, :, places] = rows.to(cache.dtype)


def quantize(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and float32 scales of the last dimension: the largest magnitude becomes the dtype's largest number."""
    largest = 127.0 if dtype == torch.int8 else torch.finfo(dtype).max
    scale = x.float().abs().amax(-1) / largest
    wide = x.float() / torch.where(scale == 0, 1.0, scale)[..., None]
    return (wide.round() if dtype == torch.int8 else wide).clamp(-largest, largest).to(dtype), scale


# Attention over pages


def gather(
    cache: torch.Tensor, scales: torch.Tensor | None, pages: torch.Tensor, length: int, dtype: torch.dtype
) -> torch.Tensor:
    """What a sequence has in the cache, end to end: [kv_heads, length, head_dim]."""
    rows = cache.transpose(0, 1)[:, pages]  # [kv_heads, pages, page_size, head_dim]
    if scales is not None:
        rows = (rows.float() * scales.transpose(0, 1)[:, pages][..., None]).to(dtype)
    return rows.flatten(1, 2)[:, :length]


def _decode_attention(
    out: Buffers,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    caches = (k_cache, v_cache, k_scale, v_scale)
    for row, length in enumerate(lengths.tolist()):
        if length == 0:
            out["out"][row] = 0
        else:
            out["out"][row] = _attend(q[row, :, None], caches, block_table[row], length, scale)[:, 0]


def _prefill_attention(
    out: Buffers,
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    q_starts: torch.Tensor,
    lengths: torch.Tensor,
    scale: float,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> None:
    caches = (k_cache, v_cache, k_scale, v_scale)
    starts = q_starts.tolist()
    out["out"][starts[-1] :] = 0  # the padding
    for row, length in enumerate(lengths.tolist()):
        start, end = starts[row], starts[row + 1]
        if end > start:
            made = _attend(q[start:end].transpose(0, 1), caches, block_table[row], length, scale)
            out["out"][start:end] = made.transpose(0, 1)


def _attend(q: torch.Tensor, caches: tuple, block_table: torch.Tensor, length: int, scale: float) -> torch.Tensor:
    """q [heads, q_len, head_dim], the last q_len of `length` tokens. Causal from the end."""
    k_cache, v_cache, k_scale, v_scale = caches
    pages = block_table[: -(-length // k_cache.shape[2])].long()
    k, v = (gather(c, s, pages, length, q.dtype) for c, s in ((k_cache, k_scale), (v_cache, v_scale)))
    mask = None
    if (q_len := q.shape[1]) > 1:
        ends = torch.arange(length - q_len + 1, length + 1, device=q.device)
        mask = torch.arange(length, device=q.device)[None] < ends[:, None]
    return F.scaled_dot_product_attention(
        q[None], k[None], v[None], attn_mask=mask, scale=scale, enable_gqa=q.shape[0] != k.shape[0]
    )[0]


# Fused operations of a step of one sequence


def _row(inputs: Inputs, width: int) -> Likes:
    return {"out": ((1, width), inputs["x"].dtype)}


def _attend_outputs(inputs: Inputs) -> Likes:
    return {"out": ((1, inputs["heads"] * inputs["k_cache"].shape[3]), inputs["qkv"].dtype)}


# Sampling, and the state that moves on by itself


def _sample(out: Buffers, logits: torch.Tensor, **options: torch.Tensor) -> None:
    out["ids"].copy_(sampler.sample(logits, **options))


def _find_slots(
    out: Buffers, positions: torch.Tensor, block_table: torch.Tensor, slots: torch.Tensor, page_size: int
) -> None:
    known = positions.clamp(min=0)
    page = block_table.gather(1, (known // page_size)[:, None])[:, 0].long()
    slots.copy_(torch.where(positions < 0, -1, page * page_size + known % page_size))


def _advance(
    out: Buffers,
    sampled: torch.Tensor,
    ids: torch.Tensor,
    positions: torch.Tensor,
    lengths: torch.Tensor,
    step: torch.Tensor,
) -> None:
    ids.copy_(sampled)
    live = positions >= 0
    for tensor in (positions, lengths, step):
        tensor.add_(live.to(tensor.dtype))


OPS: dict[str, Op] = {
    op.name: op
    for op in (
        Op(
            "embedding",
            "embedding",
            lambda i: {"out": ((i["ids"].shape[0], i["table"].shape[1]), i["table"].dtype)},
            _embedding,
            launches.by_spec("embedding"),
        ),
        Op("rms_norm", "norm", _like("x"), _rms_norm, launches.by_spec("rms_norm")),
        Op("add_rms_norm", "norm", _like("x", "out", "new_residual"), _add_rms_norm, launches.by_spec("add_rms_norm")),
        Op(
            "linear",
            "linear",
            _linear_outputs,
            _linear,
            interpreted.linear if launches.INTERPRETED else launches.linear,
        ),
        Op("silu_mul", "activation", _like("gate"), _silu_mul, launches.by_spec("silu_mul")),
        Op("rope", "rope", lambda i: _like("q", "q")(i) | _like("k", "k")(i), _rope, launches.by_spec("rope")),
        Op(
            "kv_cache_write",
            "cache_write",
            lambda i: {},
            _kv_cache_write,
            launches.by_spec("kv_cache_write"),
            capturable=False,
        ),
        Op(
            "decode_attention",
            "attention",
            _like("q"),
            _decode_attention,
            interpreted.decode_attention if launches.INTERPRETED else launches.by_spec("decode_attention"),
            capturable=False,
        ),
        Op(
            "prefill_attention",
            "attention",
            _like("q"),
            _prefill_attention,
            launches.by_spec("prefill_attention"),
            capturable=False,
        ),
        Op(
            "sample",
            "sampling",
            lambda i: {"ids": ((i["logits"].shape[0],), torch.int64)},
            _sample,
            launches.by_spec("sample"),
            capturable=False,
        ),
        Op("linear_add", "fused", lambda i: {}, None, fused.linear_add),
        Op("norm_linear", "fused", lambda i: _row(i, i["weight"].shape[0]), None, fused.norm_linear),
        Op("norm_linear_silu", "fused", lambda i: _row(i, i["weight"].shape[0] // 2), None, fused.norm_linear_silu),
        Op("attend", "fused", _attend_outputs, None, fused.attend),
        Op("find_slots", "state", lambda i: {}, _find_slots, launches.find_slots),
        Op("advance", "state", lambda i: {}, _advance, launches.advance),
    )
}
