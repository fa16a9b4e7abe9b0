"""OpenAI's chat completions as data: what a client may send, checked, and what it gets back. It runs nothing.

The field names and shapes are those that OpenAI publishes for POST /v1/chat/completions. A field that would change
the answer in a way this decoder cannot is refused by name; one that changes nothing here is let pass.
"""

from __future__ import annotations

import json
import math
import secrets
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from kernels import InputError
from playground.decoder.messages import Backend, ChatMessage, ChatRequest, ChatToken
from playground.engine.messages import first_fault

MOST_ALTERNATIVES = 5  # what the decoder keeps of a token
LEAST_TOP_P = 1e-6  # OpenAI allows 0, which means the likeliest token
LEAST_LOGPROB = -9999.0  # OpenAI's stand-in for a probability of 0
# A model of each backend, so that any client's own list of models switches between them.
SUFFIXES: dict[str, Backend] = {"": "auto", ":torch": "torch", ":interpreter": "interpreter"}
# What asks for nothing when it holds one of these, and for more than this decoder does otherwise.
ONLY: dict[str, tuple[Any, ...]] = {
    "n": (None, 1), "presence_penalty": (None, 0), "frequency_penalty": (None, 0), "logit_bias": (None, {}),
    "tools": (None, []), "functions": (None, []), "tool_choice": (None, "none", "auto"),
    "function_call": (None, "none", "auto"), "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]), "audio": (None,), "prediction": (None,), "web_search_options": (None,),
}  # fmt: skip
# What changes no answer here.
PASSED = {
    "user", "store", "metadata", "service_tier", "parallel_tool_calls", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "reasoning_effort", "verbosity",
}  # fmt: skip


def _content(given: Any) -> Any:
    """A message's text; parts of text are joined."""
    if not isinstance(given, list):
        return given
    texts = [part["text"] for part in given if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if len(texts) < len(given) or any(part.get("type") != "text" for part in given):
        raise ValueError('it needs text: a string, or parts such as {"type": "text", "text": "Hi"}')
    return "".join(texts)


def _stops(given: Any) -> Any:
    stops = [given] if isinstance(given, str) else given
    if isinstance(stops, list) and not all(isinstance(s, str) and s for s in stops):
        raise ValueError("each needs to be a string of one character or more")
    return stops


class Said(BaseModel):
    model_config = ConfigDict(extra="ignore")  # name, refusal, ...
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(_content)]


class StreamOptions(BaseModel):
    include_usage: bool = False


class Completion(BaseModel):
    """The body of a request. top_k is an addition of ours, as other servers of this protocol have it."""

    model_config = ConfigDict(extra="allow")
    model: str
    messages: list[Said] = Field(min_length=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=1.0, ge=0, le=2)
    top_p: float | None = Field(default=1.0, ge=0, le=1)
    top_k: int | None = Field(default=0, ge=0, lt=2**31)
    seed: int | None = None
    stop: Annotated[list[str] | None, BeforeValidator(_stops)] = Field(default=None, max_length=4)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    logprobs: bool | None = False
    top_logprobs: int | None = Field(default=None, ge=0, le=MOST_ALTERNATIVES)

    def request(self, name: str, owner: str) -> ChatRequest:
        """What the decoder is asked. Raises InputError where `model` is none of `name`'s."""
        backend = models(name).get(self.model)
        if backend is None:
            raise UnknownModel(self.model, name)
        said = [
            ChatMessage(role="system" if m.role == "developer" else m.role, content=m.content) for m in self.messages
        ]
        return ChatRequest(
            messages=tuple(said), backend=backend, max_tokens=self.max_completion_tokens or self.max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else max(self.top_p, LEAST_TOP_P), top_k=self.top_k or 0,
            seed=(secrets.randbits(31) if self.seed is None else self.seed) % 2**31, alternatives=bool(self.logprobs),
            stop=tuple(self.stop or ()), owner=owner,
        )  # fmt: skip


class UnknownModel(InputError):
    def __init__(self, given: str, name: str):
        there = ", ".join(map(repr, models(name)))
        super().__init__(f"model {given[:60]!r} is not here; choose one of {there}", "model")


def models(name: str) -> dict[str, Backend]:
    """What GET /v1/models lists, and the backend that each stands for."""
    return {name + suffix: backend for suffix, backend in SUFFIXES.items()}


def read(body: bytes) -> Completion:
    """Raises InputError: what was given, what is needed; its argument is the field."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:  # the latter: lists in lists, a thousand deep
        raise InputError(f"the body is no JSON ({error}); send an object with model and messages") from None
    if not isinstance(given, dict):
        raise InputError("the body is no JSON object; send one with model and messages")
    try:
        asked = Completion.model_validate(given)
    except ValidationError as error:
        raise _refused(error) from None
    for field, value in (asked.model_extra or {}).items():
        if field in ONLY and value not in ONLY[field]:
            allowed = " or ".join(json.dumps(v) for v in ONLY[field] if v is not None) or "nothing"
            said = f"{field} is {_short(value)}, which this decoder does not do; leave it at {allowed}"
            raise InputError(said, field)
        if field not in ONLY and field not in PASSED:
            known = ", ".join(Completion.model_fields)
            raise InputError(f"{field[:60]!r} is no field of this endpoint; use {known}", field[:60])
    if asked.top_logprobs and not asked.logprobs:
        raise InputError("top_logprobs needs logprobs; set logprobs to true", "top_logprobs")
    return asked


def _refused(error: ValidationError) -> InputError:
    field, given, need = first_fault(error)
    if error.errors()[0]["type"] == "missing":
        return InputError(f"{field} is missing; give it", field)
    return InputError(f"{field or 'a name of a field'} is {_short(given)}; {need}", field)


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


# Answers


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param or None, "code": code}}


def logprob(token: ChatToken, most: int) -> dict[str, Any]:
    """A token's entry under logprobs.content: of the model's own distribution, before temperature and cuts."""
    others = [_chance(a.text, a.probability) for a in token.alternatives[:most]]
    return {**_chance(token.piece or token.text, token.probability or 0.0), "top_logprobs": others}


def _chance(text: str, probability: float) -> dict[str, Any]:
    log = math.log(probability) if probability > 0 else LEAST_LOGPROB
    return {"token": text, "logprob": log, "bytes": list(text.encode())}
