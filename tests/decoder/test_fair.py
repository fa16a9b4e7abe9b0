"""Twenty people at once: everyone is served in turn, and all together in far fewer steps than one after another."""

import random

from playground.decoder.conversation import Limits
from playground.decoder.messages import ChatMessage, ChatRequest
from playground.decoder.protocol import Answered, Token
from tests.decoder import tiny
from tests.decoder.test_batch import prompt
from tests.decoder.test_worker import worker  # noqa: F401 - a fixture

PEOPLE = 20


def test_nobody_gets_ahead_while_others_come_and_go():
    """A step gives every conversation whose prompt is in exactly one token, whatever its length."""
    choose = random.Random(5)
    batch = tiny.make_batch(max_batch=32, pages=200, chunk=16)
    waiting = [prompt(i, choose.randrange(1, 60)) for i in range(PEOPLE)]
    people, steps = [], 0
    while waiting or not batch.idle:
        if waiting and choose.random() < 0.5:
            people.append((batch.submit(waiting.pop(), limits=Limits(max_tokens=25)), steps))
        before = {c: c.step for c in batch.decoding}
        batch.step()
        steps += 1
        assert all(c.step == step + 1 for c, step in before.items())
    prompts = sum(len(c.tokens) - 25 for c, _ in people)
    assert all(c.step == 25 and c.finish == "length" for c, _ in people)
    # All prompts were read in chunks of 16, beside which everyone decoded.
    assert steps < prompts // 16 + 2 * PEOPLE + 25 + 25


def test_a_short_question_is_not_held_up_by_long_ones():
    batch = tiny.make_batch(max_batch=32, pages=400, chunk=16)
    for i in range(PEOPLE):
        batch.submit(prompt(i, 120), limits=Limits(max_tokens=5))
    for _ in range(3):
        batch.step()
    short = batch.submit(prompt(99, 5), limits=Limits(max_tokens=5))
    for _ in range(3):
        batch.step()
    assert short.step >= 2, "150 chunks of other prompts went first"


def test_twenty_through_a_worker_keep_level(worker):  # noqa: F811
    """As their clients see it: at no time is anyone more than a few tokens behind another who started with them."""
    asked = [
        worker.ask(
            ChatRequest(
                messages=(
                    ChatMessage(role="user", content=" ".join(f"t{2 + (i + j) % 90}" for j in range(1 + i % 7))),
                ),
                max_tokens=40,
                temperature=1.5,
                seed=i,
                owner=f"person {i}",
            )
        )
        for i in range(PEOPLE)
    ]
    counts, ended, widest = dict.fromkeys(asked, 0), set(), 0
    while len(ended) < PEOPLE:
        event = worker.until(lambda e: isinstance(e, Token | Answered))[-1]
        if isinstance(event, Answered):
            ended.add(event.id)
            continue
        counts[event.id] += 1
        live = [counts[id] for id in asked if id not in ended]
        widest = max(widest, max(live) - min(live))
    assert widest <= 12, f"someone was {widest} tokens behind"
