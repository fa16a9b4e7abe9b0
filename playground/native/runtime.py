"""exp, log, tanh and the conversions of narrow floats, as vector LLVM code.

What LLVM has no vector code for, in single precision, is written here and is
inlined where it is used, at whatever width the operand has. Double precision,
and functions that no hot kernel needs (sin, erf, pow), go to the C library lane
by lane. Sources: range reduction after Cody and Waite; tanh's polynomial is
Cephes'. Errors against float64 are under 2 ulps, log2's under 3; tests measure them.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from .emit import Builder, Reg, literal

LOG2_HIGH = 0.693359375  # log(2) in 9 bits, so that n * LOG2_HIGH is exact
LOG2_LOW = math.log(2) - LOG2_HIGH
ROUNDING = 1.5 * 2.0**23  # adding it leaves a float no bits for a fraction
# name: bits of mantissa, exponent's bias, largest finite value or None where it overflows to inf
NARROW = {
    "f16": (10, 15, None),
    "f8E5M2": (2, 15, 57344.0),
    "f8E4M3FN": (3, 7, 448.0),
}


@lru_cache(maxsize=8)
def _exp_coefficients(base: float, half_width: float, degree: int = 6) -> tuple[float, ...]:
    """base ** r on [-half_width, half_width], highest power first."""
    fit = np.polynomial.chebyshev.Chebyshev.interpolate(lambda r: base**r, degree, [-half_width, half_width])
    return tuple(fit.convert(kind=np.polynomial.Polynomial).coef[::-1])


def polynomial(b: Builder, coefficients, x: Reg) -> Reg:
    total = literal(coefficients[0], x.elem, x.width)
    for c in coefficients[1:]:
        total = b.fma(total, x, literal(c, x.elem, x.width))
    return total


def _round_and_scale(b: Builder, x: Reg, factor: float) -> tuple[Reg, Reg]:
    """The whole number nearest to x * factor: as a float, and with its bits at the bottom."""
    shifted = b.fma(x, factor, literal(ROUNDING, "float", x.width))
    return b.fsub(shifted, ROUNDING), shifted


def _times_power(b: Builder, x: Reg, n: Reg, shifted: Reg) -> Reg:
    """x * 2**n, right where that overflows or is denormal."""
    if b.has_scalef and x.width % 16 == 0:
        return _scalef(b, x, n)
    whole = b.sub(b.cast("bitcast", shifted, "i32"), int(np.float32(ROUNDING).view(np.int32)))
    half = b.ashr(whole, 1)
    for part in (half, b.sub(whole, half)):
        x = b.fmul(x, b.cast("bitcast", b.shl(b.add(part, 127), 23), "float"))
    return x


def _scalef(b: Builder, x: Reg, n: Reg) -> Reg:
    """AVX-512's instruction for it, on sixteen lanes at a time."""
    parts = []
    for start in range(0, x.width, 16):
        lanes = list(range(start, start + 16))
        one, power = (v if v.width == 16 else b.shuffle(v, None, lanes) for v in (x, n))
        every, current = literal(-1, "i16"), literal(4, "i32")
        parts.append(b.call("llvm.x86.avx512.mask.scalef.ps.512", "float", 16, one, power, one, every, current))
    while len(parts) > 1:
        width = parts[0].width * 2
        parts = [b.shuffle(p, q, list(range(width))) for p, q in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _power(b: Builder, x: Reg, lowest: float, highest: float, inner) -> Reg:
    """`inner(x)` with its argument kept in range; 0 below it.

    What is below (the -inf of a masked lane, most often) is not computed: a
    result that underflows takes a CPU a hundred times as long.
    """
    under = b.fcmp("olt", x, lowest)
    x = b.select(under, literal(0.0, "float", x.width), x)
    x = b.select(b.fcmp("ogt", x, highest), literal(highest, "float", x.width), x)
    return b.select(under, literal(0.0, "float", x.width), inner(x))


def exp(b: Builder, x: Reg) -> Reg:
    def inner(x: Reg) -> Reg:
        n, shifted = _round_and_scale(b, x, math.log2(math.e))
        r = b.fma(n, -LOG2_LOW, b.fma(n, -LOG2_HIGH, x))
        return _times_power(b, polynomial(b, _exp_coefficients(math.e, 0.3466), r), n, shifted)

    return _power(b, x, -103.98, 89.0, inner)


def exp2(b: Builder, x: Reg) -> Reg:
    def inner(x: Reg) -> Reg:
        n, shifted = _round_and_scale(b, x, 1.0)
        return _times_power(b, polynomial(b, _exp_coefficients(2.0, 0.5), b.fsub(x, n)), n, shifted)

    return _power(b, x, -150.0, 129.0, inner)


def _split(b: Builder, x: Reg) -> tuple[Reg, Reg, Reg]:
    """x = m * 2**e, m near 1: e, and log m = 2 atanh s = 2 s + rest, with s = (m - 1) / (m + 1)."""
    tiny = b.fcmp("olt", x, 2.0**-126)
    bits = b.cast("bitcast", b.select(tiny, b.fmul(x, 2.0**23), x), "i32")
    exponent = b.ashr(b.sub(bits, 0x3F3504F3), 23)
    m = b.cast("bitcast", b.sub(bits, b.shl(exponent, 23)), "float")
    e = b.cast("sitofp", exponent, "float")
    e = b.fadd(e, b.select(tiny, literal(-23.0, "float", x.width), 0.0))
    s = b.fdiv(b.fsub(m, 1.0), b.fadd(m, 1.0))
    square = b.fmul(s, s)
    series = polynomial(b, (2 / 11, 2 / 9, 2 / 7, 2 / 5, 2 / 3), square)
    return e, b.fadd(s, s), b.fmul(series, b.fmul(square, s))


def _special_logs(b: Builder, x: Reg, value: Reg) -> Reg:
    value = b.select(b.fcmp("oeq", x, math.inf), x, value)
    value = b.select(b.fcmp("oeq", x, 0.0), literal(-math.inf, "float", x.width), value)
    return b.select(b.fcmp("ult", x, 0.0), literal(math.nan, "float", x.width), value)


def log(b: Builder, x: Reg) -> Reg:
    e, twice, rest = _split(b, x)
    return _special_logs(b, x, b.fma(e, LOG2_HIGH, b.fadd(b.fma(e, LOG2_LOW, rest), twice)))


def log2(b: Builder, x: Reg) -> Reg:
    e, twice, rest = _split(b, x)
    return _special_logs(b, x, b.fma(b.fadd(twice, rest), math.log2(math.e), e))


def tanh(b: Builder, x: Reg) -> Reg:
    size = b.intrinsic("fabs", x)
    far = b.fsub(1.0, b.fdiv(2.0, b.fadd(exp(b, b.fadd(size, size)), 1.0)))
    square = b.fmul(x, x)
    series = polynomial(
        b,
        (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 0.133314422036, -0.333332819422),
        square,
    )
    near = b.fma(b.fmul(series, square), x, x)
    signed = b.intrinsic("copysign", far, x)
    return b.select(b.fcmp("olt", size, 0.625), near, signed)


VECTOR_MATH = {"exp": exp, "exp2": exp2, "log": log, "log2": log2, "tanh": tanh}


def c_library(b: Builder, name: str, *xs: Reg) -> Reg:
    """One call a lane."""
    elem, width = xs[0].elem, xs[0].width
    if width == 1:
        return b.call(name, elem, 1, *xs)
    result = Reg("poison", elem, width)
    for i in range(width):
        result = b.insert(result, b.call(name, elem, 1, *(b.lane(x, i) for x in xs)), i)
    return result


# -- narrow floats: kept as integers, computed with in single precision


def widen(b: Builder, x: Reg, element: str) -> Reg:
    """The float that a narrow one's bits mean."""
    if element == "bf16":
        return b.cast("bitcast", b.shl(b.cast("zext", x, "i32"), 16), "float")
    if element == "f16" and b.has_f16c:
        return b.cast("fpext", b.cast("bitcast", x, "half"), "float")
    mantissa, bias, _largest = NARROW[element]
    total = 8 if x.elem == "i8" else 16
    bits = b.cast("zext", x, "i32")
    sign = b.shl(b.and_(bits, 1 << (total - 1)), 32 - total)
    size = b.and_(bits, (1 << (total - 1)) - 1)
    value = b.fmul(b.cast("bitcast", b.shl(size, 23 - mantissa), "float"), 2.0 ** (127 - bias))
    out = b.cast("bitcast", value, "i32")
    # e4m3fn has one NaN and no infinity; the others mark both by an exponent of all ones.
    first_special = 0x7F if element == "f8E4M3FN" else ((1 << (total - 1 - mantissa)) - 1) << mantissa
    special = b.or_(out, 0x7FC00000 if element == "f8E4M3FN" else 0x7F800000)
    out = b.select(b.icmp("uge", size, first_special), special, out)
    return b.cast("bitcast", b.or_(out, sign), "float")


def narrow(b: Builder, x: Reg, element: str) -> Reg:
    """The nearest narrow float's bits, ties to even.

    fp8 saturates at its largest finite value, infinities too, as the GPU's
    conversion does; a NaN stays a NaN.
    """
    if element == "bf16":
        return _to_bf16(b, x)
    if element == "f16" and b.has_f16c:
        return b.cast("bitcast", b.cast("fptrunc", x, "half"), "i16")
    mantissa, bias, largest = NARROW[element]
    total = 16 if element == "f16" else 8
    bits = b.cast("bitcast", x, "i32")
    sign = b.lshr(b.and_(bits, -(1 << 31)), 32 - total)
    size = b.intrinsic("fabs", x)
    if largest is not None:
        size = b.select(b.fcmp("ogt", size, largest), literal(largest, "float", x.width), size)
    small = b.icmp("ult", b.cast("bitcast", size, "i32"), (128 - bias) << 23)
    # Adding this power of two leaves the denormal's bits, rounded, at the bottom.
    magic = 2.0 ** (24 - bias - mantissa)
    low = b.cast("bitcast", b.fadd(size, magic), "i32")
    low = b.sub(low, int(np.float32(magic).view(np.int32)))
    drop = 23 - mantissa
    up = b.cast("bitcast", size, "i32")
    odd = b.and_(b.lshr(up, drop), 1)
    up = b.add(up, b.add(odd, (1 << (drop - 1)) - 1 - ((127 - bias) << 23)))
    high = b.lshr(up, drop)
    if largest is None:
        infinite = literal(31 << mantissa, "i32", x.width)
        high = b.select(b.fcmp("oge", size, 65536.0), infinite, high)
    out = b.select(small, low, high)
    nan = 0x7F if total == 8 else 0x7E00
    out = b.select(b.fcmp("uno", x, 0.0), literal(nan, "i32", x.width), out)
    return b.cast("trunc", b.or_(out, sign), f"i{total}")


def _to_bf16(b: Builder, x: Reg) -> Reg:
    bits = b.cast("bitcast", x, "i32")
    top = b.lshr(bits, 16)
    rounded = b.lshr(b.add(bits, b.add(b.and_(top, 1), 0x7FFF)), 16)
    out = b.select(b.fcmp("uno", x, 0.0), b.or_(top, 64), rounded)
    return b.cast("trunc", out, "i16")
