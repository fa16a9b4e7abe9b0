"""The Triton side of each operation: what to launch for given buffers.

Nearly all come from the package `kernels`, by its specs. Two small kernels are the decoder's own: `find_slots` says
where each sequence's next token is stored, and `advance` makes the sampled tokens the next step's input. With them a
captured decode step needs nothing from the host.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
import triton
import triton.language as tl

import kernels
from kernels.spec import Config, KernelSpec, Launch, Plan
from kernels.spec import next_power_of_2 as pow2
from kernels.targets import Target
from playground.engine import host, tuned

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
MATMUL_FROM = 33  # rows from which the tiled matmul takes over from `linear`, which is made for few

Inputs = Mapping[str, Any]
Planner = Callable[[Inputs, Target], Plan]


@triton.jit
def find_slots_kernel(
    positions_ptr, block_table_ptr, slots_ptr, n_rows, stride_table, PAGE_SIZE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    rows = tl.arange(0, BLOCK)
    mask = rows < n_rows
    position = tl.load(positions_ptr + rows, mask=mask, other=-1)
    live = mask & (position >= 0)  # a padded row has position -1, and slot -1 is skipped
    page = tl.load(block_table_ptr + rows * stride_table + position // PAGE_SIZE, mask=live, other=0).to(tl.int64)
    slot = page * PAGE_SIZE + position % PAGE_SIZE
    tl.store(slots_ptr + rows, tl.where(live, slot, -1), mask=mask)


@triton.jit
def advance_kernel(
    sampled_ptr, ids_ptr, positions_ptr, lengths_ptr, step_ptr, n_rows, BLOCK: tl.constexpr
):  # fmt: skip
    rows = tl.arange(0, BLOCK)
    mask = rows < n_rows
    tl.store(ids_ptr + rows, tl.load(sampled_ptr + rows, mask=mask), mask=mask)
    position = tl.load(positions_ptr + rows, mask=mask, other=-1)
    live = mask & (position >= 0)
    tl.store(positions_ptr + rows, position + 1, mask=live)
    tl.store(lengths_ptr + rows, tl.load(lengths_ptr + rows, mask=live) + 1, mask=live)
    tl.store(step_ptr + rows, tl.load(step_ptr + rows, mask=live) + 1, mask=live)


def ordered(launch: Launch) -> tuple[Any, ...]:
    """A launch's arguments by position, which the native path reads fastest; it has no warps."""
    arguments = {**launch.args, **launch.config.meta}
    return tuple(arguments[name] for name in launch.kernel.arg_names)


def joined(calls: Sequence[tuple[Callable[[], Any], Launch | None]]) -> list[Callable[[], Any]]:
    """Calls on CPU tensors with as many of their launches as possible made one call of machine code."""
    from playground import native
    from playground.native.sequence import Sequence as Joined
    from playground.native.sequence import bind

    native.enable()
    runs: list[Callable[[], Any]] = []
    waiting: list[Any] = []
    for run, launch in calls:
        bound = launch and bind(launch.kernel, launch.grid, *ordered(launch))
        if bound:
            waiting.append(bound)
            continue
        runs += [Joined(waiting)] if waiting else []
        waiting = []
        runs.append(run)
    return runs + ([Joined(waiting)] if waiting else [])


def find_slots(inputs: Inputs, target: Target) -> Plan:
    positions, table = inputs["positions"], inputs["block_table"]
    arguments = {
        "positions_ptr": positions,
        "block_table_ptr": table,
        "slots_ptr": inputs["slots"],
        "n_rows": positions.shape[0],
        "stride_table": table.stride(0),
        "PAGE_SIZE": inputs["page_size"],
    }
    config = Config({"BLOCK": pow2(positions.shape[0])}, num_warps=1)
    return Plan((Launch(find_slots_kernel, (1,), arguments, config),), {})


def advance(inputs: Inputs, target: Target) -> Plan:
    arguments: dict[str, Any] = {f"{name}_ptr": tensor for name, tensor in inputs.items()}
    rows = inputs["ids"].shape[0]
    config = Config({"BLOCK": pow2(rows)}, num_warps=1)
    return Plan((Launch(advance_kernel, (1,), arguments | {"n_rows": rows}, config),), {})


def by_spec(kernel: str) -> Planner:
    """The plan of a kernel whose inputs are the operation's own."""
    return lambda inputs, target: _plan(kernels.get(kernel), dict(inputs), target)


def linear(inputs: Inputs, target: Target) -> Plan:
    if inputs["x"].shape[0] < MATMUL_FROM or inputs.get("bias") is not None:
        return _plan(kernels.get("linear"), dict(inputs), target)
    operands = {"a": inputs["x"], "b": inputs["weight"].t(), "precision": "ieee"}
    return _plan(kernels.get("matmul"), operands, target)


def _plan(spec: KernelSpec, inputs: dict[str, Any], target: Target) -> Plan:
    return spec.plan(inputs, _config(spec, inputs, target), target)


def _config(spec: KernelSpec, inputs: dict[str, Any], target: Target) -> Config:
    """The one tuned on this device, else the default; for the interpreter, which pays for each program, the one with
    the fewest programs."""
    if not INTERPRETED:
        return _tuned(spec, inputs) or spec.default_config(inputs, target)

    def programs(config: Config) -> int:
        return sum(prod(launch.grid) for launch in spec.plan(inputs, config, target).launches)

    return min(spec.configs(inputs, target), key=programs)


def _tuned(spec: KernelSpec, inputs: dict[str, Any]) -> Config | None:
    device = next((value.device for value in inputs.values() if isinstance(value, torch.Tensor)), None)
    if device is None or device.type == "meta":
        return None
    won = tuned.for_inputs(spec, inputs, host.name(device))
    return Config(dict(won.meta), won.num_warps, won.num_stages) if won else None
