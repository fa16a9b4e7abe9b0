"""What is asked of a trace, and what it answers; like the rest of `messages`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from playground.engine.messages import Choice, Message, OutOfBounds, Request, Source


class TraceRequest(Request):
    """Every load and store of the kernel, exact, in the interpreter.

    programs: linear program ids whose accesses are kept one by one for the access map; None keeps a dozen that are
    spread evenly, the first and the last among them. seconds: the time after which the rest of the grid is left out
    and the sums are scaled.
    """

    verb: Literal["trace"] = "trace"
    programs: tuple[int, ...] | None = None
    seconds: float = Field(default=2.0, gt=0, le=60)


class Access(Message):
    """All accesses of one source line to one tensor, summed over the programs traced.

    calls: block accesses. lanes: elements in those blocks. active: those that no mask removed. bytes: of the active
    lanes. sectors: pieces of 32 bytes touched, each counted once an access of the whole block, where a GPU counts
    them for each warp. efficiency: distinct bytes over sectors * 32.
    """

    kind: Literal["load", "store"]
    line: int
    code: str
    tensor: str
    itemsize: int
    calls: int
    lanes: int
    active: int
    bytes: int
    sectors: int
    efficiency: float


class ProgramAccess(Message):
    """One access of one program: its active lanes as runs (first element index, step, count).

    samples: (lane, element index, value) of some lanes. A line in a loop is kept the first few times.
    """

    kind: Literal["load", "store"]
    line: int
    tensor: str
    lanes: int
    active: int
    runs: tuple[tuple[int, int, int], ...]
    samples: tuple[tuple[int, int, float], ...] = ()


class TracedTensor(Message):
    """One tensor of the launch: what was asked of it and how much of it was touched at all, in bytes."""

    name: str
    itemsize: int
    bytes_total: int
    bytes_loaded: int
    bytes_stored: int
    unique_loaded: int
    unique_stored: int


class ChainStep(Message):
    """One kernel that eager PyTorch runs: what it reads and writes, as (tensor, bytes), each read and written once."""

    kernel: str
    reads: tuple[tuple[str, int], ...]
    writes: tuple[tuple[str, int], ...]


class TracedLaunch(Message):
    """One launch of the plan. programs maps a linear program id to its accesses in order."""

    kernel: str
    grid: tuple[int, ...]
    programs_traced: int
    programs_total: int
    accesses: tuple[Access, ...]
    tensors: tuple[TracedTensor, ...]
    programs: dict[int, tuple[ProgramAccess, ...]]


class TraceResult(Message):
    """Bytes that the program asks for. Sums are exact where every program was traced, and scaled where not.

    unique_bytes: distinct bytes loaded plus distinct bytes stored. sectors: of 32 bytes. masked_share: lanes that
    masks removed. compulsory_bytes: what the cost model says any implementation must move, and flops what it must
    compute. chain: the kernels of eager PyTorch for the same answer, modelled.
    """

    verb: Literal["trace"] = "trace"
    choice: Choice
    exact: bool
    steered: bool = False  # not exact, and what was left out steers a later launch: the sums may be far off
    bytes_loaded: int
    bytes_stored: int
    unique_bytes: int
    compulsory_bytes: int
    flops: int = 0
    sectors: int
    masked_share: float
    out_of_bounds: tuple[OutOfBounds, ...]
    accesses: tuple[Access, ...]
    launches: tuple[TracedLaunch, ...]
    chain: tuple[ChainStep, ...] = ()
    source: Source
    note: str = ""
    seconds: float = 0.0
