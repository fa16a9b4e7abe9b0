"""Reductions and scans, with one operand or several.

A reduction along the vector dimension keeps as many partial results as lanes
and folds them at the end; along another dimension every lane is a result of its
own. Both keep the running values in registers.
"""

from __future__ import annotations

import math

from .elementwise import compute
from .emit import Reg, literal
from .ir import Op, Value
from .layout import SCALAR, Point, memory_type, register_type
from .lower import Lowering
from .registry import EXPRESSIONS, statement
from .strides import axis_of

CHAINS = 4  # registers that accumulate side by side: an addition takes four cycles


def combine(lo: Lowering, op: Op, left: list[Reg], right: list[Reg]) -> list[Reg]:
    """The combine region on registers of any one width."""
    block = op.regions[0][0]
    regs = dict(zip(block.args, [*left, *right], strict=True))
    width = left[0].width

    def value(v: Value) -> Reg:
        """One of the region's own, or a scalar from outside it."""
        return regs[v] if v in regs else lo.b.splat(lo.at(v, SCALAR), width)

    for inner in block.ops[:-1]:
        if inner.name == "arith.constant":
            regs[inner.result] = lo.b.splat(EXPRESSIONS[inner.name](lo, inner, SCALAR), width)
        elif inner.name in EXPRESSIONS:
            regs[inner.result] = compute(lo.b, inner, [value(v) for v in inner.operands])
        else:
            lo.unsupported(inner, "inside a reduction is not supported on a CPU")
    return [value(v) for v in block.ops[-1].operands]


def _after(lo: Lowering, i: Reg) -> Reg:
    if not i.startswith("%"):
        return literal(int(i) + 1, "i64")
    return lo.b.inst(f"add nuw nsw i64 {i}, 1", "i64")


def _at(index, axis: int, i: Reg) -> tuple:
    return (*index[:axis], i, *index[axis:])


@statement("tt.reduce")
def reduce(lo: Lowering, op: Op) -> None:
    axis, shape = axis_of(op), op.operands[0].type.shape
    outer = shape[:axis] + shape[axis + 1 :]
    slots = [lo.b.slot(register_type(v.type.element), math.prod(outer)) for v in op.operands]
    with lo.evaluating(op.operands):
        dim = lo.best_dim(op.operands, shape)
        lo.program.work += math.prod(shape) * lo.multiplier
        if dim is None or dim == axis:
            _along_lanes(lo, op, axis, shape, slots)
        else:
            _across_lanes(lo, op, axis, shape, dim, slots)
    lo.bind(op.results, slots)


def _along_lanes(lo: Lowering, op: Op, axis: int, shape, slots) -> None:
    length = shape[axis]
    width = min(length, lo.target.lanes * CHAINS)
    outer = shape[:axis] + shape[axis + 1 :]

    def row(point: Point) -> None:
        def chunk(i: Reg) -> list[Reg]:
            index = _at(point.index, axis, lo.times(i, width))
            where = Point(index, axis if width > 1 else None, width)
            return [lo.at(v, where) for v in op.operands]

        def step(i: Reg, *running: Reg) -> list[Reg]:
            return combine(lo, op, list(running), chunk(_after(lo, i)))

        total = chunk(literal(0, "i64"))
        if length > width:
            total = lo.b.loop(length // width - 1, step, total)
        total = _fold_lanes(lo, op, total)
        for value, slot, reg in zip(op.operands, slots, total, strict=True):
            where = lo.linear(point.index, outer)
            lo.b.store(reg, lo.b.gep(memory_type(value.type.element), slot, where))

    lo.nest(outer, None, 1, row)


def _fold_lanes(lo: Lowering, op: Op, regs: list[Reg]) -> list[Reg]:
    """Halve the width until one lane is left."""
    width = regs[0].width
    while width > 1:
        width //= 2
        low = [lo.b.shuffle(r, None, list(range(width))) for r in regs]
        high = [lo.b.shuffle(r, None, list(range(width, 2 * width))) for r in regs]
        regs = combine(lo, op, low, high)
    return regs


def _across_lanes(lo: Lowering, op: Op, axis: int, shape, dim: int, slots) -> None:
    outer = shape[:axis] + shape[axis + 1 :]
    outer_dim = dim - (dim > axis)
    width = lo.width(shape, dim, registers=2)

    def column(point: Point) -> None:
        def element(i: Reg) -> list[Reg]:
            where = Point(_at(point.index, axis, i), dim, width)
            return [lo.at(v, where) for v in op.operands]

        def step(i: Reg, *running: Reg) -> list[Reg]:
            return combine(lo, op, list(running), element(_after(lo, i)))

        total = element(literal(0, "i64"))
        if shape[axis] > 1:
            total = lo.b.loop(shape[axis] - 1, step, total)
        for slot, reg in zip(slots, total, strict=True):
            lo.store_buffer_as(outer, slot, reg, point)

    lo.nest(outer, outer_dim, width, column)


@statement("tt.scan")
def scan(lo: Lowering, op: Op) -> None:
    """One step after the other along the axis; other dimensions give the lanes."""
    axis, shape = axis_of(op), op.operands[0].type.shape
    length, backwards = shape[axis], op.attrs.get("reverse") == "true"
    outer = shape[:axis] + shape[axis + 1 :]
    slots = [lo.b.slot(register_type(v.type.element), v.type.size) for v in op.operands]
    wide = [d for d, n in enumerate(outer) if n > 1]
    outer_dim = wide[-1] if wide else None
    width = lo.width(outer, outer_dim)

    def row(point: Point) -> None:
        dim = None if point.dim is None else point.dim + (point.dim >= axis)

        def visit(i: Reg, running: list[Reg] | None) -> list[Reg]:
            if backwards:
                i = lo.b.sub(literal(length - 1, "i64"), i)
            where = Point(_at(point.index, axis, i), dim, point.width)
            regs = [lo.at(v, where) for v in op.operands]
            regs = regs if running is None else combine(lo, op, running, regs)
            for slot, reg in zip(slots, regs, strict=True):
                lo.store_buffer_as(shape, slot, reg, where)
            return regs

        total = visit(literal(0, "i64"), None)
        if length > 1:
            lo.b.loop(length - 1, lambda i, *r: visit(_after(lo, i), list(r)), total)

    with lo.evaluating(op.operands):
        lo.nest(outer, outer_dim, width, row)
    lo.bind(op.results, slots)
