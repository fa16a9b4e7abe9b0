"""On a slow network: what was chosen and pressed before the page had an answer to the last choice."""

import re
import threading

from playwright.sync_api import expect

from playground.engine.messages import BenchRequest
from tests.browser.test_chat import ask
from tests.browser.test_run import RIGHT, SMALL, size, visit

STALE = re.compile("Run answers for the one above")


def slow(page):
    """Makes the network of this page slow from now on: half a second until an answer begins."""
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")
    limits = {"offline": False, "latency": 500, "downloadThroughput": -1, "uploadThroughput": -1}
    network.send("Network.emulateNetworkConditions", limits)


def choose(page, kernel):
    page.locator(".f-kernel input").click()
    page.get_by_role("option", name=kernel, exact=True).click()


def test_an_answer_is_of_the_choice_that_run_sent(page, base):
    visit(page, base, "kernel=softmax&rows=4&n=1000&dtype=float32")
    slow(page)
    page.click("#run")
    page.get_by_text("decode", exact=True).click()  # before anything of the answer is there
    page.wait_for_selector(RIGHT)
    expect(size(page, "n")).to_have_value("128256")
    expect(page.locator("#answer")).to_have_attribute("data-stale", STALE)
    page.locator("#run").wait_for()
    page.click("#run")
    expect(page.locator("#answer")).not_to_have_attribute("data-stale", STALE)


TAKES_ITS_PLACE = """async () => {
  const verdict = () => document.querySelector('#code-answer .verdict');
  const answer = verdict().outerHTML, frame = () => new Promise(requestAnimationFrame);
  const busy = '<b class="verdict busy"></b>';
  for (const [sent, html] of [['A', busy], ['B', busy], ['B', answer]]) {
    tp.sent['code-answer'] = sent;
    verdict().outerHTML = html;
    await frame();
  }
  return tp.of['code-answer'];
}"""


def test_an_answer_that_took_anothers_place_is_of_the_later_press(page, base):
    page.goto(f"{base}/?{SMALL}&tab=Code")
    page.wait_for_selector(".codeview .stage .ln")
    expect(page.locator("#code-answer")).not_to_have_attribute("data-stale", re.compile("."))
    assert page.evaluate(TAKES_ITS_PLACE) == "B"  # one that works is drawn over by the next, at work too


def test_the_last_of_two_choices_stays(page, base):
    visit(page, base, "kernel=softmax&rows=4&n=100&dtype=float32")
    slow(page)
    choose(page, "Vector add")
    choose(page, "SiLU x up")
    expect(page.locator("#explain")).to_contain_text(re.compile("SiLU|silu"))
    expect(page.locator(".f-kernel input")).to_have_value("SiLU x up")
    page.wait_for_timeout(1200)
    expect(page.locator(".f-kernel input")).to_have_value("SiLU x up")
    assert "kernel=silu_mul" in page.url


def test_the_last_of_two_cases_runs(page, base):
    visit(page, base, "kernel=softmax&rows=4&n=100&dtype=float32")
    slow(page)
    first, last = (page.locator("#chips .chip[data-kind=edge]").nth(i) for i in (0, 2))
    name = last.get_attribute("data-name")
    first.click()
    last.click()
    expect(page.locator(".f-case input")).to_have_value(name)
    page.wait_for_selector("#answer .verdict:is(.right, .wrong)")
    page.locator("#run").wait_for()
    expect(page.locator(".f-case input")).to_have_value(name)
    expect(page.locator("#runs tr[aria-current]")).to_contain_text(name)
    expect(page.locator("#answer")).not_to_have_attribute("data-stale", STALE)


def test_a_run_that_is_opened_while_another_works_takes_its_place(page, base, engine, monkeypatch):
    visit(page, base, SMALL)
    page.click("#run")
    page.wait_for_selector(RIGHT)
    page.locator("#run").wait_for()
    timed, stream = threading.Event(), engine.stream

    def waits(request, cancel):
        if isinstance(request, BenchRequest):
            timed.wait(60)
        yield from stream(request, cancel)

    monkeypatch.setattr(engine, "stream", waits)
    size(page, "n").fill("6000")
    page.click("#run")
    page.locator("#here .working").wait_for()  # judged, and now to be timed
    page.locator("#runs [data-open]").first.click()
    expect(size(page, "n")).to_have_value("5000")
    timed.set()
    page.locator("#run").wait_for()
    page.wait_for_timeout(1500)  # in which the other one would be drawn
    expect(page.locator("#runs [data-open]")).to_have_count(1)
    expect(page.locator("#here")).to_be_visible()
    expect(page.locator("#answer")).not_to_have_attribute("data-stale", STALE)


def test_ticks_stay_with_their_runs(page, base):
    visit(page, base, SMALL + "&edge=One+element")
    for runs in (1, 2):
        page.click("#run")
        expect(page.locator("#runs [data-open]")).to_have_count(runs)
    page.locator("#run").wait_for()
    page.check("[data-pick='1']")
    page.check("[data-pick='2']")
    expect(page.locator("#runs th", has_text="against")).to_have_count(0)  # an edge case has no time
    page.click("#run")
    expect(page.locator("#runs [data-open]")).to_have_count(3)
    boxes = {b.get_attribute("data-pick"): b.is_checked() for b in page.locator("#runs [data-pick]").all()}
    assert boxes == {"3": False, "2": True, "1": True}


def test_a_question_that_is_cleared_at_once_leaves_the_page_as_it_was(chrome, base):
    # Not the fixture's page: Gradio's client complains of what it cancels before that has a number.
    page = chrome.new_context().new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{base}/?tab=Chat")
    expect(page.locator("#chat-ready")).to_contain_text("Ready")
    slow(page)
    ask(page, "t5 t6")
    page.click("#chat-clear")
    expect(page.locator("#chat-talk .user.message")).to_have_count(0)
    page.wait_for_timeout(1500)
    expect(page.locator("#chat-live")).to_contain_text("Send a message")
    expect(page.locator("#chat-steps")).to_contain_text("After an answer")
    page.context.close()
