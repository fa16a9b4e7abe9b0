"""The page does not jump while it loads: how much of what is seen moves, as Web Vitals counts it (CLS)."""

import pytest

SHIFTS = """window.shifts = [];
new PerformanceObserver(list => {
  for (const e of list.getEntries()) {
    const of = e.sources.map(s => s.node?.id || s.node?.className || s.node?.nodeName);
    window.shifts.push([e.value, Math.round(e.startTime), of]);
  }
}).observe({type: 'layout-shift', buffered: true});"""
SIZES = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
MOST = 0.05  # half of what Web Vitals calls good
BENCH = "#bench"
LINKS = {  # and what is seen last
    "": BENCH,
    "?kernel=matmul": BENCH,
    "?kernel=gluon_attention": BENCH,
    "?kernel=matmul&tab=Autotune": BENCH,
    "?kernel=vector_add&tab=Memory": ".accmap",
    "?kernel=vector_add&tab=Code": ".codeview",
}


# A phone lays every kernel's bench out alike; its tabs differ.
CASES = [(link, size) for link in LINKS for size in SIZES if size == "desk" or link == "" or "&tab" in link]


@pytest.mark.parametrize(("link", "size"), CASES)
def test_nothing_that_is_seen_jumps_while_the_page_loads(page, base, link, size):
    page.set_viewport_size(SIZES[size])
    page.add_init_script(SHIFTS)
    page.goto(f"{base}/{link}")
    page.wait_for_selector(LINKS[link])
    page.wait_for_timeout(1500)  # what comes late
    moved = page.evaluate("window.shifts")
    assert sum(value for value, *_ in moved) < MOST, moved


def test_a_page_whose_server_does_not_answer_is_seen_all_the_same(page, base):
    page.route("**/gradio_api/queue/join*", lambda route: None)  # asked, and never answered
    page.route("**/gradio_api/run/*", lambda route: None)
    page.goto(base)
    page.wait_for_selector("#run")
    assert page.evaluate("!tp.filled")
