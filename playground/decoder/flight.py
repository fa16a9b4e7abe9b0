"""A decode step between its launch and the look at its tokens: who was in it, and how its tokens reach the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from playground.decoder.conversation import Conversation
from playground.decoder.sampler import Chances


@dataclass
class Flight:
    """A decode step whose tokens have not been looked at. seen: of the conversations that are looked at."""

    conversations: list[Conversation]
    read: Callable[[], list[int]]
    seen: dict[Conversation, Seen]
    began: float


class Seen:
    """What is kept of a row's logits [vocab] for those who asked: the next program overwrites them."""

    def __init__(self, conversation: Conversation, logits: torch.Tensor):
        self.chances = Chances.of(logits, conversation.sampling) if conversation.limits.alternatives else None
        self._logits = logits.clone() if conversation.watch else None

    def show(self, conversation: Conversation, token: int) -> None:
        """To whoever watches the conversation; `token` was drawn."""
        if conversation.watch and self._logits is not None:
            conversation.watch(conversation, token, self._logits)


class Reader:
    """Brings a step's ids to the host: at once, or (ahead) by a copy that is waited for when it is read."""

    def __init__(self, rows: int, ahead: bool):
        self._ahead = ahead
        self._landings = [torch.zeros(rows, dtype=torch.int64, pin_memory=ahead) for _ in range(2)]

    def __call__(self, ids: torch.Tensor) -> Callable[[], list[int]]:
        if not self._ahead:
            return ids.tolist
        self._landings.reverse()  # two, in turn: the other one is still being read
        landing = self._landings[0][: len(ids)]
        landing.copy_(ids, non_blocking=True)
        event = torch.cuda.Event()
        event.record()

        def read() -> list[int]:
            event.synchronize()
            return landing.tolist()

        return read
