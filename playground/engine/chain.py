"""The kernels that eager PyTorch runs for the same answer, and the bytes each moves: what fusion saves, counted.

Found by running the eager function on tensors without values and watching every operation that would be a kernel.
The bytes are modelled: each input of an operation read once and each result written once, as if no cache held
anything from one kernel to the next. Of a table that rows are picked from, or put into, only those rows count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernels.spec import Inputs, KernelSpec, nbytes

_PICK = {"index", "index_select", "embedding", "gather", "take"}  # rows of their first argument
_PUT = {"index_put", "index_put_impl", "index_copy", "scatter"}  # in place: the last argument, into the first
_OVERWRITE = {"copy", "fill", "zero"}  # in place: the first argument is not read
# Allocations: they move nothing themselves.
_NO_TRAFFIC = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "lift_fresh"}


@dataclass(frozen=True)
class Step:
    """One kernel of the chain: what it reads and writes, as (name of the tensor, bytes)."""

    kernel: str
    reads: tuple[tuple[str, int], ...]
    writes: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        return sum(size for _, size in (*self.reads, *self.writes))


def eager_chain(spec: KernelSpec, inputs: Inputs) -> tuple[Step, ...]:
    """The steps of what people write in PyTorch. `inputs` may live on any device; only their shapes are used."""
    shapes = {
        name: torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="meta")
        if isinstance(v, torch.Tensor)
        else v
        for name, v in inputs.items()
    }
    results, watch = _watched(spec.eager or spec.reference, shapes)
    finals = {watch.name_of(t): out.name for t, out in zip(results, spec.outputs, strict=False)}
    return tuple(Step(step.kernel, _renamed(step.reads, finals), _renamed(step.writes, finals)) for step in watch.steps)


def steps_of(function: Callable[..., Any], shapes: Inputs) -> tuple[Step, ...]:
    """The steps of any function of tensors without values, by argument name."""
    return tuple(_watched(function, shapes)[1].steps)


def _watched(function: Callable[..., Any], shapes: Inputs) -> tuple[tuple[torch.Tensor, ...], _Watch]:
    watch = _Watch({name: v for name, v in shapes.items() if isinstance(v, torch.Tensor)})
    with torch.no_grad(), watch:
        results = function(**shapes)
    return results if isinstance(results, tuple) else (results,), watch


def _renamed(tensors: tuple[tuple[str, int], ...], names: dict[str, str]) -> tuple[tuple[str, int], ...]:
    return tuple((names.get(name, name), size) for name, size in tensors)


class _Watch(TorchDispatchMode):
    """Notes each operation that touches memory; a view of a tensor goes by the tensor's name."""

    def __init__(self, named: dict[str, torch.Tensor]):
        super().__init__()
        self.steps: list[Step] = []
        self._kept: list[Any] = list(named.values())  # storages must live, or their addresses are used again
        self._names = {_key(tensor): name for name, tensor in named.items()}
        self._taken: Counter[str] = Counter(named)

    def name_of(self, tensor: torch.Tensor) -> str:
        return self._names.get(_key(tensor), "")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        inputs = _tensors((args, kwargs))
        outputs = _tensors(out)
        self._kept += outputs
        op = func._schema.name.split("::")[-1]
        views = not func._schema.is_mutable and all(_key(t) in self._names for t in outputs)
        if op.rstrip("_") not in _NO_TRAFFIC and outputs and not views:
            self._note(op.strip("_"), func._schema.is_mutable, inputs, outputs)
        return out

    def _note(self, op: str, in_place: bool, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        for tensor in (*inputs, *outputs):
            if _key(tensor) not in self._names:
                self._names[_key(tensor)] = self._fresh(op)
        # In a dict: a tensor that is used twice is read once.
        reads = {self._names[_key(t)]: nbytes(t) for t in inputs}
        writes = {self._names[_key(t)]: nbytes(t) for t in outputs}
        if op in _PICK:
            table = self._names[_key(inputs[0])]
            reads[table] = min(reads[table], nbytes(*outputs))
        if in_place and op in _PUT | _OVERWRITE:
            into = self._names[_key(inputs[0])]
            del reads[into]
            if op in _PUT and inputs[-1].numel() > 1:  # else one number, for as many places as the indices say
                writes[into] = min(writes[into], nbytes(inputs[-1]))
        self.steps.append(Step(op, tuple(reads.items()), tuple(writes.items())))

    def _fresh(self, op: str) -> str:
        self._taken[op] += 1
        return op if self._taken[op] == 1 else f"{op} {self._taken[op]}"


def _key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
