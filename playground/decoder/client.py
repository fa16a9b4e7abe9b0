"""The chat workers as their parent sees them: ask, and hear tokens and figures as they come.

`Chats` has one worker for each backend and cache dtype, started when it is first asked; each serves any number of
conversations at once. A worker that crashes ends the answers that were on their way with a Failure, and the next
question starts another.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

from playground.decoder.lane import ChatLane
from playground.decoder.looks import (
    AttentionRequest,
    AttentionResult,
    ProfileRequest,
    ProfileResult,
    ReplayRequest,
    ReplayResult,
)
from playground.decoder.messages import (
    INTERPRETER_NOTE,
    INTERPRETER_TOKENS,
    Backend,
    CacheDtype,
    ChatRequest,
    ChatResult,
    ChatStats,
    ChatToken,
    Provider,
    SwapRequest,
    SwapResult,
    WarmRequest,
    WarmResult,
)
from playground.decoder.protocol import Answered, ChatAnyRequest, ChatAnyResult, Refused, Stats, Token
from playground.engine.engine import CPU, INTERPRETER
from playground.engine.lane import POLL_SECONDS, Gate
from playground.engine.messages import EngineError, Message, Progress

if TYPE_CHECKING:
    from playground.settings import Settings

M = TypeVar("M", bound=Message)
ChatEvent = Progress | ChatToken | ChatStats | ChatResult


class Host(Protocol):
    """What chats need of playground.engine.Engine."""

    @property
    def settings(self) -> Settings: ...
    @property
    def default_device(self) -> str: ...
    def gate(self, device: str) -> Gate: ...
    def on_close(self, close: Callable[[], None]) -> None: ...


class Chats:
    """Every chat worker of one engine; closed with it. May be used from any thread.

    model: a folder or a hub name; the settings' where it is None.
    """

    def __init__(self, engine: Host, model: str | None = None):
        self._engine, self._model = engine, model
        self._lanes: dict[tuple[str, str], ChatLane] = {}  # by backend and cache dtype
        self._lock = threading.Lock()

    def stream(self, request: ChatRequest, cancel: threading.Event | None = None) -> Iterator[ChatEvent]:
        """What is being done until the first token, tokens, figures ten times a second, and the result at the end.

        Setting `cancel`, or closing this generator, ends the answer at the next step; one that has begun still gives
        its result. Raises EngineError.
        """
        if request.backend == INTERPRETER and (request.max_tokens or INTERPRETER_TOKENS + 1) > INTERPRETER_TOKENS:
            yield Progress(what=INTERPRETER_NOTE)
        for event in self._events(request, request.backend, cancel, request.cache_dtype):
            if isinstance(event, Answered):
                assert isinstance(event.result, ChatResult)
                yield event.result
            elif isinstance(event, Token):
                yield event.token
            else:
                yield event.stats if isinstance(event, Stats) else event

    def warm(
        self, backend: Backend = "auto", cancel: threading.Event | None = None, cache_dtype: CacheDtype = "auto"
    ) -> Iterator[Progress | WarmResult]:
        """Start the worker and have it load and compile, a line for each thing it does. Raises EngineError."""
        for event in self._events(WarmRequest(), backend, cancel, cache_dtype):
            if isinstance(event, Answered):
                assert isinstance(event.result, WarmResult)
                yield event.result
            elif isinstance(event, Progress):
                yield event

    def replay(
        self,
        request: ReplayRequest,
        backend: Backend = "auto",
        cancel: threading.Event | None = None,
        cache_dtype: CacheDtype = "auto",
    ) -> ReplayResult:
        """What a swap changes in an answer, token by token, while the chats go on. Raises EngineError."""
        return self._ask(request, backend, ReplayResult, cache_dtype, cancel)

    def swap(
        self, owner: str, table: dict[str, Provider], backend: Backend = "auto", cache_dtype: CacheDtype = "auto"
    ) -> SwapResult:
        """A running conversation goes on with another table. Raises EngineError where it does not run."""
        return self._ask(SwapRequest(owner=owner, table=table), backend, SwapResult, cache_dtype)

    def attention(
        self,
        owner: str,
        backend: Backend = "auto",
        request: AttentionRequest | None = None,
        cache_dtype: CacheDtype = "auto",
    ) -> AttentionResult:
        """Where a conversation looks now; request: with layers, heads, or of an ended answer. Raises EngineError."""
        return self._ask(request or AttentionRequest(owner=owner), backend, AttentionResult, cache_dtype)

    def profile(
        self,
        backend: Backend = "auto",
        batch: int = 1,
        request: ProfileRequest | None = None,
        cache_dtype: CacheDtype = "auto",
    ) -> ProfileResult:
        """The time of each kernel in one decode step, and the block's shapes. Raises EngineError."""
        return self._ask(request or ProfileRequest(batch=batch), backend, ProfileResult, cache_dtype)

    def close(self) -> None:
        with self._lock:
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.close()

    def _ask(
        self,
        request: ChatAnyRequest,
        backend: str,
        kind: type[M],
        cache_dtype: str,
        cancel: threading.Event | None = None,
    ) -> M:
        *_, last = self._events(request, backend, cancel, cache_dtype)
        result: ChatAnyResult = last.result  # type: ignore[union-attr]
        assert isinstance(result, kind)
        return result

    def _events(
        self, request: ChatAnyRequest, backend: str, cancel: threading.Event | None, cache_dtype: str
    ) -> Iterator[Progress | Token | Stats | Answered]:
        lane = self._lane(backend, cache_dtype)
        ticket = lane.submit(request)
        told = False
        try:
            while True:
                if cancel is not None and cancel.is_set() and not told:
                    told = True
                    lane.stop(ticket)
                try:
                    event = ticket.events.get(timeout=POLL_SECONDS)
                except queue.Empty:
                    continue
                if isinstance(event, Refused):
                    raise EngineError(event.failure)
                yield event
                if isinstance(event, Answered):
                    return
        finally:
            lane.stop(ticket)

    def _lane(self, backend: str, cache_dtype: str) -> ChatLane:
        backend = "triton" if backend == "auto" else backend
        key = (backend, cache_dtype)
        device = INTERPRETER if backend == INTERPRETER else self._engine.default_device
        with self._lock:
            first = not self._lanes
            if key not in self._lanes:
                gate = self._engine.gate(device if device.startswith("cuda") else CPU)
                settings = self._engine.settings
                model = self._model or settings.model
                self._lanes[key] = ChatLane(device, backend, gate, settings, model, cache_dtype)
            lane = self._lanes[key]
        if first:
            self._engine.on_close(self.close)
        return lane
