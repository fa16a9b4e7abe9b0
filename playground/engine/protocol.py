"""The lines that the page's process and a worker exchange: one JSON object a line, each of a known type.

They travel over two pipes of their own, never over stdout, so that nothing a kernel prints can be taken for a
message. What arrives is checked against these types; anything else is a ProtocolError, and the reader hangs up.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Annotated, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from playground.engine.code_messages import CodeRequest, CodeResult
from playground.engine.inductor_messages import InductorRequest, InductorResult
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    Failure,
    HostRequest,
    HostResult,
    Message,
    Progress,
    ResourcesRequest,
    ResourcesResult,
    RunRequest,
    RunResult,
)
from playground.engine.trace_messages import TraceRequest, TraceResult

AnyRequest = RunRequest | BenchRequest | ResourcesRequest | CodeRequest | InductorRequest | TraceRequest | HostRequest
AnyResult = RunResult | BenchResult | ResourcesResult | CodeResult | InductorResult | TraceResult | HostResult

M = TypeVar("M", bound=Message)

LONGEST_LINE = 64 * 2**20  # bytes; generated code and access maps are the longest, at a few MB


class ProtocolError(Exception):
    """Something came that is no message."""


# To the worker


class Do(Message):
    op: Literal["do"] = "do"
    id: int
    request: Annotated[AnyRequest, Field(discriminator="verb")]


class Cancel(Message):
    op: Literal["cancel"] = "cancel"
    id: int


# From the worker


class Ready(Message):
    """The worker takes requests. seconds: from its start; note: what it does without, and why."""

    op: Literal["ready"] = "ready"
    seconds: float
    note: str = ""


class Taken(Message):
    """The worker begins with a request. One that dies without this was dead already."""

    op: Literal["taken"] = "taken"
    id: int


class Report(Message):
    op: Literal["progress"] = "progress"
    id: int
    progress: Progress


class Done(Message):
    op: Literal["result"] = "result"
    id: int
    result: Annotated[AnyResult, Field(discriminator="verb")]


class Failed(Message):
    """broken: this worker cannot go on (a sticky CUDA error) and is to be replaced.

    interpret: the native path cannot do this request, but the interpreter can; `failure` says why.
    """

    op: Literal["failure"] = "failure"
    id: int
    failure: Failure
    broken: bool = False
    interpret: bool = False


ToWorker = Annotated[Do | Cancel, Field(discriminator="op")]
FromWorker = Annotated[Ready | Taken | Report | Done | Failed, Field(discriminator="op")]

to_worker: TypeAdapter[Do | Cancel] = TypeAdapter(ToWorker)
from_worker: TypeAdapter[Ready | Taken | Report | Done | Failed] = TypeAdapter(FromWorker)


class Sender:
    """Writes messages to a pipe, whole lines only, from any thread.

    Raises OSError once the other end is gone, and EngineError for a text that is none.
    """

    def __init__(self, fd: int):
        self._fd = fd
        self._lock = threading.Lock()
        self._closed = False

    def send(self, message: Message) -> None:
        try:
            data = memoryview(message.model_dump_json().encode() + b"\n")
        except ValueError:  # a surrogate: a browser and a terminal can send one, JSON cannot
            what = "the text holds half a character (a lone surrogate), which cannot be sent; take it out"
            raise EngineError(Failure(kind="input", message=what)) from None
        with self._lock:
            if self._closed:
                raise BrokenPipeError("the pipe is closed")
            while data:
                data = data[os.write(self._fd, data) :]

    def close(self) -> None:
        """Closes the pipe, once; a number that was used again must not be written to."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._fd)


def receive(fd: int, kind: TypeAdapter[M]) -> Iterator[M]:
    """The messages of a pipe until its other end closes. Raises ProtocolError, which quotes what came."""
    for line in _lines(fd):
        try:
            yield kind.validate_json(line)
        except ValidationError as e:
            what = e.errors(include_url=False)[0]["msg"]
            raise ProtocolError(f"{line[:80].decode(errors='replace')!r} ({what})") from None


def _lines(fd: int) -> Iterator[bytes]:
    """Whole lines. What stands after the last newline at the end was never finished, and is dropped."""
    parts: list[bytes] = []
    size = 0
    while chunk := os.read(fd, 1 << 16):
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*parts, line))
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > LONGEST_LINE:
            raise ProtocolError(f"a line of more than {LONGEST_LINE >> 20} MB, beginning {parts[0][:80]!r}")
