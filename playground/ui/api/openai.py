"""POST /v1/chat/completions and GET /v1/models, beside the page and on its server: any client of OpenAI's can talk.

An answer comes from the same chat workers as the page's, in the same batch. A client that goes away has its answer
cancelled, which frees its pages.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from kernels import InputError
from playground.decoder.messages import ChatRequest
from playground.engine.messages import EngineError
from playground.ui.api import openai_schema as schema
from playground.ui.api.openai_answer import Answer, Running
from playground.ui.context import MOST_AT_ONCE, Context

T = TypeVar("T")

PREFIX = "/v1/"
DEFAULT = "SmolLM2-135M-Instruct"
MOST_BYTES = 1_000_000  # of a request, as the page's own
MOST_OPEN = MOST_AT_ONCE  # answers on their way, as the page's own
STATUS = {"input": 400, "unavailable": 503, "cancelled": 503, "timeout": 504}  # what else ends an answer is a 500
LOOK_SECONDS = 0.2  # between two looks whether a client that waits is still there


class Refusal(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, param: str = "", code: str | None = None,
                 headers: Mapping[str, str] | None = None):  # fmt: skip
        super().__init__(message)
        kind = "server_error" if status >= 500 else "rate_limit_error" if status == 429 else "invalid_request_error"
        self.response = JSONResponse(schema.error_body(message, kind, param, code), status, headers)


def _refused(error: InputError | EngineError) -> Refusal:
    if isinstance(error, schema.UnknownModel):
        return Refusal(404, str(error), "model", "model_not_found")
    if isinstance(error, InputError):
        return Refusal(400, str(error), error.argument)
    kind = error.failure.kind
    return Refusal(STATUS.get(kind, 500), str(error), error.failure.argument, kind if kind != "input" else None)


class Stream(StreamingResponse):
    """Server-sent events of an answer, which is closed with the connection, whoever ends that."""

    def __init__(self, running: Running, events: Any):
        super().__init__(events, media_type="text/event-stream",
                         headers={"cache-control": "no-cache", "x-accel-buffering": "no"})  # fmt: skip
        self._running = running

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._running.close()


class Completions:
    """The routes' handlers."""

    def __init__(self, context: Context):
        self._context = context
        self._name = Path(context.settings.model).name or DEFAULT
        self._numbers = itertools.count(1)
        self._room = threading.BoundedSemaphore(MOST_OPEN)
        self._began = int(time.time())

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model(name) for name in schema.models(self._name)]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in schema.models(self._name):
            raise _refused(schema.UnknownModel(name, self._name))
        return JSONResponse(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._began, "owned_by": "triton-playground"}

    async def complete(self, request: Request) -> Response:
        asked, question = await self._read(request)
        if not self._room.acquire(blocking=False):
            line = f"{MOST_OPEN} answers are on their way, and no more are taken at a time; try again in a few seconds"
            raise Refusal(429, line, code="too_many_requests", headers={"retry-after": "5"})
        running = Running(self._context.chats, question, self._room.release)
        answer = Answer(running, asked)
        try:
            if not asked.stream:
                return JSONResponse(await _unless_gone(request, running, answer.whole()))
            pieces = answer.pieces()
            first = await _unless_gone(request, running, anext(pieces))  # an error until here has its status
            return Stream(running, answer.events(first, pieces))
        except EngineError as error:
            raise _refused(error) from None
        except BaseException:
            running.close()
            raise

    async def _read(self, request: Request) -> tuple[schema.Completion, ChatRequest]:
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if kind != "application/json":  # a form of another page may be sent here unasked, but not as JSON
            raise Refusal(415, f"Content-Type is {kind or 'missing'}; send application/json")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise Refusal(413, f"the request has more than {MOST_BYTES:,} bytes; send a shorter conversation")
        try:
            asked = schema.read(body)
            return asked, asked.request(self._name, f"openai {next(self._numbers)}")
        except InputError as error:
            raise _refused(error) from None


async def _unless_gone(request: Request, running: Running, work: Awaitable[T]) -> T:
    """The work's result; where the client goes away first, the answer is closed, and what comes of it is for nobody."""

    async def watch() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(LOOK_SECONDS)
        running.close()

    watching = asyncio.create_task(watch())
    try:
        return await work
    finally:
        watching.cancel()


async def _as_json(request: Request, error: Exception) -> Response:
    """Starlette's own refusals, such as of an unknown path, in the shape of the others."""
    if isinstance(error, Refusal):
        return error.response
    assert isinstance(error, HTTPException)
    there = "POST /v1/chat/completions, GET /v1/models"
    line = f"{request.method} {request.url.path} is not here; there are {there}"
    return Refusal(error.status_code, line, headers=error.headers).response


def app(context: Context) -> Starlette:
    own = Completions(context)
    routes = [
        Route("/v1/chat/completions", own.complete, methods=["POST"]),
        Route("/v1/models", own.models),
        Route("/v1/models/{name}", own.model),
    ]
    return Starlette(routes=routes, exception_handlers={Refusal: _as_json, HTTPException: _as_json})
