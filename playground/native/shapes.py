"""Ops that move elements between shapes, each into a buffer of its own."""

from __future__ import annotations

from .access import gather as gather_vector
from .buffers import fill
from .emit import Reg
from .ir import Op, Value
from .layout import Point, memory_type, register_type
from .lower import Lowering
from .registry import statement
from .strides import axis_of


@statement("tt.reshape")
def reshape(lo: Lowering, op: Op) -> None:
    """Row-major order is kept, so the source's buffer is the result's."""
    source = op.operands[0]
    if source.op is None or source.op.name.startswith("scf."):
        # A loop's buffer is written again by its next iteration: take a copy.
        buffer = lo.b.slot(register_type(source.type.element), source.type.size)
        fill(lo, source, buffer)
        op.result.buffer = buffer
    else:
        op.result.buffer = lo.materialise(source)


def _result_buffer(lo: Lowering, value: Value) -> Reg:
    value.buffer = lo.b.slot(register_type(value.type.element), value.type.size)
    return value.buffer


@statement("tt.join")
def join(lo: Lowering, op: Op) -> None:
    shape = op.result.type.shape
    buffer = _result_buffer(lo, op.result)
    for which, source in enumerate(op.operands):
        _scatter_into(lo, source, shape, buffer, lambda index, k=which: (*index, _at(k)))


def _scatter_into(lo: Lowering, source: Value, shape, buffer: Reg, place) -> None:
    def body(point: Point, x: Reg) -> None:
        lo.store_buffer_as(shape, buffer, x, Point(place(point.index), point.dim, point.width))

    lo.sweep([source], source.type.shape, body)


def _at(k: int) -> Reg:
    return Reg(str(k), "i64")


@statement("tt.split")
def split(lo: Lowering, op: Op) -> None:
    source = op.operands[0]
    lo.materialise(source)
    for which, result in enumerate(op.results):
        buffer = _result_buffer(lo, result)

        def body(point: Point, buffer=buffer, which=which, shape=result.type.shape) -> None:
            x = lo.load_buffer(source, Point((*point.index, _at(which)), point.dim, point.width))
            lo.store_buffer_as(shape, buffer, x, point)

        dim = lo.best_dim([], result.type.shape)
        lo.nest(result.type.shape, dim, lo.width(result.type.shape, dim), body)


@statement("tt.cat")
def cat(lo: Lowering, op: Op) -> None:
    buffer, start = _result_buffer(lo, op.result), 0
    memory = memory_type(op.result.type.element)
    for source in op.operands:
        fill(lo, source, lo.b.gep(memory, buffer, start))
        start += source.type.size


@statement("tt.gather")
def gather(lo: Lowering, op: Op) -> None:
    source, places = op.operands
    axis, shape = axis_of(op), op.result.type.shape
    lo.materialise(source)
    buffer = _result_buffer(lo, op.result)

    def body(point: Point, picked: Reg) -> None:
        strides = [1] * len(shape)
        for d in range(len(shape) - 2, -1, -1):
            strides[d] = strides[d + 1] * source.type.shape[d + 1]
        offset = lo.b.mul(lo.b.to_i64(picked), strides[axis])
        for d, i in enumerate(point.index):
            if d != axis:
                i = lo.b.splat(lo.times(i, strides[d]), point.width)
                offset = lo.b.add(offset, i)
                if d == point.dim:
                    offset = lo.b.add(offset, lo.b.iota("i64", point.width, strides[d]))
        element = register_type(source.type.element)
        pointers = lo.b.gep(memory_type(source.type.element), source.buffer, offset)
        one = point.width == 1
        x = lo.b.load(element, pointers) if one else gather_vector(lo, element, pointers, None, None)
        lo.store_buffer_as(shape, buffer, x, point)

    lo.sweep([places], shape, body)


@statement("tt.histogram")
def histogram(lo: Lowering, op: Op) -> None:
    """One element after the other: two may fall in the same bin."""
    places, *mask = op.operands
    bins = op.result.type.size
    buffer = _result_buffer(lo, op.result)
    zero = Reg("0", "i32")
    lo.nest((bins,), None, 1, lambda p: lo.b.store(zero, lo.b.gep("i32", buffer, p.index[0])))

    def body(point: Point) -> None:
        slot = lo.b.gep("i32", buffer, lo.b.to_i64(lo.at(places, point)))
        one = lo.b.cast("zext", lo.at(mask[0], point), "i32") if mask else Reg("1", "i32")
        lo.b.store(lo.b.add(lo.b.load("i32", slot), one), slot)

    with lo.evaluating(op.operands):
        lo.nest(places.type.shape, None, 1, body)
