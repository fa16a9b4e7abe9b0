"""Where the last token looks: a map of attention over a conversation's pages, by layer, or by head of one layer.

Pure: what the decoder found in, HTML out. A cell is the deeper the more of that row's attention falls on its pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from playground.decoder.looks import AttentionResult
from playground.ui import words

MOST_COLUMNS = 48  # pages side by side; beyond that, neighbours share a cell


def told(found: AttentionResult, page_size: int, prompt_tokens: int | None) -> str:
    """Rows are layers (means over their heads), or the heads of the layer that was asked for."""
    one = len(found.mass) == 1
    noun = "head" if one else "layer"
    numbers = (found.heads if one else found.layers) or tuple(range(len(found.mass[0] if one else found.mass)))
    rows = found.mass[0] if one else [_mean(layer) for layer in found.mass]
    step = -(-len(found.pages) // MOST_COLUMNS)
    cells = [[sum(row[i : i + step]) for i in range(0, len(row), step)] for row in rows]
    places = [_place(i * step, step, page_size, found.tokens, prompt_tokens) for i in range(len(cells[0]))]
    lines = "".join(_row(noun, number, row, places) for number, row in zip(numbers, cells, strict=True))
    what = f"head of layer {found.layers[0]}" if one and found.layers else noun
    summary = escape(_summary(found, places, cells))
    said = f"A row is a {what}, a column {words.count(step * page_size, 'token')}; rows add up to 100 %."
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Attention of the last token">'
        f'<div class="attn" style="--cols:{len(places)}" role="img" aria-label="{summary}">'
        f'{lines}</div></div><p class="sub">{escape(said)} {summary}</p>'
    )


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _place(page: int, step: int, page_size: int, tokens: int, prompt_tokens: int | None) -> str:
    first, last = page * page_size, min((page + step) * page_size, tokens) - 1
    part = (
        ""
        if prompt_tokens is None
        else ", prompt"
        if last < prompt_tokens
        else ", answer"
        if first >= prompt_tokens
        else ""
    )
    return f"tokens {first:,} to {last:,}{part}"


def _row(noun: str, number: int, row: Sequence[float], places: Sequence[str]) -> str:
    cells = "".join(
        f'<i style="--mass:{share:.3f}" title="{noun} {number}, {place}: {words.percent(share)} %"></i>'
        for share, place in zip(row, places, strict=True)
    )
    return f"<b>{number}</b>{cells}"


def _summary(found: AttentionResult, places: Sequence[str], cells: Sequence[Sequence[float]]) -> str:
    mean = _mean(cells)
    order = sorted(range(len(mean)), key=lambda i: -mean[i])[:2]
    parts = [f"{words.percent(mean[i])} % on {places[i]}" for i in order]
    return f"Of the attention of token {found.tokens:,}, {' and '.join(parts)}."
