"""What is asked of Inductor, and what it wrote; like the rest of `messages`."""

from __future__ import annotations

from typing import Literal

from playground.engine.messages import Message, Request, Source


class InductorRequest(Request):
    """The Triton that torch.compile writes for a kernel's eager function; block: for a small decoder block instead."""

    verb: Literal["inductor"] = "inductor"
    target: str = "sm_90"
    block: bool = False


class InductorKernel(Message):
    """One generated kernel, and what to notice in it."""

    name: str
    source: str
    notes: tuple[str, ...] = ()


class InductorResult(Message):
    """kernels in the order they run; extern: library calls among them (mm, bmm, attention).

    bytes_moved: what Inductor itself reckons its kernels read and write; eager_*: the eager chain's, modelled.
    """

    verb: Literal["inductor"] = "inductor"
    kernel: str
    block: bool
    dims: dict[str, int]
    dtype: str
    kernels: tuple[InductorKernel, ...]
    extern: tuple[str, ...]
    bytes_moved: int
    eager_kernels: int
    eager_bytes: int
    source: Source
    seconds: float = 0.0
