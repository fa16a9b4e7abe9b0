"""A conversation as the batch sees it: its tokens, its limits, where it stands, and what it gives out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from playground.decoder.cache import CachedSequence
from playground.decoder.sampler import Chance, Sampling

Table = tuple[tuple[str, str], ...]  # (group of operations, who does it), sorted by group
WRITES_NOTHING = ("sampling", "state")  # groups on which no key or value depends


@dataclass(frozen=True)
class Limits:
    """max_tokens: of the answer, None for as many as the context holds. full: what happens when the context is full.

    "stop" ends the answer. "slide" keeps the first `keep` tokens (the system prompt) and the newer half of the rest,
    and computes those anew, so the model reads exactly the shortened conversation. cache False computes the whole
    prefix anew for each token, to show what the cache saves.
    """

    max_tokens: int | None = None
    full: str = "stop"
    keep: int = 0
    cache: bool = True
    alternatives: bool = False


@dataclass(eq=False)
class Conversation:
    """tokens: the prompt, then the answer. finish: why it has ended, None while it has not.

    "stop" the model ended it, "length" max_tokens, "context" the context is full, "cache" no page for it alone,
    "cancelled". fresh: it computes its prefix anew, since no page was left to copy a shared one to. step: tokens
    drawn so far. table: what others do here than in the rest of the batch. forced: tokens that are taken in turn
    whatever is drawn. watch: hears of each token (the conversation, what was drawn, the logits [vocab]) before it is
    taken. Times are seconds of time.perf_counter.
    """

    number: int
    tokens: list[int]
    prompt_tokens: int
    sampling: Sampling
    limits: Limits
    owner: str
    submitted: float
    table: Table = ()
    forced: Sequence[int] | None = None
    watch: Callable[[Conversation, int, torch.Tensor], None] | None = None
    answer: list[int] = field(default_factory=list)
    hold: CachedSequence | None = None
    finish: str | None = None
    cancelled: bool = False
    fresh: bool = False
    reused: int = 0
    prefilled: int = 0
    slides: int = 0
    first_token: float | None = None
    last_token: float | None = None

    @property
    def step(self) -> int:
        return len(self.answer)

    @property
    def looked_at(self) -> bool:
        """Whether someone wants to see its logits."""
        return self.limits.alternatives or self.watch is not None

    @property
    def space(self) -> Table:
        """Whose keys and values it may read: those of conversations that compute theirs alike."""
        return tuple(entry for entry in self.table if entry[0] not in WRITES_NOTHING)

    @property
    def held(self) -> CachedSequence:
        """Its hold, where it must have one."""
        assert self.hold is not None
        return self.hold

    @property
    def pending(self) -> int:
        """Tokens whose keys are not in the cache yet."""
        return len(self.tokens) - (self.hold.length if self.hold else 0)


@dataclass(frozen=True)
class Emitted:
    """A new token, or the end. chance: of the token; alternatives: the likeliest first; both where asked for."""

    conversation: Conversation
    token: int | None = None
    finish: str | None = None
    chance: Chance | None = None
    alternatives: tuple[Chance, ...] = ()


@dataclass(frozen=True)
class StepTime:
    """What a step did: kind "prefill" or "decode", how many tokens, at what time, in how many seconds."""

    kind: str
    tokens: int
    at: float
    seconds: float


def by_table(conversations: Sequence[Conversation]) -> list[list[Conversation]]:
    """Those that run on the same kernels together; whoever has a table of its own after the rest."""
    groups: dict[Table, list[Conversation]] = {}
    for conversation in conversations:
        groups.setdefault(conversation.table, []).append(conversation)
    return [groups[table] for table in sorted(groups)]


def share_out(group: Sequence[Conversation], most: int, tokens: int) -> list[tuple[Conversation, int]]:
    """Who gets how many tokens of a chunk: `most` of those with least left, each at most its share of the rest."""
    waiting = sorted(group, key=lambda c: (c.pending, c.number))[:most]
    chosen = []
    for index, conversation in enumerate(waiting):
        count = min(conversation.pending, tokens // (len(waiting) - index))
        if count:
            chosen.append((conversation, count))
            tokens -= count
    return chosen


def shortened(tokens: list[int], keep: int, max_context: int) -> list[int]:
    """The first `keep` tokens and the newer half of what a context of `max_context` holds besides."""
    keep = min(keep, max_context // 2)
    newest = max(1, (max_context - keep) // 2)
    return tokens[:keep] + tokens[keep:][-newest:]
