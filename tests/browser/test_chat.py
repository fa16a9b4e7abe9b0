"""Chat as a person uses it, in Chromium: a tiny model on the native kernels answers in words such as t57."""

import os
import re
from signal import SIGKILL

import pytest
from playwright.sync_api import expect

from playground.decoder.client import Chats
from playground.decoder.messages import INTERPRETER_TOKENS, ChatToken
from playground.engine.messages import EngineError, Failure
from tests.browser.test_look import CUT, WIDE, WIDTHS, none, violations

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
    expect(page.locator(ANSWERS)).to_have_text(first, timeout=180_000)
    ended(page)
    expect(page.locator("#chat-each .main-svg").first).to_be_visible()
    assert page.locator("#chat-each .scatterlayer .trace").count() == 2  # one line for each backend


def test_a_wish_that_cannot_be_is_one_line_and_the_talk_stays(page, base):
    page.goto(f"{base}/?tab=Chat")
    most(page, 0)
    ask(page, "t5 t6")
    expect(page.locator("#chat-note .verdict.failed")).to_contain_text("max_tokens is 0")
    expect(page.locator(QUESTIONS)).to_have_count(1)


# What people do to a page while it answers


def opened(page, base, tokens):
    page.goto(f"{base}/?tab=Chat")
    expect(page.locator("#chat-ready .sub")).to_contain_text("Ready", timeout=180_000)
    most(page, tokens)


@pytest.fixture
def endless(monkeypatch):
    """Answers that go on until they are ended; the questions of those that were, in that order."""
    ended: list[str] = []

    def stream(chats, request, cancel):
        try:
            while not cancel.wait(0.05):
                yield ChatToken(id=7, text="t7 ")
            raise EngineError(Failure(kind="cancelled", message="stopped"))
        finally:
            ended.append(request.messages[-1].content)

    monkeypatch.setattr(Chats, "stream", stream)
    return ended


@pytest.fixture
def thinking(monkeypatch):
    """Answers of one word, after which nothing comes until they are ended, as while a long prompt is read."""
    ended: list[str] = []

    def stream(chats, request, cancel):
        yield ChatToken(id=7, text="t7 ")
        cancel.wait(60)
        ended.append(request.messages[-1].content)
        raise EngineError(Failure(kind="cancelled", message="stopped"))

    monkeypatch.setattr(Chats, "stream", stream)
    return ended


def have_ended(page, endless, questions):
    """Within 30 s those answers have ended, and no other."""
    for _ in range(600):
        if endless == questions:
            return
        page.wait_for_timeout(50)
    assert endless == questions


def begun(page, answers=1):
    """Words of the answer are there, not its empty place alone: before, there is no stream to end."""
    expect(page.locator(ANSWERS)).to_have_count(answers, timeout=180_000)
    expect(page.locator(ANSWERS).last).to_contain_text(re.compile(r"t\d"), timeout=180_000)


def test_the_model_is_loaded_when_the_tab_is_opened(page, base):
    """And its block is drawn, with links that work."""
    page.goto(base)
    page.get_by_role("tab", name="Chat").click()
    expect(page.locator("#chat-ready .sub")).to_contain_text("a context of 256 tokens", timeout=180_000)
    box = page.locator("#chat-block .block-wide a", has_text="Gate, up")
    expect(box).to_contain_text("64 → 192")
    with page.context.expect_page() as made:
        box.click()
    other = made.value
    expect(other.locator("#bench .dim input").nth(1)).to_have_value("192", timeout=60_000)
    assert "kernel=linear" in other.url
    other.close()


def test_two_clicks_on_send_ask_once_and_a_question_in_mid_answer_takes_over(page, base, endless):
    opened(page, base, 9)
    page.fill("#chat-box textarea", "t5")
    page.dblclick("#chat-send")
    begun(page)
    ask(page, "t6")
    begun(page, 2)
    expect(page.locator(QUESTIONS)).to_have_text(["t5", "t6"])
    have_ended(page, endless, ["t5"])
    page.click("#chat-stop")
    expect(page.locator("#chat-note")).to_have_text("Stopped.")
    assert endless == ["t5", "t6"]


def test_a_chat_cleared_in_mid_answer_stays_empty(page, base, endless):
    opened(page, base, 9)
    ask(page, "t5")
    begun(page)
    page.click("#chat-clear")
    expect(page.locator(QUESTIONS)).to_have_count(0)
    have_ended(page, endless, ["t5"])
    page.wait_for_timeout(300)
    assert page.locator(QUESTIONS).count() == 0 and "appear here" in page.inner_text("#chat-live")


@pytest.mark.parametrize("leave", ["close", "reload", "go elsewhere"])
def test_who_leaves_in_mid_answer_has_it_ended(page, base, leave, thinking):
    """Which frees its pages at the decoder's next step, though no word comes that could not be sent any more."""
    gone = page.context.new_page() if leave == "close" else page
    opened(gone, base, 9)
    ask(gone, "t5")
    begun(gone)
    if leave == "close":
        gone.close()
        page.goto(base)
    elif leave == "reload":
        page.reload()
    else:
        page.goto(f"{base}/v1/models")
    have_ended(page, thinking, ["t5"])
    if leave == "go elsewhere":
        page.go_back()
    if leave != "close":  # what comes is a new visit
        expect(page.locator("#chat-ready .sub")).to_contain_text("Ready")
        assert page.locator(QUESTIONS).count() == 0


@pytest.fixture
def mortal(monkeypatch):
    """The chat worker is killed at the first word of the next answer: later, it may be over before a signal comes."""
    stream, lives = Chats.stream, [SIGKILL]

    def watched(chats, request, cancel):
        for event in stream(chats, request, cancel):
            yield event
            if isinstance(event, ChatToken) and lives:
                os.kill(chats._lanes["triton", "auto"]._worker.pid, lives.pop())

    monkeypatch.setattr(Chats, "stream", watched)


def test_a_chat_worker_that_is_killed_ends_the_answer_and_the_next_one_works(page, base, mortal):
    opened(page, base, 700)
    page.click("#chat-settings button")
    for wish in ("Keep the KV cache", "Let old turns slide out"):  # slowly, and for long
        page.locator("#chat-settings label", has_text=wish).click()
    page.click("#chat-settings button")
    ask(page, "t70")
    begun(page)
    expect(page.locator("#chat-note .verdict.failed")).to_contain_text("The chat worker crashed")
    assert page.locator(QUESTIONS).count() == 1
    most(page, 3)
    ask(page, "t5")
    ended(page)
    expect(page.locator(ANSWERS)).to_have_count(2)


# Looking inside


def test_inside_the_decoder_by_keyboard_and_in_both_modes(page, base):
    """Tokens, times, attention, a swap: each is there, nothing serious for axe, nothing too wide."""
    opened(page, base, 24)
    page.locator("#chat-tokens-on label").click()
    ask(page, "t5 t6 t7")
    ended(page)
    chips = page.locator("#chat-tokens .tokens button")
    expect(chips).to_have_count(24)
    chips.first.focus()
    page.keyboard.press("ArrowRight")
    expect(chips.nth(1)).to_be_focused()
    expect(page.locator(".token-read")).to_contain_text(re.compile(r"Token 2, t\d+: the model gave it \d"))
    expect(page.locator(".token-read li")).to_have_count(5)

    page.click("#chat-profile")
    expect(page.locator("#chat-shares .share")).to_be_visible()
    expect(page.locator("#chat-block .block-wide .part").first).to_contain_text("%")
    page.click("#chat-look")
    expect(page.locator("#chat-attention .attn b")).to_have_text(["0", "1"])
    page.locator("#chat-layer input").click()
    page.get_by_role("option", name="layer 1").click()
    expect(page.locator("#chat-attention")).to_contain_text("head of layer 1")

    page.locator("#chat-groups label", has_text="RMSNorm").click()
    page.click("#chat-compare")
    expect(page.locator("#chat-changed")).to_contain_text("token for token")
    page.locator("#chat-keep label").click()
    page.click("#chat-retry")
    expect(page.locator("#chat-note")).to_contain_text("a mix of Triton and PyTorch kernels")

    expect(page.locator("#chat-difference .main-svg").first).to_be_visible()
    ended(page)
    none(page, lambda: violations(page))
    page.click("[data-do=mode]")
    page.wait_for_function("document.body.classList.contains('dark')")
    none(page, lambda: violations(page))
    for width, height in WIDTHS:
        page.set_viewport_size({"width": width, "height": height})
        none(page, lambda: page.evaluate(WIDE))
        none(page, lambda: page.evaluate(CUT))


def test_the_interpreter_answers_a_little_and_says_so(page, base):
    opened(page, base, 2)
    page.locator("#chat-backend label", has_text="Interpreter").click()
    expect(page.locator(".chatpanel")).to_contain_text(f"{INTERPRETER_TOKENS} tokens at most")
    ask(page, "t5")
    expect(page.locator("#chat-note")).to_contain_text("in the interpreter", timeout=180_000)
    expect(page.locator("#chat-note .badge.interpreted")).to_be_visible()
