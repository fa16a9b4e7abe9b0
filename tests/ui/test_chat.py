"""The chat's own parts without a worker: what an answer draws, what its panel says, what is refused and how."""

import dataclasses
import json
import threading
from types import SimpleNamespace

import pytest

from kernels import InputError
from playground.decoder.looks import AttentionResult, ProfileResult
from playground.decoder.messages import (
    Alternative,
    ChatResult,
    ChatStats,
    ChatToken,
    ConversationStats,
    KvStats,
    PageMap,
)
from playground.engine.messages import EngineError, Failure, Progress, Source
from playground.ui.api import chat as api_chat
from playground.ui.tabs.chat import charts, panel
from playground.ui.tabs.chat import talk as chat_talk
from playground.ui.tabs.chat.talk import Wishes

HERE = Source(kind="measured", device="a CPU", date="2026-01-02T03:04:05", versions={"torch": "2.13.0"})
QUESTION = [{"role": "user", "content": "Hello"}]
PER_TOKEN = 2 * 30 * 3 * 64 * 4  # SmolLM2-135M in float32


def kv(tokens=20):
    return KvStats(
        layers=30, kv_heads=3, head_dim=64, element_bytes=4, tokens=tokens, bytes_used=PER_TOKEN * tokens,
        bytes_reserved=PER_TOKEN * 16 * 8, mha_bytes=3 * PER_TOKEN * tokens, page_size=16, pages=8, pages_used=3,
        pages_cached=1, pages_free=4, pages_shared=1,
    )  # fmt: skip


def stats(owner="me", tokens=20, answer=5):
    mine = ConversationStats(
        owner=owner, state="decode", tokens=tokens, answer=answer, reused=0, prefilled=15, pages=2,
        tokens_per_second=31.25, first_token_ms=412.0,
    )  # fmt: skip
    return ChatStats(
        tokens=5, tokens_per_second=30.0, batch=1, waiting=0, decode_ms=32.0, prefill_ms=200.0, prefill_tokens=15,
        bytes_per_step=538_000_000, weight_bytes=537_000_000, kv=kv(tokens),
        map=PageMap(states="uuucffff", partly={1: 4}, names=("me", "you"), holds=((0, 1), (0, 2))),
        conversations=(mine,), table={"linear": "triton"},
    )  # fmt: skip


def result(text="Hi there", finish="stop"):
    return ChatResult(
        text=text, ids=(1, 2), prompt_tokens=15, reused_tokens=0, tokens_per_second=31.25, first_token_ms=412.0,
        seconds=1.0, finish=finish, kv_cache=kv(), backend="triton", model="m", seed=0, source=HERE,
    )  # fmt: skip


class Script:
    """Stands for Chats: gives these events, and raises the one that is an exception."""

    def __init__(self, *events):
        self.events, self.asked = events, []

    def stream(self, request, cancel=None):
        self.asked.append(request)
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            yield event

    def attention(self, owner, backend="auto", request=None, cache_dtype="auto"):
        self.asked.append(request)
        return AttentionResult(owner=owner, tokens=20, pages=(0, 1), mass=(((0.25, 0.75), (0.75, 0.25)),),
                               layers=(0,), heads=(0, 1), mean=(0.5, 0.5))  # fmt: skip


def drawn(*events, wishes=None, talk=QUESTION):
    return list(chat_talk.answer(Script(*events), talk, wishes or Wishes(), "me", threading.Event()))


def test_an_answer_grows_and_ends_with_its_figures():
    last = drawn(Progress(what="starting"), ChatToken(id=1, text="Hi"), stats(), result())[-1]
    assert last.talk == [*QUESTION, {"role": "assistant", "content": "Hi there"}] and not last.busy
    assert "2 tokens at 31.2 tok/s" in last.note and "measured" in last.note
    assert last.seen.mine.answer == 5


@pytest.mark.parametrize("kind", ["crashed", "unavailable", "timeout"])
def test_an_error_keeps_what_was_said(kind):
    error = EngineError(Failure(kind=kind, message="the chat worker <crashed>; set PLAYGROUND_CACHE"))
    last = drawn(ChatToken(id=1, text="Hi"), error)[-1]
    assert last.talk == [*QUESTION, {"role": "assistant", "content": "Hi"}]
    assert "The chat worker &lt;crashed&gt;" in last.note and "Set PLAYGROUND_CACHE." in last.note


def test_stopped_before_the_first_token_is_no_failure():
    last = drawn(EngineError(Failure(kind="cancelled", message="stopped")))[-1]
    assert last.talk == QUESTION and "Stopped" in last.note and "failed" not in last.note


def test_a_request_carries_the_wishes():
    asked = chat_talk.request_of(
        QUESTION, Wishes(backend="PyTorch", system=" Be brief. ", temperature=0.5, seed=3, slide=True), "me"
    )
    assert [(m.role, m.content) for m in asked.messages] == [("system", "Be brief."), ("user", "Hello")]
    assert (asked.backend, asked.temperature, asked.seed, asked.full) == ("torch", 0.5, 3, "slide")


@pytest.mark.parametrize(("backend", "side"), [("Triton", "torch"), ("PyTorch", "triton"), ("Interpreter", "torch")])
def test_a_swap_is_kept_where_it_is_wished_for(backend, side):
    wishes = Wishes(backend=backend, swapped=["norm", "rope"], swaps=True, cache_dtype="int8", tokens=True)
    asked = chat_talk.request_of(QUESTION, wishes, "me")
    assert asked.table == {"norm": side, "rope": side} and asked.cache_dtype == "int8" and asked.alternatives
    assert chat_talk.request_of(QUESTION, dataclasses.replace(wishes, swaps=False), "me").table == {}


@pytest.mark.parametrize(
    ("wishes", "said"), [(Wishes(max_tokens=0), "max_tokens is 0"), (Wishes(seed=-1), "seed is -1"),
                         (Wishes(top_k=1.5), "top-k must be whole")],
)  # fmt: skip
def test_a_wish_that_cannot_be_is_named(wishes, said):
    with pytest.raises(InputError, match=said):
        chat_talk.request_of(QUESTION, wishes, "me")
    assert said.replace("top", "Top", 1)[1:] in drawn(result(), wishes=wishes)[-1].note


def test_retry_asks_the_last_question_again():
    talk = [*QUESTION, {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}]
    assert chat_talk.until_question(chat_talk.plain(talk)) == QUESTION
    assert chat_talk.until_question([]) == []


def test_the_panel_counts_what_the_cache_holds():
    seen = panel.Seen("me")
    seen.take(stats())
    html = panel.live(seen)
    assert PER_TOKEN * 20 == 921_600 and "<b>922 KB</b>" in html
    assert "2 × 30 layers × 3 KV heads × 64 × 4 B × 20 tokens" in html
    assert "each of the 9 query heads" in html
    assert "16.8 GB/s" in html  # 538 MB in 32 ms


@pytest.mark.parametrize("others", [True, False])
def test_an_answer_that_ended_between_two_reports_has_its_figures(others):
    """At 2,000 tokens a second a short answer is never reported on its way."""
    events = [stats(owner="you")] if others else []
    html = panel.live(drawn(*events, result())[-1].seen)
    assert "31.2" in html and "412" in html and "× 20 tokens" in html and "2</b> tokens" in html
    assert ("16.8 GB/s" in html) == others and ('class="pages"' in html) == others


def test_the_page_map_tells_mine_shared_others_and_kept():
    seen = panel.Seen("me", mass={0: 0.25, 1: 0.75})
    seen.take(stats())
    html = panel.live(seen)
    assert [html.count(f'class="pg {kind}" title') for kind in panel.KINDS] == [1, 1, 1, 1, 4]
    assert "page 1: this chat, 4 of 16 slots, 75% of attention" in html
    assert "you" not in html.replace('"pg you"', "")  # the other's name stays its own


def test_attention_is_watched_while_it_talks(monkeypatch):
    """The first look comes after a while; the panel then shows each page's share."""
    monkeypatch.setattr(chat_talk, "LOOK_SECONDS", 0.0)
    last = drawn(ChatToken(id=1, text="Hi"), stats(), result(), wishes=Wishes(attention=True))[-1]
    assert last.seen.mass == {0: 0.5, 1: 0.5}
    assert "50% of attention" in panel.live(last.seen)


@pytest.mark.parametrize(
    ("state", "said"),
    [("waiting", "Waiting for a place: 64 conversations being answered, 2 before yours"),
     ("prefill", 'value="5" max="15"')],
)  # fmt: skip
def test_who_waits_sees_what_for(state, said):
    mine = stats().conversations[0].model_copy(update={"state": state, "prefilled": 5, "tokens": 15})
    others = tuple(mine.model_copy(update={"owner": f"other {i}", "state": "waiting"}) for i in range(2))
    queue = stats().model_copy(update={"conversations": (*others, mine), "batch": 64})
    drawings = drawn(queue, ChatToken(id=1, text="Hi"), result())
    assert said in drawings[1].note and "owner" not in drawings[1].note


def test_tokens_come_with_their_probabilities_where_they_are_wished_for():
    other = Alternative(id=7, text="Yo\n", probability=0.25)
    token = ChatToken(id=1, text="Hi", piece=" Hi", probability=0.123456, drawn=1.0, alternatives=(other,))
    end = ChatToken(id=2, text="", probability=0.5)
    last = drawn(token, end, result(), wishes=Wishes(tokens=True))[-1]
    assert [json.loads(line) for line in last.tokens.split("\n")] == [
        [" Hi", 0.1235, 1.0, [["Yo⏎", 0.25]]], ["end", 0.5, None, []]
    ]  # fmt: skip
    assert drawn(token, result())[-1].tokens == ""


def test_an_answer_that_has_ended_can_be_looked_into():
    last = drawn(ChatToken(id=1, text="Hi"), result())[-1].ended
    assert (last.ids, last.prompt_tokens, last.page_size, last.request.messages[0].content) == ((1, 2), 15, 16, "Hello")
    assert drawn(EngineError(Failure(kind="crashed", message="gone")))[-1].ended is None


def test_what_the_decoder_notes_is_told():
    noted = result(finish="length").model_copy(update={"notes": ("the interpreter stops at 32 tokens",)})
    note = drawn(noted)[-1].note
    assert "The interpreter stops at 32 tokens." in note and "raise it" not in note


def test_shares_are_of_their_sum():
    html = panel.shares(ProfileResult(batch=1, kernels={"linear": 0.03, "<b>": 0.01}, step_seconds=0.035, source=HERE))
    assert "75 %" in html and "25 %" in html and "&lt;b&gt;" in html and "35.0 ms" in html


def test_the_endpoint_answers_with_plain_data_or_one_line():
    context = SimpleNamespace(chats=Script(stats(), result()))

    def guarded(answer):
        try:
            return answer()
        except InputError as error:
            return {"error": str(error)}

    (chat,) = api_chat.endpoints(context, guarded)
    assert chat("Hello")["text"] == "Hi there"
    assert "history" in chat("Hello", history=[{"role": "nobody", "content": "x"}])["error"]
    assert "top_p" in chat("Hello", top_p=0)["error"]


def test_charts_keep_the_latest_answer_of_each_kind():
    came = [0.0, 0.5, 1.0, 2.0, 4.0, 4.1]
    steps = charts.kept({}, "Triton", True, 10, [9.0, 9.1])
    assert steps == {} and charts.per_token(steps) is None  # two tokens make no line
    for cached in (True, False, False):
        steps = charts.kept(steps, "Triton", cached, 10, came)
    assert list(steps) == ["Triton, with the cache", "Triton, without the cache"]
    assert charts.heading(steps) == "Triton, with the cache: 500 ms a token; Triton, without the cache: 500 ms a token"
    each, total = charts.per_token(steps).data, charts.in_all(steps).data
    assert list(each[0].x) == [11, 12, 13, 14, 15]
    assert list(each[0].y) == pytest.approx([500, 500, 1000, 2000, 100])
    assert list(total[1].y) == pytest.approx([0.5, 1.0, 2.0, 4.0, 4.1])
    assert [line.line.dash for line in each] == ["solid", "dash"]


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=alert(1)>", "![a](http://elsewhere/a.png)", "a </b> <!-- c -->", "1 < 2, [a](b)!"]
)
def test_what_is_said_is_shown_as_text_and_asked_as_it_was(text):
    talk = [{"role": "user", "content": text}]
    html = chat_talk.shown(talk)[0]["content"]
    assert "![" not in html and not any(f"<{c}" in html for c in "ib/!")
    assert chat_talk.plain(chat_talk.shown(talk)) == talk
