"""What the cache saves, from the answers of this visit: time per token against context, and the time spent in all.

Pure: the times at which tokens came in, figures out. `Steps` is plain data, for it lies in the visit's state.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from statistics import median
from typing import Any

import plotly.graph_objects as go

from playground.ui import words
from playground.ui.charts import figure
from playground.ui.theme import PROVIDERS

# {"Triton, with the cache": [[context, milliseconds], ...]}: the latest answer of each kind.
Steps = dict[str, list[list[float]]]

COLOURS = {"Triton": PROVIDERS["Triton"], "PyTorch": PROVIDERS["eager"]}
LEAST = 4  # steps that make a line


def kept(steps: Steps, backend: str, cached: bool, prompt_tokens: int, came: list[float]) -> Steps:
    """`steps` with one answer more. came: when each of its tokens came, in seconds; the first one is the prefill's."""
    line = [[prompt_tokens + i, 1e3 * (now - before)] for i, (before, now) in enumerate(pairwise(came), 1)]
    if len(line) < LEAST:
        return steps
    return {**steps, f"{backend}, {'with' if cached else 'without'} the cache": line}


def heading(steps: Steps) -> str:
    """What a token took in the middle, of each kind; plain text."""
    middle = ((name, 1e3 * median(ms for _, ms in line)) for name, line in steps.items())
    return "; ".join(f"{name}: {words.text(us, words.MICROSECONDS)} a token" for name, us in middle)


def per_token(steps: Steps) -> go.Figure | None:
    """Milliseconds of each token against the context that it read."""
    lines = {name: ([x for x, _ in line], [ms for _, ms in line]) for name, line in steps.items()}
    return _drawn(lines, "context, tokens", "ms per token", "%{y:.3~g} ms at %{x} tokens")


def in_all(steps: Steps) -> go.Figure | None:
    """Seconds spent since the first token, against tokens written."""
    lines = {
        name: (list(range(1, len(line) + 1)), [ms / 1e3 for ms in accumulate(ms for _, ms in line)])
        for name, line in steps.items()
    }
    return _drawn(lines, "tokens written", "seconds in all", "%{y:.3~g} s after %{x} tokens")


def _drawn(lines: dict[str, tuple[list[Any], list[float]]], across: str, up: str, said: str) -> go.Figure | None:
    if not lines:
        return None
    fig = figure(300, xaxis={"title": across}, yaxis={"title": up, "rangemode": "tozero"})
    for name, (xs, ys) in lines.items():
        dash = "solid" if ", with the" in name else "dash"
        fig.add_scatter(
            x=xs, y=ys, mode="lines", name=name, hovertemplate=f"{name}: {said}<extra></extra>",
            line={"color": COLOURS[name.split(",")[0]], "width": 3, "dash": dash},
        )  # fmt: skip
    return fig
