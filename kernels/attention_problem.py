"""What attention of a prompt is asked for, whatever computes it: its inputs, their checks, its cost. No kernel.

kernels/attention.py and the variants beside it share these.
"""

from __future__ import annotations

import torch

from kernels.checks import (
    FLOATS,
    InputError,
    need_dtype,
    need_near,
    need_no_grad,
    need_number,
    need_rank,
    need_same_device,
    need_same_dtype,
    need_shape,
)
from kernels.paged_kv import attention_scale, need_scale
from kernels.spec import Cost, nbytes

# Small and odd: what edge cases begin with.
SMALL = {"batch": 2, "kv_heads": 2, "group": 2, "q_len": 70, "kv_len": 70, "head_dim": 64}


def seen_keys(q_len, kv_len, causal, window, device):
    """Which key each query meets: bool [q_len, kv_len]."""
    place = torch.arange(q_len, device=device)[:, None] + kv_len - q_len
    key = torch.arange(kv_len, device=device)[None]
    seen = key <= place if causal else (key >= 0).expand(q_len, kv_len)
    return seen if window is None else seen & (key > place - window) & (key < place + window)


def make_inputs(dims, draw):
    head_dim, kv_heads = dims["head_dim"], dims["kv_heads"]
    return {
        "q": draw.normal(dims["batch"], kv_heads * dims["group"], dims["q_len"], head_dim),
        "k": draw.normal(dims["batch"], kv_heads, dims["kv_len"], head_dim),
        "v": draw.normal(dims["batch"], kv_heads, dims["kv_len"], head_dim),
        "causal": True,
        "scale": None,
        "window": None,
        "softcap": None,
    }


def check(inputs):
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    need_rank(q, "q", 4)
    need_dtype(q, "q", FLOATS)
    need_rank(k, "k", 4)
    need_same_dtype(k, "k", q, "q")
    need_shape(k, "k", (q.shape[0], *k.shape[1:3], q.shape[3]), "q")
    need_rank(v, "v", 4)
    need_same_dtype(v, "v", q, "q")
    need_shape(v, "v", k.shape, "k")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise InputError(f"q has {q.shape[1]} heads and k {k.shape[1]}; q needs a multiple of them", "q")
    if not 1 <= q.shape[3] <= 256:
        raise InputError(f"q has a head_dim of {q.shape[3]}; it needs 1 to 256", "q")
    need_scale(inputs)
    for name in ("window", "softcap"):
        if inputs.get(name) is not None:
            need_number(inputs[name], name, positive=True, whole=name == "window")
    softcap = inputs.get("softcap")
    if softcap is not None and softcap < 1e-37 * attention_scale(inputs):
        raise InputError(f"softcap is {softcap}; it needs at least 1e-37 times the scale", "softcap")
    if (inputs.get("window") or 0) >= 2**30:
        raise InputError(f"window is {inputs['window']}; it needs less than 2^30, or None for all keys", "window")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        need_near(tensor, name, 3)
    need_same_device(q=q, k=k, v=v)
    need_no_grad(q=q, k=k, v=v)


def cost(inputs):
    """Of the keys that a causal mask or a window leaves: four operations for each element of q a key meets."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    q_len, kv_len = q.shape[2], k.shape[2]
    causal, window = inputs.get("causal", True), inputs.get("window")
    pairs = q_len * kv_len
    if window is not None:
        pairs = q_len * min(window if causal else 2 * window - 1, kv_len)
    elif causal:
        full = min(q_len, kv_len)  # the last `full` queries meet kv_len - full + 1 ... kv_len keys
        pairs = full * (kv_len - full) + full * (full + 1) // 2
    flops = 4 * q.shape[0] * q.shape[1] * q.shape[3] * pairs
    return Cost(nbytes(q, k, v), q.numel() * q.element_size(), flops)
