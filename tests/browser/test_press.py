"""Presses that come early, late, twice or across each other: each counts, for what it was meant for."""

import re

from playwright.sync_api import expect

from tests.browser.test_run import RIGHT, SMALL, visit

AT_ONCE = """new MutationObserver((_, watching) => {
  const run = document.querySelector('#run');
  if (run) { watching.disconnect(); run.click(); }
}).observe(document, {childList: true, subtree: true})"""
# Presses Run as soon as an answer is there, and says how many presses began nothing.
AGAIN = """async () => {
  const busy = () => document.querySelector('#answer .verdict.busy'), run = document.querySelector('#run');
  const until = async (seen, ms) => {
    for (const end = performance.now() + ms; !seen() && performance.now() < end;) await new Promise(r => setTimeout(r));
  };
  let lost = 0;
  for (let i = 0; i < 25; i++) {
    let began = false;
    const watching = new MutationObserver(() => { began ||= !!busy(); });
    watching.observe(document.querySelector('#answer'), {childList: true, subtree: true});
    run.click();
    await until(() => began, 3000);
    lost += !began;
    await until(() => !busy() && run.offsetParent, 20000);
    watching.disconnect();
  }
  return lost;
}"""


def test_a_press_before_the_bench_holds_the_address_runs_what_the_address_says(page, base):
    page.add_init_script(AT_ONCE)
    page.goto(f"{base}/?kernel=softmax&rows=7&n=77&dtype=float16&edge=One+column")
    page.wait_for_selector(RIGHT)
    expect(page.locator("#runs [data-open]")).to_have_count(1)
    expect(page.locator("#runs tbody tr")).to_contain_text("softmax")


def test_no_press_is_lost_that_comes_as_the_last_run_ends(page, base):
    visit(page, base, SMALL + "&edge=One+element")
    page.click("#run")
    page.wait_for_selector(RIGHT)
    assert page.evaluate(AGAIN) == 0


def test_a_double_click_runs_and_does_not_stop(page, base):
    visit(page, base, SMALL)
    box = page.locator("#run").bounding_box()
    at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.click(*at)
    page.wait_for_timeout(120)
    page.mouse.click(*at)  # Stop stands there by now
    page.wait_for_selector(RIGHT)
    page.locator("#run").wait_for()
    assert page.locator("#here table.fig").count() == 1  # it was timed to its end


def test_a_run_and_a_sweep_take_each_others_place_and_leave_nothing_working(page, base):
    visit(page, base, SMALL)
    page.click("#sweep-start")
    expect(page.locator("#sweep-here")).to_contain_text("Timing n=")
    page.click("#chips .chip.edge")
    expect(page.locator("#sweep-here")).to_contain_text("Stopped after")
    expect(page.locator("#sweep-start")).to_be_enabled()
    page.wait_for_selector(RIGHT)
    page.locator("#run").wait_for()
    visit(page, base, "kernel=softmax&rows=4096&n=4096&dtype=float32")
    page.click("#run")
    page.locator("#stop").wait_for()
    page.click("#sweep-start")
    expect(page.locator("#answer .verdict")).to_have_text(re.compile("Stopped|Right"))
    assert page.is_visible("#stop") and not page.is_visible("#run")  # they are the sweep's now
    page.click("#stop")
    page.locator("#run").wait_for()
    expect(page.locator("#sweep-here")).to_contain_text("Stopped after")
