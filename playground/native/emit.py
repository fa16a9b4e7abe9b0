"""A writer of LLVM IR text for one function: registers, instructions, loops.

Every instruction works on a scalar or on a vector of any width, which its
operands' types decide, so the same code that emits `exp` for one float emits
it for sixteen. It knows LLVM and nothing of Triton.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import contextmanager

BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "float": 4}
STACK_SLOT_LIMIT = 1 << 16  # larger buffers go to the heap: a stack overflow ends the process
STACK_LIMIT = 1 << 20


class Reg(str):
    """A register's name, or a constant, with the type of its elements."""

    __slots__ = ("elem", "width")
    elem: str
    width: int

    def __new__(cls, name: str, elem: str, width: int = 1):
        self = super().__new__(cls, name)
        self.elem, self.width = elem, width
        return self

    @property
    def type(self) -> str:
        return vector_type(self.elem, self.width)

    @property
    def typed(self) -> str:
        return f"{self.type} {self}"


def vector_type(elem: str, width: int) -> str:
    return elem if width == 1 else f"<{width} x {elem}>"


def byte_size(elem: str) -> int:
    return BYTES.get(elem, 8)


def literal(value, elem: str, width: int = 1) -> Reg:
    """A constant; floats are written as the bits of a double, as LLVM wants."""
    if elem == "float":
        value = struct.unpack("f", struct.pack("f", value))[0]
    if elem in ("float", "double"):
        text = f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"
    else:
        text = "null" if elem == "ptr" else str(int(value))
    return Reg(text if width == 1 else f"splat ({elem} {text})", elem, width)


def constant_of(x: Reg) -> int | None:
    """The integer that a constant holds, in every lane; None for anything else."""
    text = x.removeprefix(f"splat ({x.elem} ").removesuffix(")")
    return int(text) if text.removeprefix("-").isdigit() else None


class Builder:
    """Appends to one function's body. `declarations` are shared by a module."""

    def __init__(self, declarations: set[str]):
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.declarations = declarations
        self.label = "entry"
        self.stack_bytes = 0
        self.arena_bytes = 0
        self.may_use_arena = True
        self.has_fma = self.has_f16c = self.has_scalef = True
        self._count = 0
        self._memo: list[dict] = [{}]

    # -- names, scopes

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    @contextmanager
    def scope(self):
        """Values remembered inside do not dominate what comes after."""
        self._memo.append({})
        yield
        self._memo.pop()

    def recall(self, key):
        for memo in reversed(self._memo):
            if key in memo:
                return memo[key]
        return None

    def remember(self, key, reg: Reg) -> Reg:
        self._memo[-1][key] = reg
        return reg

    def forget(self) -> None:
        """At a block that the code before does not dominate."""
        self._memo = [{}]

    # -- instructions

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def inst(self, text: str, elem: str, width: int = 1) -> Reg:
        reg = Reg(f"%{self.fresh()}", elem, width)
        self.lines.append(f"  {reg} = {text}")
        return reg

    def _same(self, x, y) -> tuple[Reg, Reg]:
        """Let one of two operands be a Python number."""
        if not isinstance(x, Reg):
            return literal(x, y.elem, y.width), y
        return x, y if isinstance(y, Reg) else literal(y, x.elem, x.width)

    def binary(self, opcode: str, x, y) -> Reg:
        x, y = self._same(x, y)
        return self.inst(f"{opcode} {x.type} {x}, {y}", x.elem, x.width)

    def add(self, x, y) -> Reg:
        return self.binary("add", x, y)

    def sub(self, x, y) -> Reg:
        return self.binary("sub", x, y)

    def mul(self, x, y) -> Reg:
        return self.binary("mul", x, y)

    def and_(self, x, y) -> Reg:
        return self.binary("and", x, y)

    def or_(self, x, y) -> Reg:
        return self.binary("or", x, y)

    def shl(self, x, y) -> Reg:
        return self.binary("shl", x, y)

    def lshr(self, x, y) -> Reg:
        return self.binary("lshr", x, y)

    def ashr(self, x, y) -> Reg:
        return self.binary("ashr", x, y)

    def fadd(self, x, y) -> Reg:
        return self.binary("fadd", x, y)

    def fsub(self, x, y) -> Reg:
        return self.binary("fsub", x, y)

    def fmul(self, x, y) -> Reg:
        return self.binary("fmul", x, y)

    def fdiv(self, x, y) -> Reg:
        return self.binary("fdiv", x, y)

    def icmp(self, predicate: str, x, y) -> Reg:
        x, y = self._same(x, y)
        return self.inst(f"icmp {predicate} {x.type} {x}, {y}", "i1", x.width)

    def fcmp(self, predicate: str, x, y) -> Reg:
        x, y = self._same(x, y)
        return self.inst(f"fcmp {predicate} {x.type} {x}, {y}", "i1", x.width)

    def select(self, condition: Reg, x, y) -> Reg:
        x, y = self._same(x, y)
        text = f"select {condition.typed}, {x.typed}, {y.typed}"
        return self.inst(text, x.elem, x.width)

    def cast(self, opcode: str, x: Reg, elem: str) -> Reg:
        text = f"{opcode} {x.typed} to {vector_type(elem, x.width)}"
        return self.inst(text, elem, x.width)

    def to_i64(self, x: Reg) -> Reg:
        return x if x.elem == "i64" else self.cast("sext", x, "i64")

    def call(self, name: str, elem: str, width: int, *args: Reg) -> Reg:
        result = vector_type(elem, width)
        types = ", ".join(a.type for a in args)
        self.declarations.add(f"declare {result} @{name}({types})")
        return self.inst(f"call {result} @{name}({', '.join(a.typed for a in args)})", elem, width)

    def intrinsic(self, name: str, x: Reg, *rest) -> Reg:
        """An overloaded intrinsic whose operands and result share one type."""
        args = [x, *(self._same(x, y)[1] for y in rest)]
        return self.call(f"llvm.{name}.{suffix(x)}", x.elem, x.width, *args)

    def fma(self, x: Reg, y, z) -> Reg:
        """x * y + z; in one rounding only where the CPU has the instruction."""
        return self.intrinsic("fma" if self.has_fma else "fmuladd", x, y, z)

    # -- vectors

    def splat(self, x: Reg, width: int) -> Reg:
        if width == 1 or x.width == width:
            return x
        if not x.startswith("%"):
            return Reg(f"splat ({x.elem} {x})", x.elem, width)
        vec = vector_type(x.elem, width)
        one = self.inst(f"insertelement {vec} poison, {x.typed}, i64 0", x.elem, width)
        zeros = f"<{width} x i32> zeroinitializer"
        return self.inst(f"shufflevector {vec} {one}, {vec} poison, {zeros}", x.elem, width)

    def iota(self, elem: str, width: int, step: int = 1) -> Reg:
        if width == 1:
            return literal(0, elem)
        lanes = ", ".join(f"{elem} {i * step}" for i in range(width))
        return Reg(f"<{lanes}>", elem, width)

    def shuffle(self, x: Reg, y: Reg | None, lanes: list[int]) -> Reg:
        picks = ", ".join(f"i32 {i}" for i in lanes)
        other = f"{x.type} {y if y is not None else 'poison'}"
        width = len(lanes)
        if width == 1:
            return self.lane(x, lanes[0])
        text = f"shufflevector {x.typed}, {other}, <{width} x i32> <{picks}>"
        return self.inst(text, x.elem, width)

    def cast_mask(self, mask: Reg) -> Reg:
        """A mask as an integer of as many bits."""
        elem = f"i{mask.width}"
        return self.inst(f"bitcast {mask.typed} to {elem}", elem)

    def lane(self, x: Reg, i) -> Reg:
        return x if x.width == 1 else self.inst(f"extractelement {x.typed}, i64 {i}", x.elem)

    def insert(self, x: Reg, value: Reg, i: int) -> Reg:
        return self.inst(f"insertelement {x.typed}, {value.typed}, i64 {i}", x.elem, x.width)

    def any(self, mask: Reg) -> Reg:
        return mask if mask.width == 1 else self._reduce_mask("or", mask)

    def all(self, mask: Reg) -> Reg:
        return mask if mask.width == 1 else self._reduce_mask("and", mask)

    def _reduce_mask(self, opcode: str, mask: Reg) -> Reg:
        return self.call(f"llvm.vector.reduce.{opcode}.v{mask.width}i1", "i1", 1, mask)

    # -- memory

    def gep(self, elem: str, pointer: Reg, offset) -> Reg:
        """`pointer + offset` elements; either may be a vector."""
        if not isinstance(offset, Reg):
            offset = literal(offset, "i64")
        if offset == "0" and offset.width == 1:
            return pointer
        width = max(pointer.width, offset.width)
        return self.inst(f"getelementptr {elem}, {pointer.typed}, {offset.typed}", "ptr", width)

    def load(self, elem: str, pointer: Reg, width: int = 1) -> Reg:
        """Memory holds an i1 as a byte."""
        stored = "i8" if elem == "i1" else elem
        text = f"load {vector_type(stored, width)}, ptr {pointer}, align {byte_size(stored)}"
        x = self.inst(text, stored, width)
        return self.cast("trunc", x, "i1") if elem == "i1" else x

    def store(self, x: Reg, pointer: Reg) -> None:
        if x.elem == "i1":
            x = self.cast("zext", x, "i8")
        self.line(f"store {x.typed}, ptr {pointer}, align {byte_size(x.elem)}")

    def slot(self, elem: str, count: int = 1) -> Reg:
        """A buffer that lives as long as the program: on the stack, or in the arena."""
        elem = "i8" if elem == "i1" else elem
        size = count * byte_size(elem)
        name = f"%{self.fresh('slot')}"
        fits = size < STACK_SLOT_LIMIT and self.stack_bytes + size < STACK_LIMIT
        if fits or not self.may_use_arena:
            self.stack_bytes += size
            self.allocas.append(f"  {name} = alloca [{count} x {elem}], align 64")
        else:
            self.allocas.append(f"  {name} = getelementptr i8, ptr %arena, i64 {self.arena_bytes}")
            self.arena_bytes += (size + 127) // 64 * 64
        return Reg(name, "ptr")

    # -- control flow

    def block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, condition: Reg, yes: str, no: str) -> None:
        self.line(f"br i1 {condition}, label %{yes}, label %{no}")

    def when(self, condition: Reg, then: Callable[[], None]) -> None:
        yes, after = self.fresh("then"), self.fresh("after")
        self.branch(condition, yes, after)
        self.block(yes)
        with self.scope():
            then()
        self.jump(after)
        self.block(after)

    def choose(self, condition: Reg, then: Callable[[], Reg], otherwise) -> Reg:
        """The value of one of two pieces of code (or of a value at hand)."""
        yes, no, after = (self.fresh(p) for p in ("then", "else", "after"))
        self.branch(condition, yes, no)
        arms = []
        for label, make in ((yes, then), (no, otherwise)):
            self.block(label)
            with self.scope():
                arms.append((make() if callable(make) else make, self.label))
            self.jump(after)
        self.block(after)
        x = arms[0][0]
        edges = ", ".join(f"[{value}, %{label}]" for value, label in arms)
        return self.inst(f"phi {x.type} {edges}", x.elem, x.width)

    def unrolled(self, count: int, body, carried=()) -> list[Reg]:
        """`loop` written out, so that LLVM can keep small buffers in registers."""
        carried = list(carried)
        for i in range(count):
            with self.scope():
                carried = body(literal(i, "i64"), *carried) or []
        return carried

    def loop(self, count: int, body: Callable[..., list[Reg] | None], carried=()) -> list[Reg]:
        """`body(i, *carried)` for i in 0..count-1; returns the carried values' last."""
        carried = list(carried)
        if count == 1:
            return self.unrolled(1, body, carried)
        head, after, before = self.fresh("loop"), self.fresh("done"), self.label
        self.jump(head)
        self.block(head)
        i = Reg(f"%{self.fresh('i')}", "i64")
        phis = [Reg(f"%{self.fresh()}", c.elem, c.width) for c in carried]
        at = len(self.lines)
        self.lines.append("")
        with self.scope():
            last = body(i, *phis) or []
        following = self.inst(f"add nuw nsw i64 {i}, 1", "i64")
        ends = self.icmp("eq", following, count)
        edge = f"%{self.label}]"
        heads = [f"  {i} = phi i64 [0, %{before}], [{following}, {edge}"]
        for phi, first, new in zip(phis, carried, last, strict=True):
            heads.append(f"  {phi} = phi {phi.type} [{first}, %{before}], [{new}, {edge}")
        self.lines[at] = "\n".join(heads)
        self.branch(ends, after, head)
        self.block(after)
        return last


def suffix(x: Reg) -> str:
    """How LLVM spells a type in an intrinsic's name."""
    elem = {"float": "f32", "double": "f64", "ptr": "p0"}.get(x.elem, x.elem)
    return elem if x.width == 1 else f"v{x.width}{elem}"
