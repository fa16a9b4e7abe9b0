"""Atomic operations, one element at a time."""

from __future__ import annotations

from . import bounds, runtime
from .elementwise import NARROW_FLOATS
from .emit import Reg, literal
from .ir import Op
from .layout import SCALAR, Point, memory_type, register_type
from .lower import Lowering
from .memory import read_before_write
from .registry import statement

_KINDS = {"exch": "xchg", "umax": "umax", "umin": "umin"}
_ORDERS = {"relaxed": "monotonic", "acquire": "acquire", "release": "release"}


@statement("tt.atomic_rmw")
def atomic_rmw(lo: Lowering, op: Op) -> None:
    kind, order = op.words[0], _ORDERS.get(op.words[1], "acq_rel")
    element = op.result.type.element

    def one(point: Point) -> Reg:
        pointer, x, *mask = lo.operands(op, point)
        keep = bounds.guard(lo, op, op.operands[0], point, pointer, mask[0] if mask else None)

        def update() -> Reg:
            if kind == "fadd" and element in NARROW_FLOATS:
                return _add_narrow(lo, pointer, x, element)
            return lo.b.inst(f"atomicrmw {_KINDS.get(kind, kind)} ptr {pointer}, {x.typed} {order}", x.elem)

        return update() if keep is None else lo.b.choose(keep, update, literal(0, x.elem))

    _each(lo, op, one)


def _add_narrow(lo: Lowering, pointer: Reg, x: Reg, element: str) -> Reg:
    """No CPU adds 16-bit floats atomically: try until nobody came between."""
    b = lo.b
    value = runtime.widen(b, x, element)
    first = b.load(x.elem, pointer)
    before, head, after = b.label, b.fresh("retry"), b.fresh("added")
    b.jump(head)
    b.block(head)
    seen = Reg(f"%{b.fresh()}", x.elem)
    at = len(b.lines)
    b.lines.append("")
    total = runtime.narrow(b, b.fadd(runtime.widen(b, seen, element), value), element)
    pair = b.inst(f"cmpxchg ptr {pointer}, {seen.typed}, {total.typed} acq_rel acquire", "pair")
    now = b.inst(f"extractvalue {{{x.elem}, i1}} {pair}, 0", x.elem)
    done = b.inst(f"extractvalue {{{x.elem}, i1}} {pair}, 1", "i1")
    b.lines[at] = f"  {seen} = phi {x.elem} [{first}, %{before}], [{now}, %{b.label}]"
    b.branch(done, after, head)
    b.block(after)
    return seen


@statement("tt.atomic_cas")
def atomic_cas(lo: Lowering, op: Op) -> None:
    def one(point: Point) -> Reg:
        b = lo.b
        pointer, expected, new = lo.operands(op, point)
        keep = bounds.guard(lo, op, op.operands[0], point, pointer, None)
        elem = expected.elem
        bits = {"float": "i32", "double": "i64"}.get(elem, elem)

        def swap() -> Reg:
            old, now = (b.cast("bitcast", x, bits) if bits != elem else x for x in (expected, new))
            pair = b.inst(f"cmpxchg ptr {pointer}, {old.typed}, {now.typed} acq_rel acquire", "pair")
            seen = b.inst(f"extractvalue {{{bits}, i1}} {pair}, 0", bits)
            return b.cast("bitcast", seen, elem) if bits != elem else seen

        return swap() if keep is None else b.choose(keep, swap, literal(0, elem))

    _each(lo, op, one)


def _each(lo: Lowering, op: Op, one) -> None:
    result = op.result
    if not result.type.is_tensor:
        result.reg = one(SCALAR)
        return
    read_before_write(lo, op)
    buffer = lo.b.slot(register_type(result.type.element), result.type.size)
    elem = memory_type(result.type.element)

    def body(point: Point) -> None:
        x = one(point)
        lo.b.store(x, lo.b.gep(elem, buffer, lo.linear(point.index, result.type.shape)))

    with lo.evaluating(op.operands):
        lo.nest(result.type.shape, None, 1, body)
    result.buffer = buffer
