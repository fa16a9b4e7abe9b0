"""What a swapped kernel changes in an answer, in plain words. Pure: a replay in, HTML and a figure out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from playground.decoder.looks import ReplayResult
from playground.decoder.messages import SWAPS, Provider
from playground.ui import panels, words
from playground.ui.charts import figure, label
from playground.ui.theme import PROVIDERS

SIDES = {"triton": "our Triton kernels", "torch": "PyTorch"}
FLOOR = 1e-9  # where a difference of 0 is drawn on a logarithmic axis


def other_side(backend: str) -> Provider:
    """Whose kernels a swap takes where `backend` does the rest."""
    return "triton" if backend == "torch" else "torch"


def table(groups: Sequence[str], backend: str) -> dict[str, Provider]:
    return {group: other_side(backend) for group in groups if group in SWAPS}


def told(result: ReplayResult) -> str:
    """How much the logits differ, how much the distributions do, and where another token would have come."""
    changed = [group for group in SWAPS if result.swapped.get(group) != result.table.get(group)]
    names = " and ".join(SWAPS[group] for group in changed) or "Nothing"
    side = SIDES[result.swapped[changed[0]]] if changed else "the other side"
    tokens = words.count(len(result.steps), "token")
    head = panels.section(f"{names} on {side}", result.source, f"the last answer gone through twice, {tokens}")
    figures = (
        ("largest logit difference", _small(result.largest), ""),
        ("largest KL divergence", _small(result.kl), "nats"),
        ("first token that differs", *_first(result)),
    )
    stats = "".join(
        f'<div class="stat"><dt>{name}</dt><dd><b>{value}</b> {unit}</dd></div>' for name, value, unit in figures
    )
    return f'{head}<dl class="stats swap">{stats}</dl><p class="sub" role="status">{escape(_sentence(result))}</p>'


def _small(value: float) -> str:
    """As 1.6 × 10⁻⁵ where it is far below 1."""
    if value == 0 or value >= 1e-3:
        return words.digits(value)
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} × 10{str(int(power)).translate(words.RAISED)}"


def _first(result: ReplayResult) -> tuple[str, str]:
    at = result.first_difference
    return ("none", "") if at is None else (f"{at + 1:,}", f"of {len(result.steps):,}")


def _sentence(result: ReplayResult) -> str:
    at = result.first_difference
    if at is None:
        same = "Both would have written the same text, token for token"
        return f"{same}: the sums are added in another order, which moves a logit's last digits and no choice."
    step = result.steps[at]
    ours, theirs = (text.replace("\n", "⏎") for text in step.drawn_text)
    return (
        f"At token {at + 1:,} one would have written “{ours}” and the other “{theirs}”: two candidates lay closer "
        "together than the kernels' rounding. What follows is read as the answer stands."
    )


def per_token(result: ReplayResult) -> go.Figure:
    """The largest logit difference at each token, on a logarithmic axis."""
    fig = figure(
        220, xaxis={"title": "token of the answer"},
        yaxis={"title": "largest difference, logits", "type": "log", "dtick": "D2", "exponentformat": "power"},
    )  # fmt: skip
    fig.add_scatter(
        x=list(range(1, len(result.steps) + 1)), y=[max(step.largest, FLOOR) for step in result.steps],
        text=[label(step.text.replace("\n", "⏎")) for step in result.steps], mode="lines+markers", marker={"size": 5},
        line={"color": PROVIDERS["Triton"], "width": 2}, hovertemplate="%{text}: %{y:.2~e}<extra></extra>",
        showlegend=False,
    )  # fmt: skip
    return fig
