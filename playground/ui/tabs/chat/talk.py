"""One answer of the chat, from Send to its end: what is drawn as tokens and figures come. It knows no component.

An error never loses the conversation: what was said stays, and one line tells what to do.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from kernels import InputError
from playground.decoder.messages import Backend, CacheDtype, ChatMessage, ChatRequest, ChatResult, ChatStats, ChatToken
from playground.engine.messages import EngineError, HostResult, Progress, first_fault
from playground.ui import panels
from playground.ui.links import whole
from playground.ui.tabs.chat import panel, swap
from playground.ui.tabs.chat import tokens as chat_tokens

JOINER = "\u2060"  # no width, no break: what it parts is no tag and no image any more
BETWEEN = 0.1  # seconds between two drawings
LOOK_SECONDS = 0.5  # between two looks at attention, each of which costs a reading of one token
BACKENDS: dict[str, Backend] = {"Triton": "triton", "PyTorch": "torch", "Interpreter": "interpreter"}
CACHES: dict[str, CacheDtype] = {"the model's own": "auto", "int8": "int8", "fp8": "fp8"}

Talk = list[dict[str, Any]]


@dataclass(frozen=True)
class Wishes:
    """What stands beside the chat: who runs it, the system prompt, how tokens are drawn.

    tokens: each comes with its probability. swapped: groups of operations that the other side does, where `swaps`.
    """

    backend: str = "Triton"
    tokens: bool = False
    swapped: Sequence[str] = ()
    swaps: bool = False
    system: str = ""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: float = 0
    seed: float = 0
    max_tokens: float | None = 256
    slide: bool = False
    attention: bool = False
    cache: bool = True
    cache_dtype: str = "the model's own"

    @property
    def side(self) -> Backend:
        return BACKENDS.get(self.backend, "auto")

    @property
    def dtype(self) -> CacheDtype:
        return CACHES.get(self.cache_dtype, "auto")


@dataclass(frozen=True)
class Ended:
    """An answer that has come: what was asked, and its tokens, for whoever looks into it afterwards."""

    request: ChatRequest
    ids: tuple[int, ...]
    prompt_tokens: int
    page_size: int


@dataclass(frozen=True)
class Drawn:
    """What the page shows now. busy: more comes. came: at the end, when each token came, in seconds.

    tokens: a line for each, where they are wished for. ended: at the end of an answer that has tokens.
    """

    talk: Talk
    note: str
    seen: panel.Seen | None
    busy: bool
    came: tuple[float, ...] = ()
    tokens: str = ""
    ended: Ended | None = None


def text_of(message: dict[str, Any]) -> str:
    """A message's text; Gradio may give it in parts."""
    content = message["content"]
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else part.get("text", "") for part in content)


def plain(talk: Sequence[dict[str, Any]] | None) -> Talk:
    """Roles and texts alone, as they were said."""
    return [{"role": message["role"], "content": text_of(message).replace(JOINER, "")} for message in talk or ()]


def shown(talk: Talk) -> Talk:
    """The same for the page: HTML stays text, and an image stays words, for it could load from another host."""
    return [{**message, "content": _inert(message["content"])} for message in talk]


def _inert(text: str) -> str:
    return re.sub(r"<(?=[A-Za-z/!?])", f"<{JOINER}", text).replace("![", f"!{JOINER}[")


def until_question(talk: Talk) -> Talk:
    """The conversation up to its last question: what Retry asks again. Empty where nothing was asked."""
    while talk and talk[-1]["role"] != "user":
        talk = talk[:-1]
    return talk


def request_of(talk: Talk, wishes: Wishes, owner: str) -> ChatRequest:
    """Raises InputError, which names what cannot be used and what can."""
    said = [ChatMessage(role=m["role"], content=m["content"]) for m in talk if m["content"]]
    if wishes.system.strip():
        said.insert(0, ChatMessage(role="system", content=wishes.system.strip()))
    most = whole(wishes.max_tokens, "max tokens") if wishes.max_tokens not in (None, "") else None
    try:
        return ChatRequest(
            messages=tuple(said), backend=wishes.side, temperature=wishes.temperature,
            top_p=wishes.top_p, top_k=whole(wishes.top_k or 0, "top-k"), seed=whole(wishes.seed or 0, "seed"),
            max_tokens=most, full="slide" if wishes.slide else "stop", owner=owner, cache=wishes.cache,
            alternatives=wishes.tokens, cache_dtype=wishes.dtype,
            table=swap.table(wishes.swapped, wishes.side) if wishes.swaps else {},
        )  # fmt: skip
    except ValidationError as error:
        name, given, need = first_fault(error)
        raise InputError(f"{name} is {str(given)[:60]}; {need}", name) from None


def answer(
    chats: Any, talk: Talk, wishes: Wishes, owner: str, cancel: threading.Event, host: HostResult | None = None
) -> Iterator[Drawn]:
    """Ten times a second at most, and at the end. `talk` ends with the question."""
    seen = panel.Seen(owner, host)
    text, note = "", panels.working(Progress(what="asking the chat worker"))
    came: list[float] = []
    lines: list[str] = []
    yield Drawn(shown(talk), note, None, True)
    drawn_at, looked_at = 0.0, time.monotonic()
    try:
        request = request_of(talk, wishes, owner)
        for event in chats.stream(request, cancel):
            if isinstance(event, ChatToken):
                text, note = text + event.text, ""
                came.append(time.perf_counter())
                lines += [chat_tokens.line(event)] if wishes.tokens else []
            elif isinstance(event, ChatStats):
                seen.take(event)
                note = note if text else panel.waits(seen) or note
            elif isinstance(event, ChatResult):
                seen.result = event
                said = panel.ended(event, request.max_tokens)
                yield Drawn(_with(talk, event.text), said, seen, False, tuple(came), "\n".join(lines),
                            _ended(request, event))  # fmt: skip
                return
            else:
                note = panels.working(event)
            now = time.monotonic()
            if wishes.attention and text and now - looked_at > LOOK_SECONDS:
                _look(chats, wishes, seen)
                looked_at = time.monotonic()
            if now - drawn_at >= BETWEEN:
                drawn_at = now
                yield Drawn(_with(talk, text), note, seen, True, tokens="\n".join(lines))
    except (InputError, EngineError) as error:
        stopped = isinstance(error, EngineError) and error.failure.kind == "cancelled"
        said = '<p class="sub" role="status">Stopped.</p>' if stopped else _failed(str(error))
        yield Drawn(_with(talk, text), said, seen, False, tokens="\n".join(lines))


def _ended(request: ChatRequest, result: ChatResult) -> Ended | None:
    return Ended(request, result.ids, result.prompt_tokens, result.kv_cache.page_size) if result.ids else None


def _with(talk: Talk, text: str) -> Talk:
    return shown([*talk, {"role": "assistant", "content": text}] if text else talk)


def _failed(message: str) -> str:
    return panels.failed(message if "; " in message else f"{message}; press Retry to ask again", nothing_ran=False)


def _look(chats: Any, wishes: Wishes, seen: panel.Seen) -> None:
    """Where the last token looks, over all layers and heads. One that has just ended has nothing to show."""
    try:
        found = chats.attention(seen.owner, wishes.side, cache_dtype=wishes.dtype)
    except EngineError:
        return
    seen.mass = dict(zip(found.pages, found.mean, strict=True))
