"""Loads, stores and atomics.

Along the vector dimension a pointer tensor is contiguous (one vector access),
or it is not known to be, and then the addresses are looked at: where they
happen to follow each other one vector access is made, otherwise a gather.
"""

from __future__ import annotations

from . import bounds
from .access import gather, is_run, load_run, scatter, store_run
from .emit import Reg, literal
from .ir import Op, Value
from .layout import SCALAR, Point, memory_bytes, register_type
from .lower import Lowering
from .registry import expression, statement
from .strides import stride


@expression("tt.load", cost=8)
def load(lo: Lowering, op: Op, point: Point) -> Reg:
    pointer, *rest = op.operands
    element = register_type(op.result.type.element)
    mask = lo.at(rest[0], point) if rest else None
    other = lo.at(rest[1], point) if len(rest) > 1 else literal(0, element, point.width)
    if point.width == 1:
        address = lo.at(pointer, point)
        mask = bounds.guard(lo, op, pointer, point, address, mask)
        return _load_one(lo, element, address, mask, other)
    move = stride(pointer, point.dim)
    if move == 1:
        address = lo.at(pointer, Point(point.index))
        mask = bounds.guard_run(lo, op, pointer, point, address, mask)
        return load_run(lo, element, address, point.width, mask, other)
    flag = None if move is not None or lo.checked else lo.run_flag(pointer, point.dim)
    if flag is not None:
        return lo.b.choose(
            flag,
            lambda: load_run(lo, element, lo.at(pointer, Point(point.index)), point.width, mask, other),
            lambda: gather(lo, element, lo.at(pointer, point), mask, other),
        )
    pointers = lo.at(pointer, point)
    mask = bounds.guard(lo, op, pointer, point, pointers, mask)
    if move is not None:
        return gather(lo, element, pointers, mask, other)
    return lo.b.choose(
        is_run(lo, pointers, element),
        lambda: load_run(lo, element, lo.b.lane(pointers, 0), point.width, mask, other),
        lambda: gather(lo, element, pointers, mask, other),
    )


def _load_one(lo: Lowering, element: str, address: Reg, mask: Reg | None, other: Reg) -> Reg:
    if mask is None:
        return lo.b.load(element, address)
    return lo.b.choose(mask, lambda: lo.b.load(element, address), other)


@statement("tt.store")
def store(lo: Lowering, op: Op) -> None:
    pointer, value, *rest = op.operands
    if not pointer.type.is_tensor:
        address, x = lo.at(pointer, SCALAR), lo.at(value, SCALAR)
        mask = lo.at(rest[0], SCALAR) if rest else None
        mask = bounds.guard(lo, op, pointer, SCALAR, address, mask)
        _store_one(lo, x, address, mask)
        return
    apart = _apart(lo, op)
    if apart is None:
        read_before_write(lo, op)
        _store_loop(lo, op)
        return
    direct, careful, after = (lo.b.fresh(p) for p in ("direct", "careful", "stored"))
    lo.b.branch(apart, direct, careful)
    for label in (direct, careful):
        lo.b.block(label)
        with lo.b.scope(), lo.region(lambda value: False):
            if label == careful:
                read_before_write(lo, op)
            _store_loop(lo, op)
        lo.b.jump(after)
    lo.b.block(after)


def _store_loop(lo: Lowering, op: Op) -> None:
    pointer, value, *rest = op.operands
    shape = pointer.type.shape

    def body(point: Point) -> None:
        x = lo.at(value, point)
        mask = lo.at(rest[0], point) if rest else None
        _store_at(lo, op, pointer, point, x, mask)

    with lo.evaluating(op.operands):
        dim = lo.best_dim(op.operands, shape)
        lo.nest(shape, dim, lo.width(shape, dim), body)


def _apart(lo: Lowering, op: Op) -> Reg | None:
    """Whether the memory that is stored to lies apart from all that the value is loaded from.

    Then each element can be loaded, computed and stored in one loop, as it can
    where a row is stored over itself. None where that cannot be told simply.
    """
    pointer, value, *rest = op.operands
    loads = [(v.op.operands[0], in_place) for v, in_place in lo.leaves(value) if v.buffer is None]
    addresses = [v for operand in (pointer, *rest) for v, _ in lo.leaves(operand) if v.buffer is None]
    if not loads or addresses or lo.buffers_wanted(op.operands):
        return None
    target = _span(lo, pointer)
    if target is None:
        return None
    b, apart = lo.b, literal(1, "i1")
    for source, in_place in loads:
        span = _span(lo, source)
        if span is None:
            return None
        clear = b.or_(b.icmp("uge", target[0], span[1]), b.icmp("uge", span[0], target[1]))
        if in_place and _is_row(pointer) and source.type.pointee == pointer.type.pointee:
            clear = b.or_(clear, b.icmp("eq", target[0], span[0]))
        apart = b.and_(apart, clear)
    return apart


def _is_row(pointer: Value) -> bool:
    return max(pointer.type.shape) == pointer.type.size


def _span(lo: Lowering, pointer: Value) -> tuple[Reg, Reg] | None:
    """First and last byte of a tile that is contiguous along one dimension and has at most one more."""
    shape = pointer.type.shape
    wide = [d for d, n in enumerate(shape) if n > 1]
    row = next((d for d in reversed(wide) if stride(pointer, d) == 1), None)
    others = [d for d in wide if d != row]
    if row is None or len(others) > 1:
        return None
    b, length = lo.b, shape[row] * memory_bytes(pointer.type.pointee)

    def start(i: Reg) -> Reg:
        index = [literal(0, "i64")] * len(shape)
        for d in others:
            index[d] = i
        return b.cast("ptrtoint", lo.at(pointer, Point(tuple(index))), "i64")

    def widen(i: Reg, low: Reg, high: Reg) -> list[Reg]:
        at = start(i)
        return [b.intrinsic("umin", low, at), b.intrinsic("umax", high, at)]

    first = start(literal(0, "i64"))
    low, high = b.loop(shape[others[0]], widen, [first, first]) if others else (first, first)
    return low, b.add(high, length)


def read_before_write(lo: Lowering, op: Op) -> None:
    """All the loads that an op's operands need come before its first write."""
    for operand in op.operands:
        loads = [v for v, _ in lo.leaves(operand) if v.buffer is None]
        if loads and operand is op.operands[1]:
            lo.materialise(operand)
            continue
        for v in loads:
            lo.materialise(v)


def _store_at(lo: Lowering, op: Op, pointer: Value, point: Point, x: Reg, mask) -> None:
    element = register_type(op.operands[1].type.element)
    if point.width == 1:
        address = lo.at(pointer, point)
        _store_one(lo, x, address, bounds.guard(lo, op, pointer, point, address, mask))
        return
    move = stride(pointer, point.dim)
    if move == 1:
        address = lo.at(pointer, Point(point.index))
        mask = bounds.guard_run(lo, op, pointer, point, address, mask)
        store_run(lo, x, address, mask)
        return
    pointers = lo.at(pointer, point)
    mask = bounds.guard(lo, op, pointer, point, pointers, mask)
    if move is not None:
        scatter(lo, x, pointers, mask)
        return
    run, each, after = (lo.b.fresh(p) for p in ("run", "each", "stored"))
    lo.b.branch(is_run(lo, pointers, element), run, each)
    lo.b.block(run)
    store_run(lo, x, lo.b.lane(pointers, 0), mask)
    lo.b.jump(after)
    lo.b.block(each)
    scatter(lo, x, pointers, mask)
    lo.b.jump(after)
    lo.b.block(after)


def _store_one(lo: Lowering, x: Reg, address: Reg, mask: Reg | None) -> None:
    if mask is None:
        lo.b.store(x, address)
    else:
        lo.b.when(mask, lambda: lo.b.store(x, address))
