"""Serves one decoder to whoever asks through the pipes: chats, and what looks inside them.

Between two steps of the batch it reads requests, cancels and pauses; it sends tokens as they come and figures ten
times a second. It knows no process: worker.py starts one.
"""

from __future__ import annotations

import queue
import time

from playground.decoder import inspect, profile, stats
from playground.decoder.answer import Answer
from playground.decoder.config import ModelError
from playground.decoder.conversation import Conversation, Emitted
from playground.decoder.generate import Decoder
from playground.decoder.looks import (
    AttentionRequest,
    ProfileRequest,
    ReplayRequest,
)
from playground.decoder.messages import ChatRequest, SwapRequest, SwapResult, WarmRequest
from playground.decoder.protocol import (
    Answered,
    Ask,
    ChatAnyResult,
    Loading,
    Pause,
    Paused,
    Refused,
    Resume,
    Stats,
    ToChat,
    Token,
)
from playground.decoder.replay import Replay, Rereading
from playground.engine import worker as common
from playground.engine.messages import Failure
from playground.engine.protocol import Cancel, Sender

STATS_SECONDS = 0.1
IDLE_SECONDS = 1.0  # between two looks at nothing, so that a worker at rest costs nothing


class Server:
    """Serves one decoder. `inbox` is filled by the thread that listens to the pipe."""

    def __init__(self, decoder: Decoder, sender: Sender, inbox: queue.SimpleQueue[ToChat], ready_seconds: float = 0.0):
        self._decoder = decoder
        self._ready_seconds = ready_seconds
        self._batch = decoder.batch
        self._sender = sender
        self._inbox = inbox
        self._answers: dict[Conversation, tuple[int, Answer]] = {}
        self._led: dict[int, Replay | Rereading] = {}  # conversations of our own, by who asked
        self._warming: list[int] = []  # who waits for the rehearsals
        self._rehearsals = decoder.rehearsals()
        self._paused = False
        self._stats_at = 0.0

    def serve(self) -> None:
        """For ever; the process ends with its parent."""
        while True:
            self._listen()
            if not self._paused and not self._batch.idle:
                self._give_out(self._decoder.step())
            elif not self._paused and self._warming:
                self._rehearse()
            self._send_stats()

    # What comes in

    def _listen(self) -> None:
        """Everything that waits; at rest, or paused, until something comes."""
        resting = self._paused or (self._batch.idle and not self._warming)
        while True:
            try:
                message = self._inbox.get(timeout=IDLE_SECONDS) if resting else self._inbox.get_nowait()
            except queue.Empty:
                return
            self._take(message)
            resting = False

    def _take(self, message: ToChat) -> None:
        if isinstance(message, Cancel):
            for conversation, (id, _) in self._answers.items():
                if id == message.id:
                    self._batch.cancel(conversation)
            if message.id in self._led:
                self._led[message.id].cancel()
            if message.id in self._warming:
                self._warming.remove(message.id)
                self._sender.send(Refused(id=message.id, failure=Failure(kind="cancelled", message="stopped")))
        elif isinstance(message, Pause):
            self._drain()
            self._paused = True
            self._sender.send(Paused())
        elif isinstance(message, Resume):
            self._paused = False
        else:
            self._ask(message)

    def _ask(self, ask: Ask) -> None:
        try:
            if isinstance(ask.request, ChatRequest):
                answer = self._decoder.submit(ask.request)
                self._answers[answer.conversation] = (ask.id, answer)
            elif isinstance(ask.request, WarmRequest):
                self._warming.append(ask.id)
            elif isinstance(ask.request, ReplayRequest):
                self._led[ask.id] = Replay(self._decoder, ask.request)
            elif isinstance(ask.request, AttentionRequest) and ask.request.messages:
                self._led[ask.id] = Rereading(self._decoder, ask.request)
            else:
                self._sender.send(Answered(id=ask.id, result=self._look(ask)))
        except (ModelError, LookupError) as error:
            failure = Failure(kind="input", message=common.one_line(str(error)))
            self._sender.send(Refused(id=ask.id, failure=failure))

    def _look(self, ask: Ask) -> ChatAnyResult:
        request = ask.request
        self._drain()
        if isinstance(request, SwapRequest):
            return self._swap(request)
        if isinstance(request, AttentionRequest):
            return inspect.attention(self._batch.runner.model, self._find(request.owner), request)
        assert isinstance(request, ProfileRequest)
        self._decoder.allow(request.table)
        return profile.profile(self._batch, request, self._decoder.source())

    def _rehearse(self) -> None:
        """One program more, so that a question waits for no more than that; an answer when all are made."""
        line = next(self._rehearsals, None)
        if line:
            self._sender.send(Loading(what=line))
            return
        for id in self._warming:
            self._sender.send(Answered(id=id, result=self._decoder.facts(self._ready_seconds)))
        self._warming.clear()

    def _swap(self, request: SwapRequest) -> SwapResult:
        self._decoder.allow(request.table)
        conversation = self._find(request.owner) if request.owner else None
        self._batch.swap(request.table, conversation)
        return SwapResult(table=self._batch.table_of(conversation) if conversation else dict(self._batch.table))

    def _find(self, owner: str) -> Conversation:
        for conversation in self._batch.active:
            if conversation.owner == owner:
                return conversation
        raise LookupError(f"no conversation of {owner!r} is running now")

    def _drain(self) -> None:
        self._give_out(self._batch.drain())

    # What goes out

    def _give_out(self, events: list[Emitted]) -> None:
        for event in events:
            if event.conversation not in self._answers:
                continue  # one of those that are led
            id, answer = self._answers[event.conversation]
            if event.token is not None:
                self._sender.send(Token(id=id, token=answer.token(event)))
            if event.finish:
                del self._answers[event.conversation]
                self._sender.send(self._end(id, answer))
        for id, led in [*self._led.items()]:
            if led.over:
                del self._led[id]
                self._sender.send(led.end(id))

    def _end(self, id: int, answer: Answer) -> Answered | Refused:
        """A cancelled answer that has begun is an answer too."""
        if answer.conversation.finish == "cancelled" and not answer.conversation.answer:
            return Refused(id=id, failure=Failure(kind="cancelled", message="stopped before its first token"))
        return Answered(id=id, result=answer.result())

    def _send_stats(self) -> None:
        """While it works, and once when it comes to rest."""
        now = time.monotonic()
        if now - self._stats_at >= STATS_SECONDS or self._batch.idle:
            self._stats_at = now
            self._sender.send(Stats(stats=stats.chat_stats(self._batch, self._decoder.meter)))
