"""The vocabulary of the lowering: how elements are held, and where one is asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .emit import Reg, byte_size

# What a register holds for an element. Narrow floats are their bits (see runtime.narrow).
REGISTERS = {
    "f32": "float", "f64": "double", "f16": "i16", "bf16": "i16", "index": "i64",
    "f8E4M3FN": "i8", "f8E5M2": "i8",
}  # fmt: skip

FIRST_ARGUMENT = 5  # the word of a job where a kernel's arguments begin (see module.py)


def register_type(element: str) -> str:
    return "ptr" if element.startswith("!tt.ptr") else REGISTERS.get(element, element)


def memory_type(element: str) -> str:
    return "i8" if element == "i1" else register_type(element)


def memory_bytes(element: str) -> int:
    return byte_size(register_type(element))


class Point(NamedTuple):
    """Where in a shape an expression is asked for its value.

    `index` has one i64 a dimension; along `dim`, if any, the answer is a vector
    of `width` elements that starts there.
    """

    index: tuple[Reg, ...]  # type: ignore[assignment]  # the name hides tuple.index, which nothing here needs
    dim: Any = None  # an int where width is more than 1
    width: int = 1


SCALAR = Point(())


@dataclass
class Target:
    """What the lowering asks of a CPU."""

    lanes: int  # 32-bit lanes of a vector register
    masked_memory: bool = False  # masked loads and stores of every width
    has_fma: bool = True
    has_f16c: bool = True
    has_scalef: bool = False
    has_tiles: bool = False  # AMX, for bf16


@dataclass
class Program:
    """A lowered module, before LLVM."""

    functions: list[str] = field(default_factory=list)
    declarations: set[str] = field(default_factory=set)
    constants: list[str] = field(default_factory=list)
    arena_bytes: int = 0
    work: int = 0  # an estimate of a program's elements, to choose threads by
    sites: list[tuple] = field(default_factory=list)  # what a report's number means
    prints: bool = False
    uses_tiles: bool = False
