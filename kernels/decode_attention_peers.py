"""Other implementations of decode attention, by the arguments of kernels/decode_attention.py; no kernel of its own."""

from __future__ import annotations

import torch

from kernels.paged_kv import gather_pages
from kernels.spec import Baseline


def eager(q, k_cache, v_cache, block_table, lengths, scale=None, k_scale=None, v_scale=None):
    """Gather the pages, values for codes, then PyTorch's fused attention under a mask."""
    wide = q.dtype if k_scale is None else torch.float32
    pages = (k_cache, k_scale), (v_cache, v_scale)
    k, v = (gather_pages(*cache, block_table, wide).to(q.dtype) for cache in pages)
    live = torch.arange(k.shape[2], device=q.device) < lengths[:, None]
    return torch.nn.functional.scaled_dot_product_attention(
        q[:, :, None], k, v, attn_mask=live[:, None, None], scale=scale, enable_gqa=True
    )[:, :, 0]


def flash_attn():
    from flash_attn import flash_attn_with_kvcache

    def run(q, k_cache, v_cache, block_table, lengths):
        pages = (c.transpose(1, 2) for c in (k_cache, v_cache))
        return flash_attn_with_kvcache(q[:, None], *pages, cache_seqlens=lengths, block_table=block_table)[:, 0]

    return run


def flag_gems():
    from flag_gems import flash_attn_varlen_func

    def run(q, k_cache, v_cache, block_table, lengths):
        pages = (c.transpose(1, 2).contiguous() for c in (k_cache, v_cache))
        starts = torch.arange(q.shape[0] + 1, device=q.device, dtype=torch.int32)
        most = block_table.shape[1] * k_cache.shape[2]
        out = flash_attn_varlen_func(
            q, *pages, max_seqlen_q=1, cu_seqlens_q=starts, max_seqlen_k=most, seqused_k=lengths, causal=True,
            softmax_scale=q.shape[2] ** -0.5, block_table=block_table,
        )  # fmt: skip
        return out[0] if isinstance(out, tuple | list) else out

    return run


BASELINES = (
    Baseline("flash-attn", flash_attn, "pip install flash-attn --no-build-isolation (pages of 256 slots)"),
    Baseline("FlagGems", flag_gems, "pip install flag_gems"),
)
