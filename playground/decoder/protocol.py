"""The lines between the engine and a chat worker: many requests at once, each with an id, events as they come.

Framing, Cancel and Ready are those of every worker (playground.engine.protocol).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from playground.decoder.looks import (
    AttentionRequest,
    AttentionResult,
    ProfileRequest,
    ProfileResult,
    ReplayRequest,
    ReplayResult,
)
from playground.decoder.messages import (
    ChatRequest,
    ChatResult,
    ChatStats,
    ChatToken,
    SwapRequest,
    SwapResult,
    WarmRequest,
    WarmResult,
)
from playground.engine.messages import Failure, Message
from playground.engine.protocol import Cancel, Ready

ChatAnyRequest = ChatRequest | WarmRequest | SwapRequest | ProfileRequest | AttentionRequest | ReplayRequest
ChatAnyResult = ChatResult | WarmResult | SwapResult | ProfileResult | AttentionResult | ReplayResult


# To the worker


class Ask(Message):
    op: Literal["ask"] = "ask"
    id: int
    request: Annotated[ChatAnyRequest, Field(discriminator="verb")]


class Pause(Message):
    """Give the device up after the step at work; answered by Paused. A timing waits."""

    op: Literal["pause"] = "pause"


class Resume(Message):
    op: Literal["resume"] = "resume"


# From the worker


class Loading(Message):
    """What the worker does before it is ready, e.g. that it downloads the model."""

    op: Literal["loading"] = "loading"
    what: str


class Token(Message):
    op: Literal["token"] = "token"
    id: int
    token: ChatToken


class Stats(Message):
    op: Literal["stats"] = "stats"
    stats: ChatStats


class Paused(Message):
    op: Literal["paused"] = "paused"


class Answered(Message):
    op: Literal["result"] = "result"
    id: int
    result: Annotated[ChatAnyResult, Field(discriminator="verb")]


class Refused(Message):
    """id None: the worker as a whole cannot go on (no model, a sticky CUDA error), and ends."""

    op: Literal["failure"] = "failure"
    id: int | None
    failure: Failure


ToChat = Ask | Cancel | Pause | Resume
FromChat = Ready | Loading | Token | Stats | Paused | Answered | Refused

to_chat: TypeAdapter[ToChat] = TypeAdapter(Annotated[ToChat, Field(discriminator="op")])
from_chat: TypeAdapter[FromChat] = TypeAdapter(Annotated[FromChat, Field(discriminator="op")])
