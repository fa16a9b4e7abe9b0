"""The Memory tab's charts: bytes as a flow, the roofline, bandwidth against size. Pure: data in, figures out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from playground.ui import words
from playground.ui.charts import colour, figure, label
from playground.ui.tabs.memory.text import bytes_text, cache_size
from playground.ui.theme import DASHES, GROUND, INK, MEMORY, MUTED, OTHER, PROVIDERS, SYMBOLS

LINE = 16  # pixels of a label's line
FLOW = "rgba(54, 174, 178, 0.38)"
Link = tuple[str, str, float]  # from, to, bytes


# Bytes as a flow


def flows(fused: Sequence[Link], eager: Sequence[Link], kernels: Sequence[str]) -> go.Figure:
    """Both flows in one figure, sized so that a byte is as thick in either. `kernels`: nodes that are no tensors."""
    both = (("eager", eager, PROVIDERS["eager"]), ("Triton", fused, PROVIDERS["Triton"]))
    widest = [_widest(links) or 1.0 for _, links, _ in both]
    gap = 0.12
    share = [(1 - gap) * width / sum(widest) for width in widest]
    share = [max(0.16, s) for s in share]
    share = [(1 - gap) * s / sum(share) for s in share]
    fig = figure(430, margin={"l": 8, "r": 8, "t": 26, "b": 8})
    for (name, links, hue), (low, high) in zip(both, ((1 - share[0], 1.0), (0.0, share[1])), strict=True):
        if links:
            fig.add_trace(_flow(links, kernels, hue, low, high))
        total = sum(size for _, _, size in links)
        fig.add_annotation(
            x=0, y=high, xref="paper", yref="paper", xanchor="left", yanchor="bottom", showarrow=False,
            text=f"<b>{name}</b>: {bytes_text(total)} through memory", font={"size": 14, "color": INK},
        )  # fmt: skip
    return fig


def _flow(links: Sequence[Link], kernels: Sequence[str], hue: str, low: float, high: float) -> go.Sankey:
    nodes = list(dict.fromkeys(name for a, b, _ in links for name in (a, b)))
    return go.Sankey(
        domain={"y": [low, high]},
        arrangement="snap",
        textfont={"size": 13, "color": INK},
        node={
            "label": [label(node.split("\0")[0]) for node in nodes],
            "pad": 14,
            "thickness": 12,
            "line": {"width": 0},
            "color": [hue if node in kernels else MEMORY["hbm"] for node in nodes],
            "customdata": [bytes_text(max(_through(links, node))) for node in nodes],
            "hovertemplate": "%{label}: %{customdata}<extra></extra>",
        },
        link={
            "source": [nodes.index(a) for a, _, _ in links],
            "target": [nodes.index(b) for _, b, _ in links],
            "value": [size for *_, size in links],
            "color": FLOW,
            "customdata": [bytes_text(size) for *_, size in links],
            "hovertemplate": "%{source.label} to %{target.label}: %{customdata}<extra></extra>",
        },
    )


def _through(links: Sequence[Link], node: str) -> tuple[float, float]:
    return sum(size for a, _, size in links if a == node), sum(size for _, b, size in links if b == node)


def _widest(links: Sequence[Link]) -> float:
    """Bytes through the fullest column of a flow; Plotly scales each by this. Links come in the flow's order."""
    depth: dict[str, int] = {}
    column: dict[int, float] = {}
    for a, b, size in links:
        depth[b] = max(depth.get(b, 0), depth.setdefault(a, 0) + 1)
        column[depth[a]] = column.get(depth[a], 0.0) + size
    return max(column.values(), default=0.0)


# The roofline


@dataclass(frozen=True)
class Point:
    """One provider at one shape: FLOP per byte of memory, TFLOP/s, and whether it lies over the memory's roof."""

    provider: str
    shape: str
    intensity: float
    tflops: float
    over: bool = False


@dataclass(frozen=True)
class Roof:
    """A level's bandwidth in bytes/s. key: of the level's colour."""

    name: str
    key: str
    rate: float


def roofline(
    roofs: Sequence[Roof],
    peaks: Mapping[str, float],
    points: Sequence[Point],
    others: Mapping[str, tuple[float, float]],
    here: float,
    datasheet: bool,
) -> go.Figure:
    """Log-log. roofs: the memory's first; peaks: FLOP/s by unit; others: (bytes/s, FLOP/s) of GPUs, drawn faint.

    here: FLOP per byte of the shape that is chosen. datasheet: the roofs are not measured, and so drawn dashed.
    """
    memory = roofs[0].rate
    low, high = _span([here, *(p.intensity for p in points)], max(peaks.values()) / memory)
    bottom = min([low * memory / 1e12, *(p.tflops for p in points)]) / 3
    top = max([*peaks.values(), *(flops for _, flops in others.values())]) / 1e12 * 3
    fig = figure(
        440,
        xaxis={"type": "log", "title": "arithmetic intensity, FLOP per byte of memory", **_decades(low, high)},
        yaxis={"type": "log", "title": "TFLOP/s", **_decades(bottom, top)},
        margin={"l": 8, "r": 78, "t": 8, "b": 8},
    )
    apart = _apart([math.log10(flops) for _, flops in others.values()], math.log10(top / bottom) / 380)
    for (gpu, (rate, flops)), shift in zip(others.items(), apart, strict=True):
        _other(fig, gpu, rate, flops, low, high, shift)
    for roof in roofs:
        _roof(fig, roof, max(peaks.values()), low, roof is roofs[0], datasheet)
    for near in _near(roofs[1:], math.log10(top / bottom) / 380):
        _roof_label(fig, near, max(peaks.values()), low, strong=False)
    _roof_label(fig, roofs[:1], max(peaks.values()), low, strong=True)
    for unit, flops in peaks.items():
        _peak(fig, unit, flops, memory, high, flops == max(peaks.values()), datasheet)
    if here > 0:
        fig.add_vline(x=here, line={"color": INK, "width": 1, "dash": "dot"})
        fig.add_annotation(
            x=math.log10(here), y=0, yref="paper", yanchor="bottom", xanchor="left", xshift=5, showarrow=False,
            text="this shape", font={"size": 13, "color": INK}, bgcolor=GROUND, borderpad=1,
        )  # fmt: skip
    _points(fig, points)
    return fig


def _span(intensities: Sequence[float], ridge: float) -> tuple[float, float]:
    found = [x for x in intensities if x > 0]
    return min([0.1, *found]) / 2, max([ridge, *found]) * 8


def _decades(low: float, high: float) -> dict[str, Any]:
    ticks = [10.0**k for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    ticks = [t for t in ticks if low <= t <= high]
    ticks = ticks[:: max(1, math.ceil(len(ticks) / 5))]
    return {
        "tickangle": 0,
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{t:,.0f}" if t >= 1 else f"{t:g}" for t in ticks],
    }


def _apart(places: Sequence[float], pixel: float) -> list[float]:
    """By how many pixels labels at these places are moved down so that none lies on another. pixel: its height."""
    shifts, last = [0.0] * len(places), math.inf
    for i in sorted(range(len(places)), key=lambda i: -places[i]):
        at = places[i] / pixel
        shifts[i] = min(0.0, last - LINE - at)
        last = at + shifts[i]
    return shifts


def _other(fig: go.Figure, gpu: str, rate: float, flops: float, low: float, high: float, shift: float) -> None:
    fig.add_scatter(
        x=[low, flops / rate, high], y=[low * rate / 1e12, flops / 1e12, flops / 1e12], mode="lines", showlegend=False,
        line={"color": MUTED, "width": 1, "dash": "dot"}, hovertemplate=f"{gpu}, datasheet<extra></extra>",
    )  # fmt: skip
    fig.add_annotation(
        x=1, xref="paper", y=math.log10(flops / 1e12), text=gpu, showarrow=False, xanchor="left", xshift=6,
        yshift=shift, font={"size": 13, "color": INK},
    )  # fmt: skip


def _roof(fig: go.Figure, roof: Roof, peak: float, low: float, strong: bool, datasheet: bool) -> None:
    fig.add_scatter(
        x=[low, peak / roof.rate], y=[low * roof.rate / 1e12, peak / 1e12], mode="lines", showlegend=False,
        line={"color": MEMORY[roof.key], "width": 3.5 if strong else 2, "dash": "dash" if datasheet else "solid"},
        hovertemplate=f"{_named(roof)}<extra></extra>",
    )  # fmt: skip


def _named(roof: Roof) -> str:
    return f"{roof.name} {words.text(roof.rate / 1e9, words.GIGABYTES)}"


def _near(roofs: Sequence[Roof], pixel: float) -> list[list[Roof]]:
    """Roofs, the fastest first, together where their lines are nearer than a label is high."""
    groups: list[list[Roof]] = []
    for roof in sorted(roofs, key=lambda roof: -roof.rate):
        if groups and math.log10(groups[-1][-1].rate / roof.rate) < LINE * pixel:
            groups[-1].append(roof)
        else:
            groups.append([roof])
    return groups


def _roof_label(fig: go.Figure, roofs: Sequence[Roof], peak: float, low: float, strong: bool) -> None:
    """The names of roofs that lie together: above the fastest of them, or below the memory's."""
    rate = roofs[0].rate
    at = math.sqrt(low * 2 * peak / rate)
    fig.add_annotation(
        x=math.log10(at), y=math.log10(at * rate / 1e12), text="<br>".join(map(_named, roofs)), showarrow=False,
        xanchor="left" if strong else "right", xshift=14 if strong else -10, yanchor="top" if strong else "bottom",
        align="left" if strong else "right", bgcolor=GROUND, borderpad=1, font={"size": 13, "color": INK},
    )  # fmt: skip


def _peak(fig: go.Figure, unit: str, flops: float, memory: float, high: float, top: bool, datasheet: bool) -> None:
    y = flops / 1e12
    fig.add_scatter(
        x=[flops / memory, high], y=[y, y], mode="lines", showlegend=False,
        line={"color": INK, "width": 2.5 if top else 1.5, "dash": "dash" if datasheet else "solid"},
        hovertemplate=f"{unit}: {words.digits(y)} TFLOP/s<extra></extra>",
    )  # fmt: skip
    fig.add_annotation(
        x=math.log10(high), y=math.log10(y), text=f"{unit}: {words.digits(y)}", showarrow=False, xanchor="right",
        yanchor="top", font={"size": 13, "color": INK}, bgcolor=GROUND, borderpad=1,
    )  # fmt: skip


def _points(fig: go.Figure, points: Sequence[Point]) -> None:
    for name in sorted({p.provider for p in points}, key=lambda n: n == "Triton"):  # Triton on top
        mine = [p for p in points if p.provider == name]
        mark = {"symbol": SYMBOLS.get(name, SYMBOLS[OTHER]), "size": 11, "color": colour(name)}
        if name != "Triton":
            mark |= {"symbol": f"{mark['symbol']}-open", "size": 14, "line": {"width": 2}}
        fig.add_scatter(
            x=[p.intensity for p in mine], y=[p.tflops for p in mine], name=label(name), mode="markers", marker=mark,
            customdata=[f"{p.shape}{', served from L2' if p.over else ''}" for p in mine],
            hovertemplate=label(name) + ", %{customdata}<br>%{y:.3~g} TFLOP/s<extra></extra>",
        )  # fmt: skip
    over = max((p for p in points if p.over), key=lambda p: p.tflops, default=None)
    if over:
        fig.add_annotation(
            x=math.log10(over.intensity), y=math.log10(over.tflops), text="served from L2", ax=-56, ay=-46,
            arrowcolor=INK, arrowwidth=1, arrowhead=0, font={"size": 13, "color": INK},
        )  # fmt: skip


# Bandwidth against size


@dataclass(frozen=True)
class Trend:
    """One line: sizes in bytes and GB/s. copy: a copy's, else a provider's."""

    name: str
    sizes: Sequence[float]
    gbps: Sequence[float]
    copy: bool = False


def bandwidth(trends: Sequence[Trend], caches: Mapping[str, int], ceiling: float) -> go.Figure:
    """Rate against bytes touched. caches: sizes that the plateaus end at; ceiling: the copy's, GB/s, 0 for none."""
    sizes = [s for trend in trends for s in trend.sizes]
    unit, step = words.unit_for(max(g for trend in trends for g in trend.gbps), words.GIGABYTES)
    low, high = min(sizes) / 1.5, max(sizes) * 1.5
    fig = figure(
        360,
        xaxis={"type": "log", "title": "bytes touched", **_byte_ticks(low, high)},
        yaxis={"title": unit, "rangemode": "tozero", "nticks": 7},
        margin={"l": 8, "r": 24, "t": 8, "b": 8},
    )
    for name, size in caches.items():
        if low < size < high:
            fig.add_vline(x=size, line={"color": MEMORY["l2"], "width": 1.5, "dash": "dot"})
            fig.add_annotation(
                x=math.log10(size), y=1, yref="paper", yanchor="top", xanchor="right", xshift=-4, showarrow=False,
                text=f"{name} {cache_size(size)}", font={"size": 13, "color": INK}, bgcolor=GROUND, borderpad=1,
            )  # fmt: skip
    if ceiling:
        fig.add_scatter(
            x=[low, high], y=[ceiling / step] * 2, mode="lines", name="copy, measured roof",
            line={"color": INK, "width": 1.5, "dash": "dash"},
            hovertemplate="copy %{y:.3~g} " + unit + "<extra></extra>",
        )  # fmt: skip
    for trend in trends:
        own = MEMORY["l2"] if trend.copy else colour(trend.name)
        fig.add_scatter(
            x=list(trend.sizes), y=[g / step for g in trend.gbps], name=label(trend.name), mode="lines+markers",
            line={"color": own, "width": 3.5 if trend.name == "Triton" else 2, "dash": DASHES.get(trend.name, "solid")},
            marker={"symbol": "circle" if trend.copy else SYMBOLS.get(trend.name, SYMBOLS[OTHER]), "size": 7,
                    "color": own},
            customdata=[bytes_text(s) for s in trend.sizes],
            hovertemplate=label(trend.name) + " %{y:.3~g} " + unit + " at %{customdata}<extra></extra>",
        )  # fmt: skip
    return fig


def _byte_ticks(low: float, high: float) -> dict[str, Any]:
    """Powers of 16, or of 4 in a short range, in binary units, as caches are written."""
    values = [16.0**k for k in range(1, 12) if low <= 16.0**k <= high]
    if len(values) < 3:
        values = [4.0**k for k in range(1, 22) if low <= 4.0**k <= high] or [low]
    return {
        "tickangle": 0,
        "tickvals": values,
        "ticktext": [cache_size(v) for v in values],
        "range": [math.log10(low), math.log10(high)],
    }
