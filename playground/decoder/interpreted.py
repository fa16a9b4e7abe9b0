"""How the decoder spares the interpreter, which pays for each operation of a kernel, however wide it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import kernels
from kernels.spec import Config, Launch, Plan
from kernels.spec import next_power_of_2 as pow2
from kernels.targets import Target
from playground.decoder.launches import Inputs
from playground.decoder.messages import TAPES
from playground.engine import interpreter

MOST_KEYS = 2048  # in one block; a longer context is split as elsewhere


def player(launch: Launch) -> Callable[[], Any]:
    """The launch, to be run again and again: from tapes, where this Triton's interpreter is one that they know."""
    arguments = {**launch.args, **launch.config.meta, **launch.options}
    if interpreter.patch_once() or not TAPES:
        start = launch.kernel[launch.grid]
        return lambda: start(**arguments)
    from playground.engine.tape_player import Player

    return Player(launch.kernel, launch.grid, arguments)


def wake() -> None:
    """Make this process quick at interpreting.

    Beside every integer sum Triton's interpreter makes a second one in 64 bits, to find an overflow: a fifth of the
    time. Here it does not; the traces, which look for faults, are made in another process, and there it does.
    """
    interpreter.patch_once()
    from triton.runtime.interpreter import interpreter_builder

    interpreter_builder.options = replace(interpreter_builder.options, sanitize_overflow=False)


def decode_attention(inputs: Inputs, target: Target) -> Plan:
    """All keys of a head as one block of one program: no loop, and nothing to join."""
    spec, given = kernels.get("decode_attention"), dict(inputs)
    tokens = min(pow2(given["block_table"].shape[1] * given["k_cache"].shape[2]), MOST_KEYS)
    config = spec.default_config(given, target)
    return spec.plan(given, replace(config, meta={**config.meta, "BLOCK_N": tokens, "SPLIT_KV": tokens}), target)


def linear(inputs: Inputs, target: Target) -> Plan:
    """Tiles that numpy multiplies as matrices, each small enough for the CPU's cache, and wide: few operations."""
    spec, given = kernels.get("linear"), dict(inputs)
    rows, width = given["x"].shape
    meta = {"BLOCK_M": min(max(pow2(rows), 2), 64), "BLOCK_N": 64, "BLOCK_K": min(pow2(width), 1024)}
    return spec.plan(given, Config(meta, num_warps=1), target)
