"""How an index or pointer tensor moves along one of its dimensions.

`stride(v, d)` is the difference between neighbours along `d`, in elements, or
None where it is not one known number. Index arithmetic is taken not to wrap
inside a block, as Triton's own axis analysis takes it.
"""

from __future__ import annotations

import re

from .ir import Value

_SAME_AS_OPERAND = {"arith.extsi", "arith.extui", "arith.index_cast", "tt.bitcast"}
_REMAINDERS = {"arith.remsi", "arith.remui"}


def axis_of(op) -> int:
    return int(op.attrs["axis"])


def order_of(op) -> list[int]:
    return [int(n) for n in re.findall(r"-?\d+", op.attrs["order"].split(":")[1])]


def constant_int(value: Value) -> int | None:
    """The one integer that a constant, or a constant tensor, holds."""
    if value.op is None or value.op.name != "arith.constant":
        return None
    text = re.search(r"dense<(-?\d+)>|constant (-?\d+)", value.op.text)
    return int(text[1] or text[2]) if text else None


def stride(value: Value, dim: int, guess: bool = False, known: dict | None = None) -> int | None:
    """`guess` looks through `x % n`, which moves as x does until it wraps."""
    known = known or {}
    if not value.type.is_tensor or value.type.shape[dim] == 1:
        return 0
    if value in known:
        return known[value]
    op = value.op
    if op is None:
        return _carried_stride(value, dim, guess, known)
    if op.name in ("tt.splat", "arith.constant"):
        return 0 if op.name == "tt.splat" or "dense<[" not in op.text else None
    if op.name == "tt.make_range":
        return 1
    if op.name == "tt.expand_dims":
        axis = axis_of(op)
        return 0 if dim == axis else stride(op.operands[0], dim - (dim > axis), guess, known)
    if op.name == "tt.broadcast" or op.name in _SAME_AS_OPERAND:
        return stride(op.operands[0], dim, guess, known)
    if op.name == "tt.trans":
        return stride(op.operands[0], order_of(op)[dim], guess, known)
    if guess and op.name in _REMAINDERS:
        return stride(op.operands[0], dim, guess, known)
    if op.name in ("arith.addi", "tt.addptr", "arith.subi", "arith.muli"):
        return _arithmetic(op, dim, guess, known)
    return None


def is_wrapped_range(value: Value) -> bool:
    """`(start + range) % n`, by which kernels keep rows and columns inside a matrix."""
    op = value.op
    if op is None or op.name not in _REMAINDERS or len(value.type.shape) != 1:
        return False
    return stride(op.operands[0], 0) == 1 and stride(op.operands[1], 0) == 0


def _arithmetic(op, dim: int, guess: bool, known: dict) -> int | None:
    x, y = (stride(v, dim, guess, known) for v in op.operands)
    if x is None or y is None:
        return None
    if op.name == "arith.muli":
        if x == 0 and y == 0:
            return 0
        if x and y:
            return None
        factor = constant_int(op.operands[1] if y == 0 else op.operands[0])
        return None if factor is None else (x or y) * factor
    return x - y if op.name == "arith.subi" else x + y


def _carried_stride(value: Value, dim: int, guess: bool, known: dict) -> int | None:
    """A loop's argument moves as its first value does, if each step keeps that."""
    parent = value.block.parent
    if parent.name != "scf.for" or value.number == 0:
        return None
    first = stride(parent.operands[2 + value.number], dim, guess, known)
    following = value.block.ops[-1].operands[value.number - 1]
    if first is None:
        return None
    again = stride(following, dim, guess, {**known, value: first})
    return first if again == first else None
