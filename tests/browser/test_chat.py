"""Chat as a person uses it, in Chromium: a tiny model on the native kernels answers in words such as t57."""

import re

from playwright.sync_api import expect

ANSWERS, QUESTIONS = "#chat-talk .bot.message", "#chat-talk .user.message"


def ask(page, words):
    page.fill("#chat-box textarea", words)
    page.press("#chat-box textarea", "Enter")


def ended(page):
    expect(page.locator("#chat-note")).to_contain_text(re.compile("prompt had"), timeout=180_000)


def most(page, tokens):
    page.click("#chat-settings button")
    page.locator("#chat-settings label:has-text('max tokens') input").fill(str(tokens))
    page.keyboard.press("Tab")
    page.click("#chat-settings button")


def test_a_conversation(page, base):
    """Streams, shows its cache, goes on with what was said, asks again, switches to PyTorch, and is cleared."""
    page.goto(f"{base}/?tab=Chat")
    expect(page.locator("#bench")).to_be_hidden()
    expect(page.locator("#chat-talk")).to_contain_text("answers here")
    most(page, 12)
    ask(page, "t5 t6 t7")
    ended(page)
    expect(page.locator("#chat-box textarea")).to_have_value("")
    first = page.locator(ANSWERS).inner_text()
    assert re.match(r"t\d+( t\d+)*$", first.strip()), first
    live = page.locator("#chat-live")
    expect(live).to_contain_text(re.compile(r"2 × 2 layers × 2 KV heads × 16 × 4 B × \d+ tokens"))
    assert page.locator("#chat-live .pages .pg.you").count() >= 1
    expect(page.locator("#live .badge.measured").first).to_be_visible()

    ask(page, "t8 <b>bold</b> <img src=x onerror=alert(1)> ![a](/no.png)")
    expect(page.locator(ANSWERS)).to_have_count(2, timeout=180_000)
    ended(page)
    assert page.locator("#chat-talk .message img").count() == 0

    page.locator("#chat-backend label", has_text="PyTorch").click()
    page.click("#chat-clear")
    expect(page.locator(ANSWERS)).to_have_count(0)
    ask(page, "t5 t6 t7")
    ended(page)
    expect(page.locator("#chat-note")).to_contain_text("on PyTorch", timeout=180_000)
    assert page.locator(ANSWERS).inner_text() == first  # float32: the same text from both
    page.click("#chat-retry")
    expect(page.locator(ANSWERS)).to_have_count(1, timeout=180_000)
    ended(page)
    assert page.locator(ANSWERS).inner_text() == first
    expect(page.locator("#chat-each .main-svg").first).to_be_visible()
    assert page.locator("#chat-each .scatterlayer .trace").count() == 2  # one line for each backend


def test_a_wish_that_cannot_be_is_one_line_and_the_talk_stays(page, base):
    page.goto(f"{base}/?tab=Chat")
    most(page, 0)
    ask(page, "t5 t6")
    expect(page.locator("#chat-note .verdict.failed")).to_contain_text("max_tokens is 0")
    expect(page.locator(QUESTIONS)).to_have_count(1)
