"""What the lowering must know before it emits: who uses a value, and what it costs.

A tensor that is cheap to compute is computed again wherever it is needed; one
that is dear and needed twice is *shared*: put in a buffer the first time.
"""

from __future__ import annotations

from typing import NamedTuple

from .ir import Function, Op, Value, walk
from .registry import COSTS, is_lazy
from .strides import stride

SHARE_COST = 8  # from here on a second computation costs more than a buffer
STRETCH_COST = 5  # the same where each element is used by a whole row or column
GATHER_COST = 12
FORCE_COST = 300  # an expression this deep is cut, whatever its uses (it is evaluated by recursion)
_SEPARATE_OPERANDS = {"tt.dot", "tt.dot_scaled", "tt.join", "tt.cat", "tt.return", "tt.call"}


class Sink(NamedTuple):
    """A statement that evaluates a lazy value in one loop of its own."""

    op: Op
    part: object  # tells apart the loops of one statement

    def is_after(self, position: int) -> bool:
        return self.op.position > position

    def is_inside(self, op: Op) -> bool:
        return op.position < self.op.position <= op.end


def analyse(function: Function) -> None:
    ops = [op for op in walk(function.blocks) if not _in_combine(op)]
    for op in reversed(ops):
        for value in op.results:
            value.sinks = sinks_of(value)
    for op in ops:
        if is_lazy(op):
            _price(op)


def _in_combine(op: Op) -> bool:
    return op.block.parent.name in ("tt.reduce", "tt.scan")


def sinks_of(value: Value) -> set[Sink]:
    """The statements that read a value, directly or through lazy ops."""
    sinks = set()
    for user in value.users:
        if is_lazy(user):
            for result in user.results:
                sinks |= result.sinks
        elif user.name in ("scf.yield", "scf.condition"):
            sinks.add(Sink(user, value.type.shape))
        elif user.name in _SEPARATE_OPERANDS:
            sinks.add(Sink(user, user.operands.index(value)))
        else:
            sinks.add(Sink(user, None))
    return sinks


def _price(op: Op) -> None:
    value = op.result
    cost = cost_of(op)
    several = len(value.sinks) > 1
    deeper = any(sink.op.block is not value.block for sink in value.sinks)
    stretched = any(user.name == "tt.broadcast" for user in value.users)
    bar = STRETCH_COST if stretched else SHARE_COST
    value.shared = cost > FORCE_COST or (cost >= bar and (several or deeper or stretched))
    value.cost = 1 if value.shared else cost


def cost_of(op: Op) -> int:
    own = _load_cost(op) if op.name == "tt.load" else COSTS[op.name]
    return own + sum(a.cost for a in op.operands if a.type.is_tensor)


def _load_cost(op: Op) -> int:
    """A contiguous load may as well be made again, as a buffer would be read again.

    Not across a write, though: `Lowering.settle` sees to that.
    """
    pointer = op.operands[0]
    is_contiguous = any(stride(pointer, d) == 1 for d in range(len(pointer.type.shape)))
    return 2 if is_contiguous and "isVolatile = true" not in op.text else GATHER_COST
