"""The look holds: nothing serious for axe, nothing cut or too wide, in both modes and at three widths.

The page runs on made-up figures here, so that every state is there at once and looks the same each time.
"""

from __future__ import annotations

import dataclasses
import socket
import threading

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from playground.engine.messages import EngineError, Failure
from playground.settings import Settings
from tests.ui.fake_engine import FakeEngine

WIDTHS = ((1440, 900), (960, 600), (390, 844))
STATES = {
    "empty": ("", "#answer .verdict.unknown"),
    "right": ("click", "#here .main-svg"),
    "wrong": ("bug=Mean+over+the+block", ".errmap"),
    "astray": ("bug=Forgotten+mask", "pre.source"),
    "failed": ("rows=-1", "#answer .verdict.failed"),
}


def served(engine):
    from playground.ui import server

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    demo = server.serve(engine, dataclasses.replace(Settings(), port=port))
    return demo, f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def base():
    demo, address = served(FakeEngine())
    yield address
    demo.close(verbose=False)


def show(page, base, state, mode="light"):
    """The page in one of STATES."""
    query, there = STATES[state]
    link = "" if query == "click" else f"kernel=add_rms_norm&{query}"
    page.goto(f"{base}/?{link}&__theme={mode}")
    page.wait_for_selector("#chips .chip")
    if state in ("right", "wrong", "astray"):
        page.click("#run")
    page.wait_for_selector(there)
    page.wait_for_selector("#run")
    page.wait_for_selector("#sweep .main-svg")


# Texts of a chart that stick out of its drawing are cut by it.
CUT = """() => [...document.querySelectorAll('.js-plotly-plot')].flatMap(plot => {
  const box = plot.getBoundingClientRect();
  return [...plot.querySelectorAll('text')].filter(t => {
    const b = t.getBoundingClientRect();
    return t.textContent.trim() && b.width
      && (b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1);
  }).map(t => t.textContent);
})"""


# Pieces that reach beyond the window; what scrolls inside a region of its own may.
WIDE = """() => [...document.querySelectorAll('body, .sheet, .sheet p, .sheet pre, .sheet details, .verdict, .chip')]
  .filter(e => e.offsetParent && !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1)
  .concat([...document.querySelectorAll('.gradio-container')].filter(e => e.scrollWidth > innerWidth))
  .map(e => e.className + ' ' + e.textContent.slice(0, 40))"""


# Tools that do not fit beside the head of their sheet, and stand elsewhere than at the start of the next line.
LOOSE = """() => [...document.querySelectorAll('.headrow')].filter(row => row.offsetParent).flatMap(row => {
  let low = -Infinity;
  return [...row.children].filter(tool => tool.offsetParent && tool.offsetWidth).filter(tool => {
    const b = tool.getBoundingClientRect(), next = b.top >= low - 1;
    low = Math.max(low, b.bottom);
    return next && Math.abs(b.left - row.getBoundingClientRect().left) > 2;
  }).map(tool => tool.textContent.slice(0, 40));
})"""


# Controls of the bench that are lower or higher than the others, or hide a part of what they hold.
UNEVEN = """() => [...document.querySelectorAll('#bench, #more')].flatMap(row => [
  ...[...row.querySelectorAll('.dim input, .seg .wrap:has(> label), .wrap:has(.wrap-inner), #baselines label, button')]
    .filter(e => e.offsetParent && Math.abs(e.getBoundingClientRect().height - 44) > 0.5),
  ...[...row.querySelectorAll('.dim input, .f-dtype input')]
    .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth),
]).map(e => e.outerHTML.slice(0, 90))"""


def violations(page):
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [(v["id"], v["nodes"][0]["html"][:160], len(v["nodes"])) for v in found if v["impact"] != "minor"]


def none(page, faults):
    """Within 20 s nothing is found: colours change and charts follow the window in their own time."""
    for _ in range(100):
        if not (found := faults()):
            return
        page.wait_for_timeout(200)
    assert found == [], page.viewport_size


@pytest.mark.parametrize("state", STATES)
def test_each_state_is_accessible_and_fits_every_width(page, base, state):
    show(page, base, state)
    none(page, lambda: violations(page))
    page.click("[data-do=mode]")
    page.wait_for_function("document.body.classList.contains('dark')")
    none(page, lambda: violations(page))
    for width, height in WIDTHS:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("document.querySelector('#sweep .main-svg').getBoundingClientRect().right <= innerWidth")
        none(page, lambda: page.evaluate(WIDE) + page.evaluate(CUT))


TABS = {
    "Memory": "#memory-answer .verdict:not(.busy)",
    "Autotune": "#tune-answer .verdict",
    "Chat": "#chat-talk .example",
}


@pytest.mark.parametrize("tab", TABS)
def test_each_tab_at_rest_is_accessible_and_fits_every_width(page, base, tab):
    page.goto(f"{base}/?kernel=add_rms_norm&tab={tab}&__theme=light")
    page.wait_for_selector(TABS[tab])
    expect(page.locator("button:text-is('Stop'):visible")).to_have_count(0)  # there is nothing to stop
    none(page, lambda: violations(page))
    page.click("[data-do=mode]")
    page.wait_for_function("document.body.classList.contains('dark')")
    none(page, lambda: violations(page))
    for width, height in (*WIDTHS, (2560, 1440)):
        page.set_viewport_size({"width": width, "height": height})
        none(page, lambda: [found for fault in (WIDE, CUT, LOOSE) for found in page.evaluate(fault)])
        talk = page.locator("#chat-talk .bubble-wrap")
        assert tab != "Chat" or talk.evaluate("e => e.scrollHeight <= e.clientHeight"), width


@pytest.mark.parametrize(
    "kernel, size", [("matmul", "m=1048576"), ("gluon_attention", "kv_len=65536"), ("softmax", ""), ("sample", "")]
)
def test_the_bench_is_even_and_whole_and_run_stands_beside_the_config(page, base, kernel, size):
    page.goto(f"{base}/?kernel={kernel}&{size}")
    page.wait_for_selector("#chips .chip")
    page.locator("#baselines label").nth(0 if kernel in ("matmul", "sample") else 1).wait_for()
    for width, height in (*WIDTHS, (1280, 800), (2560, 1440)):
        page.set_viewport_size({"width": width, "height": height})
        assert page.evaluate(UNEVEN) == [], width
        assert page.locator("#bench .seg .wrap:has(label)").evaluate("e => e.scrollWidth <= e.clientWidth + 1"), width
        run, config = (page.locator(s).bounding_box() for s in ("#run", ".f-config .wrap:has(> .wrap-inner)"))
        assert abs(run["y"] - config["y"]) < 1 or (width < 400 and run["width"] == config["width"]), width


def test_a_sweep_is_drawn_beside_the_recorded_one_and_not_over_it(page, base):
    show(page, base, "right")
    page.click("#sweep-start")
    page.wait_for_selector("#sweep .half:first-child .main-svg")
    page.wait_for_selector("#sweep-start:not([disabled])")
    none(page, lambda: page.evaluate(CUT))
    here, there = (half.bounding_box() for half in page.locator("#sweep .half").all())
    assert here["y"] == there["y"] and abs(here["width"] - there["width"]) < 2
    page.click("table.runs input")
    ground = "getComputedStyle({}).backgroundColor"
    page.locator("table.runs input:checked").wait_for()
    box, run = (page.evaluate(ground.format(f"document.querySelector({s!r})")) for s in ("table.runs input", "#run"))
    assert box == run  # a tick is white: it needs its ground


def test_every_axis_with_numbers_has_a_unit(page, base):
    show(page, base, "right")
    titles = page.locator(".js-plotly-plot .xtitle, .js-plotly-plot .ytitle").all_text_contents()
    assert len(titles) >= 4
    assert [t for t in titles if not any(u in t for u in ("µs", "ms", "B/s", "bytes", "FLOP/s"))] == []


def test_the_dark_mode_repaints_every_chart(page, base):
    """Ink on a dark panel, and no white ground, without drawing anew."""
    show(page, base, "right")
    ink = "getComputedStyle(document.querySelector('#here .xtick text')).fill"
    light = page.evaluate(ink)
    page.click("[data-do=mode]")
    page.wait_for_function("document.body.classList.contains('dark')")
    assert page.evaluate(ink) != light
    paper = page.evaluate("getComputedStyle(document.querySelector('#here .main-svg')).backgroundColor")
    assert paper in ("rgba(0, 0, 0, 0)", "transparent")
    page.reload()
    page.wait_for_selector("#chips .chip")
    assert page.evaluate("document.body.classList.contains('dark')")  # the choice is kept


def test_touch_targets_are_large_enough(page, base):
    page.set_viewport_size({"width": 390, "height": 844})
    show(page, base, "right")
    small = page.evaluate("""() => [...document.querySelectorAll('button, #bench input, summary, [data-open]')]
      .filter(e => e.offsetParent && e.tabIndex >= 0 && e.getBoundingClientRect().height < 34)
      .filter(e => e.type !== 'radio' && e.role !== 'combobox')  // their labels and boxes take the touch
      .map(e => e.outerHTML.slice(0, 90))""")
    assert small == []


class Small(FakeEngine):
    """A host with room for 12 rows."""

    def stream(self, request, cancel):
        if request.dims.get("rows", 0) > 12:
            message = "rows=4,096, n=3,000 needs 9 GiB, and 1 GiB are free; set rows to 12"
            raise EngineError(Failure(kind="input", message=message, argument="rows"))
        return super().stream(request, cancel)


def test_the_nearest_shape_that_fits_is_one_click_away(chrome):
    demo, address = served(Small())
    page = chrome.new_page()
    try:
        page.goto(f"{address}/?kernel=add_rms_norm&rows=4096&n=3000")
        page.wait_for_selector("#chips .chip")
        page.click("#run")
        page.click("#answer >> text=Set rows to 12 and run")
        page.wait_for_selector("#answer .verdict.right")
        assert page.get_by_label("rows", exact=True).input_value() == "12"
        assert page.get_by_label("n", exact=True).input_value() == "3000"
    finally:
        page.close()
        demo.close(verbose=False)


def test_a_run_in_progress_has_stop_in_runs_place_and_no_old_answer(chrome):
    go = threading.Event()
    go.set()
    demo, address = served(FakeEngine(gpu=True, pause=go))
    page = chrome.new_page()
    try:
        show(page, address, "right")
        go.clear()
        page.click("#run")
        page.wait_for_selector("#answer .verdict.busy")
        assert page.is_visible("#stop") and not page.is_visible("#run")
        assert not page.is_visible("#here") and not page.is_visible("#answer .verdict.right")
        page.click("#stop")
        page.wait_for_selector("#run")
        assert page.inner_text("#answer .verdict h2") == "Stopped"
    finally:
        page.close()
        demo.close(verbose=False)
