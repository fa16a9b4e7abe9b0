"""Keep Gradio's browser client from losing an update that it has not drawn yet.

A generator's drawings travel as differences, and the client takes each into the drawing before it, in place. Where
that one still waits to be drawn, it loses what the new one does not name: a sheet that was to appear never does. An
update that names less than the one before is therefore sent whole, as Gradio does where the kind of a value changes.
"""

from __future__ import annotations

from typing import Any

from gradio import utils

_differences = utils.diff


def _safe(old: Any, new: Any) -> list[Any]:
    """gradio.utils.diff, but for an update that lacks a key of the one before."""
    if utils.is_prop_update(old) and utils.is_prop_update(new) and old.keys() - new.keys():
        return [["replace", [], new]]
    return _differences(old, new)


def install() -> None:
    utils.diff = _safe  # which Blocks.handle_streaming_diffs calls by this name
