"""Plotly.js as it is served: the package's own code, which sets up the traces that our figures use and no others."""

import ast
import re

from playground.settings import ROOT
from playground.ui import plotly_js

CALLED = re.compile(r"\.register\(\[((?:[\w$]+\(\),?)+)\]\);[\w$]+\.exports=")


def test_two_places_are_edited_and_nothing_else():
    own, served = plotly_js.FILE.read_text(), plotly_js.edited(plotly_js.FILE.read_text())
    everything, kept = CALLED.search(own), CALLED.search(served)
    assert len(everything[1].split(",")) > 40 and len(kept[1].split(",")) == len(plotly_js.KINDS)
    restored = served.replace(kept[1], everything[1]).replace(", (() => {\n", ", () => {\n", 1)
    assert restored.rstrip() == own.rstrip()[: -len("));")] + ")));"


def test_a_file_that_looks_different_is_served_as_it_is():
    for text in ("", "window.Plotly = {};\n", "var a=W((e,t)=>{});x.register([a(),b()]);x.exports=x"):
        assert plotly_js.edited(text) == text


def test_a_trace_that_is_not_found_leaves_the_whole_list():
    own = plotly_js.FILE.read_text().replace('moduleType:"trace",name:"sankey"', 'moduleType:"trace",name:"other"')
    assert CALLED.search(plotly_js.edited(own))[1] == CALLED.search(own)[1]


def test_our_figures_use_no_other_kind_of_trace():
    used = set()
    for path in (ROOT / "playground" / "ui").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "go" and name[0].isupper():
                used.add(name.lower())
            elif name.startswith("add_") and name not in ("add_trace", "add_annotation", "add_shape", "add_vline"):
                used.add(name.removeprefix("add_"))
    assert used - {"figure"} == plotly_js.KINDS | {"scatter"}
