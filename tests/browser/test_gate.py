"""What a visitor does while an answer is on its way: each answer is held at a gate here, and let go by the test."""

import re
import threading
import time

from playwright.sync_api import expect

from tests.browser.test_chat import QUESTIONS, ask
from tests.browser.test_run import RIGHT, SMALL, size, visit
from tests.browser.test_slow import STALE, choose

BOX = "#chat-box textarea"


class Gate:
    """Holds the answers to what the page asks at once. The server has done its part by the time one stands here."""

    def __init__(self, page):
        self.page, self.held, self.shut = page, [], True
        page.route("**/gradio_api/run/**", self._hold)

    def _hold(self, route):
        if not self.shut:
            return route.continue_()
        answer = route.fetch()
        if not self.shut:  # opened in the meantime
            return route.fulfill(response=answer)
        self.held.append((route, answer))

    def wait(self, many):
        """Until so many answers stand here."""
        until = time.monotonic() + 60
        while len(self.held) < many:
            assert time.monotonic() < until, f"{len(self.held)} answers of {many}"
            self.page.wait_for_timeout(10)

    def open(self):
        """Lets go what is held, in its order, and holds no more."""
        self.shut = False
        for route, answer in self.held:
            route.fulfill(response=answer)


def test_what_is_typed_while_a_question_is_on_its_way_stays(page, base):
    page.goto(f"{base}/?tab=Chat")
    expect(page.locator("#chat-ready")).to_contain_text("Ready")
    gate = Gate(page)
    ask(page, "t5 t6")
    gate.wait(1)
    page.fill(BOX, "t7")
    gate.open()
    expect(page.locator(QUESTIONS)).to_have_text(["t5 t6"])
    expect(page.locator(BOX)).to_have_value("t7")
    expect(page.locator("#chat-note")).to_contain_text(re.compile("prompt had"))
    expect(page.locator(BOX)).to_have_value("t7")


def test_a_second_question_waits_in_the_box_while_the_first_is_on_its_way(page, base):
    page.goto(f"{base}/?tab=Chat")
    expect(page.locator("#chat-ready")).to_contain_text("Ready")
    gate = Gate(page)
    ask(page, "t5 t6")
    gate.wait(1)
    ask(page, "t7")
    page.click("#chat-send")
    gate.open()
    expect(page.locator(QUESTIONS)).to_have_text(["t5 t6"])
    expect(page.locator("#chat-note")).to_contain_text(re.compile("prompt had"))
    expect(page.locator(BOX)).to_have_value("t7")
    page.click("#chat-send")
    expect(page.locator(QUESTIONS)).to_have_text(["t5 t6", "t7"])
    expect(page.locator(BOX)).to_have_value("")


def test_a_question_that_was_refused_stands_in_the_box_again(chrome, base):
    page = chrome.new_context().new_page()  # not the fixture's: the browser complains of the refusal
    page.set_default_timeout(60_000)
    page.goto(f"{base}/?tab=Chat")
    expect(page.locator("#chat-ready")).to_contain_text("Ready")
    page.route("**/gradio_api/run/**", lambda route: route.fulfill(status=500, json={"error": "busy"}))
    ask(page, "t5 t6")
    expect(page.locator(BOX)).to_have_value("t5 t6")
    page.unroute("**/gradio_api/run/**")
    page.click("#chat-send")
    expect(page.locator(QUESTIONS)).to_have_text(["t5 t6"])
    expect(page.locator(BOX)).to_have_value("")
    page.context.close()


def test_a_press_waits_for_what_a_choice_brings_and_runs_that(page, base):
    visit(page, base, "kernel=rms_norm&rows=4&n=1000&dtype=float32")
    gate = Gate(page)
    choose(page, "Softmax")
    gate.wait(1)
    page.click("#run")
    gate.open()
    page.wait_for_selector(RIGHT)
    expect(page.locator("#runs tbody tr")).to_contain_text("softmaxrows=64, n=3000")
    expect(page.locator("#answer")).not_to_have_attribute("data-stale", STALE)


def test_what_a_choice_brings_cannot_be_chosen_until_it_is_there(page, base):
    visit(page, base, "kernel=softmax&rows=4&n=1000&dtype=float32")
    dtype = page.locator(".f-dtype")
    gate = Gate(page)
    page.get_by_text("decode", exact=True).click()
    expect(dtype).to_have_css("pointer-events", "none")
    gate.wait(1)
    gate.open()
    expect(size(page, "n")).to_have_value("128256")
    dtype.locator("input").click()
    page.get_by_role("option", name="float16", exact=True).click()
    expect(dtype.locator("input")).to_have_value("float16")


def test_a_choice_whose_answer_is_lost_holds_a_press_for_seconds_only(page, base):
    visit(page, base, SMALL)
    page.clock.install()
    gate = Gate(page)
    page.get_by_text("decode", exact=True).click()
    gate.wait(1)
    page.click("#run")
    page.clock.run_for(9_000)
    expect(page.locator("body")).to_have_attribute("data-filling", "")
    page.clock.run_for(2_000)
    expect(page.locator("body")).not_to_have_attribute("data-filling", "")
    page.clock.resume()
    page.wait_for_selector(RIGHT)
    gate.open()


def test_a_choice_that_is_refused_leaves_the_bench_to_be_used(chrome, base):
    page = chrome.new_context().new_page()  # not the fixture's: the browser complains of the refusal
    page.set_default_timeout(60_000)
    visit(page, base, SMALL)
    page.route("**/gradio_api/run/**", lambda route: route.fulfill(status=500, json={"error": "busy"}))
    with page.expect_response("**/gradio_api/run/**"):
        page.get_by_text("decode", exact=True).click()
    expect(page.locator(".f-dtype")).not_to_have_css("pointer-events", "none")
    page.unroute("**/gradio_api/run/**")
    page.click("#run")
    page.wait_for_selector(RIGHT)
    page.context.close()


def test_a_question_after_clear_begins_a_new_talk(page, base):
    page.goto(f"{base}/?tab=Chat")
    expect(page.locator("#chat-ready")).to_contain_text("Ready")
    ask(page, "t5")
    expect(page.locator("#chat-note")).to_contain_text("prompt had")
    gate = Gate(page)
    page.click("#chat-clear")
    gate.wait(1)
    ask(page, "t7")  # the old talk still stands there
    gate.wait(2)
    gate.open()
    expect(page.locator(QUESTIONS)).to_have_text(["t7"])
    expect(page.locator("#chat-note")).to_contain_text("prompt had")
    expect(page.locator(QUESTIONS)).to_have_text(["t7"])


def test_ticks_that_are_set_while_a_run_works_stay(page, base, engine, monkeypatch):
    visit(page, base, SMALL + "&edge=One+element")
    page.click("#run")
    expect(page.locator("#runs [data-open]")).to_have_count(1)
    page.locator("#run").wait_for()
    gone, stream = threading.Event(), engine.stream

    def waits(request, cancel):
        gone.wait(60)
        yield from stream(request, cancel)

    monkeypatch.setattr(engine, "stream", waits)
    page.click("#run")
    page.locator("#answer .verdict.busy").wait_for()
    with page.expect_response("**/gradio_api/run/**"):
        page.check("[data-pick='1']")
    gone.set()
    expect(page.locator("#runs [data-open]")).to_have_count(2)
    page.locator("#run").wait_for()
    boxes = {b.get_attribute("data-pick"): b.is_checked() for b in page.locator("#runs [data-pick]").all()}
    assert boxes == {"2": False, "1": True}


def test_compare_that_is_pressed_before_a_compilation_begins_compares(page, base, engine, monkeypatch):
    page.goto(f"{base}/?{SMALL}&tab=Code")
    page.wait_for_selector(".codeview .stage .ln")
    page.locator("#compare-kernel input").click()
    page.get_by_role("option", name="bug: ").first.click()
    compiled, stream = threading.Event(), engine.stream

    def waits(request, cancel):
        if request.bug:
            compiled.wait(60)
        yield from stream(request, cancel)

    monkeypatch.setattr(engine, "stream", waits)
    gate = Gate(page)
    page.get_by_label("target").first.click()
    page.get_by_role("option", name="sm_80").click()
    gate.wait(1)
    page.click("#compare")
    expect(page.locator("#compared")).to_contain_text("Compiling both")
    gate.open()
    expect(page.locator("#code-form")).to_contain_text("sm_80, float32")
    compiled.set()
    expect(page.locator("#compared table").first).to_be_visible()


def test_a_list_that_is_left_as_it_was_changes_nothing(page, base):
    visit(page, base, "kernel=softmax&rows=4&n=1000&dtype=float32")
    for label in ("kernel", "case"):
        page.get_by_label(label, exact=True).focus()
        with page.expect_response("**/gradio_api/run/**"):
            page.keyboard.press("Tab")  # which Gradio takes for a choice
        expect(page.locator("body")).not_to_have_attribute("data-filling", "")
        expect(size(page, "n")).to_have_value("1000")
        assert "rows=4&n=1000" in page.url
