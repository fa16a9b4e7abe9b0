"""What is asked of a sweep over configs, and what it answers; like the rest of `messages`."""

from __future__ import annotations

from typing import Literal

from playground.engine.messages import Choice, ConfigChoice, FailureKind, Message, Request, Source, Times


class SweepRequest(Request):
    """Every config of the spec for the target and for this host, or those given.

    target: compile for it, offline; None leaves that out. timed: judge and time each on `device`.
    """

    verb: Literal["sweep"] = "sweep"
    configs: tuple[ConfigChoice, ...] | None = None
    target: str | None = "sm_90"
    timed: bool = True


class ConfigResult(Message):
    """One config's outcome. failure: why it has no time (does not fit, does not compile, wrong answer); failure_kind:
    the engine's kind of it, where the engine gave no answer (of `refusal`, where nothing is timed).

    ok: its verdict; None where it never ran. us: the figure to quote, by `method`; cold and warm as in a benchmark.
    registers a thread, spills and shared memory in bytes, occupancy from 0 to 1 with what limits it: from offline
    compilation, whose own refusal is `refusal`. first_seconds: until the first answer, compiling included.
    recorded_us: on the GPU of `SweepResult.recorded`. tried: False while the sweep has not come to it.
    """

    config: ConfigChoice
    tried: bool = True
    ok: bool | None = None
    us: Times | None = None
    method: str = ""
    cold_us: Times | None = None
    warm_us: Times | None = None
    ulps: float | None = None
    failure: str | None = None
    failure_kind: FailureKind | None = None
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    occupancy: float | None = None
    limit: str = ""
    refusal: str | None = None
    recorded_us: Times | None = None
    first_seconds: float = 0.0


class SweepResult(Message):
    """Configs in the order asked. best, default: positions in it; best only among right answers with a time.

    done is False while the sweep runs: what was found so far is kept when it is stopped. seconds: the sweep's own.
    calls_to_repay: how often the kernel must run until those are won back.
    """

    verb: Literal["sweep"] = "sweep"
    choice: Choice
    configs: tuple[ConfigResult, ...]
    done: bool
    best: int | None = None
    default: int | None = None
    speedup: float | None = None
    seconds: float = 0.0
    calls_to_repay: int | None = None
    target: str | None = None
    source: Source | None = None  # of the times
    compiled: Source | None = None  # of registers, spills, shared memory and occupancy
    recorded: Source | None = None  # of recorded_us
    recorded_note: str = ""
    stale: bool = False  # recorded with an older kernel
    note: str = ""  # on the times, such as that the host was busy
