"""Eight-bit codes: how a float becomes an int8 or an fp8 (e4m3), the same on every device.

What the kernels that quantize share; a part of them, no kernel of its own. A group of values shares one scale,
chosen so that its largest finite magnitude becomes the largest code (127 or 448):

    scale = max |x| / LARGEST       code = round(x / scale)       x ~ code * scale

Rounding is to the nearest, ties to even, as PyTorch rounds: a plain `.to(tl.int8)` truncates and wraps 200 to -56.
Values that are not finite do not spoil their group: they are left out of the scale, an infinity becomes the
largest code, and NaN stays NaN in fp8 and becomes 0 in int8. A group of zeros has the scale 1.
"""

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

from kernels.checks import InputError
from kernels.targets import Target

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}


@triton.jit
def scale_of(x, LARGEST: tl.constexpr, axis: tl.constexpr):
    """The scale of float32 values along an axis, which is kept."""
    magnitude = tl.abs(x)
    finite = tl.where(magnitude < float("inf"), magnitude, 0.0)  # false for NaN as well
    return scale_for(tl.max(finite, axis=axis, keep_dims=True), LARGEST)


@triton.jit
def scale_for(largest, LARGEST: tl.constexpr):
    """The scale that makes `largest` the largest code. Correctly rounded: a scale of 1 is exactly 1."""
    scale = tl.div_rn(largest, tl.full(largest.shape, LARGEST, tl.float32))
    return tl.where(largest > 0.0, tl.maximum(scale, 1.1754943508222875e-38), 1.0)


@triton.jit
def on_grid(x):
    """Rounds to the nearest e4m3 number, ties to even, in float32: the interpreter's own cast loses carries."""
    bits = x.to(tl.int32, bitcast=True)
    normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) >> 20) << 20
    small = (x + 24576.0) - 24576.0  # below 2^-6 the numbers are 2^-9 apart
    return tl.where(tl.abs(x) < 0.015625, small, normal.to(tl.float32, bitcast=True))


@triton.jit
def divide(x, scale):
    """x / scale of finite numbers, correctly rounded but for rare cases, by three steps for each x."""
    if INTERPRETED:  # numpy has no fma, and rounds what it should not
        return x / scale
    inverse = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), scale)
    guess = x * inverse
    return tl.fma(tl.fma(guess, -scale, x), inverse, guess)  # what the guess leaves of x corrects it


@triton.jit
def with_codes(x, code_type: tl.constexpr):
    """x with 0 in the place of NaN, where there is no code for it."""
    return tl.where(x == x, x, 0.0) if code_type == tl.int8 else x


@triton.jit
def divide_any(x, scale, LARGEST: tl.constexpr, code_type: tl.constexpr):
    """x / scale, also of infinities and of NaN that has a code, within what rounds to a code."""
    # What is larger than the largest code, infinities above all, becomes a little larger than it, and rounds to it.
    bound = tl.minimum(scale * (LARGEST + 0.25), 3.4028234663852886e38)
    x = tl.maximum(x, -bound, propagate_nan=tl.PropagateNan.ALL)
    return divide(tl.minimum(x, bound, propagate_nan=tl.PropagateNan.ALL), scale)


@triton.jit
def rounded(quotient, code_type: tl.constexpr, PTX: tl.constexpr):
    """Quotients that round to no more than the largest code, as int8 or fp8e4nv codes."""
    if code_type == tl.int8:
        # Adding 1.5 * 2^23 leaves no bits for a fraction: the addition rounds, ties to even, and the lowest byte of
        # the sum is the code.
        return (quotient + 12582912.0).to(tl.int32, bitcast=True).to(tl.int8)
    else:
        code = (on_grid(quotient) if INTERPRETED else quotient).to(tl.float8e4nv)
        if PTX:  # noqa: SIM102 - constexprs, which Triton takes one at a time
            if not INTERPRETED:
                return code  # NVIDIA's conversion makes 0x7F of every NaN
        # Elsewhere casts of NaN differ; its code is set by hand.
        bits = tl.where(quotient == quotient, code.to(tl.uint8, bitcast=True), 0x7F)
        if INTERPRETED:  # on_grid's sum loses the sign of what rounds to 0
            bits = tl.where(quotient < 0.0, bits | 0x80, bits)
        return bits.to(tl.uint8).to(tl.float8e4nv, bitcast=True)


@triton.jit
def to_code(x, scale, LARGEST: tl.constexpr, code_type: tl.constexpr, PTX: tl.constexpr):
    """float32 x / scale as codes."""
    return rounded(divide_any(with_codes(x, code_type), scale, LARGEST, code_type), code_type, PTX)


@triton.jit
def quantized(x, LARGEST: tl.constexpr, axis: tl.constexpr, code_type: tl.constexpr, PTX: tl.constexpr):
    """(codes, scale) of float32 values along an axis.

    Bound by steps for each value, not by memory, so finite values, the rule, are spared what NaN and infinities need.
    Whether there are any, the largest magnitude says, compared as an integer: NaN is larger than infinity.
    """
    bits = tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=axis, keep_dims=True)
    if tl.max(bits) < 0x7F800000:
        scale = scale_for(bits.to(tl.float32, bitcast=True), LARGEST)
        quotient = divide(x, scale)
    else:
        x = with_codes(x, code_type)
        scale = scale_of(x, LARGEST, axis)
        quotient = divide_any(x, scale, LARGEST, code_type)
    # Rounded here and not above: two branches' bytes were joined by the compiler with what lay beside them.
    return rounded(quotient, code_type, PTX), scale


def scale_reference(x: torch.Tensor, largest: float) -> torch.Tensor:
    """scale_of along the last dimension in PyTorch: a float32 number, in float64 where x is."""
    wide = x if x.dtype == torch.float64 else x.float()
    finite = torch.where(wide.isfinite(), wide.abs(), 0.0)
    top = finite.amax(-1) if x.shape[-1] else finite.new_zeros(x.shape[:-1])
    scale = (top / largest).float().clamp_min(torch.finfo(torch.float32).tiny)
    return torch.where(top > 0, scale, 1.0).to(wide.dtype)


def quotient_reference(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What is rounded to codes: x / scale within the codes' range, NaN as 0 where they have none."""
    quotient = (x.to(scale.dtype) / scale).clamp(-LARGEST[dtype], LARGEST[dtype])
    return torch.where(quotient.isnan(), 0.0, quotient) if dtype == torch.int8 else quotient


def code_reference(x: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """to_code in PyTorch."""
    quotient = torch.where(x == 0, 0.0, quotient_reference(x, scale, dtype))  # -0 has the code of 0
    return (quotient.round() if dtype == torch.int8 else quotient).to(dtype)


def need_fp8(target: Target, name: str) -> None:
    """Refuses fp8 where Triton has no e4m3 conversion."""
    if reason := no_fp8(target):
        raise InputError(f"{name} is fp8 (e4m3) and {reason}: use int8 there", name)


def no_fp8(target: Target) -> str | None:
    """Why a target cannot convert to e4m3, or None."""
    if target.kind == "cuda" and target.capability < 89:
        return f"{target.arch} has no e4m3 conversion; sm_89 and newer have"
    if target.kind == "hip" and not target.arch.startswith(("gfx942", "gfx95", "gfx12")):
        return f"{target.arch} has no e4m3 conversion; gfx942 and newer have"
    return None
