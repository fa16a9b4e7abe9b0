"""Plotly.js as the page serves it: the package's own file, made to start in a tenth of the time.

The file comes with every kind of trace, maps and 3D among them, and sets each up before it draws anything: two seconds
in which the page answers nobody. Two edits leave the code of Plotly as it is. The list of what is set up is cut to the
kinds that our figures use; and the function that holds everything stands in parentheses, from which a browser sees
that it is called at once, and compiles it while it downloads, beside the page's own thread. A later build may look
different: then that edit is left out, and the page works as before, with a slower first chart.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import plotly

FILE = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
KINDS = frozenset({"bar", "sankey"})  # beside scatter, which is in the core

# How the bundler writes the list, and how a module begins.
_LIST = re.compile(r"\.register\(\[((?:[\w$]+\(\),)+[\w$]+\(\))\]\)")
_MODULE = re.compile(r"(?:var |,)([\w$]+)=[\w$]+\(\(")
_LONGEST = 100_000  # characters of a module before what is looked for in it
_OPEN, _CLOSE = ', () => {\n"use strict";var Plotly=(()=>{', "\nreturn Plotly;\n}));"


@functools.cache
def code() -> bytes:
    """The file with both edits, as far as they fit it."""
    return edited(FILE.read_text(encoding="utf-8")).encode()


def edited(text: str) -> str:
    """Plotly.js with each edit that fits it."""
    listed = _LIST.search(text, max(0, text.rfind(".register([")))
    kept = [call for kind in sorted(KINDS) if (call := _call(text, kind))]
    if listed and len(kept) == len(KINDS) and set(kept) <= set(listed[1].split(",")):
        text = text[: listed.start(1)] + ",".join(kept) + text[listed.end(1) :]
    end = text.rstrip()
    if text.count(_OPEN) == 1 and end.endswith(_CLOSE):
        text = end.removesuffix(_CLOSE).replace(_OPEN, _OPEN.replace("() =>", "(() =>")) + _CLOSE.replace("}", "})")
    return text


def _call(text: str, kind: str) -> str:
    """What the list has for this kind of trace, or "": the call of a module whose exports are the trace's own."""
    own = _module(text, text.find(f'moduleType:"trace",name:"{kind}"'))
    listed = _module(text, text.find(f".exports={own}()}}")) if own else ""
    return f"{listed}()" if listed else ""


def _module(text: str, at: int) -> str:
    """The name of the module that this place lies in, or ""."""
    before = list(_MODULE.finditer(text, max(0, at - _LONGEST), at)) if at >= 0 else []
    return before[-1][1] if before else ""
