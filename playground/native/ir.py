"""The small IR that `parse` builds from Triton's TTIR and the lowering reads.

It holds ops, values, blocks and types; of LLVM's only the register that the
lowering gave a value. It is not a
verifier: the text comes from Triton, which has verified it already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .emit import Reg


@dataclass(frozen=True)
class Type:
    """A scalar (`f32`, `i1`, `!tt.ptr<f32>`) or a tensor of such elements."""

    shape: tuple[int, ...]
    element: str
    is_tensor: bool

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_pointer(self) -> bool:
        return self.element.startswith("!tt.ptr")

    @property
    def pointee(self) -> str:
        """What an element of this pointer type points at."""
        inner = self.element[len("!tt.ptr<") : -1]
        depth_zero_comma = inner.rfind(", ")
        return inner[:depth_zero_comma] if depth_zero_comma > 0 and inner[-1] != ">" else inner


@dataclass(eq=False, repr=False)
class Value:
    """One SSA value, and what the lowering learns about it."""

    type: Type
    op: Any  # the Op; None for a block's argument
    number: int  # which result of `op`, or which argument of `block`
    block: Block
    users: list[Op] = field(default_factory=list)
    # Set by the analysis (see analysis.py).
    sinks: set = field(default_factory=set)
    cost: int = 1
    shared: bool = False
    # Set by the lowering: a scalar's register, or the buffer a tensor was put in.
    reg: Reg | None = None
    buffer: Any = None  # the Reg of a pointer


@dataclass(eq=False, repr=False)
class Op:
    """One operation. `words` are its bare words (a predicate, an axis letter)."""

    name: str
    block: Block  # none for the pseudo op that holds a function's body
    words: list[str] = field(default_factory=list)
    attrs: dict[str, str] = field(default_factory=dict)
    text: str = ""
    operands: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    regions: list[list[Block]] = field(default_factory=list)
    successors: list[tuple[str, list[Value]]] = field(default_factory=list)
    location: str | None = None
    position: int = 0  # in textual order over the whole module
    end: int = 0  # the position of the last op inside this one's regions
    has_effect: bool = False  # writes memory, itself or in its regions

    @property
    def result(self) -> Value:
        return self.results[0]


@dataclass(eq=False, repr=False)
class Block:
    parent: Op
    label: str = ""
    args: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    @cached_property
    def depth(self) -> int:
        outer = self.parent.block
        return outer.depth + 1 if outer else 0


@dataclass(eq=False, repr=False)
class Function:
    name: str
    is_public: bool
    body: Op  # a pseudo op named `func` whose single region holds the blocks
    return_types: list[Type]
    arg_names: list[str]

    @property
    def blocks(self) -> list[Block]:
        return self.body.regions[0]

    @property
    def args(self) -> list[Value]:
        return self.blocks[0].args


@dataclass(eq=False, repr=False)
class Module:
    functions: dict[str, Function]
    lines: dict[str, tuple[str, int]]  # location alias -> file, line

    @property
    def entry(self) -> Function:
        return next(f for f in self.functions.values() if f.is_public)

    def where(self, op: Op) -> tuple[str, int]:
        """File and line of the source that an op came from."""
        return self.lines.get(op.location or "", ("<unknown>", 0))


def walk(blocks: list[Block]):
    """Every op in textual order, outer before inner."""
    for block in blocks:
        for op in block.ops:
            yield op
            for region in op.regions:
                yield from walk(region)
