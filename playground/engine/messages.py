"""What crosses a process, and what the engine answers: typed requests, events and results.

Each is a frozen pydantic model, so JSON in and out is checked in one place. Tensors and pickles never cross.
NaN and infinity are strings in JSON ("NaN", "Infinity", "-Infinity"), so every line is strict JSON. The command
line prints these models as they are: a field here is a promise to scripts.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]  # the most that JSON carries to a browser


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


def first_fault(error: ValidationError) -> tuple[str, Any, str]:
    """Where a message's first fault is, what was given there, and what is needed instead, in our words."""
    first = error.errors()[0]
    need = first["msg"].removeprefix("Value error, ").replace("Input should be", "it needs to be")
    need = re.sub(r"a valid dictionary or instance of \w+", "an object", need)
    need = re.sub(r"^\w+ should have (at \w+ \d+ \w+) after validation, not", r"it needs to have \1, and not", need)
    return ".".join(map(str, first["loc"])), first["input"], need


# What a person asks for


class ConfigChoice(Message):
    """A config as plain numbers, e.g. {"meta": {"BLOCK_N": 4096}, "num_warps": 8, "num_stages": 3}."""

    meta: dict[str, Int64] = {}
    num_warps: int = Field(default=4, ge=1, le=32)
    num_stages: int = Field(default=3, ge=1, le=10)

    @property
    def label(self) -> str:
        parts = [f"{name} {value}" for name, value in self.meta.items()]
        parts.append(f"{self.num_warps} warp{'s' * (self.num_warps != 1)}")
        if self.num_stages != 3:
            parts.append(f"{self.num_stages} stage{'s' * (self.num_stages != 1)}")
        return ", ".join(parts)


class Request(Message):
    """A kernel and a choice of shape. `config` None means the tuned one, else the default.

    edge, bug: names of the spec's edge case or planted bug. source: an edited kernel file, instead of ours.
    baselines: names, besides eager, which always runs; None means all that can run.
    device: "auto" (the GPU, else the CPU), "cuda:0", "cpu" (native) or "interpreter".
    checked: on the CPU, check every load and store; None means where its cost does not hurt.
    """

    kernel: str
    dims: dict[str, int] = {}
    dtype: str | None = None
    seed: int = 0
    config: ConfigChoice | None = None
    edge: str | None = None
    bug: str | None = None
    source: str | None = None
    baselines: tuple[str, ...] | None = None
    device: str = "auto"
    checked: bool | None = None


class RunRequest(Request):
    verb: Literal["run"] = "run"


class BenchRequest(Request):
    """quick: fewer repeats, for a sweep. alone: Triton only, without eager beside it.

    roofs: measured first where they are not yet. Without that a CPU's result comes at once, and may have none.
    """

    verb: Literal["bench"] = "bench"
    quick: bool = False
    alone: bool = False
    roofs: bool = True


class ResourcesRequest(Request):
    """Registers, spills and shared memory from offline compilation for a target such as "sm_90".

    chain: with the kernels that eager PyTorch runs for the same answer, and the bytes they move.
    """

    verb: Literal["resources"] = "resources"
    target: str = "sm_90"
    chain: bool = False


class HostRequest(Message):
    """What the worker's device is; its measured roofs and its copy bandwidth over sizes where these are set."""

    verb: Literal["host"] = "host"
    roofs: bool = False
    curve: bool = False


# What a figure is


class Source(Message):
    """Where a figure comes from. date is ISO 8601; versions e.g. {"torch": "2.13.0", "triton": "3.7.1"}."""

    kind: Literal["measured", "interpreted", "compiled", "modelled", "recorded"]
    device: str
    date: str
    versions: dict[str, str] = {}
    note: str = ""


# Verdicts


class Wrong(Message):
    """The first element that is wrong, and where the wrong ones lie.

    picture: the share of wrong elements in each cell of a grid over the output (rows down, columns across);
    cell: how many elements a cell covers, rows by columns.
    """

    index: tuple[int, ...]
    got: float
    expected: float
    count: int
    total: int
    picture: tuple[tuple[float, ...], ...] = ()
    cell: tuple[int, int] = (1, 1)


class OutOfBounds(Message):
    """A load or store outside the tensors of a launch, found in checked mode."""

    kind: Literal["load", "store"]
    tensor: str
    index: int
    program: tuple[int, ...]
    lane: int
    line: int
    message: str


class OutputVerdict(Message):
    """One output against float64.

    error: the larger of its rms and its worst relative error over their bars decides `ok`; `error` and `bar` are
    the worst element's, as |got - ref| / (|ref| + rms(ref)); rms_error and rms_bar the same over the tensor.
    ulps: the worst distance from the reference in units in the last place of the output's dtype, at the reference
    or its rms, whichever is larger; ulps_bar what PyTorch eager itself reaches.
    """

    ok: bool
    error: float
    bar: float
    rms_error: float
    rms_bar: float
    ulps: float
    ulps_bar: float
    wrong: Wrong | None = None
    note: str = ""


class ProviderRun(Message):
    """One implementation's answer. missing: how to get it where it is not installed; failure: why it gave none."""

    ok: bool
    outputs: dict[str, OutputVerdict] = {}
    missing: str | None = None
    failure: str | None = None
    seconds: float = 0.0


class Choice(Message):
    """What was really run: the request with every default filled in, so that it can be repeated.

    config_origin: "given", "tuned", "spec" (the default for this target).
    """

    kernel: str
    dims: dict[str, int]
    dtype: str
    seed: int
    config: ConfigChoice
    config_origin: Literal["given", "tuned", "spec"]
    edge: str | None = None
    bug: str | None = None
    edited: bool = False


class RunResult(Message):
    """`outputs` and `ok` are Triton's own; `providers` holds every implementation, Triton included."""

    verb: Literal["run"] = "run"
    ok: bool
    choice: Choice
    outputs: dict[str, OutputVerdict]
    providers: dict[str, ProviderRun]
    source: Source
    note: str = ""  # e.g. why the interpreter stood in, or that float32 stood in for bfloat16
    checked: bool = False
    out_of_bounds: OutOfBounds | None = None
    compile_seconds: float = 0.0
    seconds: float = 0.0


# Times


class Times(Message):
    """Microseconds: median and the 20th and 80th percentile."""

    p20: float
    p50: float
    p80: float

    def overlaps(self, other: Times) -> bool:
        """Whether the two spreads share a time: no ranking is sure then."""
        return self.p20 <= other.p80 and other.p20 <= self.p80


class ProviderBench(Message):
    """One implementation's times; none where its verdict failed.

    cold_us: L2 (or the CPU's last-level cache) flushed before each call. warm_us: called again and again.
    launch_us: host time included, as a person's program sees it. graph_us: each replayed in a CUDA graph, where the
    kernel is shorter than its launch. us: the figure to quote, and `method` which of these it is.
    share_of_peak: of the measured roof that binds it, 1.0 being the roof. calls: how many were timed.
    """

    ok: bool
    us: Times | None = None
    method: str = ""
    cold_us: Times | None = None
    warm_us: Times | None = None
    launch_us: Times | None = None
    graph_us: Times | None = None
    calls: int = 0
    gbps: float | None = None
    tflops: float | None = None
    share_of_peak: float | None = None
    speedup: float | None = None  # against eager
    ulps: float | None = None
    error: float | None = None
    note: str = ""
    missing: str | None = None
    failure: str | None = None
    first_seconds: float = 0.0  # until the first answer, compiling included


class Roofs(Message):
    """What this device reaches, measured: copy in GB/s (read + written), matmul in TFLOP/s by dtype.

    levels_gbps: reading from "l2" and "l1" (hits of L1 come over shared memory's own path), on a GPU.
    """

    copy_gbps: float
    matmul_tflops: dict[str, float] = {}
    levels_gbps: dict[str, float] = {}
    source: Source


class Curve(Message):
    """Bandwidth of a copy against the bytes it touches, read and written both counted; warm, GB/s.

    caches: sizes in bytes by name, as the device says them.
    """

    bytes: tuple[int, ...]
    gbps: tuple[float, ...]
    caches: dict[str, int] = {}
    source: Source


class BenchResult(Message):
    """bound: the roof that binds this shape ("memory" or "compute"), from `cost` and the measured roofs.

    floor_us: the time that roof allows. stale: for a recording, that the kernel has changed since.
    roofs: None where they were not asked for and are not measured yet; no share is known then, and floor_us is 0.
    """

    verb: Literal["bench"] = "bench"
    ok: bool
    choice: Choice
    providers: dict[str, ProviderBench]
    bytes_moved: int
    flops: int
    roofs: Roofs | None
    bound: Literal["memory", "compute"]
    floor_us: float
    source: Source
    note: str = ""
    stale: bool = False


class Resources(Message):
    """What the compiler used for one launch, by kernel. spills in bytes; occupancy is issue-free residency, 0 to 1."""

    kernel: str
    target: str
    registers: int
    spills: int
    shared_bytes: int
    num_warps: int
    instructions: dict[str, int] = {}  # e.g. {"ld.global.v4": 2}


class ResourcesResult(Message):
    """eager_kernels, eager_bytes: eager's chain where it was asked for, modelled; each step through memory."""

    verb: Literal["resources"] = "resources"
    choice: Choice
    launches: tuple[Resources, ...]
    source: Source
    eager_kernels: tuple[str, ...] = ()
    eager_bytes: int = 0


class HostResult(Message):
    """A device: name as a person knows it, detail such as "2 cores, no GPU", versions, roofs where measured.

    units: SMs of a GPU, cores of a CPU. caches: sizes in bytes by name, outermost last.
    """

    verb: Literal["host"] = "host"
    kind: Literal["gpu", "cpu", "interpreter", "compiler"]
    device: str
    detail: str
    arch: str
    memory_bytes: int
    versions: dict[str, str]
    units: int = 0
    caches: dict[str, int] = {}
    roofs: Roofs | None = None
    curve: Curve | None = None


# Events of a running request


class Progress(Message):
    """what is being done, and how far: done of total units. place: how many wait before it, while it waits."""

    what: str
    done: int = 0
    total: int = 0
    unit: str = ""
    place: int = 0


FailureKind = Literal["input", "unavailable", "crashed", "timeout", "cancelled", "failed"]


class Failure(Message):
    """Why a request gave no result.

    kind: "input" (exit code 2), "unavailable" (3), or "crashed", "timeout", "cancelled", "failed" (4).
    """

    kind: FailureKind
    message: str
    argument: str = ""


class EngineError(Exception):
    """A request that ended without a result; `failure` says why in one line."""

    def __init__(self, failure: Failure):
        super().__init__(failure.message)
        self.failure = failure
