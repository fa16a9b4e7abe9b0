"""What crosses the chat worker's pipes when someone looks inside: profiles, attention, and swaps compared.

Each is a question of its own beside the chats of playground.decoder.messages, and changes no conversation.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from playground.decoder.messages import ChatMessage, Provider
from playground.engine.messages import Message, Source


class ProfileRequest(Message):
    """Time of each kernel in one decode step of `batch` rows (None: of those that are decoding now).

    context: tokens that rows without a conversation read, for they have none of their own. table: as in ChatRequest.
    """

    verb: Literal["profile"] = "profile"
    batch: int | None = Field(default=None, ge=1)
    context: int = Field(default=128, ge=1)
    table: dict[str, Provider] = Field(default_factory=dict)


class Shape(Message):
    """An operand of a box: its name in the operation, its shape, its dtype by PyTorch's name."""

    name: str
    shape: tuple[int, ...]
    dtype: str


class KernelBox(Message):
    """A box of the decoder block's picture: what one operation of one layer is given and gives, and its time.

    box: embedding, attn_norm, qkv, q_norm, k_norm, rope, cache_write, attention, o, ffn_norm, gate_up, activation,
    down, norm, head, sampling or state; on a GPU a fused step has attn_norm+qkv, rope+cache_write+attention, o,
    ffn_norm+gate_up+activation, down and norm+head. spec: the kernel's name in the other tabs, None where it has no
    tab. calls: how many a step has, all layers together; bytes: compulsory traffic of one call; seconds: of all calls
    together in one step; share: of the sum of all boxes.
    """

    box: str
    group: str
    provider: str
    kernel: str
    spec: str | None
    calls: int
    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]
    bytes: int
    seconds: float
    share: float


class ProfileResult(Message):
    """kernels: seconds in one step of `batch` rows, by kernel, each timed by itself; step_seconds: an undivided one.

    boxes: the same by the block's boxes, in the order of the step. how: the way it was timed, in words.
    """

    verb: Literal["profile"] = "profile"
    batch: int
    kernels: dict[str, float]
    step_seconds: float
    source: Source
    boxes: tuple[KernelBox, ...] = ()
    context: int = 0
    how: str = ""


class AttentionRequest(Message):
    """Where the last token of a conversation looks: the share of attention by page. owner: as in its chat.

    layers, heads: those alone; None: all of them. messages, ids: of an answer that has ended, whose text is read again
    as far as the cache has lost it; without them the conversation must be running.
    """

    verb: Literal["attention"] = "attention"
    owner: str
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    messages: tuple[ChatMessage, ...] = ()
    ids: tuple[int, ...] = ()


class AttentionResult(Message):
    """mass[layer][head][page]: sums to 1 over the pages, which are the conversation's own in order. tokens: read.

    layers, heads: the numbers of those in `mass`. mean: [page], over the layers and heads asked for.
    """

    verb: Literal["attention"] = "attention"
    owner: str
    tokens: int
    pages: tuple[int, ...]
    mass: tuple[tuple[tuple[float, ...], ...], ...]
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    mean: tuple[float, ...] = ()


class ReplayRequest(Message):
    """An answer gone through twice, token by token as it stands: as it was made, and with `swap` swapped in.

    messages, ids: the conversation before the answer, and the answer's tokens, of which the first REPLAYED_TOKENS
    count. table: of the first reading. temperature and the others: as the answer was drawn, so that it is said where
    the two would have drawn different tokens. It runs beside the chats, as two more conversations.
    """

    verb: Literal["replay"] = "replay"
    messages: tuple[ChatMessage, ...] = Field(min_length=1)
    ids: tuple[int, ...] = Field(min_length=1)
    swap: dict[str, Provider] = Field(min_length=1)
    table: dict[str, Provider] = Field(default_factory=dict)
    temperature: float = Field(default=0.0, ge=0, le=100)
    top_k: int = Field(default=0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    seed: int = Field(default=0, ge=0, lt=2**31)


class ReplayStep(Message):
    """One token of the answer. largest: absolute difference of two logits; kl: of the distributions, in nats; drawn:
    the tokens that the two would have drawn here."""

    id: int
    text: str
    largest: float
    kl: float
    drawn: tuple[int, int]
    drawn_text: tuple[str, str]


class ReplayResult(Message):
    """steps: one for each token; first_difference: the index of the first at which the two draw different tokens.

    largest, kl: the largest of all steps; table, swapped: who did each group in the first reading and in the second.
    """

    verb: Literal["replay"] = "replay"
    steps: tuple[ReplayStep, ...]
    largest: float
    kl: float
    first_difference: int | None
    table: dict[str, str]
    swapped: dict[str, str]
    source: Source
