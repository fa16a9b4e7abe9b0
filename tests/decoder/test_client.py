"""The parent's side of chat: streams, stops, crashes and timings, with real workers and a tiny model."""

import os
import signal
import threading
import time

import pytest
import torch

import kernels
from kernels.spec import Draw
from kernels.targets import Target
from playground.decoder import generate, interpreted
from playground.decoder.client import Chats
from playground.decoder.messages import (
    INTERPRETER_NOTE,
    INTERPRETER_TOKENS,
    READING_NOTE,
    ChatMessage,
    ChatRequest,
    ChatResult,
    ChatStats,
    ChatToken,
    WarmResult,
)
from playground.engine.engine import Engine
from playground.engine.messages import EngineError
from tests.decoder import tiny


def question(words="t5 t6 t7", **options):
    given = {"max_tokens": 8, "backend": "torch", **options}
    return ChatRequest(messages=(ChatMessage(role="user", content=words),), **given)


@pytest.fixture(scope="module")
def engine():
    with Engine(gpus=()) as engine:
        yield engine


@pytest.fixture(scope="module")
def chats(engine):
    return Chats(engine, str(tiny.folder()))


def result_of(chats, **options):
    *_, result = chats.stream(question(**options))
    return result


def test_an_answer_streams_its_tokens_and_figures(chats):
    events = list(chats.stream(question(owner="me")))
    assert isinstance(events[-1], ChatResult)
    tokens = [event.id for event in events if isinstance(event, ChatToken)]
    expected = tiny.expected_answer([1, 5, 6, 7, 1], 8, eos=True)
    assert tokens == list(events[-1].ids) == expected[: len(tokens)]
    assert events[-1].backend == "torch"


def test_a_warm_up_tells_what_it_does_and_what_stands_ready(engine):
    *lines, ready = Chats(engine, str(tiny.folder("qwen3"))).warm("torch")
    assert [line.what for line in lines] and isinstance(ready, WarmResult)
    model = ready.model
    assert (model.layers, model.heads, model.kv_heads, model.head_dim) == (2, 4, 2, 32) and model.qk_norm
    assert model.parameters == sum(p.numel() for p in tiny.reference("qwen3").parameters())
    assert ready.backend == "torch" and set(ready.table.values()) == {"torch"} and ready.seconds > 0


def test_a_stopped_answer_keeps_what_it_has(chats):
    cancel = threading.Event()
    got = []
    for event in chats.stream(question(max_tokens=4000), cancel):
        got.append(event)
        if isinstance(event, ChatToken):
            cancel.set()
    assert isinstance(got[-1], ChatResult)
    assert got[-1].finish in ("cancelled", "stop")


def test_a_closed_stream_frees_its_pages(chats):
    stream = chats.stream(question(max_tokens=4000, owner="closed"))
    while not isinstance(next(stream), ChatToken):
        pass
    stream.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        seen = [e for e in chats.stream(question(max_tokens=64, owner="next")) if isinstance(e, ChatStats)]
        if seen and "closed" not in seen[-1].map.names:
            return
    raise AssertionError("the pages of a closed stream are still held")


def follow_up(chats):
    """A conversation in mid-course, and the tokens that it is read as."""
    first = result_of(chats, max_tokens=4)
    turns = (("user", "t5 t6 t7"), ("assistant", first.text), ("user", "t9"))
    messages = tuple(ChatMessage(role=role, content=content) for role, content in turns)
    return messages, [1, 5, 6, 7, 1, *first.ids, 1, 9, 1]


def test_the_interpreter_is_warmed_and_takes_over_a_conversation(chats):
    messages, read = follow_up(chats)
    lines = [getattr(event, "what", "") for event in chats.warm("interpreter")]
    assert "made ready: 1 at once" in lines  # else the first answer waits for it
    *_, result = chats.stream(ChatRequest(messages=messages, backend="interpreter", max_tokens=2))
    assert list(result.ids) == tiny.expected_answer(read, 2) and result.backend == "interpreter"
    assert result.source.kind == "interpreted" and result.notes == (READING_NOTE,)


@pytest.mark.slow
def test_the_interpreter_stops_after_a_few_tokens_and_says_so(chats):
    messages, read = follow_up(chats)
    *told, result = chats.stream(ChatRequest(messages=messages, backend="interpreter"))
    expected = tiny.expected_answer(read, INTERPRETER_TOKENS, eos=True)
    assert list(result.ids) == expected[: len(result.ids)]
    assert len(result.ids) == INTERPRETER_TOKENS or result.finish == "stop"
    assert result.notes == (READING_NOTE, INTERPRETER_NOTE) and INTERPRETER_NOTE in [
        getattr(event, "what", "") for event in told
    ]


@pytest.mark.parametrize(("asked", "most"), [(None, INTERPRETER_TOKENS), (500, INTERPRETER_TOKENS), (5, 5)])
def test_the_interpreters_limit(monkeypatch, asked, most):
    monkeypatch.setattr("playground.decoder.launches.INTERPRETED", True)
    assert generate._at_most(asked) == (most, [READING_NOTE] + [INTERPRETER_NOTE] * (most != asked))


@pytest.mark.slow
def test_an_eight_bit_cache_is_a_choice(chats):
    result = result_of(chats, cache_dtype="fp8", max_tokens=4)
    assert result.kv_cache.element_bytes == 1 and len(result.ids) == 4
    kv = result.kv_cache  # 2 layers, 2 key-value heads, head_dim 16 and a scale
    assert kv.bytes_used == 2 * 2 * 2 * (16 + 4) * kv.tokens == kv.bytes_per_token * kv.tokens
    assert kv.equation.startswith(f"2 × 2 × 2 × (16 × 1 + 4) × {kv.tokens} = ")
    assert kv.bytes_reserved == kv.pages * kv.page_size * kv.bytes_per_token


def test_a_crash_ends_the_answer_and_the_next_question_starts_another(chats):
    stream = chats.stream(question(max_tokens=4000))
    while not isinstance(next(stream), ChatToken):
        pass
    os.kill(chats._lanes["torch", "auto"]._worker.pid, signal.SIGKILL)
    with pytest.raises(EngineError) as caught:
        list(stream)
    assert caught.value.failure.kind == "crashed"
    assert result_of(chats).ids


def test_half_a_character_is_one_clear_line_and_the_next_question_works(chats):
    """A browser and a terminal can send a surrogate without its other half, which JSON cannot hold."""
    with pytest.raises(EngineError) as caught:
        list(chats.stream(question("t5 \ud83d")))
    assert caught.value.failure.kind == "input" and "take it out" in str(caught.value)
    assert result_of(chats).ids


def test_a_timing_has_the_device_alone_and_the_chat_goes_on_after_it(engine, chats):
    gate, order = engine.gate("cpu"), []
    stream = chats.stream(question(max_tokens=4000))
    while not isinstance(next(stream), ChatToken):
        pass

    def timing():
        with gate.enter(True, lambda: False) as entered:
            order.append(("alone", entered, chats._lanes["torch", "auto"]._paused))
            time.sleep(0.3)
        order.append("over")

    thread = threading.Thread(target=timing)
    thread.start()
    thread.join(30)
    assert order == [("alone", True, True), "over"]
    stream.close()
    assert result_of(chats).ids


def test_a_model_that_is_not_there_is_one_clear_line(engine):
    with pytest.raises(EngineError) as caught:
        list(Chats(engine, "./no-such-model").stream(question()))
    assert caught.value.failure.kind == "unavailable"
    assert "no-such-model" in str(caught.value)


def test_the_interpreter_takes_all_keys_of_a_head_as_one_block():
    """It pays for every operation of every turn of a loop, however wide the operation."""
    given = kernels.get("decode_attention").make_inputs(
        {"seqs": 1, "context": 512, "page_size": 16, "kv_heads": 3, "group": 3, "head_dim": 64},
        Draw(torch.float32, torch.device("meta")),
    )
    (launch,) = interpreted.decode_attention(given, Target.named("cpu")).launches
    assert launch.grid == (3, 1) and launch.config.meta["BLOCK_N"] == launch.config.meta["SPLIT_KV"] == 512
