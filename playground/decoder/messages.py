"""What crosses the chat worker's pipes: requests, events and results, as in playground.engine.messages.

A conversation is stateless: each request carries all its messages, and the cache finds what it has of them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from playground.engine.messages import Message, Source

Backend = Literal["auto", "triton", "interpreter", "torch"]
Finish = Literal["stop", "length", "context", "cache", "cancelled"]


# What is asked for


class ChatMessage(Message):
    role: Literal["system", "user", "assistant"]
    content: str


class ChatRequest(Message):
    """backend "auto": Triton on the GPU, else Triton natively on the CPU.

    full: what happens when the context is full, "stop" or "slide". cache False computes the whole prefix anew for
    each token. alternatives: each token comes with its probability and the likeliest others. owner: whose pages they
    are, for the page map.
    """

    verb: Literal["chat"] = "chat"
    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    backend: Backend = "auto"
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=0.0, ge=0, le=100)
    top_k: int = Field(default=0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = Field(default=0, ge=0, lt=2**31)
    full: Literal["stop", "slide"] = "stop"
    cache: bool = True
    alternatives: bool = False
    owner: str = ""


class SwapRequest(Message):
    """Which of "triton" and "torch" does each group of operations from now on; groups left out stay."""

    verb: Literal["swap"] = "swap"
    table: dict[str, Literal["triton", "torch"]]


class ProfileRequest(Message):
    """Time of each kernel in one decode step of `batch` rows (None: of those that are decoding now)."""

    verb: Literal["profile"] = "profile"
    batch: int | None = Field(default=None, ge=1)


class AttentionRequest(Message):
    """Where the last token of a running conversation looks: the share of attention by page. owner: as in its chat."""

    verb: Literal["attention"] = "attention"
    owner: str


class CompareRequest(Message):
    """The next token's logits as they are now, and with `table`, for a running conversation."""

    verb: Literal["compare"] = "compare"
    owner: str
    table: dict[str, Literal["triton", "torch"]]


# What comes while it runs


class Alternative(Message):
    id: int
    text: str
    probability: float


class ChatToken(Message):
    """text: what this token completes; "" while a character is not whole, or for the end token."""

    id: int
    text: str
    probability: float | None = None
    alternatives: tuple[Alternative, ...] = ()


class KvStats(Message):
    """bytes_used = 2 x layers x kv_heads x head_dim x element_bytes x tokens; reserved: all pages, filled or not.

    mha_bytes: what as many tokens would take with a key-value head for each query head. tokens: in used pages.
    """

    layers: int
    kv_heads: int
    head_dim: int
    element_bytes: int
    tokens: int
    bytes_used: int
    bytes_reserved: int
    mha_bytes: int
    page_size: int
    pages: int
    pages_used: int
    pages_cached: int
    pages_free: int
    pages_shared: int

    @property
    def equation(self) -> str:
        parts = (2, self.layers, self.kv_heads, self.head_dim, self.element_bytes, self.tokens)
        return " × ".join(f"{n:,}" for n in parts) + f" = {self.bytes_used:,} bytes"


class PageMap(Message):
    """Every page by number. states: a letter each, "u" used, "c" cached, "f" free; fill: tokens in each.

    owners: for each used page its number, then those who hold it, as indices into `names`.
    """

    states: str
    fill: tuple[int, ...]
    owners: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]


class ConversationStats(Message):
    """state "waiting", "prefill" or "decode". tokens: in all; answer: of the answer; reused: found in the cache."""

    owner: str
    state: Literal["waiting", "prefill", "decode"]
    tokens: int
    answer: int
    reused: int
    prefilled: int
    pages: int
    tokens_per_second: float
    first_token_ms: float | None


class ChatStats(Message):
    """The decoder as it stands, ten times a second while it works.

    tokens_per_second: of all conversations together, over the last second. decode_ms: median of a decode step lately,
    prefill_ms: likewise of a prefill, of prefill_tokens tokens. bytes_per_step: what a decode step must read, weights
    and cache; the floor of its time is that over the device's bandwidth.
    """

    tokens: int
    tokens_per_second: float
    batch: int
    waiting: int
    decode_ms: float | None
    prefill_ms: float | None
    prefill_tokens: int
    bytes_per_step: int
    weight_bytes: int
    kv: KvStats
    map: PageMap
    conversations: tuple[ConversationStats, ...]
    table: dict[str, str]


# What comes at the end


class ChatResult(Message):
    """ids: the answer's tokens, its end token included. tokens_per_second: of this answer, first token excluded."""

    verb: Literal["chat"] = "chat"
    text: str
    ids: tuple[int, ...]
    prompt_tokens: int
    reused_tokens: int
    tokens_per_second: float
    first_token_ms: float
    seconds: float
    finish: Finish
    kv_cache: KvStats
    backend: str
    model: str
    seed: int
    source: Source


class SwapResult(Message):
    verb: Literal["swap"] = "swap"
    table: dict[str, str]


class ProfileResult(Message):
    """kernels: seconds in one step of `batch` rows, by kernel, each timed by itself; step_seconds: an undivided one."""

    verb: Literal["profile"] = "profile"
    batch: int
    kernels: dict[str, float]
    step_seconds: float
    source: Source


class AttentionResult(Message):
    """mass[layer][head][page]: sums to 1 over the pages, which are the conversation's own in order. tokens: read."""

    verb: Literal["attention"] = "attention"
    owner: str
    tokens: int
    pages: tuple[int, ...]
    mass: tuple[tuple[tuple[float, ...], ...], ...]


class CompareResult(Message):
    """largest: absolute difference of two logits; kl: of the distributions, in nats; ids: the likeliest under each."""

    verb: Literal["compare"] = "compare"
    owner: str
    largest: float
    kl: float
    ids: tuple[int, int]
    text: tuple[str, str]
