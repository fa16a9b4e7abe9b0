"""A sweep over configs as the page shows it: the answer, a grid and a table.

Pure: engine results in, HTML out. Times of this device and recorded ones are never in one picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from playground.engine.host import BUSY
from playground.engine.messages import ConfigChoice, Source
from playground.engine.sweep_messages import ConfigResult, SweepResult
from playground.ui import panels, words

STEPS = (0, 20, 40, 76, 88, 100)  # percent of --hot; between 40 and 76 neither ink reaches 4.5:1
WARPS, STAGES = "num_warps", "num_stages"


@dataclass(frozen=True)
class Measure:
    """What a picture shows of a config. less: whether less is better. source: of SweepResult."""

    name: str
    unit: str
    of: Callable[[ConfigResult], float | None]
    source: Callable[[SweepResult], Source | None]
    less: bool = True


MEASURES = {
    m.name: m
    for m in (
        Measure("time here", "µs", lambda c: c.us.p50 if c.us and c.ok else None, lambda s: s.source),
        Measure("time recorded", "µs", lambda c: c.recorded_us.p50 if c.recorded_us else None, lambda s: s.recorded),
        Measure("registers", "per thread", lambda c: c.registers, lambda s: s.compiled),
        Measure("shared memory", "bytes", lambda c: c.shared_bytes, lambda s: s.compiled),
        Measure(
            "occupancy", "%", lambda c: None if c.occupancy is None else 100 * c.occupancy, lambda s: s.compiled, False
        ),
    )
}


def shown_first(result: SweepResult) -> str:
    """The measure to begin with: this device's time, else the recorded one, else registers."""
    return next((name for name, m in MEASURES.items() if any(m.of(c) is not None for c in result.configs)), "registers")


# Axes


def value(config: ConfigChoice, axis: str) -> int | None:
    return {WARPS: config.num_warps, STAGES: config.num_stages}.get(axis, config.meta.get(axis))


def axes(result: SweepResult) -> list[str]:
    """The choices that vary over the configs, those with most values first; num_warps among them always."""
    names = list(dict.fromkeys(name for c in result.configs for name in c.config.meta))
    counts = {a: len({value(c.config, a) for c in result.configs}) for a in (*names, WARPS, STAGES)}
    varying = [a for a in counts if counts[a] > 1]
    return sorted(varying, key=lambda a: -counts[a]) or [WARPS]


def first_axes(result: SweepResult) -> tuple[str, str]:
    """(across, down): warps across, and down what varies most beside them."""
    found = axes(result)
    across = WARPS if WARPS in found else found[0]
    return across, next((a for a in found if a != across), across)


# The answer


def banner(result: SweepResult) -> str:
    """Which config wins and by how much, what failed, and what the sweep cost."""
    tried = [c for c in result.configs if c.tried]
    wrong = sum(c.ok is False for c in tried)
    unable = sum(bool((c.failure and c.ok is not False) or (c.refusal and c.us is None)) for c in tried)
    counted = [f"{len(tried)} of {len(result.configs)} configs tried"]
    counted += [f"{wrong} wrong, and never chosen"] if wrong else []
    counted += [f"{unable} could not run"] if unable else []
    tied = len(ties(result))
    counted += [f"{words.count(tied, 'other')} cannot be told from the best"] if tied else []
    detail = "; ".join(counted) + "."
    detail += f" {result.note[:1].upper()}{result.note[1:]}." if result.note else ""
    if result.best is None:
        headline = "Compiled, and not timed" if any(c.registers for c in tried) else "No config has a time"
        return panels.verdict(
            "code" if any(c.registers for c in tried) else "unknown", headline, detail, result.compiled
        )
    best = result.configs[result.best]
    assert best.us is not None and result.source is not None
    default = result.configs[result.default] if result.default is not None else None
    headline = best.config.label
    noisy = BUSY in result.note
    if noisy:
        headline += ": the fastest on a busy host, where no ranking is sure"
    elif result.best == result.default:
        headline += ": the default is the fastest"
    elif default and default.us and default.us.overlaps(best.us):
        headline += ": no faster than the default beyond the noise"
    elif result.speedup:
        headline += f": {_faster(result.speedup)} the default"
    number, unit = words.quantity(best.us.p50, words.MICROSECONDS)
    items = [
        panels.Stat(number, unit, "best", f"default {words.text(default.us.p50, words.MICROSECONDS)}"
                    if default and default.us else ""),
        panels.Stat(words.digits(result.seconds), "s", "tuning took",
                    f"repaid after {result.calls_to_repay:,} calls" if result.calls_to_repay and not noisy else ""),
    ]  # fmt: skip
    kind = "unknown" if noisy else "right"
    return panels.verdict(kind, headline, detail, result.source, panels.stats(items, result.source))


def _faster(times: float) -> str:
    return f"{words.speedup(times)[:-1] if times >= 1.1 else words.digits(times)} times as fast as"


def ties(result: SweepResult) -> list[int]:
    """Configs beside the best whose times share a part of its middle 60 %."""
    best = result.configs[result.best].us if result.best is not None else None
    timed = enumerate(result.configs)
    return [i for i, c in timed if best and c.ok and c.us and i != result.best and c.us.overlaps(best)]


def as_recorded(result: SweepResult) -> SweepResult:
    """A sweep of another device, whose times stand where recorded ones do and win nothing here."""
    configs = tuple(c.model_copy(update={"us": None, "recorded_us": c.us if c.ok else None}) for c in result.configs)
    return result.model_copy(update={"configs": configs, "best": None, "source": None, "recorded": result.source})


def recorded_banner(result: SweepResult) -> str:
    """What won on that device, at which shape, and what to press for one's own."""
    note = f"{result.recorded_note}. Sweep configs tries them on this device"
    return banner(result.model_copy(update={"note": note}))


# The grid


def grid(result: SweepResult, measure: str, across: str, down: str) -> str:
    """A table over two choices; where several configs share a cell, the best of them, and how many there are."""
    m = MEASURES[measure]
    xs, ys = (sorted({v for c in result.configs if (v := value(c.config, a)) is not None}) for a in (across, down))
    if across == down:
        ys = [0]
    known = [figure for c in result.configs if (figure := m.of(c)) is not None]
    if not xs or not ys:
        return ""
    scale = _scale(known, m.less)
    best = (min if m.less else max)(known, default=None)

    def cell(x: int, y: int) -> str:
        here = [
            c for c in result.configs if value(c.config, across) == x and (across == down or value(c.config, down) == y)
        ]
        return _cell(here, m, scale, best)

    head = "".join(f"<th scope=col>{x:,}</th>" for x in xs)
    body = "".join(
        f"<tr><th scope=row>{'' if across == down else f'{y:,}'}</th>{''.join(cell(x, y) for x in xs)}</tr>" for y in ys
    )
    corner = escape(across) + " →" + ("" if across == down else f"<br>{escape(down)} ↓")
    better = "the faster" if m.unit == "µs" else "the fewer" if m.less else "the more"
    return (
        f"<h3>{escape(_best_place(result, measure, across, down))}</h3>"
        f'<div class="heat" tabindex="0" role="region" aria-label="{escape(measure)} over {escape(across)} and '
        f'{escape(down)}"><table><caption>{escape(measure)}, {m.unit}; the stronger the colour, {better}</caption>'
        f'<thead><tr><th class="corner">{corner}</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _best_place(result: SweepResult, measure: str, across: str, down: str) -> str:
    """Where the best figure stands, as the heading of the grid."""
    first = leading(result, measure)
    if first is None:
        return f"No config has a figure for {measure} yet"
    places = {axis: value(first.config, axis) for axis in (across, down)}
    at = ", ".join(f"{axis} {place:,}" for axis, place in places.items() if place is not None)
    return f"{_most(MEASURES[measure])} at {at or first.config.label}"  # a config need not have every axis


def _most(m: Measure) -> str:
    return "Fastest" if m.unit == "µs" else "Least" if m.less else "Most"


def _scale(known: Sequence[float], less: bool) -> Callable[[float], int]:
    """A value to its step of colour, on a log scale, since configs differ by factors."""
    low, high = (math.log(max(f(known), 1e-9)) for f in (min, max)) if known else (0.0, 0.0)

    def step(v: float) -> int:
        share = (math.log(max(v, 1e-9)) - low) / ((high - low) or 1)
        return STEPS[min(5, int(6 * (1 - share if less else share)))]

    return step


def _cell(here: list[ConfigResult], m: Measure, scale: Callable[[float], int], best: float | None) -> str:
    if not here:
        return '<td class="none"></td>'
    valued = [(v, c) for c in here if (v := m.of(c)) is not None]
    if not valued:
        return _blank(here[0])
    v, config = (min if m.less else max)(valued, key=lambda pair: pair[0])
    heat = scale(v)
    is_best = v == best
    more = f"<small>of {len(here)}</small>" if len(here) > 1 else ""
    star = '<b class="star">best</b>' if is_best and m.unit == "µs" else ""
    return (
        f'<td class="{"best" if is_best and star else ""}" style="--heat:{heat}%" data-hot="{int(heat > 50)}" '
        f'title="{escape(config.config.label)}">{figure(v)}{star}{more}</td>'
    )


def figure(v: float) -> str:
    """Registers and bytes are counted, times are measured."""
    return f"{v:,}" if isinstance(v, int) else words.digits(v)


def _blank(config: ConfigResult) -> str:
    if not config.tried:
        return '<td class="none" title="not tried yet">·</td>'
    if config.ok is False:
        return f'<td class="wrong" title="{escape(config.failure or "wrong answer")}">wrong</td>'
    why = config.failure or config.refusal or "no figure"
    return f'<td class="failed" title="{escape(why)}">{escape(short(why))}</td>'


def short(why: str) -> str:
    """A reason in a word or two, for a cell."""
    for sign, word in (
        ("shared memory", "shared mem."), ("registers", "registers"), ("does not compile", "no compile"),
        ("longer than", "too slow"), ("wait for each other", "GPU only"), ("out of memory", "memory"),
    ):  # fmt: skip
        if sign in why:
            return word
    return "failed"


def leader(result: SweepResult, measure: str) -> str:
    """The config that the pictures of this measure set off, as the heading of the lines."""
    m, first = MEASURES[measure], leading(result, measure)
    if first is None:
        return "All choices"
    best = m.of(first) or 0
    said = words.text(best, words.MICROSECONDS) if m.unit == "µs" else f"{figure(best)} {m.unit}"
    return f"{_most(m)} with {first.config.label}: {said}"


def leading(result: SweepResult, measure: str) -> ConfigResult | None:
    """The config with the best figure; of several the sweep's winner, else the first."""
    m = MEASURES[measure]
    known = [(v if m.less else -v, i) for i, c in enumerate(result.configs) if (v := m.of(c)) is not None]
    known.sort(key=lambda pair: (pair[0], pair[1] != result.best))
    return result.configs[known[0][1]] if known else None


def spread(result: SweepResult, measure: str) -> str:
    """How many configs are near the best one, as the heading of the chart that shows them all."""
    m = MEASURES[measure]
    known = [figure for c in result.configs if (figure := m.of(c)) is not None]
    if len(known) < 2:
        return "How they are spread"
    best = (min if m.less else max)(known)
    near = sum(v <= NEAR * best if m.less else NEAR * v >= best for v in known)
    return f"{near} of {len(known)} configs are within 5 % of the best"


# The table


# (head, figure, whether a phone leaves it out)
COLUMNS: tuple[tuple[str, Callable[[ConfigResult], str], bool], ...] = (
    ("µs here", lambda c: words.digits(c.us.p50) if c.us else "", False),
    ("µs recorded", lambda c: words.digits(c.recorded_us.p50) if c.recorded_us else "", False),
    ("registers", lambda c: _whole(c.registers), False),
    ("spills", lambda c: _whole(c.spills), True),
    ("shared, bytes", lambda c: _whole(c.shared_bytes), True),
    ("occupancy, %", lambda c: "" if c.occupancy is None else words.percent(c.occupancy), True),
    ("first call, ms", lambda c: words.digits(1e3 * c.first_seconds) if c.first_seconds else "", True),
)
NEAR = 1.05  # of the best figure: what counts as close to it
FITS = 12  # rows that the table shows at once


def table(result: SweepResult) -> str:
    """Every config, the fastest first, with its resources or the reason why it has none."""
    ranked = sorted(range(len(result.configs)), key=lambda i: (*order(result.configs[i]), i != result.best))
    columns = [c for c in COLUMNS if _holds(result, c[0], c[1])]
    heads = ("<th scope=col>config</th><th scope=col></th>", *(_head(name, opt) for name, _, opt in columns))
    rows = "".join(_row(result, i, columns) for i in ranked)
    tall = " tall" if len(ranked) > FITS else ""
    made = (
        f'<div class="scroll{tall}" tabindex="0" role="region" aria-label="All configs"><table class="fig configs">'
        f"<thead><tr>{''.join(heads)}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    if len(ranked) <= FITS:
        return made
    return f'{made}<p class="quiet">{len(ranked):,} configs, the fastest first: the table scrolls.</p>'


def _holds(result: SweepResult, name: str, figure: Callable[[ConfigResult], str]) -> bool:
    """Whether a column has a figure, or may get one: recordings are there from the start or not at all."""
    return any(map(figure, result.configs)) or (not result.done and name != "µs recorded")


def _head(name: str, opt: bool) -> str:
    return f"<th scope=col{' class=opt' if opt else ''}>{escape(name)}</th>"


def order(c: ConfigResult) -> tuple:
    best = c.us.p50 if c.us and c.ok else math.inf
    return best, c.recorded_us.p50 if c.recorded_us else math.inf, not c.tried


def _row(result: SweepResult, i: int, columns: Sequence[tuple[str, Callable[[ConfigResult], str], bool]]) -> str:
    c = result.configs[i]
    tags = [word for word, at in (("best", result.best), ("default", result.default)) if at == i]
    tags += ["tied"] if i in ties(result) else []
    said = "".join(f'<small class="tag">{t}</small>' for t in tags)
    why = c.failure or (c.refusal if c.us is None else None)
    judged = panels.mark("right" if c.ok else "wrong") if c.ok is not None else ""
    first = f'<tr class="{"ours" if i == result.best else ""}"><th scope=row>{escape(c.config.label)}{said}</th>'
    if why:
        return f'{first}<td class="v">{judged}</td><td class="why" colspan="{len(columns)}">{escape(why)}</td></tr>'
    cells = "".join(f'<td class="{"opt" if opt else ""}">{figure(c)}</td>' for _, figure, opt in columns)
    return f'{first}<td class="v">{judged}</td>{cells}</tr>'


def _whole(n: int | None) -> str:
    return "" if n is None else f"{n:,}"
