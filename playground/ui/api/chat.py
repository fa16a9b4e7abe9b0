"""The API's endpoint for a chat; see api for how endpoints answer."""

# No postponed annotations here: Gradio reads the types of these functions for its schemas.
import itertools
import json
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from kernels import InputError
from playground.decoder.messages import ChatRequest, ChatResult
from playground.engine.messages import first_fault
from playground.ui.api.call import stop
from playground.ui.context import Context

_NUMBERS = itertools.count(1)
KEPT = {
    "text", "ids", "prompt_tokens", "reused_tokens", "tokens_per_second", "first_token_ms", "finish", "kv_cache",
    "backend", "model", "seed", "source",
}  # fmt: skip


def endpoints(context: Context, guarded: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """chat. guarded turns what it raises into an answer."""

    def chat(
        prompt: str,
        system: str = "",
        history: list[dict[str, str]] | None = None,
        backend: str = "auto",
        max_tokens: int = 64,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Ask SmolLM2-135M-Instruct, whose every step runs on this project's Triton kernels.

        Args:
            prompt: what to ask
            system: a system prompt, or empty
            history: earlier turns, such as [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi"}]
            backend: auto, triton (natively on a CPU), interpreter or torch
            max_tokens: the most tokens of the answer
            temperature: 0 takes the likeliest token
            top_k: draw from the k likeliest tokens; 0 means all
            top_p: draw from the likeliest tokens that make up this share
            seed: of the draws

        Returns:
            text, ids, prompt_tokens, tokens_per_second, first_token_ms, kv_cache, finish, backend and the source of the
            figures; or error with one line.
        """

        def answer() -> dict[str, Any]:
            request = _request(
                messages=_said(system, history, prompt), backend=backend, max_tokens=max_tokens,
                temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, owner=f"api {next(_NUMBERS)}",
            )  # fmt: skip
            *_, result = context.chats.stream(request, stop())
            assert isinstance(result, ChatResult)
            return json.loads(result.model_dump_json(include=KEPT))

        return guarded(answer)

    return (chat,)


def _said(system: Any, history: Any, prompt: Any) -> tuple[Any, ...]:
    """The conversation, its turns as they were given. Raises InputError that names what is no text or no list."""
    for name, text in (("system", system or ""), ("prompt", prompt)):
        if not isinstance(text, str):
            raise InputError(f"{name} is {str(text)[:60]!r}; it needs to be a text", name)
    if not isinstance(history or [], list):
        raise InputError(f"history is {str(history)[:60]!r}; it needs to be a list of turns", "history")
    first = [{"role": "system", "content": system}] if system else []
    return *first, *(history or ()), {"role": "user", "content": prompt}


def _request(**fields: Any) -> ChatRequest:
    """Raises InputError that names the field."""
    try:
        return ChatRequest.model_validate(fields)
    except ValidationError as error:
        where, given, need = first_fault(error)
        name = "history" if where.startswith("messages") else where
        raise InputError(f"{name} is {str(given)[:60]!r}; {need}", name) from None
