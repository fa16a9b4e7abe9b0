"""Filling buffers, turned where memory is contiguous along another dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .emit import Reg
from .ir import Value
from .layout import Point, memory_bytes

if TYPE_CHECKING:
    from .lower import Lowering


def fill(lo: Lowering, value: Value, buffer: Reg, convert=None) -> None:
    """Evaluate a tensor into a row-major buffer; `convert` changes each register."""
    shape = value.type.shape

    with lo.evaluating([value]):
        dim = lo.best_dim([value], shape)
        if dim is not None and dim != len(shape) - 1 and _fill_turned(lo, value, buffer, dim, convert):
            return

        def body(point: Point) -> None:
            x = lo.at(value, point)
            x = convert(x) if convert else x
            lo.store_buffer_as(shape, buffer, x, point)

        registers = 2 if memory_bytes(value.type.element) <= 2 else 1
        lo.nest(shape, dim, lo.width(shape, dim, registers), body, value.cost)


def _fill_turned(lo: Lowering, value: Value, buffer: Reg, dim: int, convert) -> bool:
    """Read vectors along `dim`, write them along the last: square blocks are turned."""
    shape = value.type.shape
    side = min(lo.target.lanes, shape[dim], shape[-1])
    if side < 4:
        return False
    last = len(shape) - 1
    blocks = tuple(n // side if d in (dim, last) else n for d, n in enumerate(shape))

    def body(block: Point) -> None:
        base = [lo.times(i, side) if d in (dim, last) else i for d, i in enumerate(block.index)]
        rows = []
        for k in range(side):
            index = list(base)
            index[last] = lo.b.add(base[last], k) if k else base[last]
            x = lo.at(value, Point(tuple(index), dim, side))
            rows.append(convert(x) if convert else x)
        for k, row in enumerate(transpose(lo.b, rows)):
            index = list(base)
            index[dim] = lo.b.add(base[dim], k) if k else base[dim]
            lo.store_buffer_as(shape, buffer, row, Point(tuple(index), last, side))

    lo.nest(blocks, None, 1, body)
    return True


def transpose(b, rows: list[Reg]) -> list[Reg]:
    """A square of registers, turned by log2(side) rounds of two-register shuffles."""
    side = len(rows)
    half = side // 2
    while half:
        upper = [i if not i & half else side + i - half for i in range(side)]
        lower = [i + half if not i & half else side + i for i in range(side)]
        turned = list(rows)
        for i in range(side):
            if not i & half:
                x, y = rows[i], rows[i | half]
                turned[i], turned[i | half] = b.shuffle(x, y, upper), b.shuffle(x, y, lower)
        rows, half = turned, half // 2
    return rows
