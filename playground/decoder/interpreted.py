"""How the decoder spares the interpreter, which pays for each operation of a kernel, however wide it is."""

from __future__ import annotations

from dataclasses import replace

import kernels
from kernels.spec import Plan
from kernels.spec import next_power_of_2 as pow2
from kernels.targets import Target
from playground.decoder.launches import Inputs
from playground.engine import interpreter

MOST_KEYS = 2048  # in one block; a longer context is split as elsewhere


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
