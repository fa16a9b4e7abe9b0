"""The decoder's figures for the live panel, kept as it runs and put together when asked for."""

from __future__ import annotations

import time
from collections import deque
from statistics import median

from playground.decoder.batch import Batch
from playground.decoder.cache import PoolView
from playground.decoder.config import scale_bytes
from playground.decoder.conversation import Conversation, StepTime
from playground.decoder.messages import ChatStats, ConversationStats, KvStats, PageMap
from playground.decoder.model import Model

LATELY = 1.0  # seconds that "now" covers
KEPT = 512  # steps remembered


class Meter:
    """Hears of every step. Costs the decoder one append."""

    def __init__(self) -> None:
        self.tokens = 0
        self._steps: deque[StepTime] = deque(maxlen=KEPT)

    def __call__(self, step: StepTime) -> None:
        self._steps.append(step)
        if step.kind == "decode":
            self.tokens += step.tokens

    def forget(self) -> None:
        """What came so far does not count: it was a warm-up."""
        self.tokens = 0
        self._steps.clear()

    def tokens_per_second(self, now: float) -> float:
        """Of all conversations, over the last second."""
        lately = [s for s in self._steps if s.kind == "decode" and now - s.at <= LATELY]
        if not lately:
            return 0.0
        span = now - (lately[0].at - lately[0].seconds)
        return sum(s.tokens for s in lately) / span

    def milliseconds(self, kind: str, steps: int = 32) -> float | None:
        """The median of the last steps of a kind."""
        times = [s.seconds for s in self._steps if s.kind == kind][-steps:]
        return 1e3 * median(times) if times else None

    def last_prefill_tokens(self) -> int:
        return next((s.tokens for s in reversed(self._steps) if s.kind == "prefill"), 0)


def kv_stats(model: Model, view: PoolView, tokens: int | None = None) -> KvStats:
    """Of all used pages, or of one conversation that has `tokens` in the cache."""
    config, store = model.config, model.store
    size, page_size = store.keys.element_size(), store.keys.shape[3]
    used = view.states.count("u")
    missing = sum(page_size - n for page, n in view.partly.items() if view.states[page] == "u")
    held = page_size * used - missing if tokens is None else tokens
    per_token = config.kv_bytes_per_token(size)
    return KvStats(
        layers=config.layers,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        element_bytes=size,
        tokens=held,
        bytes_used=per_token * held,
        bytes_reserved=store.nbytes,
        mha_bytes=per_token * held * config.group,
        page_size=page_size,
        pages=len(view.states),
        pages_used=used if tokens is None else -(-held // page_size),
        pages_cached=view.states.count("c"),
        pages_free=view.states.count("f"),
        pages_shared=view.shared,
        scale_bytes=scale_bytes(size),
    )


def page_map(view: PoolView) -> PageMap:
    return PageMap(
        states=view.states,
        partly=view.partly,
        names=tuple(owner for owner, _ in view.holds),
        holds=tuple(pages for _, pages in view.holds),
    )


def conversation_stats(conversation: Conversation, state: str) -> ConversationStats:
    first, last = conversation.first_token, conversation.last_token
    steps = conversation.step - 1
    return ConversationStats(
        owner=conversation.owner,
        state=state,  # type: ignore[arg-type]
        tokens=len(conversation.tokens),
        answer=conversation.step,
        reused=conversation.reused,
        prefilled=conversation.prefilled,
        pages=len(conversation.hold.pages) if conversation.hold else 0,
        tokens_per_second=speed(steps, first, last),
        first_token_ms=None if first is None else 1e3 * (first - conversation.submitted),
    )


def speed(steps: int, first: float | None, last: float | None) -> float:
    """Tokens per second after the first token; 0 where there is but one."""
    return steps / (last - first) if steps > 0 and first is not None and last is not None and last > first else 0.0


def chat_stats(batch: Batch, meter: Meter) -> ChatStats:
    model = batch.runner.model
    view = batch.pool.view()
    kv = kv_stats(model, view)
    decoding = batch.decoding
    read = sum(c.hold.length for c in decoding if c.hold) * model.config.kv_bytes_per_token(kv.element_bytes)
    weights = model.step_bytes
    states = [("waiting", batch.waiting), ("prefill", batch.prefilling), ("decode", decoding)]
    return ChatStats(
        tokens=meter.tokens,
        tokens_per_second=meter.tokens_per_second(time.perf_counter()),
        batch=len(decoding),
        waiting=len(batch.waiting),
        decode_ms=meter.milliseconds("decode"),
        prefill_ms=meter.milliseconds("prefill", 1),
        prefill_tokens=meter.last_prefill_tokens(),
        bytes_per_step=weights + read,
        weight_bytes=weights,
        kv=kv,
        map=page_map(view),
        conversations=tuple(conversation_stats(c, state) for state, group in states for c in group),
        table=dict(batch.table),
    )
