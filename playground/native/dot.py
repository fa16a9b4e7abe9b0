"""Matrix products.

Both operands are put in buffers of the accumulator's type, so a product of bf16
or fp8 matrices is exact and its sum is single precision, and fp32 products are
IEEE: `input_precision="tf32"` asks a GPU for less, and is not imitated. The
loop over K keeps a tile of the result in registers.
"""

from __future__ import annotations

import math

from . import amx
from .analysis import sinks_of
from .buffers import fill
from .elementwise import FLOATS, convert
from .emit import Builder, Reg, literal
from .ir import Op, Value
from .layout import Point, register_type
from .lower import LOOP_GUESS, Lowering
from .registry import statement

TILE_ROWS = 4
TILE_VECTORS = 4  # 4 x 4 accumulators and 4 vectors of B stay within 32 registers


@statement("tt.dot")
def dot(lo: Lowering, op: Op) -> None:
    left, right, _ = op.operands
    result = op.result
    if amx.fits(lo, op):
        result.buffer = _accumulator(lo, op, "f32")
        amx.multiply(lo, op, result.buffer)
        return
    acc = {"f64": "f64", "i32": "i32"}.get(result.type.element, "f32")
    a, b = (_operand(lo, v, acc) for v in (left, right))
    c = _accumulator(lo, op, acc)
    *batch, rows, depth = left.type.shape
    columns = right.type.shape[-1]
    _multiply(lo, (math.prod(batch), rows, columns, depth), register_type(acc), a, b, c)
    if acc == result.type.element:
        result.buffer = c
    else:
        result.buffer = _rounded(lo, result, acc, c)


def _operand(lo: Lowering, value: Value, acc: str) -> Reg:
    """A matrix in a buffer of the accumulator's type."""
    if value.type.element == acc:
        return lo.materialise(value)
    element = value.type.element
    buffer = lo.b.slot(register_type(acc), value.type.size)
    if acc == "i32":
        fill(lo, value, buffer, lambda x: lo.b.cast("sext", x, "i32"))
    elif element in FLOATS:
        fill(lo, value, buffer, lambda x: convert(lo.b, x, element, acc))
    return buffer


def _accumulator(lo: Lowering, op: Op, acc: str) -> Reg:
    """Where the product is summed: in the loop's own buffer if that is possible."""
    start, result = op.operands[2], op.result
    buffer = _carried_buffer(lo, op, acc) or lo.b.slot(register_type(acc), result.type.size)
    if start.buffer == buffer:
        return buffer
    element = start.type.element
    same = element == acc or acc == "i32"
    fill(lo, start, buffer, None if same else lambda x: convert(lo.b, x, element, acc))
    return buffer


def _carried_buffer(lo: Lowering, op: Op, acc: str) -> Reg | None:
    """The slot of `acc = dot(a, b, f(acc))` in a loop, if nothing else reads it after.

    `f(acc)` must read the slot in place, and this dot must be the last to do so.
    """
    result = op.result
    users = result.users
    if result.type.element != acc or len(users) != 1 or users[0].name != "scf.yield":
        return None
    loop = users[0].block.parent
    if loop.name != "scf.for" or users[0].block is not op.block:
        return None
    carried = users[0].block.args[1 + users[0].operands.index(result)]
    sinks = {sink.op for sink in sinks_of(carried)}
    if sinks - {op}:
        return None
    elsewhere = any(leaf is carried and not in_place for leaf, in_place in lo.leaves(op.operands[2]))
    aside = any(leaf is carried for v in op.operands[:2] for leaf, _ in lo.leaves(v))
    return None if elsewhere or aside else carried.buffer


def _multiply(lo: Lowering, sizes, elem: str, a: Reg, b: Reg, c: Reg) -> None:
    batch, rows, columns, depth = sizes
    width = min(lo.target.lanes, columns)
    vectors = max(1, min(TILE_VECTORS, columns // width))
    height = min(TILE_ROWS, rows)
    lo.program.work += batch * rows * columns * depth * lo.multiplier // LOOP_GUESS
    work, lo.program.work = lo.program.work, 0

    def tile(point: Point) -> None:
        q, m, n = point.index
        m, n = lo.times(m, height), lo.times(n, vectors * width)
        lines = [_sum(lo.b, _sum(lo.b, lo.times(q, rows), m), i) for i in range(height)]
        first = lo.b.gep(elem, b, _sum(lo.b, lo.times(q, columns * depth), n))
        starts = [lo.b.gep(elem, a, lo.times(line, depth)) for line in lines]
        targets = [
            lo.b.gep(elem, c, _sum(lo.b, _sum(lo.b, lo.times(line, columns), n), j * width))
            for line in lines
            for j in range(vectors)
        ]
        sums = [lo.b.load(elem, t, width) for t in targets]

        def step(k: Reg, *sums: Reg) -> list[Reg]:
            row = lo.b.gep(elem, first, lo.times(k, columns))
            vs = [lo.b.load(elem, lo.b.gep(elem, row, j * width), width) for j in range(vectors)]
            xs = [lo.b.splat(lo.b.load(elem, lo.b.gep(elem, s, k)), width) for s in starts]
            return [_fma(lo.b, x, v, sums[i * vectors + j])
                    for i, x in enumerate(xs) for j, v in enumerate(vs)]  # fmt: skip

        for t, total in zip(targets, lo.b.loop(depth, step, sums), strict=True):
            lo.b.store(total, t)

    lo.nest((batch, rows // height, columns // (vectors * width)), None, 1, tile)
    lo.program.work = work


def _sum(b: Builder, x: Reg, y) -> Reg:
    y = y if isinstance(y, Reg) else literal(y, "i64")
    if y == "0":
        return x
    return y if x == "0" else b.inst(f"add nuw nsw i64 {x}, {y}", "i64")


def _fma(b: Builder, x: Reg, y: Reg, z: Reg) -> Reg:
    if x.elem == "i32":
        return b.add(z, b.mul(x, y))
    return b.fma(x, y, z)


def _rounded(lo: Lowering, result: Value, acc: str, sums: Reg) -> Reg:
    """A product whose type is narrower than its sum."""
    buffer = lo.b.slot(register_type(result.type.element), result.type.size)
    shape = (result.type.size,)

    def body(point: Point) -> None:
        x = lo.b.load(register_type(acc), lo.b.gep(register_type(acc), sums, point.index[0]), point.width)
        x = convert(lo.b, x, acc, result.type.element)
        lo.store_buffer_as(shape, buffer, x, point)

    lo.nest(shape, 0, lo.width(shape, 0), body)
    return buffer
