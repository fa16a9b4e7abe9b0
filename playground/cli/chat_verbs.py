"""`chat`: one question to the decoder, answered by its kernels. On a terminal the answer is read as it is written."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pydantic import ValidationError

from playground.cli import arguments, interrupt
from playground.cli.show_chat import Streamed
from playground.cli.verbs import opened, progress_line
from playground.decoder.client import Chats
from playground.decoder.messages import ChatMessage, ChatRequest, ChatResult, ChatToken
from playground.engine.messages import Progress


def chat(options: argparse.Namespace) -> tuple[ChatResult, int]:
    request = _request(options)
    streams = sys.stdout.isatty() and not options.json
    with opened() as engine:
        result = _follow(Chats(engine, options.model), request, streams)
    if streams:
        print(flush=True)
        return Streamed(**{name: getattr(result, name) for name in ChatResult.model_fields}), 0
    return result, 0


def _request(options: argparse.Namespace) -> ChatRequest:
    messages = [ChatMessage(role="user", content=options.prompt)]
    if options.system:
        messages.insert(0, ChatMessage(role="system", content=options.system))
    names = ("backend", "max_tokens", "temperature", "top_k", "top_p", "seed")
    given: dict[str, Any] = {name: getattr(options, name) for name in names}
    try:
        return ChatRequest(messages=tuple(messages), **given)
    except ValidationError as e:
        error = e.errors()[0]
        name = str(error["loc"][0])
        said = error["msg"].replace("Input should be", "it needs to be")
        raise arguments.bad(name.replace("_", "-"), f"{name} is {error['input']!r}; {said}") from None


def _follow(chats: Chats, request: ChatRequest, streams: bool) -> ChatResult:
    """Progress on stderr and tokens on stdout, where someone may be looking."""
    shown = sys.stderr.isatty()
    told = False
    for event in chats.stream(request, interrupt.stopped):
        if isinstance(event, ChatResult):
            return event
        if isinstance(event, Progress) and shown:
            told = True
            print(f"\r\x1b[K{progress_line(event)}", end="", file=sys.stderr, flush=True)
        elif isinstance(event, ChatToken):
            if told:
                told = False
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            if streams:
                print(event.text, end="", flush=True)
    raise RuntimeError("a chat ended without a result")
