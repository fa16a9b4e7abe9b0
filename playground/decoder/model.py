"""The forward pass of a Llama-style decoder, written once against a table of operations.

    h = norm(x)      x = x + o_proj(attention(rope(q), cache))      x = x + down(silu(gate) * up)

`forward` is given a Recorder and so writes a program; which of Triton and PyTorch does each operation is the
recorder's business. The residual is added by the norm that follows, in one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from playground.decoder import fused
from playground.decoder.cache import KVStore
from playground.decoder.config import DecoderConfig, rope_tables
from playground.decoder.program import Recorder
from playground.decoder.weights import LayerWeights, Weights


@dataclass(frozen=True)
class ForwardInputs:
    """Buffers that a program reads; whoever runs it fills them first.

    T tokens of S sequences, end to end. q_starts None: one token for each sequence, a decode step. rows: the last
    token of each sequence, None where that is every token.
    """

    ids: torch.Tensor  # int64 [T]
    positions: torch.Tensor  # int64 [T], -1 for padding
    slots: torch.Tensor  # int64 [T], -1 for padding
    block_table: torch.Tensor  # int32 [S, max_pages]
    lengths: torch.Tensor  # int32 [S], tokens in the cache, these included
    q_starts: torch.Tensor | None = None  # int32 [S + 1]
    rows: torch.Tensor | None = None  # int64 [S]


class Model:
    """Weights, rotary tables and the cache of one model on one device."""

    def __init__(self, config: DecoderConfig, weights: Weights, store: KVStore, max_context: int):
        self.config = config
        self.weights = weights
        self.store = store
        self.max_context = max_context
        device = weights.embedding.device
        self.cos, self.sin = rope_tables(config, max_context, device)

    @property
    def device(self) -> torch.device:
        return self.weights.embedding.device

    @property
    def step_bytes(self) -> int:
        """Bytes of weights that one decode step must read: all but the embedding's other rows."""
        embedding = 0 if self.config.tied else self.weights.embedding.nbytes
        return self.weights.nbytes - embedding

    def forward(self, ops: Recorder, batch: ForwardInputs) -> torch.Tensor:
        """Logits [S, vocab] of the last token of each sequence; its keys and values go to the cache."""
        if ops.fuse and self._fuses(batch):
            return self._forward_fused(ops, batch)
        config, weights = self.config, self.weights
        x = ops("embedding", ids=batch.ids, table=weights.embedding)
        h, residual = None, x
        for index, layer in enumerate(weights.layers):
            ops.begin_layer(index, x, residual)
            if h is None:
                h = ops("rms_norm", box="attn_norm", x=x, weight=layer.attn_norm, eps=config.rms_eps)
            else:
                h, residual = self._add_norm(ops, "attn_norm", x, residual, layer.attn_norm)
            x = self._attention(ops, batch, index, layer, h)
            h, residual = self._add_norm(ops, "ffn_norm", x, residual, layer.ffn_norm)
            gate_up = ops("linear", box="gate_up", x=h, weight=layer.gate_up)
            h = ops("silu_mul", box="activation", gate=gate_up[:, : config.ffn], up=gate_up[:, config.ffn :])
            x = ops("linear", box="down", x=h, weight=layer.down)
        ops.begin_layer(-1, x, residual)
        if batch.rows is not None:
            x, residual = (ops("embedding", box="last_rows", ids=batch.rows, table=t) for t in (x, residual))
        h, _ = self._add_norm(ops, "norm", x, residual, weights.norm)
        return ops("linear", box="head", x=h, weight=weights.head)

    def _fuses(self, batch: ForwardInputs) -> bool:
        """Whether the fused kernels do this step: one sequence, and a plain Llama that fits their blocks."""
        config = self.config
        plain = not (config.qkv_bias or config.o_bias or config.qk_norm) and self.store.key_scales is None
        widest = max(config.hidden, config.ffn, config.heads * config.head_dim)
        blocks = config.head_dim in fused.HEAD_DIMS and widest <= fused.WIDEST
        same = self.store.keys.dtype == self.weights.embedding.dtype
        return batch.q_starts is None and len(batch.ids) == 1 and plain and blocks and same

    def _forward_fused(self, ops: Recorder, batch: ForwardInputs) -> torch.Tensor:
        """The same step in five kernels a layer; see fused.py. The residual is one buffer, added to in place."""
        eps, weights = self.config.rms_eps, self.weights
        residual = ops("embedding", ids=batch.ids, table=weights.embedding)
        where: dict[str, Any] = {
            "positions": batch.positions,
            "block_table": batch.block_table,
            "cos": self.cos,
            "sin": self.sin,
        }
        where |= {"heads": self.config.heads, "scale": self.config.head_dim**-0.5}
        for index, layer in enumerate(weights.layers):
            ops.begin_layer(index, residual)
            qkv = ops("norm_linear", box="attn_norm+qkv", x=residual, norm=layer.attn_norm, weight=layer.qkv, eps=eps)
            attended = ops("attend", box="rope+cache_write+attention", qkv=qkv, **self.layer_cache(index), **where)
            ops("linear_add", box="o", x=attended, weight=layer.o, residual=residual)
            mlp: dict[str, Any] = {
                "box": "ffn_norm+gate_up+activation",
                "norm": layer.ffn_norm,
                "weight": layer.gate_up,
            }
            h = ops("norm_linear_silu", x=residual, eps=eps, **mlp)
            ops("linear_add", box="down", x=h, weight=layer.down, residual=residual)
        ops.begin_layer(-1, residual)
        return ops("norm_linear", box="norm+head", x=residual, norm=weights.norm, weight=weights.head, eps=eps)

    def _add_norm(
        self, ops: Recorder, box: str, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return ops("add_rms_norm", box=box, x=x, residual=residual, weight=weight, eps=self.config.rms_eps)

    def _attention(
        self, ops: Recorder, batch: ForwardInputs, index: int, layer: LayerWeights, h: torch.Tensor
    ) -> torch.Tensor:
        q, k, v = self._project(ops, layer, h)
        q, k = ops("rope", q=q, k=k, cos=self.cos, sin=self.sin, positions=batch.positions)
        cache = self.layer_cache(index)
        ops("kv_cache_write", box="cache_write", k=k, v=v, slots=batch.slots, **cache)
        paged = {**cache, "block_table": batch.block_table, "lengths": batch.lengths}
        paged["scale"] = self.config.head_dim**-0.5
        if batch.q_starts is None:
            attended = ops("decode_attention", box="attention", q=q, **paged)
        else:
            attended = ops("prefill_attention", box="attention", q=q, q_starts=batch.q_starts, **paged)
        return ops("linear", box="o", x=attended.flatten(1), weight=layer.o, **_bias(layer.o_bias))

    def _project(
        self, ops: Recorder, layer: LayerWeights, h: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        config, head_dim = self.config, self.config.head_dim
        counts = [config.heads, config.kv_heads, config.kv_heads]
        if layer.q_norm is None or layer.k_norm is None:
            qkv = ops("linear", box="qkv", x=h, weight=layer.qkv, **_bias(layer.qkv_bias))
            q, k, v = qkv.view(h.shape[0], -1, head_dim).split(counts, dim=1)
            return q, k, v
        # A norm of q and k takes rows that lie one behind the other, so each gets a product of its own.
        rows = [count * head_dim for count in counts]
        biases = [None] * 3 if layer.qkv_bias is None else layer.qkv_bias.split(rows)
        q, k, v = (
            ops("linear", box="qkv", x=h, weight=weight, **_bias(bias)).view(h.shape[0], -1, head_dim)
            for weight, bias in zip(layer.qkv.split(rows), biases, strict=True)
        )
        q = ops("rms_norm", box="q_norm", x=q, weight=layer.q_norm, eps=config.rms_eps)
        k = ops("rms_norm", box="k_norm", x=k, weight=layer.k_norm, eps=config.rms_eps)
        return q, k, v

    def layer_cache(self, index: int) -> dict[str, Any]:
        """A layer's pages as the kernels name them; the scales too, where the cache is in 8 bits."""
        store = self.store
        cache = {"k_cache": store.keys[index], "v_cache": store.values[index]}
        if store.key_scales is not None and store.value_scales is not None:
            cache |= {"k_scale": store.key_scales[index], "v_scale": store.value_scales[index]}
        return cache


def _bias(bias: torch.Tensor | None) -> dict[str, torch.Tensor]:
    return {} if bias is None else {"bias": bias}
