"""`chat`: one question to the decoder, answered by its kernels. On a terminal the answer is read as it is written."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pydantic import ValidationError

from playground.cli import arguments, interrupt
from playground.cli.answers import ChatAnswer
from playground.cli.show_chat import Streamed
from playground.cli.verbs import opened, progress_line
from playground.decoder.client import Chats
from playground.decoder.looks import AttentionRequest, ProfileRequest, ReplayRequest
from playground.decoder.messages import ChatMessage, ChatRequest, ChatResult, ChatToken
from playground.engine.messages import Progress, first_fault

OWNER = "the command line"


def chat(options: argparse.Namespace) -> tuple[ChatAnswer, int]:
    request = _request(options)
    streams = sys.stdout.isatty() and not options.json
    with opened() as engine:
        chats = Chats(engine, options.model)
        result, tokens = _follow(chats, request, streams)
        looks = _look(chats, options, request, result)
    fields = {name: getattr(result, name) for name in ChatResult.model_fields} | looks
    fields["tokens"] = tokens if options.probabilities else ()
    if streams:
        print(flush=True)
        return Streamed(**fields), 0
    return ChatAnswer(**fields), 0


def _request(options: argparse.Namespace) -> ChatRequest:
    messages = [ChatMessage(role="user", content=options.prompt)]
    if options.system:
        messages.insert(0, ChatMessage(role="system", content=options.system))
    names = ("backend", "max_tokens", "temperature", "top_k", "top_p", "seed", "full")
    given: dict[str, Any] = {name: getattr(options, name) for name in names}
    given |= {"cache_dtype": options.kv_cache, "cache": not options.no_cache, "alternatives": options.probabilities}
    try:
        return ChatRequest(messages=tuple(messages), table=options.swap, owner=OWNER, **given)
    except ValidationError as e:
        where, given_there, need = first_fault(e)
        name = {"cache_dtype": "kv_cache"}.get(where, where)
        raise arguments.bad(name.replace("_", "-"), f"{name} is {given_there!r}; {need}") from None


def _look(chats: Chats, options: argparse.Namespace, request: ChatRequest, result: ChatResult) -> dict[str, Any]:
    """What else was asked for, of the answer as it stands."""
    where = {"backend": request.backend, "cache_dtype": request.cache_dtype}
    looks: dict[str, Any] = {}
    if options.compare:
        names = ("messages", "table", "temperature", "top_k", "top_p", "seed")
        same: dict[str, Any] = {name: getattr(request, name) for name in names}
        replay = ReplayRequest(ids=result.ids, swap=options.compare, **same)
        looks["comparison"] = chats.replay(replay, cancel=interrupt.stopped, **where)  # type: ignore[arg-type]
    if options.attention:
        ended = AttentionRequest(owner=OWNER, messages=request.messages, ids=result.ids)
        looks["attention"] = chats.attention(OWNER, request=ended, **where)  # type: ignore[arg-type]
    if options.profile:
        context = result.prompt_tokens + len(result.ids)
        asked = ProfileRequest(batch=1, context=context, table=request.table)
        looks["profile"] = chats.profile(request=asked, **where)  # type: ignore[arg-type]
    return looks


def _follow(chats: Chats, request: ChatRequest, streams: bool) -> tuple[ChatResult, tuple[ChatToken, ...]]:
    """Progress on stderr and tokens on stdout, where someone may be looking."""
    shown = sys.stderr.isatty()
    told = False
    tokens: list[ChatToken] = []
    for event in chats.stream(request, interrupt.stopped):
        if isinstance(event, ChatResult):
            return event, tuple(tokens)
        if isinstance(event, Progress) and shown:
            told = True
            print(f"\r\x1b[K{progress_line(event)}", end="", file=sys.stderr, flush=True)
        elif isinstance(event, ChatToken):
            tokens.append(event)
            if told:
                told = False
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            if streams:
                print(event.text, end="", flush=True)
    raise RuntimeError("a chat ended without a result")
