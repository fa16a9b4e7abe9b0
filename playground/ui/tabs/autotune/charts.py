"""A sweep's charts: every choice at once as lines, and how the configs' times are spread. Pure: results to figures."""

from __future__ import annotations

import math
from html import escape
from typing import Any

import plotly.graph_objects as go

from playground.engine.sweep_messages import ConfigResult, SweepResult
from playground.ui import charts, words
from playground.ui.tabs.autotune import view as show
from playground.ui.tabs.autotune.view import Measure
from playground.ui.theme import GROUND, INK, MUTED, PROVIDERS


def parallel(result: SweepResult, measure: str) -> go.Figure | None:
    """Parallel coordinates as plain lines: themeable, and without WebGL. None where fewer than two configs have it."""
    m = show.MEASURES[measure]
    chosen = [
        a for a in show.axes(result)[:5] if all(show.value(c.config, a) is not None for c in result.configs if m.of(c))
    ]
    good = sorted((c for c in result.configs if m.of(c) is not None), key=lambda c: -(m.of(c) or 0))
    if len(good) < 2 or not chosen:
        return None
    best = show.leading(result, measure)
    assert best is not None  # good holds it
    columns = [*chosen, measure]

    def raw(c: ConfigResult, column: str) -> float:
        v = m.of(c) if column == measure else show.value(c.config, column)
        return math.log2(max(float(v or 0), 1e-3))

    spans = {a: (min(raw(c, a) for c in good), max(raw(c, a) for c in good)) for a in columns}

    def place(c: ConfigResult, column: str) -> float:
        low, high = spans[column]
        return (raw(c, column) - low) / ((high - low) or 1)

    fig = _empty_parallel(columns, m)
    for c in [*(c for c in good if c is not best), best]:
        top = c is best
        fig.add_scatter(
            x=list(range(len(columns))), y=[place(c, a) for a in columns], mode="lines", opacity=1 if top else 0.75,
            line={"color": PROVIDERS["Triton"] if top else MUTED, "width": 4 if top else 1.2},
            hovertemplate=f"{escape(c.config.label)}<br>{words.digits(m.of(c) or 0)} {m.unit}<extra></extra>",
        )  # fmt: skip
    for i, a in enumerate(columns):
        fig.add_shape(type="line", x0=i, x1=i, y0=0, y1=1, line={"color": INK, "width": 1.5})
        _ticks(fig, i, a, good, place, m if a == measure else None)
    return fig


def _empty_parallel(columns: list[str], m: Measure) -> go.Figure:
    titles = [f"{a}, {m.unit}" if a == columns[-1] else a for a in columns]
    return charts.figure(
        360,
        xaxis={
            "tickvals": list(range(len(columns))), "ticktext": titles, "side": "top", "showgrid": False,
            "showline": False, "ticks": "", "ticklabeloverflow": "allow", "range": [-0.3, len(columns) - 0.55],
        },
        yaxis={"visible": False, "range": [-0.06, 1.06]}, showlegend=False,
    )  # fmt: skip


def _ticks(fig: go.Figure, i: int, column: str, good: list[ConfigResult], place, measure: Measure | None) -> None:
    """Names the values of one axis: each of them where they are few, both ends of a measure."""
    if measure:
        ends = [min(good, key=lambda c: measure.of(c) or 0), max(good, key=lambda c: measure.of(c) or 0)]
        named = [(place(c, column), show.figure(measure.of(c) or 0)) for c in ends]
    else:
        named = list(
            {
                show.value(c.config, column): (place(c, column), f"{show.value(c.config, column):,}") for c in good
            }.values()
        )
    for y, text in named:
        fig.add_annotation(
            x=i, y=y, text=text, showarrow=False, xanchor="left", xshift=6, bgcolor=GROUND, borderpad=1,
            font={"size": 13, "color": INK},
        )  # fmt: skip


def distribution(result: SweepResult, measure: str) -> go.Figure | None:
    """Every config in the order of the measure, the best first: whether many are near it, or only one."""
    m = show.MEASURES[measure]
    known = [(v, i, c) for i, c in enumerate(result.configs) if (v := m.of(c)) is not None]
    if len(known) < 2:
        return None
    known.sort(key=lambda item: (item[0] if m.less else -item[0], item[1] != result.best))
    ranks = {i: rank for rank, (_, i, _) in enumerate(known, 1)}
    values = [v for v, _, _ in known]
    spread = max(values) > 8 * max(min(values), 1e-9) > 0
    top = 1.3 * max(values)  # room for a word above the last
    fig = charts.figure(
        240,
        xaxis={
            "title": "configs, the best first", "range": [0.3, len(known) + 0.7], "showgrid": False, "tick0": 1,
            "dtick": math.ceil(len(known) / 12),
        },
        yaxis={"title": f"{measure}, {m.unit}", **(_log_ticks(values) if spread else {"range": [0, top]})},
        showlegend=False,
    )  # fmt: skip
    first = known[0][1]
    fig.add_scatter(
        x=list(range(1, len(known) + 1)), y=values, mode="markers",
        marker={"size": [11 if i == first else 7 for _, i, _ in known],
                "color": [PROVIDERS["Triton"] if i == first else MUTED for _, i, _ in known]},
        text=[escape(c.config.label) for _, _, c in known],
        hovertemplate="%{text}<br>%{y:.3g} " + m.unit + "<extra></extra>",
    )  # fmt: skip
    if result.default in ranks and result.default != first:
        at = ranks[result.default]
        y = math.log10(max(values[at - 1], 1e-9)) if spread else values[at - 1]
        fig.add_annotation(x=at, y=y, text="default", ay=-28, ax=0, arrowcolor=MUTED, font={"size": 13, "color": INK})
    return fig


def _log_ticks(values: list[float]) -> dict[str, Any]:
    """Round values 1, 2 and 5 times a power of ten; the powers alone where those are many."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if high - low < 3 else (1,)
    ticks = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:,.6g}" for tick in ticks]}
