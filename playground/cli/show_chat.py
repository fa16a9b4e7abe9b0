"""How `chat` is read: the answer, then one line of what it took."""

from __future__ import annotations

from playground.cli import show
from playground.decoder.messages import ChatResult


class Streamed(ChatResult):
    """An answer that has been printed as it came."""


@show.text.register
def _chat(result: ChatResult) -> str:
    return f"{result.text}\n\n{_took(result)}"


@show.text.register
def _streamed(result: Streamed) -> str:
    return f"\n{_took(result)}"


def _took(result: ChatResult) -> str:
    kv = result.kv_cache
    return (
        f"{result.model}: {len(result.ids)} tokens, {result.tokens_per_second:.1f} tok/s, first after "
        f"{result.first_token_ms:.0f} ms, on {result.backend}; ended by {result.finish}.\n"
        f"KV cache: {kv.equation}, in {kv.pages_used} pages.\n"
        f"{result.source.kind} on {result.source.device}."
    )
