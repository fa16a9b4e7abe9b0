"""Options are checked, seeds decide, and every backend draws the same tokens."""

import pytest
import torch

from playground import native
from playground.decoder import sampler
from playground.decoder.config import ModelError
from playground.decoder.conversation import Limits
from playground.decoder.sampler import Sampling
from tests.decoder import tiny
from tests.decoder.test_batch import prompt


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature is -1.0; give a number from 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": -1}, "top_k is -1; give 0 for all"),
        ({"top_p": 0.0}, "top_p is 0.0; give a share above 0"),
        ({"seed": -5}, "seed is -5; give a whole number"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(ModelError, match=message):
        Sampling(**options)


def options(rows, **given):
    known = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 0, "step": 0} | given
    dtypes = {"temperature": torch.float32, "top_p": torch.float32}
    return {
        name: torch.as_tensor(value, dtype=dtypes.get(name, torch.int64)).expand(rows).contiguous()
        for name, value in known.items()
    }


def test_draws_follow_the_distribution():
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, float("-inf")])
    ids = sampler.sample(logits.expand(20_000, 5), **options(20_000, step=torch.arange(20_000)))
    shares = torch.bincount(ids, minlength=5) / 20_000
    torch.testing.assert_close(shares, logits.softmax(-1), rtol=0, atol=0.015)


def test_greedy_rows_beside_hot_ones_take_the_likeliest():
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    heat = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    ids = sampler.sample(logits, **options(6, temperature=heat))
    assert ids[::2].equal(logits[::2].argmax(-1))


def answers(backend, table=None):
    """Six conversations of different options, joining one after another."""
    batch = tiny.make_batch(backend=backend, max_batch=4)
    batch.swap(table or {})
    given = [(0.7, 0, 1.0, 1), (1.3, 20, 1.0, 2), (0.9, 0, 0.8, 3), (1.0, 50, 0.9, 4), (0.0, 0, 1.0, 5)]
    given.append((1.0, 0, 1.0, 6))
    conversations = []
    for i, choice in enumerate(given):
        conversations.append(batch.submit(prompt(i, 3 + 4 * i), Sampling(*choice), Limits(max_tokens=24)))
        batch.step()
    tiny.finish(batch)
    return [c.answer for c in conversations]


def test_a_seed_gives_one_text_whatever_else_is_in_the_batch():
    together = answers("torch")
    for i, choice in ((1, (1.3, 20, 1.0, 2)), (3, (1.0, 50, 0.9, 4))):
        batch = tiny.make_batch(backend="torch")
        alone = batch.submit(prompt(i, 3 + 4 * i), Sampling(*choice), Limits(max_tokens=24))
        tiny.finish(batch)
        assert alone.answer == together[i]
    assert together[0] != together[5]


def test_triton_and_pytorch_draw_the_same_text():
    native.enable()
    try:
        expected = answers("torch")
        assert answers("torch", {"sampling": "triton"}) == expected
        assert answers("triton") == expected
    finally:
        native.disable()
