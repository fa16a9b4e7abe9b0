"""What is asked of generated code, and what it answers; like the rest of `messages`."""

from __future__ import annotations

from typing import Literal

from playground.engine.messages import Choice, Message, Request, Resources, Source

STAGES = ("ttir", "ttgir", "llir", "ptx", "sass", "amdgcn")


class CodeRequest(Request):
    """The code of a launch for a target such as "sm_90" or "gfx942", compiled offline; stages None means all."""

    verb: Literal["code"] = "code"
    target: str = "sm_90"
    stages: tuple[str, ...] | None = None


class CodeRow(Message):
    """One line of a stage; lines: the Python lines that it came from, innermost first."""

    text: str
    lines: tuple[int, ...] = ()


class CodeFinding(Message):
    """Something worth a look: rows (from 0) of a stage, and the Python lines they came from."""

    claim: str
    plain: str
    stage: str
    rows: tuple[int, ...]
    lines: tuple[int, ...]


class LaunchCode(Message):
    """One launch of the plan: the Python of its file from `first_line` to the end of its functions, and its stages.

    occupancy: warps held by an SM over warps possible, with what limits it.
    """

    kernel: str
    file: str
    python: tuple[str, ...]
    first_line: int
    stages: dict[str, tuple[CodeRow, ...]]
    findings: tuple[CodeFinding, ...]
    resources: Resources
    occupancy: float | None = None
    programs_per_sm: int | None = None
    limit: str = ""
    grid: tuple[int, ...] = ()


class CodeResult(Message):
    verb: Literal["code"] = "code"
    choice: Choice
    target: str
    launches: tuple[LaunchCode, ...]
    source: Source
    seconds: float = 0.0
