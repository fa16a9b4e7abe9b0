"""Continuous batching: whatever happens around a conversation, its text is the one it would have had alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.decoder.config import ModelError
from playground.decoder.conversation import Limits
from tests.decoder import tiny


@pytest.fixture(params=[False, True], ids=["in step", "ahead"])
def ahead(request):
    """Whether a step is launched before the tokens of the last one are looked at."""
    return request.param


def prompt(seed, length):
    return torch.randint(2, 99, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def test_texts_equal_transformers_while_others_join_and_leave(ahead):
    batch = tiny.make_batch(ahead=ahead, max_batch=3)
    prompts = [prompt(i, n) for i, n in enumerate((3, 40, 1, 17, 70))]
    conversations = []
    for text in prompts:
        conversations.append(batch.submit(text, limits=Limits(max_tokens=20)))
        batch.step()
        batch.step()
    tiny.finish(batch)
    for text, conversation in zip(prompts, conversations, strict=True):
        assert conversation.answer == tiny.expected_answer(text, 20)
        assert conversation.finish == "length"


def test_the_end_token_ends_an_answer(ahead):
    text = next(p for p in (prompt(s, 5) for s in range(500)) if 100 in tiny.expected_answer(p, 40))
    batch = tiny.make_batch(ahead=ahead, eos=(100,))
    conversation = batch.submit(text, limits=Limits(max_tokens=40))
    tiny.finish(batch)
    assert conversation.finish == "stop"
    assert conversation.answer == tiny.expected_answer(text, 40, eos=True)


def test_a_long_prompt_does_not_hold_up_the_others():
    batch = tiny.make_batch(chunk=16)
    running = batch.submit(prompt(1, 4), limits=Limits(max_tokens=60))
    batch.step()
    batch.submit(prompt(2, 160), limits=Limits(max_tokens=1))
    before = running.step
    for _ in range(10):
        batch.step()
    assert running.step == before + 10


def test_a_second_turn_computes_its_new_tokens_alone(ahead):
    batch = tiny.make_batch(ahead=ahead)
    first = batch.submit(prompt(1, 40), limits=Limits(max_tokens=10))
    tiny.finish(batch)
    follow = [*first.tokens, *prompt(2, 5)]
    second = batch.submit(follow, limits=Limits(max_tokens=10))
    tiny.finish(batch)
    assert second.reused == len(first.tokens) - 1  # the last token drawn was never read
    assert second.prefilled == 6
    assert second.answer == tiny.expected_answer(follow, 10)


def test_conversations_with_one_beginning_share_its_pages():
    batch = tiny.make_batch()
    system = prompt(9, 24)
    texts = [[*system, *prompt(i, 6)] for i in range(3)]
    first = batch.submit(texts[0], limits=Limits(max_tokens=30))
    for _ in range(4):
        batch.step()
    others = [batch.submit(t, limits=Limits(max_tokens=30)) for t in texts[1:]]
    for _ in range(4):
        batch.step()
    assert [c.hold.pages[:3] for c in others] == [first.hold.pages[:3]] * 2
    tiny.finish(batch)
    for text, conversation in zip(texts, [first, *others], strict=True):
        assert conversation.answer == tiny.expected_answer(text, 30)


def test_too_few_pages_slow_conversations_down_and_change_nothing(ahead):
    batch = tiny.make_batch(ahead=ahead, pages=9, max_batch=4)
    prompts = [prompt(i, n) for i, n in enumerate((10, 20, 5, 12))]
    conversations = [batch.submit(p, limits=Limits(max_tokens=30)) for p in prompts]
    tiny.finish(batch)
    for text, conversation in zip(prompts, conversations, strict=True):
        assert conversation.answer == tiny.expected_answer(text, 30)
    computed = sum(c.prefilled for c in conversations)
    assert computed > sum(map(len, prompts)), "none was sent back, so this tests nothing"


def test_an_answer_goes_to_the_last_slot_and_not_beyond(ahead):
    batch = tiny.make_batch(ahead=ahead, pages=4, max_context=32)
    text = prompt(1, 20)
    conversation = batch.submit(text)
    tiny.finish(batch)
    assert conversation.finish == "context"
    assert conversation.answer == tiny.expected_answer(text, 13)  # positions 20 to 31 are read, 13 tokens drawn
    full = batch.submit(prompt(2, 32), limits=Limits(max_tokens=5))
    tiny.finish(batch)
    assert full.finish == "context" and full.answer == tiny.expected_answer(prompt(2, 32), 1)


def test_a_shared_beginning_is_given_up_where_no_page_is_left_to_copy_it():
    batch = tiny.make_batch(pages=4, max_context=32)
    first = batch.submit(prompt(1, 20), limits=Limits(max_tokens=12))
    tiny.finish(batch)
    other = [*first.tokens[:30], 5, 6]
    second = batch.submit(other, limits=Limits(max_tokens=5))
    tiny.finish(batch)
    assert second.finish == "context" and second.answer == tiny.expected_answer(other, 1)


def test_a_sliding_conversation_reads_what_a_fresh_one_would(ahead):
    batch = tiny.make_batch(ahead=ahead, pages=4, max_context=32)
    text = prompt(3, 28)
    conversation = batch.submit(text, limits=Limits(max_tokens=12, full="slide", keep=6))
    tiny.finish(batch)
    assert conversation.slides == 1 and conversation.finish == "length"
    head = tiny.expected_answer(text, 5)
    whole = text + head
    shorter = whole[:6] + whole[6:][-13:]  # half of the 26 that are not kept
    assert conversation.answer == head + tiny.expected_answer(shorter, 7)


def test_a_prompt_that_cannot_fit_is_refused_in_one_line():
    batch = tiny.make_batch(max_context=32)
    with pytest.raises(ModelError, match="33 tokens and the context holds 32"):
        batch.submit(prompt(1, 33))
    with pytest.raises(ModelError, match="empty"):
        batch.submit([])
    assert batch.idle
    assert len(batch.submit(prompt(1, 90), limits=Limits(full="slide", keep=4)).tokens) == 18


def test_without_the_cache_the_text_is_the_same_and_the_work_grows(ahead):
    batch = tiny.make_batch(ahead=ahead)
    text = prompt(5, 12)
    conversation = batch.submit(text, limits=Limits(max_tokens=15, cache=False))
    tiny.finish(batch)
    assert conversation.answer == tiny.expected_answer(text, 15)
    assert conversation.prefilled == sum(range(12, 27))
    assert batch.pool.available == 64


def test_alternatives_are_the_softmax_of_the_logits(ahead):
    batch = tiny.make_batch(ahead=ahead)
    text = prompt(6, 9)
    batch.submit(text, limits=Limits(max_tokens=4, alternatives=True))
    emitted = []
    while not batch.idle:
        emitted += [e for e in batch.step() if e.token is not None]
    tokens = list(text)
    for event in emitted:
        chances = tiny.expected_logits(tokens)[-1].softmax(-1)
        assert event.chance.own == pytest.approx(float(chances[event.token]), rel=1e-4)
        assert event.chance == event.alternatives[0] and event.chance.drawn == 1
        assert [chance.token for chance in event.alternatives] == chances.topk(5).indices.tolist()
        tokens.append(event.token)


@settings(max_examples=16, deadline=None)
@given(st.data())
def test_random_comings_and_goings(data):
    """Joins, cancels and shared beginnings at random over few pages: texts hold, and every page comes back."""
    batch = tiny.make_batch(pages=12, max_batch=3, chunk=8, ahead=data.draw(st.booleans()))
    live, done = [], []
    for _ in range(data.draw(st.integers(5, 40), label="steps")):
        action = data.draw(st.sampled_from(["join", "step", "step", "cancel"]))
        if action == "join" and len(live) < 6:
            text = prompt(data.draw(st.integers(0, 2)), data.draw(st.integers(1, 40)))
            live.append((text, batch.submit(text, limits=Limits(max_tokens=data.draw(st.integers(1, 20))))))
        elif action == "cancel" and live:
            batch.cancel(live[data.draw(st.integers(0, len(live) - 1))][1])
        else:
            batch.step()
            batch.pool.check()
    tiny.finish(batch)
    done += live
    for text, conversation in done:
        assert conversation.finish in ("length", "cancelled")
        assert conversation.answer == tiny.expected_answer(text, max(1, conversation.step))[: conversation.step]
    assert batch.pool.available == 12
