"""What is asked of a sweep over configs, and what it answers; like the rest of `messages`."""

from __future__ import annotations

from typing import Literal

from playground.engine.messages import Choice, ConfigChoice, Message, Request, Source, Times


class ConfigRequest(Request):
    """One config of a sweep: its verdict and, where that passes, its times. `config` must be given."""

    verb: Literal["config"] = "config"


class TunedRequest(Message):
    """Keep a winner on disk, for runs and the decoder on this device to use; forget: take it out again."""

    verb: Literal["tuned"] = "tuned"
    choice: Choice | None = None
    forget: bool = False


class TunedEntry(Message):
    """A kept winner: what it was tuned for, its time beside the default's, and when."""

    kernel: str
    dtype: str
    dims: dict[str, int]
    device: str
    config: ConfigChoice
    date: str


class TunedResult(Message):
    verb: Literal["tuned"] = "tuned"
    entries: tuple[TunedEntry, ...]


class ConfigResult(Message):
    """A config's outcome. failure: why it has no time (does not fit, does not compile, wrong answer).

    ok: its verdict; None where it never ran. us: the figure to quote, by `method`; cold and warm as in a benchmark.
    registers a thread, spills and shared memory in bytes, occupancy from 0 to 1 with what limits it: from offline
    compilation for the sweep's target. compile_seconds: until the first answer, of which compiling is the most.
    """

    verb: Literal["config"] = "config"
    config: ConfigChoice
    ok: bool | None = None
    us: Times | None = None
    method: str = ""
    cold_us: Times | None = None
    warm_us: Times | None = None
    ulps: float | None = None
    failure: str | None = None
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    limit: str = ""
    compile_seconds: float = 0.0
    timing_seconds: float = 0.0
    source: Source | None = None


class SweepRequest(Request):
    """Every config of the spec, or those given. target: compile for it; times come from the device that runs.

    timed: False compiles only.
    """

    verb: Literal["sweep"] = "sweep"
    configs: tuple[ConfigChoice, ...] | None = None
    target: str = "sm_90"
    timed: bool = True


class SweepResult(Message):
    """Configs in the order asked. best, default: positions in it; best only among right answers with a time.

    done is False while the sweep runs or where it was stopped: what was found is kept. calls_to_repay: how often
    the kernel must run until the sweep's own seconds are won back.
    """

    verb: Literal["sweep"] = "sweep"
    choice: Choice
    configs: tuple[ConfigResult, ...]
    total: int
    done: bool
    best: int | None = None
    default: int | None = None
    speedup: float | None = None
    seconds: float = 0.0
    calls_to_repay: int | None = None
    target: str
    source: Source | None = None  # of the times
    resources_source: Source | None = None
