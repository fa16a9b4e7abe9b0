"""Arithmetic, comparisons, conversions and math, one element (or vector) at a time.

`compute(b, op, args)` is pure: a combine region of a reduction uses it as the
lazy tensors do. Narrow floats are widened, computed with in single precision
and rounded once an op, as PyTorch does on a CPU.
"""

from __future__ import annotations

import math
import re

from . import runtime
from .emit import Builder, Reg, constant_of, literal
from .errors import Unsupported
from .ir import Op
from .layout import Point, memory_type, register_type
from .lower import Lowering
from .registry import COSTS, expression

_INTEGER = {
    "addi": "add", "subi": "sub", "muli": "mul", "divsi": "sdiv", "divui": "udiv",
    "remsi": "srem", "remui": "urem", "andi": "and", "ori": "or", "xori": "xor",
    "shli": "shl", "shrsi": "ashr", "shrui": "lshr",
}  # fmt: skip
_DIVISIONS = ("divsi", "divui", "remsi", "remui")
_INTEGER_INTRINSIC = {"maxsi": "smax", "minsi": "smin", "maxui": "umax", "minui": "umin"}
_FLOAT = {"addf": "fadd", "subf": "fsub", "mulf": "fmul", "divf": "fdiv", "remf": "frem"}
_FLOAT_INTRINSIC = {
    "maxnumf": "maxnum", "minnumf": "minnum", "maximumf": "maximum", "minimumf": "minimum",
}  # fmt: skip
_INTEGER_CAST = {"extsi": "sext", "extui": "zext", "trunci": "trunc"}
_MATH_INTRINSIC = {
    "sqrt": "sqrt", "absf": "fabs", "floor": "floor", "ceil": "ceil", "fma": "fma",
    "sin": "sin", "cos": "cos", "roundeven": "roundeven", "rint": "rint",
    "trunc": "trunc", "round": "round", "nearbyint": "rint", "copysign": "copysign",
}  # fmt: skip
_LIBDEVICE = {"fabs": "absf", "rcp_rn": "rcp", "rsqrt_rn": "rsqrt", "sqrt_rn": "sqrt"}
_C_LIBRARY = {
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cosh", "erf", "erfc",
    "exp10", "expm1", "fdim", "fmod", "hypot", "lgamma", "log10", "log1p", "pow", "remainder",
    "sinh", "tan", "tgamma", "j0", "j1", "y0", "y1", "ldexp",
}  # fmt: skip
_KNOWN = {*_C_LIBRARY, *_LIBDEVICE, *_MATH_INTRINSIC, "exp", "exp2", "log", "log2", "tanh"}
NARROW_FLOATS = {"f16", "bf16", "f8E4M3FN", "f8E5M2"}
FLOATS = NARROW_FLOATS | {"f32", "f64"}

_CHEAP = [*_INTEGER, *_INTEGER_INTRINSIC, *_FLOAT, *_FLOAT_INTRINSIC, *_INTEGER_CAST,
          "cmpi", "cmpf", "select", "index_cast", "index_castui", "extf", "sitofp", "uitofp",
          "fptosi", "fptoui", "negf", "bitcast"]  # fmt: skip
_DEAR = {"arith." + n: 8 for n in (*_DIVISIONS, "divf", "remf")}
_MATH = ["exp", "exp2", "log", "log2", "erf", "tanh", "rsqrt", "absi", *_MATH_INTRINSIC]


@expression(*("arith." + n for n in _CHEAP))
@expression("arith.truncf", "tt.fp_to_fp", cost=4)
@expression(*("math." + n for n in _MATH), cost=8)
@expression("tt.precise_divf", "tt.precise_sqrt", "tt.extern_elementwise", cost=8)
@expression("tt.addptr", "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int", "tt.mulhiui", "tt.clampf")
def elementwise(lo: Lowering, op: Op, point: Point) -> Reg:
    args = lo.operands(op, point)
    try:
        if op.name == "arith.divf" and point.width > 1 and _is_uniform(op.operands[1]):
            return _divide_by_one(lo, op, args)
        return compute(lo.b, op, args)
    except Unsupported:
        lo.unsupported(op)


def _is_uniform(value) -> bool:
    return value.op is not None and value.op.name == "tt.splat"


def _divide_by_one(lo: Lowering, op: Op, args: list[Reg]) -> Reg:
    """Many divisions by one number become products with its reciprocal.

    That is right to 1.5 ulp; a GPU's `/` in Triton is right to 2. `tl.div_rn` is exact.
    """
    element = op.result.type.element
    x, y = (widen(lo.b, a, element) for a in args)
    return narrow(lo.b, lo.b.binary("fdiv contract arcp", x, y), element)


COSTS.update(_DEAR)
COSTS.update({"math.absf": 1, "math.fma": 1, "math.absi": 1, "arith.extf": 1})


def compute(b: Builder, op: Op, args: list[Reg]) -> Reg:
    """The result of one elementwise op on registers of any one width."""
    dialect, kind = op.name.split(".", 1)
    element = op.result.type.element
    source = op.operands[0].type.element
    if dialect == "arith":
        return _arith(b, op, kind, source, element, args)
    if kind == "addptr":
        return b.gep(memory_type(op.result.type.pointee), args[0], b.to_i64(args[1]))
    if kind in ("bitcast", "int_to_ptr", "ptr_to_int"):
        return _reinterpret(b, args[0], register_type(element))
    if kind == "fp_to_fp":
        return convert(b, args[0], source, element)
    if kind == "mulhiui":
        return _high_product(b, *args)
    if kind == "absi":
        no_poison = Reg("false", "i1")
        name = f"llvm.abs.{args[0].type if args[0].width == 1 else f'v{args[0].width}{args[0].elem}'}"
        return b.call(name, args[0].elem, args[0].width, args[0], no_poison)
    return _float_function(b, op, kind, source, element, args)


def _arith(b: Builder, op: Op, kind: str, source: str, element: str, args: list[Reg]) -> Reg:
    if kind in _INTEGER:
        if kind in _DIVISIONS:
            args = [args[0], _safe_divisor(b, args[0], args[1], signed=kind.endswith("si"))]
            if args[0].width > 1 and args[0].elem == "i32":
                return _divide_vectors(b, kind, *args)
        return b.binary(_INTEGER[kind], *args)
    if kind in _INTEGER_INTRINSIC:
        return b.intrinsic(_INTEGER_INTRINSIC[kind], *args)
    if kind in _FLOAT:
        x, y = (widen(b, a, element) for a in args)
        return narrow(b, b.binary(f"{_FLOAT[kind]} contract", x, y), element)
    if kind in _FLOAT_INTRINSIC:
        x, y = (widen(b, a, element) for a in args)
        return narrow(b, b.intrinsic(_FLOAT_INTRINSIC[kind], x, y), element)
    if kind == "cmpi":
        return b.icmp(op.words[0], *args)
    if kind == "cmpf":
        return b.fcmp(op.words[0], *(widen(b, a, source) for a in args))
    if kind == "select":
        return b.select(*args)
    if kind == "negf":
        x = widen(b, args[0], element)
        return narrow(b, b.inst(f"fneg {x.typed}", x.elem, x.width), element)
    if kind == "bitcast":
        return _reinterpret(b, args[0], register_type(element))
    return _convert_number(b, kind, source, element, args[0])


def _convert_number(b: Builder, kind: str, source: str, element: str, x: Reg) -> Reg:
    to = register_type(element)
    if kind in _INTEGER_CAST:
        return b.cast(_INTEGER_CAST[kind], x, to)
    if kind.startswith("index_cast"):
        bits = int(x.elem[1:]), int(to[1:])
        if bits[0] == bits[1]:
            return x
        longer = "zext" if kind.endswith("ui") else "sext"
        return b.cast(longer if bits[0] < bits[1] else "trunc", x, to)
    if kind in ("sitofp", "uitofp"):
        through = "float" if element in NARROW_FLOATS else to
        return narrow(b, b.cast(kind, x, through), element)
    if kind in ("fptosi", "fptoui"):
        # Out of range is poison in LLVM; saturating is what the GPU does.
        name = f"llvm.{kind}.sat"
        return _saturating(b, name, widen(b, x, source), to)
    return convert(b, x, source, element)


def _saturating(b: Builder, name: str, x: Reg, to: str) -> Reg:
    """A conversion to 8 or 16 bits wraps, as a GPU's does by way of 32."""
    wide = "i32" if to in ("i1", "i8", "i16") else to
    spell = {"float": "f32", "double": "f64"}[x.elem]
    many = "" if x.width == 1 else f"v{x.width}"
    out = b.call(f"{name}.{many}{wide}.{many}{spell}", wide, x.width, x)
    return out if wide == to else b.cast("trunc", out, to)


def _divide_vectors(b: Builder, kind: str, x: Reg, y: Reg) -> Reg:
    """No CPU divides vectors of integers; the quotient of two 32-bit ones is exact by way of doubles."""
    sign = "si" if kind.endswith("si") else "ui"
    quotient = b.fdiv(*(b.cast(f"{sign}tofp", v, "double") for v in (x, y)))
    whole = b.cast(f"fpto{sign}", quotient, "i32")
    return whole if kind.startswith("div") else b.sub(x, b.mul(whole, y))


def _safe_divisor(b: Builder, x: Reg, y: Reg, signed: bool) -> Reg:
    """x86 traps where a GPU gives some number: divide by 1 there."""
    if constant_of(y) not in (None, 0, -1):
        return y
    bad = b.icmp("eq", y, 0)
    if signed:
        lowest = -(1 << (int(x.elem[1:]) - 1))
        overflow = b.and_(b.icmp("eq", y, -1), b.icmp("eq", x, lowest))
        bad = b.or_(bad, overflow)
    return b.select(bad, literal(1, y.elem, y.width), y)


def _reinterpret(b: Builder, x: Reg, to: str) -> Reg:
    if x.elem == to:
        return x
    opcode = "inttoptr" if to == "ptr" else "ptrtoint" if x.elem == "ptr" else "bitcast"
    return b.cast(opcode, x, to)


def _high_product(b: Builder, x: Reg, y: Reg) -> Reg:
    bits = int(x.elem[1:])
    wide = f"i{2 * bits}"
    product = b.mul(b.cast("zext", x, wide), b.cast("zext", y, wide))
    return b.cast("trunc", b.lshr(product, bits), x.elem)


def widen(b: Builder, x: Reg, element: str) -> Reg:
    return runtime.widen(b, x, element) if element in NARROW_FLOATS else x


def narrow(b: Builder, x: Reg, element: str) -> Reg:
    return runtime.narrow(b, x, element) if element in NARROW_FLOATS else x


def convert(b: Builder, x: Reg, source: str, element: str) -> Reg:
    """Between any two float types, by way of single precision if one is narrow."""
    if source == element:
        return x
    if not {source, element} <= FLOATS:
        raise Unsupported(f"conversion of {source} to {element}")
    x = widen(b, x, source)
    wanted = "double" if element == "f64" else "float"
    if x.elem != wanted:
        x = b.cast("fpext" if wanted == "double" else "fptrunc", x, wanted)
    return narrow(b, x, element)


def _float_function(b: Builder, op: Op, kind: str, source: str, element: str, args) -> Reg:
    if kind == "extern_elementwise":
        kind = _libdevice_name(op)
    if source not in FLOATS or element not in FLOATS:
        return _integer_result(b, kind, source, element, args)
    args = [widen(b, a, o.type.element) for a, o in zip(args, op.operands, strict=True)]
    return narrow(b, _function(b, kind, args), element)


def _libdevice_name(op: Op) -> str:
    """`__nv_fast_expf` and `__nv_exp` are both `exp`."""
    name = re.sub(r"^__nv_(fast_)?", "", op.attrs["symbol"].strip('"'))
    if name not in _KNOWN and name.endswith("f"):
        name = name[:-1]
    return _LIBDEVICE.get(name, name)


def _function(b: Builder, kind: str, args: list[Reg]) -> Reg:
    x = args[0]
    if kind in ("precise_divf", "div_rn"):
        return b.fdiv(*args)
    if kind == "precise_sqrt":
        return b.intrinsic("sqrt", x)
    if kind == "clampf":
        return b.intrinsic("minnum", b.intrinsic("maxnum", x, args[1]), args[2])
    if kind == "rsqrt":
        return b.fdiv(1.0, b.intrinsic("sqrt", x))
    if kind == "rcp":
        return b.fdiv(1.0, x)
    if kind in runtime.VECTOR_MATH and x.elem == "float":
        return runtime.VECTOR_MATH[kind](b, x)
    if kind in _MATH_INTRINSIC:
        return b.intrinsic(_MATH_INTRINSIC[kind], *args)
    if kind in ("exp", "exp2", "log", "log2"):
        return b.intrinsic(kind, x)
    if kind in _C_LIBRARY or kind == "tanh":
        return runtime.c_library(b, kind + ("f" if x.elem == "float" else ""), *args)
    raise Unsupported(kind)


def _integer_result(b: Builder, kind: str, source: str, element: str, args: list[Reg]) -> Reg:
    size = b.intrinsic("fabs", args[0]) if source in ("f32", "f64") else None
    tests = {"isnan": "uno", "isnand": "uno", "isinf": "oeq", "isinfd": "oeq", "finite": "one"}
    if kind not in tests or size is None:
        raise Unsupported(kind)
    return b.cast("zext", b.fcmp(tests[kind], size, math.inf), register_type(element))
