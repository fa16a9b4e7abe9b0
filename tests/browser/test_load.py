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


RUNS = """async runs => {
  const run = document.querySelector('#run'), answer = document.querySelector('#answer');
  const nap = () => new Promise(done => setTimeout(done, 20));
  const busy = () => answer.querySelector('.verdict.busy') || run.offsetParent === null;
  for (let i = 0; i < runs; i++) {
    let begun = false;
    const seen = new MutationObserver(() => { begun = true; });
    seen.observe(answer, {childList: true, subtree: true});
    run.click();  // once: every press counts
    for (let naps = 0; !begun && naps < 500; naps++) await nap();
    while (busy()) await nap();
    seen.disconnect();
  }
  let last = performance.now();  // what follows an answer (its row in the list, its charts) has come when all is still
  const changes = new MutationObserver(() => { last = performance.now(); });
  changes.observe(document, {childList: true, subtree: true, attributes: true, characterData: true});
  for (let naps = 0; performance.now() - last < 700 && naps < 500; naps++) await nap();
  changes.disconnect();
  const walker = document.createNodeIterator(document);
  let alive = 0;
  for (let node; (node = walker.nextNode()); alive++) for (const attribute of node.attributes ?? []) alive++;
  return alive;
}"""


def test_runs_leave_nothing_behind_in_the_browser(page, base):
    """Nodes that no document holds any more, and listeners: 500 runs were counted by hand, these few catch a leak."""
    page.goto(f"{base}/?kernel=vector_add&n=1&dtype=float32&edge=One+element")
    page.wait_for_selector("#chips .chip")
    browser = page.context.new_cdp_session(page)
    browser.send("Performance.enable")

    def left(runs: int) -> tuple[float, float]:
        alive = page.evaluate(RUNS, runs)
        for _ in range(3):
            browser.send("HeapProfiler.collectGarbage")
        found = {m["name"]: m["value"] for m in browser.send("Performance.getMetrics")["metrics"]}
        return found["Nodes"] - alive, found["JSEventListeners"]

    left(2)  # what a first run sets up
    before, after = left(2), left(12)
    assert after[0] - before[0] < 5 * 12 and after[1] - before[1] < 12, (before, after)
