"""The JSON that each verb prints, as types: a field here is a promise to scripts.

`run` prints a RunResult as the engine gives it. NaN and infinity are the strings "NaN", "Infinity", "-Infinity".
"""

from __future__ import annotations

from typing import Literal

from playground.decoder.looks import AttentionResult, ProfileResult, ReplayResult
from playground.decoder.messages import ChatResult, ChatToken
from playground.engine.messages import BenchResult, Choice, ConfigChoice, Failure, Message, RunResult, Source
from playground.engine.sweep_messages import SweepResult
from playground.engine.trace_messages import TraceResult


class ErrorLine(Message):
    """kind: "input" (exit code 2), "unavailable" (3), "crashed", "timeout", "cancelled" or "failed" (4).

    argument: the option or dim to mend, where there is one.
    """

    kind: str
    message: str
    argument: str = ""


class ErrorAnswer(Message):
    """What any verb prints where it has no result."""

    error: ErrorLine


class ChatAnswer(ChatResult):
    """What `chat` prints; the others where they were asked for.

    tokens: each with its probabilities; comparison: of the answer and its replay with --compare.
    """

    tokens: tuple[ChatToken, ...] = ()
    comparison: ReplayResult | None = None
    attention: AttentionResult | None = None
    profile: ProfileResult | None = None


class Check(Message):
    """required: without it nothing runs. why: what was found, or what is missing and how to get it."""

    name: str
    ok: bool
    why: str
    required: bool = False


class DoctorAnswer(Message):
    verb: Literal["doctor"] = "doctor"
    ok: bool  # all that is required
    checks: tuple[Check, ...]


class DimEntry(Message):
    """low and high are inclusive; default: what a CPU answers at once."""

    doc: str
    low: int
    high: int
    default: int


class ConfigEntry(ConfigChoice):
    text: str


class EdgeEntry(Message):
    name: str
    attacks: str
    dtype: str | None = None


class BugEntry(Message):
    name: str
    hint: str
    symptom: str
    dtype: str


class KernelEntry(Message):
    """dims and presets by name, in the kernel's order; configs as listed for `configs_for`, the default first."""

    name: str
    title: str
    doc: str
    dims: dict[str, DimEntry]
    presets: dict[str, dict[str, int]]
    dtypes: tuple[str, ...]
    configs: tuple[ConfigEntry, ...]
    configs_for: str
    outputs: tuple[str, ...]
    edges: tuple[EdgeEntry, ...]
    bugs: tuple[BugEntry, ...]
    baselines: tuple[str, ...]
    variant_of: str | None = None


class KernelsAnswer(Message):
    verb: Literal["kernels"] = "kernels"
    kernels: tuple[KernelEntry, ...]


class BenchAnswer(BenchResult):
    """recorded: on a CPU, what GPUs reached on this shape or the nearest, each with its own source.

    Where this host cannot measure, the answer itself is the recording, and its source says so.
    """

    recorded: tuple[BenchResult, ...] = ()


class BenchStep(Message):
    """One size of a sweep: a result, or why there is none."""

    value: int
    result: BenchAnswer | None = None
    error: Failure | None = None


class BenchOverAnswer(Message):
    """ok: every size that ran is right, and one did."""

    verb: Literal["bench"] = "bench"
    ok: bool
    kernel: str
    over: str
    steps: tuple[BenchStep, ...]


class CompileAnswer(Message):
    """code: the stage's text; lines: how many that are. spills in bytes a thread; occupancy from 0 to 1."""

    verb: Literal["compile"] = "compile"
    kernel: str
    choice: Choice
    target: str
    stage: str
    code: str
    lines: int
    registers: int
    spills: int
    shared_bytes: int
    occupancy: float | None
    source: Source


class RecordAnswer(Message):
    """ok: nothing is stale or missing. lines: what was recorded, or what `record-check` found, one line each."""

    verb: Literal["record", "record-check"]
    ok: bool
    lines: tuple[str, ...]


Answer = (
    DoctorAnswer
    | KernelsAnswer
    | RunResult
    | BenchAnswer
    | BenchOverAnswer
    | SweepResult
    | CompileAnswer
    | TraceResult
    | ChatResult
    | RecordAnswer
)
