"""Which function lowers which op.

An *expression* gives an op's elements on demand, at the point of a loop that
someone else has opened; it has no loop of its own. A *statement* is emitted in
order and may open loops. `docs/native.md` shows how to add either.
"""

from __future__ import annotations

from collections.abc import Callable

EXPRESSIONS: dict[str, Callable] = {}  # name -> f(lowering, op, point) -> Reg
STATEMENTS: dict[str, Callable] = {}  # name -> f(lowering, op) -> None
COSTS: dict[str, int] = {}  # an expression's price for one element; an addition is 1
VIEWS: set[str] = set()  # expressions that read their operand at another index


def expression(*names: str, cost: int = 1, view: bool = False):
    def register(function):
        for name in names:
            EXPRESSIONS[name] = function
            COSTS[name] = cost
            if view:
                VIEWS.add(name)
        return function

    return register


def statement(*names: str):
    def register(function):
        for name in names:
            STATEMENTS[name] = function
        return function

    return register


def is_lazy(op) -> bool:
    """Is this op's tensor evaluated only where it is used?"""
    return op.name in EXPRESSIONS and bool(op.results) and op.result.type.is_tensor
