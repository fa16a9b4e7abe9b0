"""Conversations that are led through a given text beside the chats: an answer replayed with a swap, or read again.

They share the batch like any other, so nobody waits for them; what they have written is forgotten when they end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from playground.decoder import inspect
from playground.decoder.conversation import Conversation, Limits
from playground.decoder.looks import AttentionRequest, AttentionResult, ReplayRequest, ReplayResult, ReplayStep
from playground.decoder.messages import REPLAYED_TOKENS
from playground.decoder.protocol import Answered, Refused
from playground.decoder.sampler import Sampling
from playground.engine.messages import Failure

if TYPE_CHECKING:
    from playground.decoder.generate import Decoder


class Replay:
    """Two conversations that take the same tokens, as they were made and with the swap. Compares their logits.

    Raises ModelError for a group that does not exist, and for a prompt that does not fit.
    """

    def __init__(self, decoder: Decoder, request: ReplayRequest):
        swapped = {**request.table, **request.swap}
        decoder.allow(swapped)
        self._decoder = decoder
        self._ids = request.ids[:REPLAYED_TOKENS]
        self._logits: tuple[dict[int, torch.Tensor], ...] = ({}, {})  # by step, of the one that is ahead
        self._drawn: tuple[dict[int, int], ...] = ({}, {})
        self._steps: list[ReplayStep] = []
        tokens = decoder.tokenizer.encode_chat([message.model_dump() for message in request.messages])
        sampling = Sampling(request.temperature, request.top_k, request.top_p, request.seed)
        limits = Limits(max_tokens=len(self._ids))
        self._both = [
            decoder.batch.submit(
                tokens, sampling, limits, f"comparison, {name}", table, forced=self._ids, watch=self._see
            )
            for name, table in (("as it was", request.table), ("swapped", swapped))
        ]

    def cancel(self) -> None:
        for conversation in self._both:
            self._decoder.batch.cancel(conversation)

    @property
    def over(self) -> bool:
        return all(conversation.finish for conversation in self._both)

    def end(self, id: int) -> Answered | Refused:
        if not self._steps:
            return _not_begun(id, self._both[0])
        tables = [self._decoder.batch.table_of(conversation) for conversation in self._both]
        differing = (i for i, step in enumerate(self._steps) if step.drawn[0] != step.drawn[1])
        result = ReplayResult(
            steps=tuple(self._steps),
            largest=_largest([step.largest for step in self._steps]),
            kl=_largest([step.kl for step in self._steps]),
            first_difference=next(differing, None),
            table=tables[0],
            swapped=tables[1],
            source=self._decoder.source(),
        )
        return Answered(id=id, result=result)

    def _see(self, conversation: Conversation, token: int, logits: torch.Tensor) -> None:
        side, step = int(conversation is not self._both[0]), conversation.step
        self._logits[side][step] = logits
        self._drawn[side][step] = token
        if step in self._logits[1 - side]:
            self._compare(step)

    def _compare(self, step: int) -> None:
        found = inspect.difference(*(logits.pop(step) for logits in self._logits))
        drawn = (self._drawn[0].pop(step), self._drawn[1].pop(step))
        piece = self._decoder.tokenizer.piece
        self._steps.append(
            ReplayStep(
                id=self._ids[step],
                text=piece(self._ids[step]),
                largest=found.largest,
                kl=found.kl,
                drawn=drawn,
                drawn_text=(piece(drawn[0]), piece(drawn[1])),
            )
        )


class Rereading:
    """An answer that has ended is read again, as far as the cache has lost it, to see where its last token looks."""

    def __init__(self, decoder: Decoder, request: AttentionRequest):
        self._batch = decoder.batch
        self._request = request
        self._result: AttentionResult | None = None
        inspect.need_layers(decoder.config, request)
        tokens = decoder.tokenizer.encode_chat([message.model_dump() for message in request.messages])
        tokens += request.ids[:-1]  # the last one drawn was never read
        owner = request.owner or "a look at attention"
        self._conversation = self._batch.submit(tokens, None, Limits(max_tokens=1), owner, watch=self._see)

    def cancel(self) -> None:
        self._batch.cancel(self._conversation)

    @property
    def over(self) -> bool:
        return self._conversation.finish is not None

    def end(self, id: int) -> Answered | Refused:
        return _not_begun(id, self._conversation) if self._result is None else Answered(id=id, result=self._result)

    def _see(self, conversation: Conversation, token: int, logits: torch.Tensor) -> None:
        self._result = inspect.attention(self._batch.runner.model, conversation, self._request)


def _largest(values: list[float]) -> float:
    """NaN where there is one among them."""
    return float(torch.tensor(values, dtype=torch.float64).max())


def _not_begun(id: int, conversation: Conversation) -> Refused:
    kind, message = "cancelled", "stopped before its first token"
    if conversation.finish == "cache":
        kind, message = "unavailable", "the cache is full: others hold its pages; try again when they are done"
    return Refused(id=id, failure=Failure(kind=kind, message=message))  # type: ignore[arg-type]
