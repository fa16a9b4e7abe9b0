"""From a function of the small IR to LLVM text: the machinery every op shares.

A tensor is not computed where it is defined. Statements (stores, reductions,
dots) open loops over a shape and ask, at each point, for the elements they
need; expressions answer by asking their operands. So a chain of elementwise
ops becomes one loop without temporaries. What is dear and needed again is put
in a buffer by the first loop that computes it (see `evaluating`).

The ops themselves are in elementwise, views, memory, reduce, dot, shapes,
control and report; they register themselves, and this module knows none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import contextmanager
from typing import NoReturn

from .access import gather
from .analysis import FORCE_COST, analyse, cost_of
from .buffers import fill
from .emit import Builder, Reg, literal
from .errors import Unsupported
from .induction import carry_scalars
from .ir import Block, Function, Module, Op, Value
from .layout import SCALAR, Point, Program, Target, memory_type, register_type
from .registry import EXPRESSIONS, STATEMENTS, VIEWS, is_lazy
from .strides import is_wrapped_range, order_of, stride

UNROLL_STEPS = 16
UNROLL_COST = 1000  # in the units of registry.COSTS
LOOP_GUESS = 8  # how often a loop of unknown length is taken to run, for `work`


class Lowering:
    """Lowers one function."""

    def __init__(self, module: Module, target: Target, program: Program, checked: bool):
        self.module, self.target, self.program, self.checked = module, target, program, checked
        self.b = Builder(program.declarations)
        self.b.has_fma, self.b.has_f16c = target.has_fma, target.has_f16c
        self.b.has_scalef = target.has_scalef
        self.pending: list[Value] = []  # lazy values that may have to be put in a buffer
        self.tees: dict[Value, Reg] = {}  # values that the current loop also stores
        self.runs: dict[Value, Reg] = {}  # buffers of wrapped ranges: do they not wrap?
        self.filled: list[Value] = []  # values put in a buffer since the current region began
        self.yields: list = []  # where the enclosing regions' yields go
        self.block_slots: dict[str, list] = {}
        self.prefix = ""
        self.multiplier = 1
        self.callee: Callable[[str], str]  # a function's symbol; lowers it the first time

    # -- statements

    def function(self, function: Function) -> None:
        carry_scalars(function)
        analyse(function)
        for i, block in enumerate(function.blocks):
            if i:
                self.b.block(self.prefix + block.label)
                self.b.forget()
            self.bind_block(block)
            with self.region(lambda value, block=block: value.block is block):
                self.block(block)

    @contextmanager
    def region(self, owns):
        """Around code that may not run: what it defers and buffers is its own.

        A value from outside that was put in a buffer here (`owns` tells which are
        from inside) is as unbuffered after as before.
        """
        pending, self.pending = self.pending, []
        filled, self.filled = self.filled, []
        yield
        for value in self.filled:
            if not owns(value):
                value.buffer = None
                self.runs.pop(value, None)
        self.pending, self.filled = pending, filled

    def bind_block(self, block: Block) -> None:
        if block.label in self.block_slots:
            self.bind(block.args, self.block_slots[block.label])

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.statement(op)

    def statement(self, op: Op) -> None:
        if is_lazy(op):
            self._defer(op)
            return
        if op.has_effect or op.regions or op.name.startswith("cf."):
            self.settle(op)
        if op.name in STATEMENTS:
            STATEMENTS[op.name](self, op)
        elif op.name in EXPRESSIONS:
            op.result.reg = EXPRESSIONS[op.name](self, op, SCALAR)
        else:
            self.unsupported(op)

    def _defer(self, op: Op) -> None:
        value = op.result
        if not value.sinks:
            return
        if cost_of(op) > FORCE_COST:
            self.materialise(value)
        elif value.shared or op.name == "tt.load":
            self.pending.append(value)

    def settle(self, op: Op) -> None:
        """Put in buffers what must be computed before `op`.

        Loads may not move past a write; and what a region or another block
        needs has to be there before control enters it.
        """
        leaves_block = op.name.startswith("cf.")
        for value in list(self.pending):
            if value.buffer is not None:
                self.pending.remove(value)
                continue
            is_load = value.op.name == "tt.load"
            inside = op.regions and any(s.is_inside(op) for s in value.sinks)
            later = any(s.is_after(op.position) for s in value.sinks)
            if inside or (later and (leaves_block or (is_load and op.has_effect))):
                self.materialise(value)

    def unsupported(self, op: Op, why: str = "has no meaning on a CPU") -> NoReturn:
        file, line = self.module.where(op)
        raise Unsupported(f"{op.name} {why} ({file}:{line})")

    # -- expressions

    def at(self, value: Value, point: Point) -> Reg:
        """The value's element, or vector of elements, at a point."""
        if value.reg is not None:
            return value.reg
        if value.buffer is not None:
            return self.load_buffer(value, point)
        key = (value, point)
        reg = self.b.recall(key)
        if reg is None:
            reg = EXPRESSIONS[value.op.name](self, value.op, point)
            if value in self.tees and len(point.index) == len(value.type.shape):
                self.store_buffer_as(value.type.shape, self.tees[value], reg, point)
            self.b.remember(key, reg)
        return reg

    def operands(self, op: Op, point: Point) -> list[Reg]:
        return [self.at(v, point) for v in op.operands]

    # -- loops

    def nest(self, shape, dim: int | None, width: int, body, cost: int = UNROLL_COST) -> None:
        """Loops over `shape`; `body(point)` with vectors of `width` along `dim`.

        A few steps of a body that costs little are written out, so that LLVM can
        keep a small tile in registers from one statement to the next.
        """
        index = [literal(0, "i64")] * len(shape)
        order = [d for d in range(len(shape)) if d != dim] + ([] if dim is None else [dim])
        self.program.work += math.prod(shape) * self.multiplier
        steps = math.prod(shape) // width
        few = steps <= 4 or (steps <= UNROLL_STEPS and steps * cost <= UNROLL_COST)
        loop = self.b.unrolled if few else self.b.loop

        def level(k: int) -> None:
            if k == len(order):
                body(Point(tuple(index), dim if width > 1 else None, width))
                return
            d = order[k]
            stretch = width if d == dim else 1

            def inside(i: Reg) -> None:
                index[d] = self.times(i, stretch)
                level(k + 1)

            loop(shape[d] // stretch, inside)

        level(0)

    def sweep(self, values: list[Value], shape, body) -> None:
        """Evaluate values together, once at every point of their shape."""
        with self.evaluating(values):
            dim = self.best_dim(values, shape)
            width = self.width(shape, dim)
            cost = sum(v.cost for v in values)
            self.nest(shape, dim, width, lambda p: body(p, *[self.at(v, p) for v in values]), cost)

    def width(self, shape, dim: int | None, registers: int = 1) -> int:
        return 1 if dim is None else min(shape[dim], self.target.lanes * registers)

    def best_dim(self, values: list[Value], shape) -> int | None:
        """The dimension along which the first memory access is contiguous."""
        wide = [d for d, n in enumerate(shape) if n > 1]
        for value in values:
            dim = self._contiguous_dim(value, tuple(range(len(shape))))
            if dim is not None and shape[dim] > 1:
                return dim
        return wide[-1] if wide else None

    def _contiguous_dim(self, value: Value, dims: tuple, depth: int = 40) -> int | None:
        """`dims[d]` is the loop's dimension that the value's dimension d is."""
        if value.op is None or value.buffer is not None or depth == 0:
            return None
        op = value.op
        pointer = op.operands[0] if op.name == "tt.load" else value
        if pointer.type.is_pointer:
            moves = [stride(pointer, d, guess=True) for d in range(len(dims))]
            moves = [m if n > 1 else 0 for m, n in zip(moves, pointer.type.shape, strict=True)]
            return dims[moves.index(1)] if 1 in moves else None
        if op.name == "tt.trans":
            order = order_of(op)
            inner = [0] * len(order)
            for i, d in enumerate(order):
                inner[d] = dims[i]
            return self._contiguous_dim(op.operands[0], tuple(inner), depth - 1)
        if op.name in VIEWS:
            return None
        for operand in op.operands:
            found = self._contiguous_dim(operand, dims, depth - 1)
            if found is not None:
                return found
        return None

    def times(self, i: Reg, factor: int) -> Reg:
        if factor == 1:
            return i
        if not i.startswith("%"):
            return literal(int(i) * factor, "i64")
        return self.b.inst(f"mul nuw nsw i64 {i}, {factor}", "i64")

    def linear(self, index, shape) -> Reg:
        """Row-major offset of an index."""
        total = literal(0, "i64")
        for i, n in zip(index, shape, strict=True):
            if n == 1:
                continue
            total = self.times(total, n)
            if i == "0":
                continue
            total = i if total == "0" else self.b.inst(f"add nuw nsw i64 {total}, {i}", "i64")
        return total

    # -- buffers

    def materialise(self, value: Value) -> Reg:
        """Put a tensor in a buffer, if it is in none yet."""
        if value.buffer is None:
            buffer = self.b.slot(register_type(value.type.element), value.type.size)
            value.shared = False  # the loop below must not store it twice
            fill(self, value, buffer)
            self.keep(value, buffer)
        if value in self.pending:
            self.pending.remove(value)
        return value.buffer

    def load_buffer(self, value: Value, point: Point) -> Reg:
        element = register_type(value.type.element)
        memory = memory_type(value.type.element)
        where, step = self._place(value.type.shape, memory, value.buffer, point)
        if step == 1 or point.width == 1:
            return self.b.load(element, where, point.width)
        offsets = self.b.iota("i64", point.width, step)
        pointers = self.b.gep(memory, where, offsets)
        return gather(self, element, pointers, None, None)

    def store_buffer_as(self, shape, buffer: Reg, reg: Reg, point: Point) -> None:
        elem = "i8" if reg.elem == "i1" else reg.elem
        where, step = self._place(shape, elem, buffer, point)
        if step == 1 or point.width == 1:
            self.b.store(reg, where)
            return
        for lane in range(point.width):
            self.b.store(self.b.lane(reg, lane), self.b.gep(elem, where, lane * step))

    def _place(self, shape, elem: str, buffer: Reg, point: Point) -> tuple[Reg, int]:
        """A point's address in a row-major buffer, and the step between its lanes."""
        offset = self.linear(point.index, shape)
        step = 1 if point.dim is None else math.prod(shape[point.dim + 1 :])
        return self.b.gep(elem, buffer, offset), step

    @contextmanager
    def evaluating(self, values: list[Value]):
        """Around a loop that evaluates `values`, once at each point.

        Shared values met on the way are stored by the loop itself where it
        visits all their elements in place, and before it where it does not.
        """
        while (early := self._first_displaced(values)) is not None:
            self.materialise(early)
        outer, self.tees = self.tees, {}
        found: dict[Value, bool] = {}
        for value in values:
            self._shared(value, True, found)
        for value in found:
            if len(value.sinks) > 1:
                element = register_type(value.type.element)
                self.tees[value] = self.b.slot(element, value.type.size)
        with self.b.scope():
            yield
        for value, buffer in self.tees.items():
            self.keep(value, buffer)
        self.tees = outer

    def keep(self, value: Value, buffer: Reg) -> None:
        value.buffer = buffer
        self.filled.append(value)
        if is_wrapped_range(value):
            self._note_run(value)

    def _note_run(self, value: Value) -> None:
        """`(start + range) % n` is contiguous if its ends are as far apart as its length."""
        elem, last = register_type(value.type.element), value.type.size - 1
        ends = [self.b.load(elem, self.b.gep(elem, value.buffer, i)) for i in (0, last)]
        self.runs[value] = self.b.icmp("eq", self.b.sub(ends[1], ends[0]), last)

    def run_flag(self, pointer: Value, dim: int) -> Reg | None:
        """Whether a pointer tensor is contiguous along `dim`, if its wrapped ranges tell."""
        if stride(pointer, dim, known=dict.fromkeys(self.runs, 1)) != 1:
            return None
        flags = [self.runs[v] for v, _ in self.leaves(pointer) if v in self.runs]
        total = flags[0]
        for flag in flags[1:]:
            total = self.b.and_(total, flag)
        return total

    def buffers_wanted(self, values: list[Value]) -> bool:
        """Would evaluating these store shared values for later?"""
        found: dict[Value, bool] = {}
        for value in values:
            self._shared(value, True, found)
        return any(len(value.sinks) > 1 for value in found)

    def _first_displaced(self, values: list[Value]) -> Value | None:
        """A shared value that these read at another index than their own."""
        found: dict[Value, bool] = {}
        for value in values:
            self._shared(value, True, found)
        displaced = [v for v, in_place in found.items() if not in_place]
        return min(displaced, key=lambda v: v.op.position) if displaced else None

    def _shared(self, value: Value, in_place: bool, found: dict, seen: set | None = None) -> None:
        seen = set() if seen is None else seen
        if (value, in_place) in seen or not self.is_expression(value):
            return
        seen.add((value, in_place))
        if value.shared:
            found[value] = found.get(value, True) and in_place
        inner = in_place and value.op.name not in VIEWS
        for operand in value.op.operands:
            self._shared(operand, inner, found, seen)

    def is_expression(self, value: Value) -> bool:
        """Would `at` compute this, and not read a register or a buffer?"""
        return value.reg is None and value.buffer is None and value.op is not None

    def leaves(self, value: Value) -> list[tuple[Value, bool]]:
        """Loads and buffers that evaluating would read; and whether in place."""
        found: list[tuple[Value, bool]] = []
        seen = set()

        def visit(v: Value, in_place: bool) -> None:
            if (v, in_place) in seen:
                return
            seen.add((v, in_place))
            if v.buffer is not None or (v.op is not None and v.op.name == "tt.load"):
                found.append((v, in_place))
            if self.is_expression(v):
                for operand in v.op.operands:
                    visit(operand, in_place and v.op.name not in VIEWS)

        visit(value, True)
        return found

    def bind(self, values: list[Value], slots: list[Reg]) -> None:
        for value, slot in zip(values, slots, strict=True):
            if value.type.is_tensor:
                value.buffer = slot
            else:
                value.reg = self.b.load(register_type(value.type.element), slot)
