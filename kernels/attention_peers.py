"""Other implementations of attention, by the arguments of kernels/attention.py; baselines, no kernel of its own."""

from __future__ import annotations

import torch

from kernels.attention_problem import seen_keys
from kernels.spec import Baseline


def sdpa(q, k, v, causal=True, scale=None, window=None, softcap=None):
    """PyTorch's scaled_dot_product_attention, with a mask only where its own flags do not say it."""
    if softcap is not None:
        raise ValueError("PyTorch's fused attention has no softcap")
    plain = window is None and (q.shape[2] == k.shape[2] or not causal)
    mask = None if plain else seen_keys(q.shape[2], k.shape[2], causal, window, q.device)
    return torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal and plain, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )


def backend(name):
    def load():
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = getattr(SDPBackend, name)

        def run(q, k, v, **options):
            with sdpa_kernel(backend):
                return sdpa(q, k, v, **options)

        return run

    return load


def flex():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention)
    masks = {}

    def run(q, k, v, causal=True, scale=None, window=None, softcap=None):
        key = (q.shape[2], k.shape[2], causal, window, q.device)
        if key not in masks:
            seen = _seen(k.shape[2] - q.shape[2], causal, window)
            mask = create_block_mask(seen, None, None, *key[:2], device=q.device) if seen else None
            masks[key] = mask
        capped = None if softcap is None else lambda score, *place: softcap * torch.tanh(score / softcap)
        return compiled(q, k, v, score_mod=capped, block_mask=masks[key], scale=scale, enable_gqa=True)

    return run


def _seen(offset, causal, window):
    """Which key j a query i meets, as FlexAttention asks it; None where it meets all."""
    if window is None:
        return (lambda b, h, i, j: j <= i + offset) if causal else None
    if causal:
        return lambda b, h, i, j: (j <= i + offset) & (j > i + offset - window)
    return lambda b, h, i, j: (j > i + offset - window) & (j < i + offset + window)


def flash_attn():
    from flash_attn import flash_attn_func

    def run(q, k, v, causal=True, scale=None, window=None, softcap=None):
        qkv = (x.transpose(1, 2) for x in (q, k, v))
        sides = (-1, -1) if window is None else (window - 1, 0 if causal else window - 1)
        out = flash_attn_func(*qkv, softmax_scale=scale, causal=causal, window_size=sides, softcap=softcap or 0.0)
        return out.transpose(1, 2)

    return run


BASELINES = (
    *(
        Baseline(f"SDPA {label}", backend(name), "a PyTorch build with this backend")
        for label, name in (
            ("FLASH", "FLASH_ATTENTION"),
            ("cuDNN", "CUDNN_ATTENTION"),
            ("EFFICIENT", "EFFICIENT_ATTENTION"),
            ("MATH", "MATH"),
        )
    ),
    Baseline("FlexAttention", flex, "part of PyTorch 2.5 and newer"),
    Baseline("flash-attn", flash_attn, "pip install flash-attn --no-build-isolation"),
)
