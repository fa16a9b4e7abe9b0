"""The chat worker as its parent sees it: a real process, many conversations, pauses, cancels, bad requests."""

import os
import subprocess
import sys
import time

import pytest

from playground.decoder.looks import AttentionRequest, ProfileRequest, ReplayRequest
from playground.decoder.messages import ChatMessage, ChatRequest, SwapRequest
from playground.decoder.protocol import Answered, Ask, Pause, Paused, Refused, Resume, Stats, Token, from_chat
from playground.engine.protocol import Cancel, Ready, Sender, receive
from playground.settings import ROOT
from tests.decoder import tiny


class Worker:
    def __init__(self, *arguments):
        child_read, to_child = os.pipe()
        from_child, child_write = os.pipe()
        command = [sys.executable, "-m", "playground.decoder.worker", "--device", "cpu", *arguments]
        command += ["--pipes", str(child_read), str(child_write), "--parent", str(os.getpid())]
        self.process = subprocess.Popen(
            command, pass_fds=(child_read, child_write), cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL
        )
        os.close(child_read)
        os.close(child_write)
        self._sender = Sender(to_child)
        self._events = receive(from_child, from_chat)
        self._ids = 0

    def ask(self, request):
        self._ids += 1
        self._sender.send(Ask(id=self._ids, request=request))
        return self._ids

    def send(self, message):
        self._sender.send(message)

    def until(self, wanted):
        """Every event up to the first for which `wanted` is true."""
        seen = []
        for event in self._events:
            seen.append(event)
            if wanted(event):
                return seen
        raise AssertionError(f"the worker ended after {seen[-3:]}")

    def end_of(self, id):
        return self.until(lambda e: isinstance(e, Answered | Refused) and e.id == id)

    def close(self):
        self._sender.close()


@pytest.fixture(scope="module")
def worker():
    worker = Worker("--backend", "torch", "--model", str(tiny.folder()))
    worker.until(lambda e: isinstance(e, Ready))
    yield worker
    worker.close()
    assert worker.process.wait(10) != 0  # it ends with its parent's end of the pipe


def question(words, **options):
    return ChatRequest(messages=(ChatMessage(role="user", content=words),), **options)


def ids_of(words):
    """As the plain template of a model without one reads it: "user: ..." and "assistant:" are unknown words."""
    return [1, *(int(word[1:]) for word in words.split()), 1]


def long_answer(**options):
    """A question answered in 706 tokens, for seconds: what is asked in between comes before its end on a busy host."""
    return question("t3 t2 t50", max_tokens=1000, seed=42, temperature=1.0, full="slide", **options)


def test_two_conversations_at_once_stream_their_own_tokens(worker):
    asked = {}
    worker.send(Pause())  # so that it begins with both
    for words in ("t5 t6 t7", "t40 t41"):
        asked[worker.ask(question(words, max_tokens=12, owner=words))] = words
    worker.send(Resume())
    seen, ends = [], {}
    while len(ends) < 2:
        seen += worker.until(lambda e: isinstance(e, Answered))
        ends[seen[-1].id] = seen[-1].result
    for id, words in asked.items():
        expected = tiny.expected_answer(ids_of(words), 12, eos=True)
        assert list(ends[id].ids) == expected == [e.token.id for e in seen if isinstance(e, Token) and e.id == id]
        assert ends[id].text == "".join(e.token.text for e in seen if isinstance(e, Token) and e.id == id)
        assert ends[id].prompt_tokens == len(ids_of(words)) and ends[id].first_token_ms > 0
    order = [e.id for e in seen if isinstance(e, Token)]
    assert order != sorted(order), "one waited for the other"


def test_a_cancel_ends_an_answer_and_frees_its_pages(worker):
    id = worker.ask(long_answer())
    worker.until(lambda e: isinstance(e, Token) and e.id == id)
    worker.send(Cancel(id=id))
    result = worker.end_of(id)[-1].result
    assert result.finish == "cancelled" and 0 < len(result.ids) < 706
    rest = worker.until(lambda e: isinstance(e, Stats) and not e.stats.conversations)[-1].stats
    assert rest.kv.pages_used == 0 and "u" not in rest.map.states


def test_a_pause_holds_between_two_steps(worker):
    id = worker.ask(long_answer())
    worker.until(lambda e: isinstance(e, Token) and e.id == id)
    worker.send(Pause())
    worker.until(lambda e: isinstance(e, Paused))
    paused_at = time.monotonic()
    worker.send(Pause())  # asked again, it answers again
    between = worker.until(lambda e: isinstance(e, Paused))
    assert not [e for e in between if isinstance(e, Token)]
    time.sleep(0.2)
    worker.send(Resume())
    worker.until(lambda e: isinstance(e, Token) and e.id == id)
    assert time.monotonic() - paused_at >= 0.2
    worker.send(Cancel(id=id))
    worker.end_of(id)


def test_bad_requests_get_one_line_and_the_next_works(worker):
    cases = [
        (question(" ".join(["t2"] * 300)), "context holds 256"),
        (SwapRequest(table={"nrom": "torch"}), "no group of operations named 'nrom'"),
        (AttentionRequest(owner="nobody"), "no conversation of 'nobody'"),
    ]
    for request, message in cases:
        answer = worker.end_of(worker.ask(request))[-1]
        assert isinstance(answer, Refused) and message in answer.failure.message
        assert answer.failure.kind == "input" and "\n" not in answer.failure.message
    assert worker.end_of(worker.ask(question("t7", max_tokens=2)))[-1].result.finish in ("length", "stop")


def test_a_running_conversation_can_be_looked_into(worker):
    id = worker.ask(long_answer(owner="ada"))
    worker.until(lambda e: isinstance(e, Token) and e.id == id)
    mass = worker.end_of(worker.ask(AttentionRequest(owner="ada")))[-1].result
    assert len(mass.mass) == 2 and len(mass.mass[0]) == 4
    assert all(sum(head) == pytest.approx(1, abs=1e-5) for layer in mass.mass for head in layer)
    profile = worker.end_of(worker.ask(ProfileRequest()))[-1].result
    assert profile.kernels["torch linear"] > 0 and profile.source.kind == "measured"
    worker.send(Cancel(id=id))
    worker.end_of(id)


def test_a_replay_runs_beside_a_chat_and_a_swap_touches_one_conversation(worker):
    ids = tuple(tiny.expected_answer(ids_of("t5 t6 t7"), 30))
    chat = worker.ask(long_answer(owner="ada"))
    worker.until(lambda e: isinstance(e, Token) and e.id == chat)
    asked = ReplayRequest(messages=question("t5 t6 t7").messages, ids=ids, swap={"norm": "triton", "rope": "triton"})
    seen = worker.end_of(worker.ask(asked))
    replay = seen[-1].result
    assert len(replay.steps) == 30 and replay.first_difference is None and replay.largest < 1e-3
    assert replay.table["norm"] == "torch" and replay.swapped["norm"] == "triton"
    assert [e for e in seen if isinstance(e, Token) and e.id == chat], "the chat stood still"
    swapped = worker.end_of(worker.ask(SwapRequest(owner="ada", table={"activation": "triton"})))[-1].result
    assert swapped.table["activation"] == "triton"
    worker.send(Cancel(id=chat))
    result = worker.end_of(chat)[-1].result
    assert result.backend == "mixed" and result.table["activation"] == "triton"
    plain = worker.end_of(worker.ask(question("t5", max_tokens=2)))[-1].result
    assert plain.backend == "torch" and set(plain.table.values()) == {"torch"}


def test_an_ended_answer_can_be_looked_into(worker):
    result = worker.end_of(worker.ask(question("t3 t2 t50", max_tokens=12, owner="bob")))[-1].result
    asked = AttentionRequest(owner="bob", messages=question("t3 t2 t50").messages, ids=result.ids, layers=(0,))
    found = worker.end_of(worker.ask(asked))[-1].result
    assert found.tokens == result.prompt_tokens + len(result.ids) - 1
    assert len(found.mass) == 1 and len(found.mass[0]) == 4 and sum(found.mean) == pytest.approx(1, abs=1e-5)


def test_no_model_is_said_in_one_line(tmp_path):
    worker = Worker("--model", str(tmp_path))
    last = worker.until(lambda e: isinstance(e, Refused))[-1]
    assert last.id is None and last.failure.kind == "unavailable" and "config.json" in last.failure.message
    worker.close()
    worker.process.wait(10)
