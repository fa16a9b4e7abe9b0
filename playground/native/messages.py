"""device_print and device_assert."""

from __future__ import annotations

import re

from . import bounds
from .elementwise import widen
from .emit import Reg, literal
from .ir import Op
from .layout import Point
from .lower import Lowering
from .registry import statement


def _text(op: Op) -> str:
    return op.text.split('"', 1)[1].rsplit('"', 1)[0]


@statement("tt.assert")
def assert_(lo: Lowering, op: Op) -> None:
    condition = op.operands[0]
    site = bounds.add_site(lo, op, "assert", text=_text(op))

    def body(point: Point, holds: Reg) -> None:
        bad = lo.b.binary("xor", holds, literal(1, "i1", holds.width))
        nowhere = literal(0, "i64", bad.width)
        bounds.report_lanes(lo, site, bad, nowhere, point, condition.type.shape)

    lo.sweep([condition], condition.type.shape, body)


@statement("tt.print")
def print_(lo: Lowering, op: Op) -> None:
    """One line an element, as a GPU prints it."""
    lo.program.prints = True
    if not op.operands:
        _print_line(lo, op, Point(()), None, False)
    signs = re.findall(r"\d+", op.attrs.get("isSigned", "").split(":")[-1])
    for value, signed in zip(op.operands, signs, strict=True):
        shape = value.type.shape

        def body(point: Point, value=value, signed=signed) -> None:
            x = widen(lo.b, lo.at(value, point), value.type.element)
            _print_line(lo, op, point, x, signed == "1")

        with lo.evaluating([value]):
            lo.nest(shape, None, 1, body)


def _print_line(lo: Lowering, op: Op, point: Point, x: Reg | None, signed: bool) -> None:
    b = lo.b
    index = ", ".join("%lld" for _ in point.index)
    where = f" idx ({index})" if index else ""
    code = ""
    if x is not None:
        code, x = _formatted(b, x, signed, op.attrs.get("hex") == "true")
    text = f"pid (%d, %d, %d){where}{_text(op).replace('%', '%%')}{code}\n"
    data = text.encode().decode("unicode_escape").encode() + b"\0"
    name = f"@text{len(lo.program.constants)}"
    escaped = "".join(f"\\{c:02X}" for c in data)
    lo.program.constants.append(f'{name} = private constant [{len(data)} x i8] c"{escaped}"')
    b.declarations.add("declare i32 @printf(ptr, ...)")
    passed = [f"ptr {name}", *(f"i32 %pid_{d}" for d in "xyz"), *(i.typed for i in point.index)]
    if x is not None:
        passed.append(x.typed)
    b.inst(f"call i32 (ptr, ...) @printf({', '.join(passed)})", "i32")


def _formatted(b, x: Reg, signed: bool, as_hex: bool) -> tuple[str, Reg]:
    if x.elem == "float":
        return "%f", b.cast("fpext", x, "double")
    if x.elem == "double":
        return "%f", x
    if x.elem == "ptr":
        return "%p", x
    if x.elem != "i64":
        x = b.cast("sext" if signed else "zext", x, "i64")
    return ("0x%llx" if as_hex else "%lld" if signed else "%llu"), x
