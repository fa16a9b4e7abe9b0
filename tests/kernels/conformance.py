"""What every kernel's spec is put through, on whichever device the tests run. Holds no test itself."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch

import kernels
from kernels.spec import Config, Edge, KernelSpec, Launch, Plan, Target
from playground.engine import execute
from playground.engine.job import Job
from playground.engine.messages import ConfigChoice, RunRequest, RunResult
from tests.kernels.hand_counts import HAND_COUNTS

SPECS = tuple(kernels.all_kernels().values())
SMALL_BYTES = 2**23  # the traffic of a shape that any host answers at once


@functools.cache
def job() -> Job:
    """A device for the tests: see tests/conftest.py."""
    name = os.environ.get("PLAYGROUND_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
    return Job(torch.device("cuda:0" if name == "cuda" else "cpu"), interpreted=name == "interpreter")


def target() -> Target:
    return Target.of(job().device)


def name_of(*parts: Any) -> str:
    return "-".join(str(part).replace(" ", "_") for part in parts)


def each_dtype(specs: Sequence[KernelSpec] = SPECS) -> list[Any]:
    return [pytest.param(spec, dtype, id=name_of(spec.name, dtype)) for spec in specs for dtype in spec.dtypes]


def each_edge(specs: Sequence[KernelSpec] = SPECS, every: bool = False) -> list[Any]:
    """Every edge case in one dtype, each in turn; in the others too where `every` is true, else marked slow."""
    return [
        pytest.param(
            spec, edge, dtype,
            id=name_of(spec.name, edge.name, dtype),
            marks=() if every or edge.dtype or j == i % len(spec.dtypes) else pytest.mark.slow,
        )
        for spec in specs
        for i, edge in enumerate(spec.edges)
        for j, dtype in enumerate((edge.dtype,) if edge.dtype else spec.dtypes)
    ]  # fmt: skip


def each_bug(specs: Sequence[KernelSpec] = SPECS) -> list[Any]:
    return [pytest.param(spec, bug, id=name_of(spec.name, bug.name)) for spec in specs for bug in spec.bugs]


def each_preset(specs: Sequence[KernelSpec] = SPECS, quick: Sequence[str] = ()) -> list[Any]:
    """Every preset; where `quick` names some, the others are marked slow."""
    return [
        pytest.param(
            spec, preset, id=name_of(spec.name, preset), marks=() if not quick or preset in quick else pytest.mark.slow
        )
        for spec in specs
        for preset in spec.presets
    ]


def run(spec: KernelSpec, dtype: str | None = None, edge: Edge | None = None, **more: Any) -> RunResult:
    """The engine's verdict on the kernel, without the other implementations. Skips what the device lacks."""
    if dtype:
        need_device(spec, dtype)
    request = RunRequest(kernel=spec.name, dtype=dtype, edge=edge and edge.name, baselines=(), **more)
    return execute.run(request, job())


def need_device(spec: KernelSpec, dtype: str | None = None) -> None:
    """Skips where the kernel is not made for the device that the tests run on."""
    reason = spec.unsupported(dtype or spec.dtypes[0], target())
    if reason:
        pytest.skip(reason)


def choice(config: Config) -> ConfigChoice:
    return ConfigChoice(meta=dict(config.meta), num_warps=config.num_warps, num_stages=config.num_stages)


def why(result: RunResult) -> str:
    """What to print where a verdict is not what it should be."""
    own = result.providers["triton"]
    parts = [own.failure or "", result.note]
    for name, verdict in result.outputs.items():
        parts.append(
            f"{name}: error {verdict.error:.2g} (bar {verdict.bar:.2g}), rms {verdict.rms_error:.2g} "
            f"(bar {verdict.rms_bar:.2g}) {verdict.note} {verdict.wrong or ''}"
        )
    return f"{result.choice}: " + "; ".join(part for part in parts if part)


def shrunk(spec: KernelSpec, dims: dict[str, int], dtype: str) -> dict[str, int] | None:
    """The shape with as much of `spec.shrinks` as a host answers at once; None where even its lowest is too much."""
    dims = dict(dims)
    low = max(1, next(dim.low for dim in spec.dims if dim.name == spec.shrinks))
    while spec.cost(spec.inputs(dims, dtype, "meta")).bytes_moved > SMALL_BYTES:
        if dims[spec.shrinks] // 2 < low:
            return None
        dims[spec.shrinks] //= 2
    return dims


def spread(items: Iterable[Any], count: int) -> list[Any]:
    """At most `count` of the items, evenly over all of them, the first and the last among them."""
    items = list(items)
    if len(items) <= count:
        return items
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def shape_of_plan(plan: Plan) -> list[Any]:
    """All of a plan but its tensors' values: two plans of one shape are the same code."""
    return [_shape_of_launch(launch) for launch in plan.launches] + [
        (name, _describe(tensor)) for name, tensor in plan.outputs.items()
    ]


def _shape_of_launch(launch: Launch) -> Any:
    args = {name: _describe(value) for name, value in launch.args.items()}
    return launch.kernel, launch.grid, args, launch.config


def _describe(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype
    if hasattr(value, "block_shape"):  # a tensor descriptor
        return _describe(value.base), tuple(value.shape), tuple(value.strides), tuple(value.block_shape)
    return value


def hand_count(spec: KernelSpec):
    """(dims, dtype, bytes read, bytes written, flops), counted by a person."""
    if spec.name not in HAND_COUNTS:
        pytest.skip(f"count {spec.name}'s bytes and flops by hand for one odd shape: tests/kernels/hand_counts.py")
    return HAND_COUNTS[spec.name]
