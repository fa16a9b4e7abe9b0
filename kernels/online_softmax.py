"""The online softmax that every attention kernel here is built on; a part of them, no kernel of its own.

A softmax needs the row's maximum before its first exponential, and a row of attention is never held as a whole. So
the running maximum m, the sum denom of exponentials and the weighted sum acc of values are carried along, and when a
block brings a larger maximum, what was summed before is scaled down by exp(m_old - m_new).

Scores come in units of log2, since exp2 is what the hardware has. A masked score is -inf, and a row that has seen
nothing but masked scores keeps denom = 0: its answer is 0, as PyTorch's fused attention gives it.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = 1.4426950408889634  # scores * LOG2E are scores in units of log2


@triton.jit
def no_key_yet(M: tl.constexpr, D: tl.constexpr):
    """The (acc, m, denom) of M rows that have met no key; m is float32's lowest number, since -inf - -inf is NaN."""
    m = tl.full([M], -3.4028234663852886e38, tl.float32)
    return tl.zeros([M, D], tl.float32), m, tl.zeros([M], tl.float32)


@triton.jit
def scale_of_rows(top, scale):
    """What turns each row's products into scores [M], the largest product `top` [M] exactly where its score is far out.

    m is rounded and an exponent is one multiply-add, so all weights of a row are off by one factor, of at most 2^8
    below scores of 2^28. It cancels. Beyond, it could leave the range of float16, and soon that of float32: there the
    scale is the least power of two not below it, which rounds nothing. It makes differences between scores greater, by
    a factor below 2; but float32 parts two of them by 16 there, so that each key whose score is not the maximum weighs
    at most 2^-16 either way.
    """
    power = ((scale.to(tl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000).to(tl.float32, bitcast=True)
    return tl.where(tl.abs(top) < 2.0**28 / scale, scale, power)


@triton.jit
def attend_block(acc, m, denom, products, scale, v, v_scale):
    """One block of keys: products q k^T float32 [M, N], v [N, D], v_scale [N] or None; returns the new (acc, m, denom).

    scale > 0 turns products into scores in units of log2. acc: float32 [M, D]; m, denom: float32 [M].
    """
    # The maximum of the products, scaled, is the maximum of the scores: so each exponent is one multiply-add.
    top = tl.max(products, axis=1)
    scale = scale_of_rows(top, scale)
    new_m = tl.maximum(m, top * scale)
    weights = tl.exp2(products * scale[:, None] - new_m[:, None])
    alpha = tl.exp2(m - new_m)
    denom = denom * alpha + tl.sum(weights, axis=1)
    if v_scale is not None:
        weights = weights * v_scale[None, :]  # the scale of a value's codes belongs to its weight as well
    acc = tl.dot(weights.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
    return acc, new_m, denom


@triton.jit
def normalised(acc, denom):
    """The answer of each row: acc / denom, or 0 where nothing was attended to, whatever values weigh nothing."""
    none = denom == 0.0
    return tl.where(none[:, None], 0.0, acc / tl.where(none, 1.0, denom)[:, None])
