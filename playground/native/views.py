"""Ops that only say which element of another tensor is meant, and constants."""

from __future__ import annotations

import re
import struct

import torch

from .emit import Reg, literal
from .layout import Point, register_type
from .lower import Lowering
from .registry import expression
from .strides import axis_of, order_of

_TORCH_NARROW = {
    "f16": torch.float16, "bf16": torch.bfloat16,
    "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2,
}  # fmt: skip


@expression("tt.splat", view=True, cost=0)
def splat(lo: Lowering, op, point: Point) -> Reg:
    return lo.b.splat(lo.at(op.operands[0], Point(())), point.width)


@expression("tt.unsplat", view=True)
def unsplat(lo: Lowering, op, point: Point) -> Reg:
    source = op.operands[0]
    return lo.at(source, Point((literal(0, "i64"),) * len(source.type.shape)))


@expression("tt.broadcast", view=True, cost=0)
def broadcast(lo: Lowering, op, point: Point) -> Reg:
    source = op.operands[0]
    shape = source.type.shape
    index = tuple(literal(0, "i64") if n == 1 else i for n, i in zip(shape, point.index, strict=True))
    if point.dim is not None and shape[point.dim] == 1:
        return lo.b.splat(lo.at(source, Point(index)), point.width)
    return lo.at(source, point._replace(index=index))


@expression("tt.expand_dims", view=True, cost=0)
def expand_dims(lo: Lowering, op, point: Point) -> Reg:
    axis = axis_of(op)
    index = point.index[:axis] + point.index[axis + 1 :]
    dim = point.dim
    if dim is not None and dim > axis:
        dim -= 1
    return lo.at(op.operands[0], Point(index, dim, point.width))


@expression("tt.trans", view=True, cost=0)
def trans(lo: Lowering, op, point: Point) -> Reg:
    order = order_of(op)
    index = [point.index[0]] * len(order)
    for i, d in enumerate(order):
        index[d] = point.index[i]
    dim = None if point.dim is None else order[point.dim]
    return lo.at(op.operands[0], Point(tuple(index), dim, point.width))


@expression("tt.make_range")
def make_range(lo: Lowering, op, point: Point) -> Reg:
    start = int(op.attrs["start"])
    i = point.index[0]
    if i.startswith("%"):
        first = lo.b.inst(f"trunc nuw nsw i64 {i} to i32", "i32")
        first = lo.b.add(first, start) if start else first
    else:
        first = literal(int(i) + start, "i32")
    if point.width == 1:
        return first
    return lo.b.add(lo.b.splat(first, point.width), lo.b.iota("i32", point.width))


@expression("arith.constant", cost=0)
def constant(lo: Lowering, op, point: Point) -> Reg:
    found = re.search(r"dense<([^\[]*?)>\s*:", op.text) or re.search(
        r"constant (?:\{.*?\} )?([^\s\[]+)(?:\s|$)", op.text
    )
    if found is None:
        lo.unsupported(op, "of several values")
    element = op.result.type.element
    return literal(constant_bits(found[1].strip('"'), element), register_type(element), point.width)


def constant_bits(text: str, element: str):
    """What `literal` wants: a float for f32 and f64, otherwise an integer."""
    if element == "i1":
        return int(text in ("true", "1", "-1"))
    if element in ("f32", "f64"):
        if not text.startswith("0x"):
            return float(text)
        code, size = ("I", "f") if element == "f32" else ("Q", "d")
        return struct.unpack(size, struct.pack(code, int(text, 16)))[0]
    if element in _TORCH_NARROW:
        if text.startswith("0x"):
            return int(text, 16)
        dtype = _TORCH_NARROW[element]
        bits = torch.int8 if dtype.itemsize == 1 else torch.int16
        return torch.tensor(float(text)).to(dtype).view(bits).item()
    return int(text)
