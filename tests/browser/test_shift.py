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


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("link", ["", "?kernel=matmul", "?kernel=gluon_attention", "?kernel=matmul&tab=Autotune"])
def test_nothing_that_is_seen_jumps_while_the_page_loads(page, base, link, size):
    page.set_viewport_size(SIZES[size])
    page.add_init_script(SHIFTS)
    page.goto(f"{base}/{link}")
    page.wait_for_selector("#bench")  # to be seen
    page.wait_for_timeout(1500)  # what comes late
    moved = page.evaluate("window.shifts")
    assert sum(value for value, *_ in moved) < MOST, moved
