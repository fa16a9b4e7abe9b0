"""What opening the page asks of the network, and what using it for long leaves in the browser."""

from __future__ import annotations

import re


def test_all_that_a_visit_needs_is_named_at_the_top_of_its_document(page, base):
    """Otherwise a browser finds Gradio's modules one after another, and waits for each sheet of a component."""
    asked: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    page.goto(base)
    page.wait_for_selector("#chips .chip")
    html = page.request.get(base).text()
    named = set(re.findall(r'href="\./(assets/[^"]+)"', html[: html.index("window.gradio_config")]))
    build = [url.removeprefix(base + "/") for url in asked if "/assets/" in url]
    assert len(build) > 20 and [name for name in build if name.endswith(".js") and name not in named] == []
    assert len([url for url in asked if ".css" in url]) == 3  # Gradio's own, its components' and its theme's
    assert len(build) == len(set(build))
