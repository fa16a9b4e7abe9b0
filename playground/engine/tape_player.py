"""Launches in the interpreter, played from tapes where there are any.

A `Player` is one launch on tensors that stay where they are, run again and again, as a decode step does with the
launches of each layer. Launches of one kernel with the same arguments share their tapes: the first of them is
watched, the others are bound to their own tensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import GridExecutor

from playground.engine import tape_memory
from playground.engine.tape import FIXED, PLACED, RUN, Recorder, Step, Value, watching

MOST_WAYS = 8  # tapes of one program: those that branch in ever new ways are interpreted


class Tape:
    """The steps of a program as a Python function: made for a program's id first, and then for a launch's tensors."""

    def __init__(self, steps: list[Step]):
        needed = _needed(steps)
        self._placing = [step for step in needed if step.when == PLACED]
        self._accesses: list[Step] = []
        self._fixed: list[Value] = []
        self._functions: list[Callable[..., Any]] = []
        self._names: dict[int, str] = {}
        lines = [self._line(step) for step in needed if step.when == RUN]
        names: dict[str, list] = {"f": self._functions, "a": self._accesses, "c": self._fixed}
        unpack = [f"  [{', '.join(f'{x}{i}' for i in range(len(of)))}] = {x}" for x, of in names.items()]
        code = ["def make(f, a, c):", *unpack, "  def play():", *(f"    {line}" for line in [*lines, "return True"])]
        space: dict[str, Any] = {}
        exec("\n".join([*code, "  return play"]), space)  # of our own making: names and numbers only
        self._make = space["make"]

    def place(self, at: tuple[int, int, int]) -> Callable[[Mapping[str, int]], Callable[[], bool]] | None:
        """For the program with this id; None where it goes another way."""
        found: dict[int, Any] = {}

        def array(value: Value) -> Any:
            if value.when == FIXED:
                return value.seen
            if value.axis is not None:
                return np.array([at[value.axis]], np.int32)
            return found[id(value)]

        for step in self._placing:
            operands = [array(operand) for operand in step.operands]
            if step.expected is not None:
                if type(step.expected)(operands[0].item()) != step.expected:
                    return None
                continue
            assert step.function is not None
            made = step.function(*operands)
            found.update(zip(map(id, step.out), made if len(step.out) > 1 else (made,), strict=True))
        accesses = [(step.access, _accessor(step, array)) for step in self._accesses]
        fixed = [(value.pointer, array(value.offset if value.offset is not None else value)) for value in self._fixed]

        def bind(addresses: Mapping[str, int]) -> Callable[[], bool]:
            places = [accessor(addresses[name]) for name, accessor in accesses]
            constants = [known + np.uint64(addresses[name]) if name else known for name, known in fixed]
            return self._make(self._functions, places, constants)

        return bind

    def _line(self, step: Step) -> str:
        if step.access:
            self._accesses.append(step)
            call = f"a{len(self._accesses) - 1}"
            return f"{call}({self._name(step.operands[2])})" if step.effect else f"{self._new(step.out[0])} = {call}()"
        operands = [self._name(operand) for operand in step.operands]
        if step.expected is not None:
            kind = type(step.expected).__name__
            return f"if {kind}({operands[0]}.item()) != {step.expected!r}: return False"
        assert step.function is not None
        self._functions.append(step.function)
        call = f"f{len(self._functions) - 1}({', '.join(operands)})"
        return f"{', '.join(self._new(value) for value in step.out)} = {call}" if step.out else call

    def _name(self, value: Value) -> str:
        if id(value) not in self._names:
            self._names[id(value)] = f"c{len(self._fixed)}"
            self._fixed.append(value)
        return self._names[id(value)]

    def _new(self, value: Value) -> str:
        return self._names.setdefault(id(value), f"v{len(self._names)}")


def _accessor(step: Step, array: Callable[[Value], Any]) -> Callable[[int], Callable[..., Any]]:
    offsets, mask = (array(operand) for operand in step.operands[:2])
    if step.effect:
        return tape_memory.storer(offsets, mask, step.operands[2].seen.dtype)
    return tape_memory.loader(offsets, mask, array(step.operands[2]))


def _needed(steps: list[Step]) -> list[Step]:
    """Without those whose results nothing uses."""
    wanted: set[int] = set()
    kept = []
    for step in reversed(steps):
        if step.effect or any(id(value) in wanted for value in step.out):
            kept.append(step)
            for value in step.operands:
                wanted.update((id(value), id(value.offset)))
    return kept[::-1]


@dataclass
class _Known:
    """What is known of a launch's programs: a tape for each way that one was seen to go, and whether more may come."""

    tapes: list[Tape] = field(default_factory=list)
    placed: dict[tuple[int, int], Any] = field(default_factory=dict)  # tape and program, made for each other
    closed: bool = False

    def place(self, tape: int, program: int, at: tuple[int, int, int]) -> Any:
        if (tape, program) not in self.placed:
            self.placed[tape, program] = self.tapes[tape].place(at)
        return self.placed[tape, program]

    def learn(self, recorder: Recorder) -> None:
        if not recorder.void:
            self.tapes.append(Tape(recorder.steps))
        self.closed = bool(recorder.void) or len(self.tapes) >= MOST_WAYS


_KNOWN: dict[tuple, _Known] = {}


class Player:
    """A launch to be repeated. Its tensors are on the CPU, and keep their places."""

    def __init__(self, kernel: Any, grid: tuple[int, ...], arguments: Mapping[str, Any]):
        self._grid = (*grid, 1, 1)[:3]
        self._executor = GridExecutor(kernel.rewrite(), kernel.arg_names, grid)
        self._arguments = {name: value for name, value in arguments.items() if name in kernel.arg_names}
        tensors = {name: v for name, v in self._arguments.items() if isinstance(v, torch.Tensor)}
        self._addresses = {name: tensor.data_ptr() for name, tensor in tensors.items()}
        key = _key(self._arguments)
        self._known = _Known(closed=True) if key is None else _KNOWN.setdefault((kernel.fn, self._grid, key), _Known())
        x, y, z = self._grid
        self._programs = [(i, j, k) for i in range(x) for j in range(y) for k in range(z)]  # in the interpreter's order
        self._plays: list[list[Callable[[], bool]]] = [[] for _ in self._programs]
        self._looked: list[int] = [0] * len(self._programs)  # tapes that each program has been placed on

    def __call__(self) -> None:
        try:
            with np.errstate(all="ignore"):  # a GPU does not warn of infinities either
                for program in range(len(self._programs)):
                    if not self._play(program):
                        self._interpret(self._programs[program])
        except Exception as error:
            raise InterpreterError(repr(error)) from error

    def _play(self, program: int) -> bool:
        plays = self._plays[program]
        for tape in range(self._looked[program], len(self._known.tapes)):
            bind = self._known.place(tape, program, self._programs[program])
            if bind is not None:
                plays.append(bind(self._addresses))
        self._looked[program] = len(self._known.tapes)
        return any(play() for play in plays)

    def _interpret(self, at: tuple[int, int, int]) -> None:
        """Run a program as Triton does; watched, where another tape may come of it."""
        executor = self._executor
        bound = inspect.signature(executor.fn).bind(**self._arguments)
        bound.apply_defaults()
        plain = executor.constexprs
        ready = {n: v if n in plain else interpreter._implicit_cvt(v) for n, v in bound.arguments.items()}
        interpreter.interpreter_builder.set_grid_dim(*self._grid)
        interpreter.interpreter_builder.set_grid_idx(*at)
        if self._known.closed:
            executor.fn(**ready)
            return
        recorder = Recorder(self._addresses)
        for name, value in ready.items():
            if isinstance(value, interpreter.tl.core.tensor):
                recorder.argument(name, value.handle)
        with watching(recorder):
            executor.fn(**ready)
        self._known.learn(recorder)


def _key(arguments: Mapping[str, Any]) -> tuple | None:
    """What decides what a launch does, tensors' contents aside. None: something that tapes do not know."""
    parts: list[Any] = []
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            parts.append((name, value.dtype))
        elif value is None or isinstance(value, bool | int | float | str):
            parts.append((name, type(value), value))
        else:
            return None
    return tuple(parts)
