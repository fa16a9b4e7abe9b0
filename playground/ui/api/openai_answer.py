"""One completion on its way: a thread hears the decoder, a coroutine gives out what came in the shape of OpenAI's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

from playground.decoder.messages import ChatRequest, ChatResult, ChatToken
from playground.engine.messages import EngineError
from playground.ui.api import openai_schema as schema

DONE = "data: [DONE]\n\n"
Piece = tuple[str, list[dict[str, Any]]]


class Running:
    """Once closed, it ends at the decoder's next step, and its pages are free. over: called when it has ended."""

    def __init__(self, chats: Any, request: ChatRequest, over: Callable[[], None]):
        self._loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._stop = threading.Event()
        threading.Thread(target=self._fetch, args=(chats, request, over), name="openai", daemon=True).start()

    def _fetch(self, chats: Any, request: ChatRequest, over: Callable[[], None]) -> None:
        try:
            for event in chats.stream(request, self._stop):
                if isinstance(event, ChatToken | ChatResult):
                    self._put(event)
        except Exception as error:  # noqa: BLE001 - whatever it was, the coroutine waits for an end
            self._put(error)
        finally:
            over()

    def _put(self, event: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the server has stopped
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def next(self) -> ChatToken | ChatResult:
        event = await self._events.get()
        if isinstance(event, Exception):
            raise event
        return event

    def close(self) -> None:
        self._stop.set()


class Answer:
    """`asked` is answered by `running`. After its pieces, `result` says what it took."""

    def __init__(self, running: Running, asked: schema.Completion):
        self._running, self._asked = running, asked
        self._text = ""
        self._logs: list[dict[str, Any]] = []  # of tokens whose text has not come yet
        self._stamp = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked.model}
        self.result: ChatResult | None = None

    async def pieces(self) -> AsyncIterator[Piece]:
        """Texts with their tokens' logprobs. Raises EngineError."""
        while self.result is None:
            event = await self._running.next()
            if isinstance(event, ChatResult):
                self.result = event
                yield event.text[len(self._text) :], self._rest(event)
            else:
                self._text += event.text
                if self._asked.logprobs:
                    self._logs.append(schema.logprob(event, self._asked.top_logprobs or 0))
                yield event.text, self._given() if event.text else []

    def _given(self) -> list[dict[str, Any]]:
        logs, self._logs = self._logs, []
        return logs

    def _rest(self, result: ChatResult) -> list[dict[str, Any]]:
        """The tokens that completed nothing; where the model or a stop text ended it, they are no part of the text."""
        return [] if result.finish == "stop" else self._given()

    async def whole(self) -> dict[str, Any]:
        pieces = [piece async for piece in self.pieces()]
        said = {"role": "assistant", "content": "".join(text for text, _ in pieces), "refusal": None}
        logs = [log for _, logs in pieces for log in logs]
        choice = self._choice("message", said, self._finish(), logs)
        return {**self._stamp, "object": "chat.completion", "choices": [choice], "usage": self._usage(),
                "system_fingerprint": self._fingerprint()}  # fmt: skip

    async def events(self, first: Piece, pieces: AsyncIterator[Piece]) -> AsyncIterator[str]:
        """Server-sent events. An error in mid-answer is an event of its own, and the last."""
        try:
            yield self._chunk({"role": "assistant", "content": ""}, None, [])
            yield self._chunk({"content": first[0]}, None, first[1])
            async for text, logs in pieces:
                if text or logs:
                    yield self._chunk({"content": text}, None, logs)
            yield self._chunk({}, self._finish(), [])
            if self._wants_usage:
                yield self._event({"choices": [], "usage": self._usage()})
        except EngineError as error:
            yield f"data: {json.dumps(schema.error_body(str(error), 'server_error', None, error.failure.kind))}\n\n"
        yield DONE

    @property
    def _wants_usage(self) -> bool:
        return bool(self._asked.stream_options and self._asked.stream_options.include_usage)

    def _chunk(self, delta: dict[str, Any], finish: str | None, logs: list[dict[str, Any]]) -> str:
        more = {"usage": None} if self._wants_usage else {}
        return self._event({"choices": [self._choice("delta", delta, finish, logs)], **more})

    def _event(self, body: dict[str, Any]) -> str:
        return f"data: {json.dumps({**self._stamp, 'object': 'chat.completion.chunk', **body})}\n\n"

    def _choice(
        self, kind: str, said: dict[str, Any], finish: str | None, logs: list[dict[str, Any]]
    ) -> dict[str, Any]:
        wanted = {"content": logs, "refusal": None} if self._asked.logprobs and (logs or kind == "message") else None
        return {"index": 0, kind: said, "logprobs": wanted, "finish_reason": finish}

    def _finish(self) -> str:
        """OpenAI's word: "length" also where the context or the cache was full."""
        assert self.result is not None
        return "length" if self.result.finish in ("length", "context", "cache") else "stop"

    def _usage(self) -> dict[str, Any]:
        assert self.result is not None
        prompt, answer = self.result.prompt_tokens, len(self.result.ids)
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer,
                "prompt_tokens_details": {"cached_tokens": self.result.reused_tokens}}  # fmt: skip

    def _fingerprint(self) -> str:
        """Who computed it: with the same one, and a seed, the same answer comes again."""
        assert self.result is not None
        versions = self.result.source.versions
        return f"{self.result.backend}-torch{versions.get('torch', '')}-triton{versions.get('triton', '')}"
