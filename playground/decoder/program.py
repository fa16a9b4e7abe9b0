"""A forward pass written down once and run many times.

`Recorder` is called like a table of operations. It does not compute: it plans each operation for the buffers at
hand, as a Triton launch or as a call of PyTorch, and appends it to a `Program`. Running the program repeats those
calls on the same buffers, so a decode step costs no planning, no allocation and no checks, a GPU can capture it in
a graph, and each call can be timed by itself.

Buffers come from an `Arena` and are used again from layer to layer, and by other programs: what a program returns
holds until the next program of that arena runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch

from kernels.spec import Launch, Plan
from kernels.targets import Target
from playground.decoder import interpreted, launches
from playground.decoder.ops import OPS, Op

ALIGN = 64  # bytes: a cache line, and more than any vector load wants


class Arena:
    """Memory for intermediate results on one device: slabs that are taken and given back."""

    def __init__(self, device: torch.device):
        self.device = device
        self._slabs: list[torch.Tensor] = []
        self._free: list[torch.Tensor] = []

    def reset(self) -> None:
        """Everything is free again: a new program begins."""
        self._free = list(self._slabs)

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """A buffer of this shape, and the slab it lies in."""
        needed = max(1, prod(shape) * dtype.itemsize)
        fits = [index for index, slab in enumerate(self._free) if slab.nbytes >= needed]
        if fits:
            slab = self._free.pop(min(fits, key=lambda index: self._free[index].nbytes))
        else:
            slab = torch.zeros(-(-needed // ALIGN) * ALIGN, dtype=torch.uint8, device=self.device)
            self._slabs.append(slab)
        return slab[: prod(shape) * dtype.itemsize].view(dtype).view(tuple(shape)), slab

    def give(self, slab: torch.Tensor) -> None:
        self._free.append(slab)


@dataclass(frozen=True)
class Call:
    """One step of a program. group: what a person can swap; layer: -1 outside the blocks; name: for profiles.

    box: its place in the decoder block; inputs and outputs: the operation's own, which several launches may share.
    """

    op: str
    group: str
    layer: int
    provider: str
    name: str
    run: Callable[[], Any]
    launch: Launch | None = None
    box: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass
class Program:
    """calls in order; `outputs` by name, valid after `run` until the arena's next program runs."""

    device: torch.device
    calls: list[Call] = field(default_factory=list)
    outputs: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._runs: list[Callable[[], Any]] = []
        self._joined = 0  # how many calls `_runs` does

    def prepare(self) -> None:
        """What the first run would do before it computes: kernels compiled or loaded, launches looked up and joined."""
        if self._joined != len(self.calls):
            self._runs, self._joined = self._join(), len(self.calls)

    def run(self) -> dict[str, torch.Tensor]:
        self.prepare()
        for run in self._runs:
            run()
        return self.outputs

    def _join(self) -> list[Callable[[], Any]]:
        """On a CPU, Triton's launches between two calls of PyTorch are one call of machine code."""
        if self.device.type != "cpu" or launches.INTERPRETED:
            return [call.run for call in self.calls]
        return launches.joined([(call.run, call.launch) for call in self.calls])

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold it: some of PyTorch's calls read a length on the host."""
        return all(call.provider == "triton" or OPS[call.op].capturable for call in self.calls)


class Recorder:
    """Writes a program. `table` says for each group whether "triton" or "torch" does it.

    fuse: operations may be joined where Triton does all of them.
    """

    def __init__(self, table: Mapping[str, str], arena: Arena, fuse: bool = False):
        self.program = Program(arena.device)
        self.fuse = fuse and "torch" not in table.values()
        self._table = table
        self._arena = arena
        self._target = Target.of(arena.device)
        self._layer = -1
        self._live: list[torch.Tensor] = []  # slabs in use
        self._scratch: dict[tuple, torch.Tensor] = {}
        self._plans: dict[tuple, tuple[Mapping[str, Any], Plan]] = {}
        arena.reset()

    def begin_layer(self, index: int, *keep: torch.Tensor) -> None:
        """A block begins (or ends, with -1). Only `keep` of what was made so far is needed from here on."""
        self._layer = index
        kept = {_storage(tensor) for tensor in keep}
        for slab in self._live:
            if _storage(slab) not in kept:
                self._arena.give(slab)
        self._live = [slab for slab in self._live if _storage(slab) in kept]

    def __call__(self, name: str, box: str = "", **inputs: Any) -> Any:
        """Record operation `name`; returns its output, or several as a tuple. box: its place in the block."""
        op = OPS[name]
        out = {key: self._buffer(*like) for key, like in op.outputs(inputs).items()}
        if op.torch is None or self._table[op.group] == "triton":
            self._record_triton(op, box or name, inputs, out)
        else:
            run = _bind(op.torch, out, inputs)
            call = Call(name, op.group, self._layer, "torch", f"torch {name}", run, None, box or name, inputs, out)
            self.program.calls.append(call)
        made = tuple(out.values())
        return made[0] if len(made) == 1 else made or None

    def _buffer(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        buffer, slab = self._arena.take(shape, dtype)
        self._live.append(slab)
        return buffer

    def _record_triton(self, op: Op, box: str, inputs: Mapping[str, Any], out: Mapping[str, torch.Tensor]) -> None:
        plan = self._plan(op, inputs)
        _check_reads(op.name, inputs, plan)
        swap = {_storage(plan.outputs[key]): (plan.outputs[key], buffer) for key, buffer in out.items()}
        swap |= self._shared_scratch(op.name, inputs, plan, swap)
        for launch in plan.launches:
            bound = replace(launch, args={key: _moved(value, swap) for key, value in launch.args.items()})
            if prod(bound.grid):
                name = getattr(bound.kernel, "__name__", op.name)
                run = _launcher(bound)
                call = Call(op.name, op.group, self._layer, "triton", name, run, bound, box, inputs, out)
                self.program.calls.append(call)

    def _plan(self, op: Op, inputs: Mapping[str, Any]) -> Plan:
        """The operation's plan. All layers ask for the same, so each is made once and moved to the others' tensors.

        A plan depends on its tensors' shapes and on how they lie, never on what they hold.
        """
        key = (op.name, *_lie(inputs))
        if key not in self._plans:
            self._plans[key] = inputs, op.plan(inputs, self._target)
        first, plan = self._plans[key]
        if first is inputs:
            return plan
        pairs = [(first[name], value) for name, value in inputs.items() if isinstance(value, torch.Tensor)]
        swap = {_storage(old): (old, new) for old, new in pairs if old.numel()}
        if any(
            v.dtype != swap[_storage(v)][1].dtype for x in plan.launches for v in _tensors(x) if _storage(v) in swap
        ):
            return op.plan(inputs, self._target)  # one is read as another dtype, and is not just moved
        moved = (replace(x, args={name: _moved(v, swap) for name, v in x.args.items()}) for x in plan.launches)
        return Plan(tuple(moved), plan.outputs)

    def _shared_scratch(
        self, op: str, inputs: Mapping[str, Any], plan: Plan, out: Mapping[int, Any]
    ) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
        """What a plan allocated for itself is shared by all layers, as it is by all runs of one layer."""
        known = {_storage(v) for v in inputs.values() if isinstance(v, torch.Tensor)} | out.keys()
        fresh: dict[int, torch.Tensor] = {}
        for launch in plan.launches:
            for tensor in _tensors(launch):
                if tensor.numel() and _storage(tensor) not in known:
                    fresh.setdefault(_storage(tensor), tensor)
        swap = {}
        for index, (storage, tensor) in enumerate(fresh.items()):
            key = (op, index, tuple(tensor.shape), tensor.stride(), tensor.dtype)
            swap[storage] = (tensor, self._scratch.setdefault(key, tensor))
        return swap


def _lie(inputs: Mapping[str, Any]) -> list[tuple]:
    """What a plan can see of its inputs: shapes, dtypes, alignment, and which lie where in one storage."""
    firsts: dict[int, int] = {}
    found: list[tuple] = []
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor):
            address = value.data_ptr()
            within = address - firsts.setdefault(_storage(value), address)
            order = [*firsts].index(_storage(value))
            found.append((name, value.shape, value.stride(), value.dtype, order, within, address % ALIGN))
        else:
            found.append((name, value))
    return found


def _bind(function: Callable, out: Mapping[str, torch.Tensor], inputs: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: function(out, **inputs)


def _launcher(launch: Launch) -> Callable[[], Any]:
    """Everything that a launch needs, put together once."""
    if launches.INTERPRETED:
        return interpreted.player(launch)
    start = launch.kernel[launch.grid]
    if _is_on_gpu(launch):
        arguments = {**launch.args, **launch.config.meta, **launch.options}
        return lambda: start(**arguments)
    ordered = launches.ordered(launch)
    return lambda: start(*ordered)


def _is_on_gpu(launch: Launch) -> bool:
    return any(tensor.is_cuda for tensor in _tensors(launch))


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _moved(value: Any, swap: Mapping[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """A launch argument that lies in a plan's fresh output, moved to the buffer that takes its place."""
    if hasattr(value, "base") and isinstance(value.base, torch.Tensor) and not isinstance(value, torch.Tensor):
        return replace(value, base=_moved(value.base, swap))  # a tensor descriptor
    if not isinstance(value, torch.Tensor) or value.numel() == 0 or _storage(value) not in swap:
        return value
    old, new = swap[_storage(value)]
    offset = new.storage_offset() + value.storage_offset() - old.storage_offset()
    return new.as_strided(value.shape, value.stride(), offset)


def _check_reads(name: str, inputs: Mapping[str, Any], plan: Plan) -> None:
    """A plan that copied an input (to make it contiguous, say) would read that copy for ever."""
    passed = {_storage(t) for launch in plan.launches for t in _tensors(launch)}
    for key, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.numel() and plan.launches and _storage(value) not in passed:
            raise RuntimeError(f"{name} does not read {key} itself but a copy of it; its strides are {value.stride()}")


def _tensors(launch: Launch) -> list[torch.Tensor]:
    found = [getattr(value, "base", value) for value in launch.args.values()]
    return [value for value in found if isinstance(value, torch.Tensor)]
