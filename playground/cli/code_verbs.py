"""The verbs that read what the compiler made: `compile` one launch for a GPU, `sweep` every config."""

from __future__ import annotations

import argparse
import sys

from playground.cli import EXIT_CODES, arguments, interrupt
from playground.cli.answers import CompileAnswer
from playground.cli.verbs import FAILED, WRONG, fields, opened, progress_line, result_of
from playground.engine.code_messages import STAGES, CodeRequest, LaunchCode
from playground.engine.messages import Progress
from playground.engine.sweep_messages import SweepRequest, SweepResult


def compile_(options: argparse.Namespace) -> tuple[CompileAnswer, int]:
    """The code of one stage, launch after launch; the figures are those of the launch that uses most."""
    if options.stage not in STAGES:
        raise arguments.bad("stage", f"no stage is named {options.stage[:60]!r}; choose {', '.join(STAGES)}")
    request = CodeRequest(**fields(options), target=options.target, stages=(options.stage,))
    with opened("compiler") as engine:
        result = result_of(engine, request)
    most = max(result.launches, key=_use, default=None)
    text = "\n\n".join("\n".join(row.text for row in launch.stages[options.stage]) for launch in result.launches)
    return CompileAnswer(
        kernel=result.choice.kernel, choice=result.choice, target=result.target, stage=options.stage, code=text,
        lines=text.count("\n") + 1 if text else 0, registers=most.resources.registers if most else 0,
        spills=most.resources.spills if most else 0, shared_bytes=most.resources.shared_bytes if most else 0,
        occupancy=most.occupancy if most else None, source=result.source,
    ), 0  # fmt: skip


def _use(launch: LaunchCode) -> tuple[int, int]:
    return launch.resources.spills, launch.resources.registers


def sweep(options: argparse.Namespace) -> tuple[SweepResult, int]:
    """Timed on this host's device; with --target and no --timed, from offline compilation alone."""
    given = fields(options)
    configs = (given.pop("config"),) if given["config"] is not None else None
    given.pop("config", None)
    timed = options.target is None or options.timed
    request = SweepRequest(**given, configs=configs, target=options.target or "sm_90", timed=timed)
    shown = sys.stderr.isatty()
    result: SweepResult | None = None
    with opened(request.device if timed else "compiler") as engine:
        for item in engine.sweep(request, interrupt.stopped):
            if isinstance(item, SweepResult):
                result = item
            elif shown and isinstance(item, Progress):
                print(f"\r\x1b[K{progress_line(item)}", end="", file=sys.stderr, flush=True)
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    assert result is not None
    return result, _sweep_code(result, timed)


def _sweep_code(result: SweepResult, timed: bool) -> int:
    """A wrong config is what a sweep is there to find; only one in which nothing worked has failed.

    Where every config failed in the same way, the code is that of this way.
    """
    if result.best is not None or (not timed and any(c.registers is not None for c in result.configs)):
        return 0
    if timed and any(c.ok is False for c in result.configs):
        return WRONG
    kinds = {c.failure_kind or "" for c in result.configs}
    return EXIT_CODES.get(kinds.pop(), FAILED) if len(kinds) == 1 else FAILED
