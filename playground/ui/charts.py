"""The house charts: pure functions, data in, a Plotly figure out. Colours, marks and dashes come from theme.

Kept here: units in every axis title; no chart title (the section above has it); Triton first and drawn thickest; a
ceiling is a dashed ink line with its name on it; meaning never rests on colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go

from playground.ui import words
from playground.ui.theme import DASHES, GROUND, INK, OTHER, PROVIDERS, SYMBOLS, template

TEMPLATE = template()
HATCHES = {"Triton": "", "eager": "/", "torch.compile": "\\", "Liger": "-", OTHER: "|"}


@dataclass(frozen=True)
class Bar:
    """One provider's time in microseconds."""

    name: str
    us: float
    p20: float
    p80: float


@dataclass(frozen=True)
class Line:
    """One provider's throughput over sizes; None where it has none, which leaves a gap."""

    name: str
    values: Sequence[float | None]


def figure(height: int, **layout: Any) -> go.Figure:
    return go.Figure(layout={"template": TEMPLATE, "height": height, **layout})


def colour(name: str) -> str:
    return PROVIDERS.get(name, PROVIDERS[OTHER])


def label(name: str) -> str:
    """A provider's name for Plotly, which reads HTML in texts."""
    return escape(name, quote=False)


def provider_bars(bars: Sequence[Bar], floor_us: float, floor: str) -> go.Figure:
    """Median time for each provider with p20 to p80, and the time that the measured roof allows.

    floor: the name of that line, e.g. "copy floor"; none is drawn at 0, where no roof is known.
    """
    unit, size = words.unit_for(max(bar.us for bar in bars), words.MICROSECONDS)
    top = max(*(bar.p80 for bar in bars), floor_us) / size
    fig = figure(
        88 + 58 * len(bars),
        xaxis={"title": f"time, {unit} (less is better)", "range": [0, 1.26 * top], "nticks": 6},
        yaxis={"autorange": "reversed", "showgrid": False, "ticks": "", "showline": False, "ticksuffix": " "},
        showlegend=False,
        margin={"l": 8, "r": 16, "t": 36, "b": 8},
    )
    for bar in bars:
        _bar(fig, bar, unit, size)
    if floor_us:
        _floor(fig, floor_us / size, 1.26 * top, f"{floor} {words.digits(floor_us / size)} {unit}")
    return fig


def _bar(fig: go.Figure, bar: Bar, unit: str, size: float) -> None:
    us, low, high = bar.us / size, bar.p20 / size, bar.p80 / size
    name, figures = label(bar.name), [words.digits(v) for v in (us, low, high)]
    pattern = {"shape": HATCHES.get(bar.name, "."), "fillmode": "overlay", "fgcolor": GROUND, "fgopacity": 0.5}
    fig.add_bar(
        x=[us], y=[name], orientation="h", name=name, width=0.62,
        marker={"color": colour(bar.name), "pattern": {**pattern, "size": 8, "solidity": 0.2}},
        error_x={
            "type": "data", "symmetric": False, "array": [max(0.0, high - us)], "arrayminus": [max(0.0, us - low)],
            "color": INK, "thickness": 1.5, "width": 5,
        },
        hovertemplate=f"{name}: {figures[0]} {unit}<br>p20 {figures[1]}, p80 {figures[2]} {unit}<extra></extra>",
    )  # fmt: skip
    fig.add_annotation(
        x=max(high, us), y=name, text=f"<b>{figures[0]}</b>" if bar.name == "Triton" else figures[0], showarrow=False,
        xanchor="left", xshift=8, font={"size": 15, "color": INK},
    )  # fmt: skip


def _floor(fig: go.Figure, x: float, end: float, text: str) -> None:
    """The floor and its name, which stands so that neither edge of the plot cuts it."""
    fig.add_vline(x=x, line={"color": INK, "width": 1.5, "dash": "dash"})
    anchor = "left" if x < 0.25 * end else "right" if x > 0.75 * end else "center"
    fig.add_annotation(
        x=x, y=1, yref="paper", yanchor="bottom", xanchor=anchor, yshift=8, text=text, showarrow=False,
        font={"size": 13, "color": INK},
    )  # fmt: skip


def throughput(
    sizes: Sequence[float], across: str, lines: Sequence[Line], ceiling: Sequence[float], name: str, compute: bool
) -> go.Figure:
    """Rate against size, both providers and ceiling in GB/s, or TFLOP/s where `compute` binds.

    across: what the sizes are, "bytes moved" or a dim's name. name: the ceiling's. Lines come Triton first.
    """
    known = [v for line in lines for v in line.values if v is not None]
    unit, size = words.unit_for(max([*known, *ceiling]), words.TERAFLOPS if compute else words.GIGABYTES)
    fig = figure(
        380,
        xaxis={"type": "log", "title": across, **_ticks(sizes, across == "bytes moved")},
        yaxis={"title": unit, "rangemode": "tozero", "nticks": 7},
        hovermode="x unified",
        margin={"l": 8, "r": 24, "t": 8, "b": 8},
    )
    fig.add_scatter(
        x=list(sizes), y=[v / size for v in ceiling], name=name, mode="lines",
        line={"color": INK, "width": 1.5, "dash": "dash"}, hovertemplate=f"{name} %{{y:.3~g}}<extra></extra>",
    )  # fmt: skip
    for line in reversed(lines):
        own = PROVIDERS.get(line.name)
        fig.add_scatter(
            x=list(sizes), y=[None if v is None else v / size for v in line.values], name=label(line.name),
            mode="lines+markers",
            line={
                "color": own or PROVIDERS[OTHER], "width": 3.5 if line.name == "Triton" else 2,
                "dash": DASHES.get(line.name, DASHES[OTHER]),
            },
            marker={"symbol": SYMBOLS.get(line.name, SYMBOLS[OTHER]), "size": 8, "color": own or PROVIDERS[OTHER]},
            hovertemplate=label(line.name) + " %{y:.3~g}<extra></extra>",
        )  # fmt: skip
    fig.update_layout(legend_traceorder="reversed")
    return fig


# Marks of an axis of sizes within a factor of 1000, coarse first; the first that gives three is taken.
TICKS = ((1,), (1, 10, 100), (1, 2, 5, 10, 20, 50, 100, 200, 500), tuple(range(1, 1000)))


def _ticks(sizes: Sequence[float], in_bytes: bool) -> dict[str, Any]:
    """Round sizes with units, seven at most, and a range that leaves the outermost marks room."""
    low, high = math.log10(min(sizes)), math.log10(max(sizes))
    room = 0.06 if high > low else 0.5
    span = [low - room, high + room]
    found = [marks for steps in TICKS if len(marks := _inside(span, steps)) > 2] or [[min(sizes)]]
    values = found[0][:: math.ceil(len(found[0]) / 7)]
    texts = [_size(v) if in_bytes else f"{v:,.0f}" for v in values]
    return {"tickvals": values, "ticktext": texts, "range": span}


def _inside(span: Sequence[float], steps: Sequence[int]) -> list[float]:
    powers = range(math.floor(span[0] / 3), math.ceil(span[1] / 3) + 1)
    marks = [1000.0**power * step for power in powers for step in steps]
    return [mark for mark in marks if span[0] <= math.log10(mark) <= span[1]]


def _size(size: float) -> str:
    unit, of = words.unit_for(size, words.BYTES)
    return f"{size / of:g} {unit}"


def run_bars(rows: Sequence[tuple[str, Bar]]) -> go.Figure:
    """Triton's time in several runs of a visit. rows: (the run's name, its bar); all from one source."""
    unit, size = words.unit_for(max(bar.us for _, bar in rows), words.MICROSECONDS)
    fig = figure(
        72 + 46 * len(rows),
        xaxis={
            "title": f"Triton's time, {unit} (less is better)", "nticks": 6,
            "range": [0, 1.26 * max(bar.p80 for _, bar in rows) / size],
        },
        yaxis={"autorange": "reversed", "showgrid": False, "ticks": "", "showline": False, "ticksuffix": " "},
        showlegend=False,
    )  # fmt: skip
    for name, bar in rows:
        _bar(fig, Bar(name, bar.us, bar.p20, bar.p80), unit, size)
    fig.update_traces(marker={"color": PROVIDERS["Triton"], "pattern": {"shape": ""}})
    return fig
