"""A folder for each tab. Its `tab.py` has a `TAB`: its name, its place in the row, and the function that builds it.

`build(context, bench)` lays the tab out, wires it and returns what the page's loading has to fill: adding a folder
here is all that a new tab needs. The bench above the tabs is shared; style.css hides it where a tab has no use for it.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from playground.ui.bench import Bench
from playground.ui.context import Context


@dataclass(frozen=True)
class Loaded:
    """Components that opening the page fills, and what fills them from the choice that the link restores.

    fill: (request, problem, params) -> values; `problem` is the line about a link that could not be followed, or "",
    and `params` all that the link holds, a tab's own choices among it. It takes a few milliseconds at most: what takes
    longer goes to `later`, a function of the bench's inputs that is queued.
    """

    outputs: list[Any] = field(default_factory=list)
    fill: Callable[[Any, str, Mapping[str, str]], list[Any]] = lambda request, problem, params: []
    later_outputs: list[Any] = field(default_factory=list)
    later: Callable[..., list[Any]] | None = None


def chosen(dropdown: gr.Dropdown, param: str) -> Loaded:
    """A choice of the tab alone that a link restores; what the list does not hold leaves the first choice."""
    first, known = dropdown.value, {value for _, value in dropdown.choices}
    return Loaded([dropdown], lambda request, problem, params: [params[param] if params.get(param) in known else first])


def presses(banner: str, first: str = "(...values) => values") -> str:
    """Script of an event that asks for the answer in this banner, after a script of its own: see tp.press."""
    return f"(...values) => tp.press('{banner}', ({first})(...values))"


def follows(dropdown: gr.Dropdown, param: str) -> str:
    """Script of an event whose first input is the dropdown: the address follows it, without the first choice."""
    first = json.dumps(dropdown.value)
    return f"(...values) => {{ tp.url({{{param}: values[0] === {first} ? null : values[0]}}); return values; }}"


@dataclass(frozen=True)
class Tab:
    """name: on the tab and in links. order: from left to right."""

    name: str
    order: int
    build: Callable[[Context, Bench], Loaded]


def all_tabs() -> list[Tab]:
    """Every tab, from left to right."""
    modules = (importlib.import_module(f"{__name__}.{m.name}.tab") for m in pkgutil.iter_modules(__path__))
    return sorted((m.TAB for m in modules), key=lambda tab: tab.order)
