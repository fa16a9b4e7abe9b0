"""A conversation as the batch sees it: its tokens, its limits, where it stands, and what it gives out."""

from __future__ import annotations

from dataclasses import dataclass, field

from playground.decoder.cache import CachedSequence
from playground.decoder.sampler import Sampling


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
    drawn so far. Times are seconds of time.perf_counter.
    """

    number: int
    tokens: list[int]
    prompt_tokens: int
    sampling: Sampling
    limits: Limits
    owner: str
    submitted: float
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
    """A new token, or the end. alternatives: (token, probability), the likeliest first, where asked for."""

    conversation: Conversation
    token: int | None = None
    finish: str | None = None
    probability: float | None = None
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class StepTime:
    """What a step did: kind "prefill" or "decode", how many tokens, at what time, in how many seconds."""

    kind: str
    tokens: int
    at: float
    seconds: float
