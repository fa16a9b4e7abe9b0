"""A decoder of the Llama family whose every step runs on this project's Triton kernels.

    from playground.decoder import Decoder, Setup

    decoder = Decoder.load(Setup(backend="auto"))  # SmolLM2-135M-Instruct, downloaded once
    for event in decoder.stream([{"role": "user", "content": "What is a GPU kernel?"}], max_tokens=64):
        print(getattr(event, "text", ""), end="", flush=True)

    print(decoder.chat("And a warp?", temperature=0.7, seed=1).tokens_per_second)

Many conversations share one batch and one paged KV cache: `submit` them and call `step`. Backends: Triton on a GPU,
the same kernels natively on a CPU or in the interpreter, and PyTorch, which can take over any group of operations.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playground.decoder.config import DecoderConfig, ModelError
    from playground.decoder.conversation import Limits
    from playground.decoder.generate import Decoder, Setup
    from playground.decoder.sampler import Sampling

__all__ = ["Decoder", "DecoderConfig", "Limits", "ModelError", "Sampling", "Setup"]

# Imported when first asked for: whoever only talks to a chat worker needs no PyTorch.
_HOMES = {
    "Decoder": "generate", "Setup": "generate", "DecoderConfig": "config", "ModelError": "config",
    "Limits": "conversation", "Sampling": "sampler",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
