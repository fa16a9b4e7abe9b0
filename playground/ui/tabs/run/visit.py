"""The runs of this visit: listed, opened again, and held beside each other. Kept for as long as the page is open."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html import escape

import plotly.graph_objects as go

from playground.engine.messages import BenchResult
from playground.ui import charts, panels, words
from playground.ui.answer import Answer

MOST = 40  # runs that a visit keeps


@dataclass
class Ticks:
    """The runs that are ticked. One for the whole visit: a run that works draws the list that it began with, and must
    not set back what was ticked since.
    """

    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Visit:
    """Every run with its number; `shown` is the one on the page."""

    runs: tuple[tuple[int, Answer], ...] = ()
    shown: int | None = None
    ticks: Ticks = field(default_factory=Ticks)

    def added(self, answer: Answer) -> Visit:
        """With one more run, which is now the one on the page. The oldest goes where there are too many."""
        number = self.runs[-1][0] + 1 if self.runs else 1
        return replace(self, runs=(*self.runs, (number, answer))[-MOST:], shown=number)

    def opened(self, number: int) -> Visit:
        return replace(self, shown=number) if self.get(number) else self

    def picking(self, numbers: list[int]) -> Visit:
        self.ticks.numbers = tuple(numbers)
        return self

    @property
    def picked(self) -> tuple[int, ...]:
        """Those to compare."""
        return tuple(n for n, _ in self.runs if n in self.ticks.numbers)

    def get(self, number: int | None) -> Answer | None:
        return next((a for n, a in self.runs if n == number), None)

    @property
    def current(self) -> Answer | None:
        return self.get(self.shown)


def figures(answer: Answer) -> BenchResult | None:
    """The times that a run is compared by: this device's, else the recording's, which says so."""
    return answer.timed or (answer.recorded if answer.right else None)


def listing(visit: Visit) -> str:
    """The runs as a table, the newest first. Ticking two or more adds a column that compares them."""
    base = _base(visit)
    against = f"<th scope=col>against {base}</th>" if base else ""
    head = (
        '<th scope=col><span class="sr">compare</span></th><th scope=col>run</th><th scope=col>kernel</th>'
        '<th scope=col class="opt">shape</th><th scope=col class="opt">dtype</th><th scope=col class="opt">config</th>'
        "<th scope=col>verdict</th>"
        f"<th scope=col>Triton's time</th>{against}<th scope=col class='opt'>source</th>"
    )
    rows = "".join(_row(visit, number, answer, base) for number, answer in reversed(visit.runs))
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Runs of this visit"><table class="fig runs">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _base(visit: Visit) -> int | None:
    """The first run that is compared, if it has a time and is not alone."""
    first = visit.get(visit.picked[0]) if len(visit.picked) > 1 else None
    return visit.picked[0] if first and _us(first) else None


def _us(answer: Answer) -> float | None:
    bench = figures(answer)
    own = bench.providers.get("triton") if bench else None
    return own.us.p50 if own and own.us and own.ok else None


def _row(visit: Visit, number: int, answer: Answer, base: int | None) -> str:
    choice = answer.run.choice if answer.run else answer.request
    edited = "edited" if answer.request.source is not None else ""
    case = ", ".join(filter(None, (answer.request.edge or answer.request.bug, edited)))
    shape, dtype = escape(words.shape(choice.dims)), escape(str(choice.dtype))
    kernel = escape(choice.kernel) + (f"<small>{escape(case)}</small>" if case else "")
    config = answer.run.choice.config.label if answer.run else "–"
    verdict = (panels.mark("right" if answer.right else "wrong") if answer.run else "") + _word(answer)
    us, bench = _us(answer), figures(answer)
    time = words.text(us, words.MICROSECONDS) if us else "–"
    against = f"<td>{_against(visit, answer, number, base)}</td>" if base else ""
    source = panels.badge(bench.source) if us and bench else panels.badge(answer.run.source) if answer.run else ""
    kernel += f'<small class="narrow">{shape}, {dtype} {source}</small>'  # a phone has no columns for them
    ticked = "checked" if number in visit.picked else ""
    now = ' aria-current="true"' if number == visit.shown else ""
    return (
        # autocomplete: what a browser would restore is of another list, and it holds on to each old list for that
        f'<tr{now}><td><input type="checkbox" autocomplete="off" data-pick="{number}" {ticked} '
        f'aria-label="Compare run {number}"></td>'
        f'<td><button type="button" data-open="{number}" title="Show run {number} again">{number}</button></td>'
        f'<th scope=row>{kernel}</th><td class="opt">{shape}</td><td class="opt">{dtype}</td>'
        f'<td class="opt">{escape(config)}</td><td class="said">{verdict}</td>'
        f'<td>{time}</td>{against}<td class="opt">{source}</td></tr>'
    )


def _word(answer: Answer) -> str:
    if answer.failure:
        return {"cancelled": "stopped", "input": "refused"}.get(answer.failure.kind, answer.failure.kind)
    return "right" if answer.right else "wrong"


def _against(visit: Visit, answer: Answer, number: int, base: int | None) -> str:
    first = visit.get(base)
    own, other = _us(answer), _us(first) if first else None
    if number not in visit.picked or own is None or other is None or first is None:
        return "–"
    if not _same_source(first, answer):
        return "another device"
    return words.speedup(other / own) if number != base else "1.0×"


def _same_source(a: Answer, b: Answer) -> bool:
    one, two = figures(a), figures(b)
    return bool(one and two and (one.source.kind, one.source.device) == (two.source.kind, two.source.device))


def chart(visit: Visit) -> go.Figure | None:
    """Triton's time in the runs that are compared, where they were timed on one device in one way."""
    picked = [(n, a) for n, a in visit.runs if n in visit.picked and _us(a)]
    if len(picked) < 2 or not all(_same_source(picked[0][1], a) for _, a in picked):
        return None
    bars = []
    for number, answer in picked:
        bench = figures(answer)
        us = bench.providers["triton"].us if bench else None
        if us:
            name = f"{number}: {answer.request.kernel}"
            bars.append((name, charts.Bar("Triton", us.p50, us.p20, us.p80)))
    return charts.run_bars(bars)
