"""Source text without what does not matter to what it does, so that a recording outlives a comment."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator


def bare(text: str) -> str:
    """A function's tokens without comments, docstring and formatting: the same on every Python."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)
    marks = {tokenize.NEWLINE: "\n", tokenize.INDENT: ">", tokenize.DEDENT: "<"}
    parts: list[str] = []
    for kind, string in _tokens(text):
        if kind in skipped:
            continue
        # A string that is a statement of its own is a docstring.
        alone = kind == tokenize.STRING and (not parts or parts[-1][-1:] in ("\n", ">", "<"))
        parts.append("" if alone else marks.get(kind, string + " "))
        parts = parts if parts[-1] else parts[:-1]
    return re.sub(r"\n+", "\n", "".join(parts))


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Kind and text of each token; an f-string is one STRING, as Python 3.11 has it and later ones no more."""
    lines = text.splitlines(keepends=True)
    opened: list[tuple[int, int]] = []  # where the f-strings around this token begin
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):
            opened.append(token.start)
        elif name.endswith("STRING_END"):
            start = opened.pop()
            if not opened:
                yield tokenize.STRING, _between(lines, start, token.end)
        elif not opened:
            yield token.type, token.string


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text from one (line, column) to another, as tokenize counts them."""
    rows = lines[start[0] - 1 : end[0]]
    rows[-1] = rows[-1][: end[1]]
    rows[0] = rows[0][start[1] :]
    return "".join(rows)
