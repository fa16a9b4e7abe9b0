"""Which files of Gradio's own build a page needs, so that a browser can ask for all of them at once.

Gradio's loader finds them link by link: each module names the next ones, and each style sheet is waited for. That
chain costs a browser five round trips. Nothing is changed in Gradio: where a later build looks different, a file is
not found here, and the loader fetches it as it always did.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import gradio

BUILD = Path(gradio.__file__).parent / "templates" / "frontend"
ENTRY = re.compile(r'<script type="module"[^>]* src="\./assets/([\w.-]+\.js)"')
# How the bundler writes the list of a module's files, and a lazy import with the places of what it needs in that list.
LISTED = re.compile(r"m\.f=(\[.*?\])")
LAZY = r"import\(`\./{name}`\).{{0,60}}?__vite__mapDeps\(\[([\d,]+)\]\)"
COMPONENT = r"[,{{]{kind}:\{{[^}}]*?component:\(\)=>\w+\(\(\)=>"


def files(kinds: Iterable[str]) -> list[str]:
    """Names in BUILD's assets folder that a page with these kinds of components loads, the first needed first."""
    entry = ENTRY.search((BUILD / "index.html").read_text())
    if not entry:
        return []
    found = {entry[1]: None, **dict.fromkeys(_listed(_text(entry[1])))}
    for name in list(found):
        text = _text(name) if name.endswith(".js") else ""
        found |= dict.fromkeys(_needed(text, LAZY.format(name=r"Blocks-[\w-]+\.js")))
    for name in list(found):
        text = _text(name) if name.endswith(".js") else ""
        if ",chatbot:{" in text:  # the table of all components
            for kind in kinds:
                pattern = COMPONENT.format(kind=re.escape(kind)) + LAZY.format(name=r"[\w-]+\.js")
                found |= dict.fromkeys(_needed(text, pattern))
    return [name for name in found if (BUILD / "assets" / name).is_file()]


def _text(name: str) -> str:
    path = BUILD / "assets" / name
    return path.read_text() if path.is_file() else ""


def _listed(text: str) -> list[str]:
    listed = LISTED.search(text)
    return [name.removeprefix("./") for name in json.loads(listed[1])] if listed else []


def _needed(text: str, pattern: str) -> list[str]:
    lazy = re.search(pattern, text)
    listed = _listed(text) if lazy else []
    return [listed[int(i)] for i in lazy[1].split(",") if int(i) < len(listed)] if lazy else []
