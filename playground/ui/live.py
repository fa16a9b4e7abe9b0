"""The two kinds of HTML a tab is made of: a piece of HTML, and a chart that the browser keeps and redraws.

A chart here is no gr.Plot: that one leaks where it is updated often, forces its own size in a hidden tab and ignores
the dark mode.
"""

from __future__ import annotations

from typing import Any

import gradio as gr
import plotly.graph_objects as go

from playground.settings import ROOT

ASSETS = ROOT / "assets"


def script(name: str) -> str:
    return (ASSETS / name).read_text()


def html(value: str = "", **options: Any) -> gr.HTML:
    """A piece of HTML. Whoever writes it escapes what a person typed."""
    return gr.HTML(value, apply_default_css=False, **options)


def chart(plotly_url: str, label: str, **options: Any) -> gr.HTML:
    """A chart, empty until it is given `drawn(figure)`; `label` says to a screen reader what it shows."""
    return gr.HTML(
        None,
        html_template=f'<div class="plot" role="img" aria-label="{label}"></div>',
        js_on_load=script("chart.js"),
        apply_default_css=False,
        source=plotly_url,
        elem_classes="chart",
        **options,
    )


def shown(on: bool, **update: Any) -> Any:
    """An update that shows a component or hides it.

    Hidden, it stays in the browser: visible=False would take it down and build it anew at the next answer, which is
    slow, and Gradio leaks a part of each that it takes down.
    """
    return gr.update(visible=True if on else "hidden", **update)


def drawn(fig: go.Figure | None) -> str | None:
    """A figure as the value of a chart; None empties it."""
    return None if fig is None else fig.to_json()
