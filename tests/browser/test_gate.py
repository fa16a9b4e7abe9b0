"""What a visitor does while an answer is on its way: each answer is held at a gate here, and let go by the test."""

import re

from playwright.sync_api import expect

from tests.browser.test_chat import QUESTIONS, ask

BOX = "#chat-box textarea"


class Gate:
    """Holds the answers to what the page asks at once. The server has done its part by the time one stands here."""

    def __init__(self, page):
        self.page, self.held, self.shut = page, [], True
        page.route("**/gradio_api/run/**", self._hold)

    def _hold(self, route):
        if not self.shut:
            return route.continue_()
        self.held.append((route, route.fetch()))

    def wait(self, many):
        """Until so many answers stand here."""
        while len(self.held) < many:
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
