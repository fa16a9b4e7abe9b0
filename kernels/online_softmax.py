"""The online softmax that every attention kernel here is built on; a part of them, no kernel of its own.

A softmax needs the row's maximum before its first exponential, and a row of attention is never held as a whole. So
the running maximum m, the sum denom of exponentials and the weighted sum acc of values are carried along, and when a
block brings a larger maximum, what was summed before is scaled down by exp(m_old - m_new).

Scores come in units of log2, since exp2 is what the hardware has. A masked score is -inf, and a row that has seen
nothing but masked scores keeps m = -inf and denom = 0: its answer is 0, as PyTorch's fused attention gives it.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = 1.4426950408889634  # scores * LOG2E are scores in units of log2


@triton.jit
def attend_block(acc, m, denom, products, scale, v, v_scale):
    """One block of keys: products q k^T float32 [M, N], v [N, D], v_scale [N] or None; returns the new (acc, m, denom).

    scale > 0 turns products into scores in units of log2. acc: float32 [M, D]; m, denom: float32 [M].
    """
    # The maximum of the products, scaled, is the maximum of the scores: so each exponent is one multiply-add.
    new_m = tl.maximum(m, tl.max(products, axis=1) * scale)
    # -inf - -inf would be NaN; with 0 in its place every exponential of such a row is exp2(-inf) = 0.
    base = tl.where(new_m == float("-inf"), 0.0, new_m)
    weights = tl.exp2(products * scale - base[:, None])
    alpha = tl.exp2(m - base)
    denom = denom * alpha + tl.sum(weights, axis=1)
    if v_scale is not None:
        weights = weights * v_scale[None, :]  # the scale of a value's codes belongs to its weight as well
    acc = tl.dot(weights.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, new_m, denom


@triton.jit
def normalised(acc, denom):
    """The answer of each row: acc / denom, or 0 where nothing was attended to."""
    return acc / tl.where(denom == 0.0, 1.0, denom)[:, None]
