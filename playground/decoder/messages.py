"""What crosses the chat worker's pipes: requests, events and results, as in playground.engine.messages.

A conversation is stateless: each request carries all its messages, and the cache finds what it has of them.
"""

from __future__ import annotations

from typing import Literal

import triton
from pydantic import Field

from playground.engine.messages import Message, Source

Backend = Literal["auto", "triton", "interpreter", "torch"]
Provider = Literal["triton", "torch"]
CacheDtype = Literal["auto", "int8", "fp8"]
Finish = Literal["stop", "length", "context", "cache", "cancelled"]

# The groups of operations that a person swaps between Triton and PyTorch, by the names that tables use.
SWAPS = {
    "norm": "RMSNorm", "rope": "RoPE", "attention": "attention", "activation": "SiLU and product",
    "sampling": "sampling",
}  # fmt: skip
# Tapes give the bits of Triton 3.7's interpreter; with that of 3.6 they gave others, and are not played.
TAPES = tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 7)
INTERPRETER_TOKENS = 64 if TAPES else 32  # the most of one answer there: nobody waits for more
INTERPRETER_NOTE = (
    "the interpreter does every kernel's operations in numpy, one after another, "
    + ("a few tokens in a second: " if TAPES else "a second or two for a token, and leaves linear layers to PyTorch: ")
    + f"an answer there ends after {INTERPRETER_TOKENS} tokens"
)
READING_NOTE = "PyTorch read the prompt and drew the first token; the interpreter stepped through the others"
REPLAYED_TOKENS = 256  # the most steps of one comparison


# What is asked for


class ChatMessage(Message):
    role: Literal["system", "user", "assistant"]
    content: str


class ChatRequest(Message):
    """backend "auto": Triton on the GPU, else Triton natively on the CPU.

    full: what happens when the context is full, "stop" or "slide". cache False computes the whole prefix anew for
    each token. alternatives: each token comes with its probability and the likeliest others. owner: whose pages they
    are, for the page map. table: which groups of operations (see SWAPS) another provider does than the backend would,
    in this conversation alone. cache_dtype: of the keys and values; "auto" is the model's own. stop: texts that end the
    answer, and are left out of it. In the interpreter an answer ends after INTERPRETER_TOKENS, which the result notes.
    """

    verb: Literal["chat"] = "chat"
    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    backend: Backend = "auto"
    max_tokens: int | None = Field(default=None, ge=1)
    temperature: float = Field(default=0.0, ge=0, le=100)
    top_k: int = Field(default=0, ge=0, lt=2**31)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = Field(default=0, ge=0, lt=2**31)
    full: Literal["stop", "slide"] = "stop"
    cache: bool = True
    alternatives: bool = False
    owner: str = ""
    table: dict[str, Provider] = Field(default_factory=dict)
    cache_dtype: CacheDtype = "auto"
    stop: tuple[str, ...] = Field(default=(), max_length=8)


class WarmRequest(Message):
    """Start the worker, load the model, compile what answers need. Answered at once where that is done.

    Questions may come before it is answered: they go first, and wait for no more than a program.
    """

    verb: Literal["warm"] = "warm"


class SwapRequest(Message):
    """Which of "triton" and "torch" does each group of operations from now on; groups left out stay.

    owner: the running conversation that changes; its text so far is read again by the kernels that go on with it.
    "" changes whatever has no table of its own.
    """

    verb: Literal["swap"] = "swap"
    table: dict[str, Provider]
    owner: str = ""


# What comes while it runs


class Alternative(Message):
    """probability: the model's own, the softmax of its logits. drawn: after temperature, top-k and top-p."""

    id: int
    text: str
    probability: float
    drawn: float = 0.0


class ChatToken(Message):
    """text: what this token completes; "" while a character is not whole, or for the end token.

    With alternatives asked for: piece, the token by itself, as in the vocabulary; probability and drawn as in
    Alternative; the five likeliest tokens, this one among them where it is.
    """

    id: int
    text: str
    piece: str = ""
    probability: float | None = None
    drawn: float | None = None
    alternatives: tuple[Alternative, ...] = ()


class KvStats(Message):
    """bytes_used = 2 x layers x kv_heads x head_dim x element_bytes x tokens; reserved: all pages, filled or not.

    In an 8-bit cache each token's key and value of a head has a scale beside it, of scale_bytes.
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
    scale_bytes: int = 0

    @property
    def per_head(self) -> str:
        """Bytes of one key or value of a head, as they stand in the equation."""
        plain = f"{self.head_dim} × {self.element_bytes}"
        return f"({plain} + {self.scale_bytes})" if self.scale_bytes else plain

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * (self.head_dim * self.element_bytes + self.scale_bytes)

    @property
    def equation(self) -> str:
        parts = f"2 × {self.layers} × {self.kv_heads} × {self.per_head} × {self.tokens:,}"
        return f"{parts} = {self.bytes_used:,} bytes"


class PageMap(Message):
    """Every page by number, told briefly, since a large cache has thousands and the decoder makes this as it runs.

    states: a letter each, "u" used, "c" cached, "f" free. partly: the tokens in each used or cached page that is not
    full. names and holds: each open sequence's owner, and its pages in order; a page may be in several.
    """

    states: str
    partly: dict[int, int]
    names: tuple[str, ...]
    holds: tuple[tuple[int, ...], ...]

    def fill(self, page: int, page_size: int) -> int:
        """The tokens in a page."""
        return self.partly.get(page, 0 if self.states[page] == "f" else page_size)


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
    table: dict[str, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


class ModelFacts(Message):
    """The decoder's shape, as the block's picture needs it; dtype and cache_dtype by PyTorch's names."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab_size: int
    max_context: int
    parameters: int
    weight_bytes: int
    dtype: str
    cache_dtype: str
    tied: bool
    qkv_bias: bool
    qk_norm: bool


class WarmResult(Message):
    """seconds: from the worker's start until it was ready. table: who does each group of operations."""

    verb: Literal["warm"] = "warm"
    seconds: float
    model: ModelFacts
    backend: str
    table: dict[str, str]
    source: Source


class SwapResult(Message):
    verb: Literal["swap"] = "swap"
    table: dict[str, str]
