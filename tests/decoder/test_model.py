"""Every supported kind of model against transformers in float64, over prefill and decode, through page borders."""

import pytest
import torch

from playground import native
from playground.decoder.runner import Chunk, Row, Runner
from playground.decoder.sampler import Sampling
from tests.decoder import tiny

GREEDY = Sampling()


def error(got, expected):
    return float((got.double() - expected).norm() / expected.norm())


def feed(runner, pages, tokens, prompt, at):
    """Prefill `prompt` tokens in chunks that end at `at`, then decode the rest one by one; logits by position."""
    size, logits = runner.page_size, {}
    for start, end in zip([0, *at], [*at, prompt], strict=True):
        slots = [pages[i // size] * size + i % size for i in range(start, end)]
        row = Row(tokens[end - 1], end - 1, pages, GREEDY, 0)
        logits[end - 1] = runner.prefill([Chunk(tokens[start:end], start, slots, row)])["logits"][0].clone()
    for position in range(prompt, len(tokens)):
        runner.prepare(1)
        runner.rows.load([Row(tokens[position], position, pages, GREEDY, 0)])
        logits[position] = runner.decode(1)["logits"][0].clone()
    return logits


@pytest.fixture(params=["torch", "triton"])
def backend(request):
    """PyTorch, and Triton's kernels natively."""
    native.enable()
    yield request.param
    native.disable()


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_logits_follow_transformers_in_chunks_and_steps(kind, backend):
    tokens = torch.randint(0, 100, (45,), generator=torch.Generator().manual_seed(3)).tolist()
    runner = Runner(tiny.make_model(kind), 8, 4, 16)
    runner.swap(dict.fromkeys(runner.table, backend))
    got = feed(runner, [5, 3, 9, 0, 11, 20], tokens, 33, at=(15, 17, 32))
    expected = tiny.expected_logits(tokens, kind)
    for position, logits in got.items():
        assert error(logits, expected[position]) < 3e-5, position


def test_a_step_serves_rows_of_any_length_at_once(backend):
    texts = [torch.randint(0, 100, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in (1, 8, 9, 30)]
    runner = Runner(tiny.make_model(), 8, 4, 64)
    runner.swap(dict.fromkeys(runner.table, backend))
    pages = [[i * 4 + j for j in range(4)] for i in range(4)]
    for text, own in zip(texts, pages, strict=True):
        if len(text) > 1:
            feed(runner, own, text[:-1], len(text) - 1, at=())
    runner.prepare(4)
    runner.rows.load([Row(t[-1], len(t) - 1, p, GREEDY, 0) for t, p in zip(texts, pages, strict=True)])
    got = runner.decode(4)["logits"]
    for row, text in enumerate(texts):
        assert error(got[row], tiny.expected_logits(text)[-1]) < 1e-5


def test_rows_move_on_by_themselves(backend):
    runner = Runner(tiny.make_model(), 8, 4, 16)
    runner.swap(dict.fromkeys(runner.table, backend))
    runner.prepare(2)
    runner.rows.load([Row(5, 0, [3, 4], GREEDY, 0), Row(6, 0, [7, 8], GREEDY, 0)])
    steps = [runner.decode(2)["ids"].tolist() for _ in range(12)]
    for row, first in enumerate((5, 6)):
        assert [ids[row] for ids in steps] == tiny.expected_answer([first], 12)
    assert runner.rows.positions[:2].tolist() == [12, 12]


@pytest.mark.parametrize("cache", [torch.int8, torch.float8_e4m3fn], ids=["int8", "fp8"])
def test_an_eight_bit_cache_is_read_alike_by_both(cache):
    tokens = torch.randint(0, 100, (40,), generator=torch.Generator().manual_seed(3)).tolist()
    exact, seen = tiny.expected_logits(tokens), {}
    native.enable()
    try:
        for provider in ("torch", "triton"):
            runner = Runner(tiny.make_model(cache=cache), 8, 4, 16)
            runner.swap(dict.fromkeys(runner.table, provider))
            got = feed(runner, [5, 3, 9, 0, 11], tokens, 16, at=())
            seen[provider] = torch.stack([got[i] for i in range(15, 40)]).double()
    finally:
        native.disable()
    bar = 0.08 if cache == torch.int8 else 0.3
    for logits in seen.values():
        assert error(logits, exact[15:]) < bar
