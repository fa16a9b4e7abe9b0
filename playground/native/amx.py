"""Products of bf16 matrices on the tile unit that some x86-64 CPUs have (AMX).

A tile is 16 rows of 64 bytes. One instruction multiplies 16 x 32 by 32 x 16
bf16 numbers and adds to 16 x 16 floats; it wants the right matrix with rows
taken two by two, so that the two products of a sum lie side by side. Products
are exact and sums are single precision, as elsewhere; denormals count as zero.
"""

from __future__ import annotations

import ctypes
import sys

from .access import call_void
from .buffers import transpose
from .emit import Reg, literal
from .ir import Op, Value
from .layout import Point
from .lower import LOOP_GUESS, Lowering

SIDE, DEPTH = 16, 32  # a tile of the result is 16 x 16; a step takes 32 of the inner dimension
_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
_CONFIG = bytes([1] + [0] * 15 + [64, 0] * 8 + [0] * 16 + [SIDE] * 8 + [0] * 8)


def is_permitted() -> bool:
    """Ask Linux to save tiles across switches of thread; without that they may not be used."""
    if not sys.platform.startswith("linux"):
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0


def fits(lo: Lowering, op: Op) -> bool:
    left, right = (v.type for v in op.operands[:2])
    if not lo.target.has_tiles or len(left.shape) != 2 or op.result.type.element != "f32":
        return False
    rows, depth = left.shape
    whole = rows % SIDE == 0 and right.shape[1] % SIDE == 0 and depth % DEPTH == 0
    return whole and left.element == right.element == "bf16"


def multiply(lo: Lowering, op: Op, sums: Reg) -> None:
    """sums += left @ right."""
    left, right = op.operands[:2]
    rows, depth = left.type.shape
    columns = right.type.shape[1]
    a, b = lo.materialise(left), lo.b.slot("i16", right.type.size)
    _fill_paired(lo, right, b)
    lo.program.uses_tiles = True
    high, wide = min(2, rows // SIDE), min(2, columns // SIDE)  # four results, two lefts, two rights: eight tiles

    def block(point: Point) -> None:
        m, n = lo.times(point.index[0], high * SIDE), lo.times(point.index[1], wide * SIDE)
        results = [
            (i * wide + j, _at(lo, "float", sums, columns, (m, i * SIDE), (n, j * SIDE)))
            for i in range(high)
            for j in range(wide)
        ]
        for tile, place in results:
            _move(lo, "tileloadd64", tile, place, columns * 4)

        def step(k: Reg) -> None:
            inner = lo.times(k, DEPTH)
            for i in range(high):
                _move(lo, "tileloadd64", 4 + i, _at(lo, "i16", a, depth, (m, i * SIDE), (inner, 0)), depth * 2)
            for j in range(wide):
                pairs = lo.times(k, DEPTH // 2)
                _move(lo, "tileloadd64", 6 + j, _at(lo, "i32", b, columns, (pairs, 0), (n, j * SIDE)), columns * 4)
            for i in range(high):
                for j in range(wide):
                    tiles = (literal(t, "i8") for t in (i * wide + j, 4 + i, 6 + j))
                    call_void(lo.b, "llvm.x86.tdpbf16ps", *tiles, constants=3)

        lo.b.loop(depth // DEPTH, step)
        for tile, place in results:
            _move(lo, "tilestored64", tile, place, columns * 4)

    work = lo.program.work
    lo.nest((rows // (high * SIDE), columns // (wide * SIDE)), None, 1, block)
    lo.program.work = work + rows * columns * depth * lo.multiplier // (LOOP_GUESS * 8)


def _at(lo: Lowering, elem: str, base: Reg, width: int, row: tuple[Reg, int], column: tuple[Reg, int]) -> Reg:
    line = lo.b.add(row[0], row[1]) if row[1] else row[0]
    place = lo.b.add(lo.b.mul(line, width), column[0])
    return lo.b.gep(elem, base, lo.b.add(place, column[1]) if column[1] else place)


def _move(lo: Lowering, name: str, tile: int, place: Reg, stride: int) -> None:
    call_void(lo.b, f"llvm.x86.{name}", literal(tile, "i8"), place, literal(stride, "i64"), constants=1)


def _fill_paired(lo: Lowering, value: Value, buffer: Reg) -> None:
    """The matrix as [depth / 2, columns, 2]."""
    depth, columns = value.type.shape

    with lo.evaluating([value]):
        if lo.best_dim([value], value.type.shape) == 0:
            _fill_from_columns(lo, value, buffer)
            return
        width = min(DEPTH, columns)

        def pair(point: Point) -> None:
            k, n = point.index
            k, n = lo.times(k, 2), lo.times(n, width)
            upper = lo.at(value, Point((k, n), 1, width))
            lower = lo.at(value, Point((lo.b.add(k, 1), n), 1, width))
            both = lo.b.shuffle(upper, lower, [i // 2 + (i % 2) * width for i in range(2 * width)])
            place = lo.b.add(lo.b.mul(k, columns), lo.b.mul(n, 2))
            lo.b.store(both, lo.b.gep("i16", buffer, place))

        lo.nest((depth // 2, columns // width), None, 1, pair)


def _fill_from_columns(lo: Lowering, value: Value, buffer: Reg) -> None:
    """Where memory runs down the columns a pair is 32 bits already: turn squares of those."""
    depth, columns = value.type.shape

    def square(point: Point) -> None:
        k, n = lo.times(point.index[0], DEPTH), lo.times(point.index[1], SIDE)
        rows = []
        for i in range(SIDE):
            x = lo.at(value, Point((k, lo.b.add(n, i)), 0, DEPTH))
            rows.append(lo.b.inst(f"bitcast {x.typed} to <{SIDE} x i32>", "i32", SIDE))
        pairs = lo.times(point.index[0], DEPTH // 2)
        for i, row in enumerate(transpose(lo.b, rows)):
            lo.b.store(row, _at(lo, "i32", buffer, columns, (pairs, i), (n, 0)))

    lo.nest((depth // DEPTH, columns // SIDE), None, 1, square)


def configure() -> tuple[str, str, str]:
    """Declarations, and what a thread does before its first program and after its last."""
    data = "".join(f"\\{byte:02X}" for byte in _CONFIG)
    declared = (
        f'@tile_config = private constant [64 x i8] c"{data}", align 64\n'
        "declare void @llvm.x86.ldtilecfg(ptr)\ndeclare void @llvm.x86.tilerelease()"
    )
    return declared, "call void @llvm.x86.ldtilecfg(ptr @tile_config)", "call void @llvm.x86.tilerelease()"
