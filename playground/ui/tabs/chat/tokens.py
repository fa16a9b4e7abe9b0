"""The tokens of an answer with their probabilities, a line of JSON each, as assets/tokens.js draws them.

Pure. Lines are only ever added while an answer comes, so that what goes to the browser each time is the new ones.
"""

from __future__ import annotations

import json
from typing import Any

from playground.decoder.messages import ChatToken

END = "end"  # how the end token, which has no text, is called


def line(token: ChatToken) -> str:
    """[text, the model's own probability, the one it was drawn with, [[text, probability], ...]]."""
    others = [[named(a.text), _rounded(a.probability)] for a in token.alternatives]
    entry: list[Any] = [named(token.piece or token.text), _rounded(token.probability), _rounded(token.drawn), others]
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))


def named(text: str) -> str:
    """What cannot be seen is named; a space in front is the token's own and stays."""
    return text.replace("\n", "⏎").replace("\t", "⇥") or END


def _rounded(probability: float | None) -> float | None:
    return None if probability is None else float(f"{probability:.4g}")
