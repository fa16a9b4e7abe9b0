"""What the same decoder reached on other machines, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from playground.decoder.recorded import DecoderRun
from playground.ui import panels, words

HEADS = ("model", "one conversation, tok/s", "64 at once, tok/s in all", "512 tokens read in, ms")
OLDER = "The kernels have changed since: these figures are of older ones."


def sheet(runs: Sequence[DecoderRun]) -> str:
    """A section for each GPU; nothing where none is recorded."""
    devices = dict.fromkeys(run.source.device for run in runs)
    return "".join(_device(device, [run for run in runs if run.source.device == device]) for device in devices)


def _device(device: str, runs: Sequence[DecoderRun]) -> str:
    best = max(runs, key=lambda run: run.tokens_per_second or 0.0)
    fastest = words.digits(best.tokens_per_second or 0.0)
    head = panels.section(
        f"{device}: {fastest} tokens a second", best.source, "the same kernels; a step is one CUDA graph"
    )
    cells = "".join(f"<th scope=col>{name}</th>" for name in HEADS)
    rows = "".join(_row(run) for run in runs if run.batches or not run.peers)  # a race's figures are in words below
    notes = [OLDER] if any(run.stale for run in runs) else []
    return (
        f'{head}<div class="scroll" tabindex="0" role="region" aria-label="The decoder on {escape(device)}">'
        f'<table class="fig"><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table></div>'
        + "".join(f'<p class="quiet">{note}</p>' for note in [*notes, *_beside(runs)])
    )


def _row(run: DecoderRun) -> str:
    said = ", ".join(filter(None, (run.dtype, f"{run.weights} weights", run.source.note)))
    figures = (run.tokens_per_second, run.batches.get(64), run.prefill_ms)
    return (
        f"<tr><th scope=row>{escape(run.shape)}<small>{escape(said)}</small></th>"
        + "".join(f"<td>{'–' if value is None else words.digits(value)}</td>" for value in figures)
        + "</tr>"
    )


def _beside(runs: Sequence[DecoderRun]) -> list[str]:
    """transformers in the same run, in a sentence."""
    return [
        f"Beside it in one run of {escape(run.shape)}: transformers, {escape(how)}, {words.digits(rate)} tok/s against "
        f"{words.digits(run.tokens_per_second)}."
        for run in runs
        for how, rate in run.peers.items()
        if run.tokens_per_second
    ]
