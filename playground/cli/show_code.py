"""How `compile` and `sweep` are read: the code itself, or a table of configs, the fastest first."""

from __future__ import annotations

from playground.cli import show
from playground.cli.answers import CompileAnswer
from playground.engine.sweep_messages import ConfigResult, SweepResult


@show.text.register
def _compile(answer: CompileAnswer) -> str:
    """The code alone on stdout, so that it can be piped; its figures as the last line, a comment in any stage."""
    mark = ";" if answer.stage in ("amdgcn", "llir") else "//"
    used = f"{answer.registers} registers, {answer.spills} bytes spilled, {answer.shared_bytes:,} bytes shared"
    return f"{answer.code}\n{mark} {answer.kernel} for {answer.target}: {used}"


@show.text.register
def _sweep(result: SweepResult) -> str:
    header = ("config", "us", "registers", "spills", "shared", "occupancy", "note")
    order = sorted(result.configs, key=lambda c: c.us.p50 if c.us else float("inf"))
    rows = [_row(result, config) for config in order]
    return "\n".join(filter(None, (show.table(header, rows, right=(1, 2, 3, 4, 5)), "", _headline(result))))


def _row(result: SweepResult, config: ConfigResult) -> tuple[str, ...]:
    position = result.configs.index(config)
    marks = [word for word, at in (("best", result.best), ("default", result.default)) if at == position]
    why = config.failure or config.refusal or ""
    wrong = "wrong: " if config.ok is False else ""
    return (
        config.config.label,
        f"{config.us.p50:,.1f}" if config.us else "",
        "" if config.registers is None else str(config.registers),
        "" if config.spills is None else str(config.spills),
        "" if config.shared_bytes is None else f"{config.shared_bytes:,}",
        "" if config.occupancy is None else f"{config.occupancy:.0%}",
        ", ".join((*marks, *([wrong + why] if why else []))),
    )


def _headline(result: SweepResult) -> str:
    compiled = f"Resources: compiled for {result.target}." if result.compiled else ""
    if result.best is None or result.source is None:
        return compiled
    best = result.configs[result.best]
    gain = f", {result.speedup:.2f} times as fast as the default" if result.speedup else ""
    repaid = f"; repaid after {result.calls_to_repay:,} calls" if result.calls_to_repay else ""
    note = f"Note: {result.note}.\n" if result.note else ""
    return (
        f"Best: {best.config.label}{gain}. The sweep took {result.seconds:.1f} s{repaid}.\n{note}"
        f"Times: {result.source.kind} on {result.source.device}, {best.method}. {compiled}"
    )
