"""What limits how many programs an SM holds, and what other warps and blocks would change. Pure: values to HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from playground.ui import words
from playground.ui.tabs.memory.facts import Facts


def limits(facts: Facts) -> str:
    """Programs on an SM that each resource alone would allow, and which of them decides."""
    if not facts.residents:
        return f'<p class="quiet">{escape(facts.refused or "Nothing is compiled for this choice.")}</p>'
    parts = []
    for held in facts.residents:
        by_limit = held.held.by_limit
        deciding = held.held.deciding
        top = min(by_limit["programs"], max(by_limit.values())) or 1  # beyond that a limit is none
        rows = "".join(
            f'<li class="{"decides" if name in deciding else ""}"><span>{escape(name)}</span>'
            f'<div class="bar"><i style="width:{min(100.0, 100 * value / top):.1f}%"></i></div><b>{value}</b>'
            f"<small>{'decides' if name in deciding else ''}</small></li>"
            for name, value in by_limit.items()
        )
        parts.append(
            f"<p><b>{escape(held.kernel)}</b>: {words.count(held.held.blocks, 'program')} on {facts.gpu.one_unit}, "
            f"{words.percent(held.held.occupancy)} % of its warps.</p><ul class='ways limits'>{rows}</ul>"
        )
    return "".join(parts)


@dataclass(frozen=True)
class Trial:
    """One config of the what-if: what the compiler used and what an SM then holds, or why not."""

    label: str
    warps: int
    registers: int = 0
    spills: int = 0
    shared: int = 0
    programs: int = 0
    occupancy: float = 0.0
    limit: str = ""
    failure: str = ""


def what_if(trials: Mapping[tuple[str, int], Trial], chosen: tuple[str, int] | None, unit: str = "an SM") -> str:
    """Block sizes down, warps across; each cell is the share of an SM's warps that are held."""
    blocks = list(dict.fromkeys(block for block, _ in trials))
    warps = sorted({w for _, w in trials})
    head = "".join(f"<th scope=col>{w}</th>" for w in warps)
    body = "".join(
        f"<tr><th scope=row>{escape(block)}</th>"
        + "".join(_trial(trials.get((block, w)), (block, w) == chosen) for w in warps)
        + "</tr>"
        for block in blocks
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Occupancy by block and warps">'
        '<table class="occ">'
        f"<caption>share of {unit}’s warps that are held, %; small: registers a thread, programs on {unit}</caption>"
        f"<thead><tr><th class='corner'>num_warps →<br>block ↓</th>{head}</tr></thead><tbody>{body}</tbody>"
        "</table></div>"
    )


def _trial(trial: Trial | None, chosen: bool) -> str:
    if trial is None:
        return '<td class="failed">…</td>'
    if trial.failure:
        return f'<td class="failed" title="{escape(trial.failure)}">not possible</td>'
    spills = f", spills {trial.spills} B" if trial.spills else ""
    title = f"{trial.label}: limited by {trial.limit}{spills}"
    mark = "<b>now</b>" if chosen else ""
    return (
        f'<td class="{"now" if chosen else ""}" style="--held:{100 * trial.occupancy:.0f}" title="{escape(title)}">'
        f"{words.percent(trial.occupancy)}{mark}<small>{trial.registers} reg<br>{trial.programs} prog"
        f"{'<br>spills' if trial.spills else ''}</small></td>"
    )
