"""Continuous batching: conversations join and leave between any two steps, and share one decode batch.

A `step` prefills one chunk of the prompts that wait (so a long prompt holds up nobody for longer than a chunk), then
decodes one token for every conversation whose prompt is in. Prefixes that the cache holds are not computed again.
Where pages run out the youngest conversation gives its own back and is resumed later; the oldest always goes on.

On a GPU a step is launched before the tokens of the one before are looked at, so the host's work is hidden. A
conversation that has ended by then has one token too many in flight, which is dropped. While conversations run on
different kernels, or are led through a given text, each kind has a step of its own and nothing is launched ahead.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from playground.decoder.cache import OutOfPages, PagePool
from playground.decoder.config import ModelError
from playground.decoder.conversation import (
    Conversation,
    Emitted,
    Limits,
    StepTime,
    Table,
    by_table,
    share_out,
    shortened,
)
from playground.decoder.flight import Flight, Reader, Seen
from playground.decoder.runner import PREFILL_ROWS, Chunk, Row, Runner
from playground.decoder.sampler import Sampling


class Batch:
    """on_step hears of every step's time. Owned by one thread; only `submit` and `cancel` may come from others."""

    def __init__(
        self,
        runner: Runner,
        pool: PagePool,
        eos_ids: Sequence[int],
        on_step: Callable[[StepTime], None] = lambda step: None,
    ):
        self.runner = runner
        self.pool = pool
        self.table = dict(runner.table)  # of whoever has none of its own
        self.reader: dict[str, str] = {}  # who does these groups while prompts are read, whatever the tables say
        self.max_context = min(runner.model.max_context, len(pool.pages) * pool.page_size)
        self.max_batch = len(runner.rows.ids)
        self._eos = frozenset(eos_ids)
        self._on_step = on_step
        self._numbers = itertools.count(1)
        self._waiting: list[Conversation] = []
        self._prefilling: list[Conversation] = []
        self._decoding: list[Conversation] = []
        self._stale = True  # the device's rows are not the decoding conversations as they stand
        self._flight: Flight | None = None
        self._ahead = runner.model.device.type == "cuda"
        self._reader: Callable[[torch.Tensor], Callable[[], list[int]]] = Reader(self.max_batch, self._ahead)
        self._landed = 0.0

    # What others ask for

    def submit(
        self,
        tokens: Sequence[int],
        sampling: Sampling | None = None,
        limits: Limits | None = None,
        owner: str = "",
        table: Mapping[str, str] | None = None,
        **led: Any,
    ) -> Conversation:
        """Put a prompt in the queue; led: `forced` and `watch`. Raises ModelError where the context cannot hold it."""
        limits = limits or Limits()
        tokens = list(tokens)
        if not tokens:
            raise ModelError("the prompt is empty; write something")
        if len(tokens) > self.max_context:
            if limits.full != "slide":
                raise ModelError(
                    f"the prompt has {len(tokens)} tokens and the context holds {self.max_context}: "
                    "shorten it, or let the context slide"
                )
            tokens = shortened(tokens, limits.keep, self.max_context)
        number = next(self._numbers)
        conversation = Conversation(
            number, tokens, len(tokens), sampling or Sampling(), limits, owner or str(number), time.perf_counter(),
            self._differences(table or {}), **led,
        )  # fmt: skip
        self._waiting.append(conversation)
        return conversation

    def cancel(self, conversation: Conversation) -> None:
        """It ends at the next step; one that has ended already stays as it is."""
        conversation.cancelled = True

    def swap(self, table: Mapping[str, str], conversation: Conversation | None = None) -> None:
        """From the next step on, these groups of operations are done by "triton" or "torch".

        For one conversation alone: what is in flight is to be looked at first. Where its keys and values would have
        come out otherwise, it reads its text again.
        """
        self._stale = True
        if conversation is None:
            self.table |= table
            return
        before = conversation.space
        conversation.table = self._differences({**dict(conversation.table), **table})
        if conversation.space != before and conversation.hold is not None:
            self._reopen(conversation)

    def table_of(self, conversation: Conversation) -> dict[str, str]:
        """Who does each group of operations for it."""
        return {**self.table, **dict(conversation.table)}

    def _differences(self, table: Mapping[str, str]) -> Table:
        return tuple(sorted((group, who) for group, who in table.items() if self.table[group] != who))

    def reload(self) -> None:
        """Someone else has used the rows: the next step loads them anew."""
        self._stale = True

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._prefilling or self._decoding or self._flight)

    @property
    def active(self) -> list[Conversation]:
        return [*self._prefilling, *self._decoding]

    @property
    def waiting(self) -> list[Conversation]:
        return list(self._waiting)

    @property
    def prefilling(self) -> list[Conversation]:
        return list(self._prefilling)

    @property
    def decoding(self) -> list[Conversation]:
        return list(self._decoding)

    # One step

    def step(self) -> list[Emitted]:
        """Prefill a chunk, decode a token. Returns what came of it; [] where there is nothing to do."""
        out: list[Emitted] = []
        joining = bool(self._waiting) and len(self.active) < self.max_batch
        cancelled = any(c.cancelled for c in (*self._waiting, *self._decoding))
        if joining or cancelled or self._prefilling or self._stale:
            self._land(out)
            self._drop_cancelled(out)
            self._admit()
            self._prefill(out)
        self._decode(out)
        return out

    def drain(self) -> list[Emitted]:
        """Look at what is in flight, so that nothing of ours runs on the device."""
        out: list[Emitted] = []
        self._land(out)
        return out

    def _drop_cancelled(self, out: list[Emitted]) -> None:
        for conversation in [*self._waiting, *self.active]:
            if conversation.cancelled:
                self._end(conversation, "cancelled", out)

    def _admit(self) -> None:
        while self._waiting and len(self.active) < self.max_batch:
            conversation = self._waiting[0]
            needed = -(-(len(conversation.tokens) + 1) // self.pool.page_size)
            if self.active and needed > self.pool.available:
                return
            self._waiting.pop(0)
            self._open(conversation)
            self._prefilling.append(conversation)

    def _open(self, conversation: Conversation) -> None:
        reuse = conversation.limits.cache and not conversation.fresh
        conversation.hold = self.pool.open(conversation.owner, conversation.tokens, reuse, conversation.space)
        conversation.reused += conversation.hold.reused

    def _reopen(self, conversation: Conversation) -> None:
        """Its tokens are to be read again, as far as the cache has not got them."""
        self.pool.close(conversation.held)
        self._open(conversation)
        if conversation in self._decoding:
            self._decoding.remove(conversation)
            self._prefilling.append(conversation)
            self._stale = True

    # Prefill

    def _prefill(self, out: list[Emitted]) -> None:
        for group in by_table(self._prefilling):
            self._prefill_chunk([c for c in group if c in self._prefilling], out)

    def _prefill_chunk(self, group: list[Conversation], out: list[Emitted]) -> None:
        chunks, ready = [], []
        for conversation, count in share_out(group, PREFILL_ROWS[-1], self.runner.chunk):
            if conversation.hold is not None and self._make_room(conversation, count, out):
                ready.append((conversation, count))
        # Making room may have sent one away that had its room already.
        ready = [(c, n) for c, n in ready if c.hold is not None and c in self._prefilling]
        if not ready:
            return
        for conversation, count in ready:
            chunks.append(self._chunk(conversation, count))
        began = time.perf_counter()
        self.runner.swap(self.table_of(ready[0][0]) | self.reader)
        result = self.runner.prefill(chunks)
        tokens = result["ids"].tolist()
        seen = {c: Seen(c, result["logits"][i]) for i, (c, _) in enumerate(ready) if c.looked_at}
        now = time.perf_counter()
        self._on_step(StepTime("prefill", sum(n for _, n in ready), now, now - began))
        for index, (conversation, count) in enumerate(ready):
            start = conversation.tokens[conversation.held.length :][:count]
            self.pool.commit(conversation.held, start)
            conversation.prefilled += count
            if conversation.pending == 0:
                self._prompt_is_in(conversation, tokens[index], seen.get(conversation), now, out)

    def _chunk(self, conversation: Conversation, count: int) -> Chunk:
        hold = conversation.held
        start = hold.length
        slots = [self.pool.slot(hold, position) for position in range(start, start + count)]
        return Chunk(conversation.tokens[start : start + count], start, slots, self._row(conversation, start + count))

    def _row(self, conversation: Conversation, length: int) -> Row:
        """The conversation as it stands when its first `length` tokens are in, the last of them being read now."""
        hold = conversation.held
        pages = [page.id for page in hold.pages]
        return Row(conversation.tokens[length - 1], length - 1, pages, conversation.sampling, conversation.step)

    def _prompt_is_in(
        self, conversation: Conversation, token: int, seen: Seen | None, now: float, out: list[Emitted]
    ) -> None:
        self._take_token(conversation, token, seen, now, out)
        if conversation.finish or not self._has_context(conversation, out):
            return
        if not conversation.limits.cache:
            self.pool.truncate(conversation.held, 0, forget=True)
        else:
            self._prefilling.remove(conversation)
            self._decoding.append(conversation)
            self._stale = True

    # Decode

    def _decode(self, out: list[Emitted]) -> None:
        if not self._decoding or not self._ready_rows(out):
            self._land(out)
            return
        groups = by_table(self._decoding)
        apart = len(groups) > 1 or any(c.forced is not None for c in self._decoding)
        load, self._stale = apart or self._stale, apart
        for group in groups:
            self.runner.swap(self.table_of(group[0]))
            if load:
                self.runner.prepare(len(group))
                self.runner.rows.load([self._row(c, len(c.tokens)) for c in group])
            self._launch(group, out)
            if apart or not self._ahead:
                self._land(out)

    def _launch(self, group: list[Conversation], out: list[Emitted]) -> None:
        """One step of the rows as they are loaded, and then a look at the step before."""
        began = time.perf_counter()
        result = self.runner.decode(len(group))
        seen = {c: Seen(c, result["logits"][i]) for i, c in enumerate(group) if c.looked_at}
        flight = Flight(group, self._reader(result["ids"]), seen, began)
        self._land(out)
        self._flight = flight

    def _ready_rows(self, out: list[Emitted]) -> bool:
        """Pages for the next token of each row, and the device's rows as they should be. False: look again later."""
        ahead = 1 if self._flight else 0
        for index, conversation in enumerate(self._decoding):
            hold = conversation.held
            if len(conversation.tokens) + ahead > self.max_context:
                self._land(out)
                return False
            held = len(hold.pages)
            try:
                copies = self.pool.grow(hold, 1 + ahead)
            except OutOfPages:
                self._land(out)
                if conversation.finish is None:
                    self._make_room(conversation, 1, out)
                return False
            self.runner.model.store.copy(copies)
            self._stale |= bool(copies)
            if not self._stale and len(hold.pages) > held:
                self.runner.rows.block_table[index, len(hold.pages) - 1] = hold.pages[-1].id
        if self._stale:
            self._land(out)
        return bool(self._decoding)

    def _has_context(self, conversation: Conversation, out: list[Emitted]) -> bool:
        """Whether the next token can be read. Where it cannot, the conversation ends, or slides and is prefilled."""
        if len(conversation.tokens) <= self.max_context:
            return True
        if conversation.limits.full != "slide":
            self._end(conversation, "context", out)
            return False
        conversation.tokens = shortened(conversation.tokens, conversation.limits.keep, self.max_context)
        conversation.slides += 1
        self._reopen(conversation)
        return False

    def _land(self, out: list[Emitted]) -> None:
        """Look at the tokens of the step in flight."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        tokens = flight.read()
        now = time.perf_counter()
        self._on_step(StepTime("decode", len(tokens), now, now - max(flight.began, self._landed)))
        self._landed = now
        for conversation, token in zip(flight.conversations, tokens, strict=True):
            if conversation.finish or conversation not in self._decoding:
                continue
            hold = conversation.held
            self.pool.commit(hold, [conversation.tokens[hold.length]])
            self._take_token(conversation, token, flight.seen.get(conversation), now, out)
            if conversation.finish is None:
                self._has_context(conversation, out)

    def _take_token(
        self, conversation: Conversation, token: int, seen: Seen | None, now: float, out: list[Emitted]
    ) -> None:
        if seen:
            seen.show(conversation, token)
        if conversation.forced is not None:
            token = conversation.forced[conversation.step]
        conversation.tokens.append(token)
        conversation.answer.append(token)
        conversation.first_token = conversation.first_token or now
        conversation.last_token = now
        chance, alternatives = seen.chances(token) if seen and seen.chances else (None, ())
        out.append(Emitted(conversation, token, None, chance, alternatives))
        if token in self._eos:
            self._end(conversation, "stop", out)
        elif conversation.limits.max_tokens is not None and conversation.step >= conversation.limits.max_tokens:
            self._end(conversation, "length", out)

    # Room and ends

    def _make_room(self, conversation: Conversation, count: int, out: list[Emitted]) -> bool:
        """Pages for `count` more tokens, taken from younger conversations if need be. False: it has none for now."""
        while True:
            try:
                self.runner.model.store.copy(self.pool.grow(conversation.held, count))
                self._stale = True
                return True
            except OutOfPages:
                youngest = max(self.active, key=lambda c: c.number)
                if youngest is conversation and len(self.active) == 1:
                    if not conversation.held.reused:
                        self._end(conversation, "cache", out)
                        return False
                    conversation.fresh = True
                self._send_back(youngest)
                if youngest is conversation:
                    return False

    def _send_back(self, conversation: Conversation) -> None:
        """It gives its pages back and waits; its tokens stay, and are computed again later."""
        self._leave(conversation)
        at = next((i for i, c in enumerate(self._waiting) if c.number > conversation.number), len(self._waiting))
        self._waiting.insert(at, conversation)

    def _end(self, conversation: Conversation, reason: str, out: list[Emitted]) -> None:
        conversation.finish = reason
        if conversation in self._waiting:
            self._waiting.remove(conversation)
        self._leave(conversation)
        out.append(Emitted(conversation, None, reason))

    def _leave(self, conversation: Conversation) -> None:
        for group in (self._prefilling, self._decoding):
            if conversation in group:
                group.remove(conversation)
                self._stale = True
        if conversation.hold is not None:
            if conversation.forced is not None:  # what it was led through is there already, or is of no use
                self.pool.truncate(conversation.hold, conversation.prompt_tokens, forget=True)
            self.pool.close(conversation.hold)
            conversation.hold = None
