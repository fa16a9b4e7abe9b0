"""A program of a kernel in Triton's interpreter, written down once and done again on other tensors.

The interpreter spends nine tenths of its time on types: what each operation of the language promotes, broadcasts and
checks before it comes to NumPy. Those come out alike for every launch with the same arguments, tensors' contents
aside. So one run is watched, operation by operation as it reaches the interpreter's builder, and what NumPy did is
written down: a tape. What depends on no tensor is computed then and kept. Playing the tape gives the same bits as
interpreting: each operation's short form was compared, as it was written down, with what the interpreter had made of
the same operands, layout in memory included, and where they differ the interpreter's own function is on the tape.

Where a program branches on what it has loaded, the tape notes which way it went, and is played as far as that holds;
another way is another tape. What cannot be played is void, and interpreted as before: a branch after a store (what
has been stored cannot be taken back), block pointers, printing. Nothing here serves the traces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps, TensorHandle

from playground.engine import tape_forms, tape_memory

Array = np.ndarray

LOADS = ("create_load", "create_masked_load")
STORES = ("create_store", "create_masked_store")
SPREADS = ("create_broadcast", "create_splat")
RESHAPES = (*SPREADS, "create_expand_dims", "create_reshape")
EFFECTS = (*STORES, "create_atomic_rmw", "create_atomic_cas", "create_assert", "create_assume")

FIXED, PLACED, RUN = range(3)  # when a value is known: at every launch; by the program's id; from tensors alone


@dataclass(eq=False)
class Value:
    """What an operation gave. `seen`: the array of the run that was watched.

    when: FIXED, PLACED or RUN. pointer: the argument whose address is `seen` less `offset`, where it is an address at
    known places. axis: it is the program's id along this. source: the smaller array that was spread to this one.
    """

    seen: Array
    dtype: Any
    when: int = RUN
    pointer: str = ""
    offset: Value | None = None
    axis: int | None = None
    source: Value | None = None
    rows: tuple[Value, Array] | None = None  # it is an address for each row, and the same cells [1, D] in every row


@dataclass(eq=False)
class Step:
    """One operation: `out` = function(*operands).

    expected: it is a branch, and went on where its operand was this. access: it is a load or store of this argument at
    known places; its operands are the offsets and the mask, then what is loaded for the lanes left out, or stored.
    """

    out: tuple[Value, ...]
    function: Callable[..., Any] | None
    operands: tuple[Value, ...]
    effect: bool = False
    expected: bool | int | None = None
    access: str = ""

    @property
    def when(self) -> int:
        if self.access or (self.effect and self.expected is None):
            return RUN
        return max(operand.when for operand in self.operands)


@dataclass
class Recorder:
    """Writes down what the builder is asked for. void: why this program cannot be played, or ""."""

    addresses: dict[str, int]
    steps: list[Step] = field(default_factory=list)
    void: str = ""
    primitive: Callable[..., Array] | None = None  # the NumPy function that the last operation came to
    passed: tuple[TensorHandle, ...] = ()  # to it
    depth: int = 0  # within an operation: what it asks of the builder is its own

    def __post_init__(self) -> None:
        self._values: dict[int, Value] = {}
        self._handles: list[TensorHandle] = []  # alive, so that no other gets the number of one of them

    def know(self, handle: TensorHandle, **how: Any) -> Value:
        value = self._values[id(handle)] = Value(handle.data, handle.dtype, **how)
        self._handles.append(handle)
        return value

    def argument(self, name: str, handle: TensorHandle) -> None:
        """A launch's argument as the interpreter hands it over: an address, or a number."""
        if name in self.addresses:
            zero = Value(np.zeros(1, np.uint64), None, FIXED)
            self.know(handle, pointer=name, offset=zero)
        else:
            self.know(handle, when=FIXED)

    def value(self, handle: TensorHandle) -> Value:
        found = self._values.get(id(handle))
        if found is None:
            self.void = self.void or "an operand was not made by the builder"
            return Value(handle.data, handle.dtype, FIXED)
        return found

    # What happens

    def operation(self, name: str, again: Callable[..., Any], given: Sequence[Any], before: Sequence[Array], made: Any):
        """again: the same operation on handles, at any time. given: its arguments; before: the arrays they held."""
        handles = [a for a in given if isinstance(a, TensorHandle)]
        if any(h.data is not seen for h, seen in zip(handles, before, strict=True)):
            self.void = self.void or f"{name} changed its operand"
        if any(isinstance(a, list | tuple) and any(isinstance(x, TensorHandle) for x in a) for a in given):
            self.void = self.void or f"{name} takes a list"
        results = made if isinstance(made, tuple) else () if made is None else (made,)
        if not all(isinstance(r, TensorHandle) for r in results):
            self.void = self.void or f"{name} gives no array"
            return
        operands = tuple(self.value(h) for h in handles)
        if name == "create_get_program_id":
            self.know(results[0], when=PLACED, axis=given[0])
        elif name not in (*EFFECTS, *LOADS) and all(o.when == FIXED for o in operands):
            for result in results:
                self.know(result, when=FIXED)
        elif operands[0].offset is None or not (
            self._address(name, again, given, operands, results) or self._access(name, operands, results)
        ):
            out = tuple(self.know(r) for r in results)
            primitive = self.primitive if self._is_bare(handles) else None
            function, operands = tape_forms.shortest(name, again, given, operands, out, primitive)
            self._append(Step(out, function, operands, name in EFFECTS))
            if name == "create_addptr":
                out[0].rows = _rows(*operands)
        if name in SPREADS and len(operands) == 1:
            self._values[id(results[0])].source = operands[0].source or operands[0]

    def _append(self, step: Step) -> None:
        for value in step.out:
            value.when = RUN if step.access else step.when
        self.steps.append(step)

    def _is_bare(self, handles: list[TensorHandle]) -> bool:
        """Whether the operation was one NumPy function of just what was given."""
        return [id(h) for h in handles] == [id(h) for h in self.passed]

    def _address(
        self, name: str, again: Callable, given: Sequence[Any], operands: tuple[Value, ...], results: tuple
    ) -> bool:
        """An address at known places, moved or spread: so are its offsets."""
        pointer = operands[0]
        assert pointer.offset is not None
        used: tuple[Value, ...]
        if name == "create_addptr" and operands[1].when < RUN:
            function, used = tape_forms.moved(pointer), (pointer.offset, operands[1])
        elif name in RESHAPES:
            function, used = tape_forms.wrapped(again, given), (pointer.offset,)
        else:
            return False
        when = max(value.when for value in used)
        offset = Value(function(*(value.seen for value in used)), None, when)
        if when != FIXED:
            self.steps.append(Step((offset,), function, used))
        made = self.know(results[0], pointer=pointer.pointer, offset=offset)
        if name in SPREADS:
            made.source = pointer.source or pointer
        return True

    def _access(self, name: str, operands: tuple[Value, ...], results: tuple[TensorHandle, ...]) -> bool:
        """A load or store at known places, its mask known too."""
        pointer, rest = operands[0], operands[1:]
        if name not in (*LOADS, *STORES):
            return False
        assert pointer.offset is not None
        element = interpreter._get_np_dtype(TensorHandle(pointer.seen, pointer.dtype).get_element_ty())
        every = Value(np.ones(pointer.seen.shape, bool), None, FIXED)
        if name in LOADS:
            mask = rest[0] if rest else every
            block = rest[1] if len(rest) > 1 else Value(np.zeros((), element), None, FIXED)
        else:
            mask, block = rest[1] if len(rest) > 1 else every, rest[0]
        if mask.when == RUN or block.seen.dtype != element or (name in LOADS and block.when == RUN):
            return False
        out = (Value(results[0].data, results[0].dtype),) if name in LOADS else ()
        step = Step(out, None, (pointer.offset, mask, block), name in STORES, access=pointer.pointer)
        if not tape_memory.agrees(step, self.addresses[pointer.pointer]):
            return False
        if out:
            self._values[id(results[0])] = out[0]
            self._handles.append(results[0])
        self.steps.append(step)
        return True

    def branch(self, tensor: Any, value: bool | int) -> None:
        """The program goes its way by this value of a tensor of one element."""
        if self.depth or tensor.handle.data.size != 1:
            return
        known = self.value(tensor.handle)
        if known.when == FIXED:
            return
        if known.when == RUN and any(step.effect and step.expected is None for step in self.steps):
            self.void = self.void or "a branch follows a store"
        self.steps.append(Step((), None, (known,), True, expected=value))

    def reduction(self, op: Any, original: Callable[..., Any], given: Any, made: Any) -> None:
        """A reduction or scan; it works beside the builder."""
        several = made if isinstance(made, list | tuple) else (made,)
        operands = tuple(self.value(t.handle) for t in given)
        if all(o.when == FIXED for o in operands):
            for tensor in several:
                self.know(tensor.handle, when=FIXED)
            return
        out = tuple(self.know(tensor.handle) for tensor in several)
        types = [t.type for t in given]
        self._append(Step(out, tape_forms.reduction(op, original, types, operands, out), operands))


def _rows(address: Value, offset: Value) -> tuple[Value, Array] | None:
    """The address of each row [N, 1] and the bytes from there to its cells [1, D], where they lie side by side."""
    if offset.when != FIXED or address.seen.ndim != 2 or address.seen.shape[1] != 1 or offset.seen.ndim != 2:
        return None
    cells = tape_forms.moved(address)(np.zeros((1, 1), np.uint64), offset.seen)
    width = TensorHandle(address.seen, address.dtype).get_element_ty().primitive_bitwidth // 8
    even = (cells == cells[:1]).all() and (np.diff(cells[0].view(np.int64)) == width).all()
    return (address, cells[:1]) if even else None


class Watched(InterpreterBuilder):
    """The interpreter's builder, which tells `recorder` of each operation. It stands where the other is."""

    recorder: Recorder

    def binary_op(self, lhs: TensorHandle, rhs: TensorHandle, op: Callable[..., Array]) -> TensorHandle:
        self.recorder.primitive, self.recorder.passed = op, (lhs, rhs)
        return super().binary_op(lhs, rhs, op)

    def ternary_op(self, lhs: TensorHandle, rhs: TensorHandle, other: TensorHandle, op: Callable[..., Array]):
        self.recorder.primitive, self.recorder.passed = op, (lhs, rhs, other)
        return super().ternary_op(lhs, rhs, other, op)

    def unary_op(self, arg: TensorHandle, op: Callable[..., Array]) -> TensorHandle:
        self.recorder.primitive, self.recorder.passed = op, (arg,)
        return super().unary_op(arg, op)


def _told(name: str) -> Callable[..., Any]:
    original = getattr(InterpreterBuilder, name)

    def method(self: Watched, *given: Any, **named: Any) -> Any:
        recorder = self.recorder
        if recorder.depth:
            return original(self, *given, **named)
        recorder.primitive = None
        if any(isinstance(a, TensorHandle) for a in named.values()):
            recorder.void = recorder.void or f"{name} takes an operand by name"
        before = [a.data for a in given if isinstance(a, TensorHandle)]
        recorder.depth += 1
        try:
            made = original(self, *given, **named)
        finally:
            recorder.depth -= 1
        if not isinstance(made, tl.dtype):
            builder = interpreter.interpreter_builder

            def again(*handles: Any) -> Any:
                return original(builder, *handles, **named)

            recorder.operation(name, again, given, before, made)
        return made

    return method


for _name in dir(InterpreterBuilder):
    if _name.startswith(("create_", "get_")):
        setattr(Watched, _name, _told(_name))


@contextmanager
def watching(recorder: Recorder) -> Iterator[None]:
    """What is interpreted meanwhile is told to the recorder."""
    builder = Watched.__new__(Watched)
    builder.__dict__.update(interpreter.interpreter_builder.__dict__, recorder=recorder)
    semantic, tensor = interpreter.interpreter_semantic, tl.core.tensor
    kept = semantic.builder, tensor.__bool__, tensor.__index__, ReduceOps.apply_impl, ScanOps.apply_impl
    semantic.builder = builder
    tensor.__bool__, tensor.__index__ = _asked(recorder, kept[1]), _asked(recorder, kept[2])
    ReduceOps.apply_impl, ScanOps.apply_impl = _reduced(recorder, kept[3]), _reduced(recorder, kept[4])
    try:
        yield
    finally:
        semantic.builder, tensor.__bool__, tensor.__index__, ReduceOps.apply_impl, ScanOps.apply_impl = kept


def _asked(recorder: Recorder, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def ask(tensor: Any) -> Any:
        value = original(tensor)
        recorder.branch(tensor, value)
        return value

    return ask


def _reduced(recorder: Recorder, original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_impl(self: Any, given: Any) -> Any:
        recorder.depth += 1
        try:
            made = original(self, given)
        finally:
            recorder.depth -= 1
        if not recorder.depth:
            recorder.reduction(self, original, given, made)
        return made

    return apply_impl
