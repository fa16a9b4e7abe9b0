"""The chat worker: `python -m playground.decoder.worker --device cpu --pipes R W`.

One process for each device. It loads a model, then serves any number of conversations over one batch: it reads
requests, cancels and pauses between two steps, and sends tokens as they come and figures ten times a second. As in
every worker, what libraries print goes to stderr and can break nothing.
"""

from __future__ import annotations

import argparse
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping

from playground.decoder import inspect, stats
from playground.decoder.config import ModelError
from playground.decoder.conversation import Conversation, Emitted
from playground.decoder.generate import Answer, Decoder, Setup
from playground.decoder.looks import AttentionRequest, AttentionResult, CompareRequest, CompareResult, ProfileResult
from playground.decoder.messages import ChatRequest, SwapRequest, SwapResult, WarmRequest
from playground.decoder.ops import GROUPS
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
    to_chat,
)
from playground.engine import worker as common
from playground.engine.messages import Failure
from playground.engine.protocol import Cancel, ProtocolError, Ready, Sender, receive

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
        self._paused = False
        self._stats_at = 0.0

    def serve(self) -> None:
        """For ever; the process ends with its parent."""
        while True:
            self._listen()
            if not self._paused and not self._batch.idle:
                self._give_out(self._decoder.step())
            self._send_stats()

    # What comes in

    def _listen(self) -> None:
        """Everything that waits; at rest, or paused, until something comes."""
        resting = self._paused or self._batch.idle
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
            else:
                self._sender.send(Answered(id=ask.id, result=self._look(ask)))
        except (ModelError, LookupError) as error:
            failure = Failure(kind="input", message=common.one_line(str(error)))
            self._sender.send(Refused(id=ask.id, failure=failure))

    def _look(self, ask: Ask) -> ChatAnyResult:
        request = ask.request
        if isinstance(request, WarmRequest):
            return self._decoder.facts(self._ready_seconds)
        if isinstance(request, SwapRequest):
            _need_groups(request.table)
            self._batch.swap(request.table)
            return SwapResult(table=dict(self._batch.runner.table))
        self._drain()
        if isinstance(request, AttentionRequest):
            conversation = self._find(request.owner)
            mass = inspect.attention_mass(self._batch.runner.model, conversation)
            pages = tuple(page.id for page in conversation.held.pages[: mass.shape[2]])
            rows = tuple(tuple(tuple(head) for head in layer) for layer in mass.tolist())
            return AttentionResult(owner=request.owner, tokens=conversation.held.length, pages=pages, mass=rows)
        if isinstance(request, CompareRequest):
            _need_groups(request.table)
            found = inspect.compare(self._batch, self._find(request.owner), request.table)
            piece = self._decoder.tokenizer.piece
            text = (piece(found.ids[0]), piece(found.ids[1]))
            return CompareResult(owner=request.owner, largest=found.largest, kl=found.kl, ids=found.ids, text=text)
        count, kernels, whole = inspect.profile(self._batch, request.batch)  # type: ignore[union-attr]
        return ProfileResult(batch=count, kernels=kernels, step_seconds=whole, source=self._decoder.source())

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
            id, answer = self._answers[event.conversation]
            if event.token is not None:
                self._sender.send(Token(id=id, token=answer.token(event)))
            if event.finish:
                del self._answers[event.conversation]
                self._sender.send(self._end(id, answer))

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


def _need_groups(table: Mapping[str, str]) -> None:
    for group in table:
        if group not in GROUPS:
            raise ModelError(f"there is no group of operations named {group!r}; there are {', '.join(GROUPS)}")


def _listen(fd: int, inbox: queue.SimpleQueue[ToChat]) -> None:
    """In a thread of its own. When the parent is gone, so is this process."""
    try:
        for message in receive(fd, to_chat):
            inbox.put(message)
    except (OSError, ProtocolError) as error:
        print(f"the chat worker hangs up: {error}", file=sys.stderr, flush=True)
    common.end_with_children()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="playground.decoder.worker", description=__doc__)
    parser.add_argument("--pipes", type=int, nargs=2, required=True, help="descriptors to read from and to write to")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="process to die with")
    parser.add_argument("--device", default="auto", help="cuda:0, cpu, or interpreter (with TRITON_INTERPRET=1)")
    parser.add_argument("--backend", default="auto", help="triton or torch")
    parser.add_argument("--model", help="folder or hub name; the default is SmolLM2-135M-Instruct")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16")
    parser.add_argument("--cache-dtype", help="as --dtype, or int8 or fp8")
    parser.add_argument("--max-context", type=int, help="tokens of one conversation; the model's own by default")
    return parser.parse_args()


def _setup(arguments: argparse.Namespace) -> Setup:
    interpreted = arguments.device == "interpreter"
    return Setup(
        model=arguments.model,
        device="cpu" if interpreted else arguments.device,
        dtype=arguments.dtype,
        backend="interpreter" if interpreted else arguments.backend,
        cache_dtype=arguments.cache_dtype,
        max_context=arguments.max_context,
    )


def main() -> int:
    began = time.monotonic()
    arguments = _arguments()
    read, write = arguments.pipes
    for fd in (read, write):
        os.set_inheritable(fd, False)  # a child that held it would hide our death from the parent
    common.settle(arguments.parent)
    sender = Sender(write)
    inbox: queue.SimpleQueue[ToChat] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(read, inbox), name="inbox", daemon=True).start()
    try:
        decoder = Decoder.load(_setup(arguments), say=lambda line: sender.send(Loading(what=line)))
        decoder.warm()
        seconds = time.monotonic() - began
        sender.send(Ready(seconds=seconds))
        Server(decoder, sender, inbox, seconds).serve()
    except ModelError as error:
        sender.send(Refused(id=None, failure=Failure(kind="unavailable", message=common.one_line(str(error)))))
    except Exception as error:  # noqa: BLE001 - the parent is to hear why, whatever it was
        sender.send(Refused(id=None, failure=common.explain(error)))
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
