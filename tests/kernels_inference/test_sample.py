"""The sampler: which tokens it keeps, exactly, and how often it draws each.

Cases from the field: logits that are a slice of a padded vocabulary (vllm#42684), uniform logits (tokenspeed#280), one
token above top-p (FreeToken#345), temperature 0 and almost 0 (vllm#2937).
"""

from __future__ import annotations

import math

import pytest
import torch

import kernels
from kernels.sample_reference import eager, kept_tokens, reference
from kernels.targets import Target
from playground.engine.compile import compile_launch

NONE = float("-inf")


def draws(row: torch.Tensor, count: int, **options) -> torch.Tensor:
    """`count` independent draws from one row of logits: rows of one tensor, each with noise of its own."""
    return kernels.sample(row.expand(count, -1), **options)


def kept(row: torch.Tensor, **options) -> set[int]:
    """By sorting, in float64."""
    ids, ratios = kept_tokens(row[None], **options)
    return set(ids[ratios > 0].tolist())


def logits(vocab: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(vocab, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize(
    "vocab, options",
    [
        (3000, {"top_k": 20}),  # the short list
        (3000, {"top_k": 100}),  # beyond it: by rejection
        (3000, {"top_p": 0.03}),
        (3000, {"top_k": 40, "top_p": 0.5}),
        (3000, {"top_k": 90, "top_p": 0.7}),  # the k-th largest by bisection
        (7, {"top_k": 3}),
    ],
)
def test_every_kept_token_is_drawn_and_no_other(vocab, options):
    # So hot that all kept tokens are about as likely: in 2,500 draws none stays out by chance.
    row = logits(vocab)
    options = {"temperature": 200.0, **options}
    assert set(draws(row, 2500, seed=1, **options).tolist()) == kept(row, **options)


@pytest.mark.parametrize("k", [20, 80])
def test_ties_at_the_kth_logit_keep_the_lowest_ids_exactly_k(k):
    row = torch.zeros(3000)
    row[1990:2000] = 1.0
    expected = {*range(1990, 2000), *range(k - 10)}
    assert set(draws(row, 2500, temperature=50.0, top_k=k, seed=2).tolist()) == expected


@pytest.mark.parametrize(
    "options",
    [{"temperature": 0.9}, {"temperature": 0.7, "top_k": 50, "top_p": 0.9}, {"temperature": 1.1, "top_p": 0.8}],
)
def test_twenty_thousand_draws_follow_the_distribution(options):
    row = logits(3000)
    drawn = torch.bincount(draws(row, 20_000, seed=3, **options), minlength=3000).double()
    ids, ratios = kept_tokens(row[None], **options)
    expected = torch.zeros(3000, dtype=torch.float64).scatter_(0, ids[0], ratios[0] / ratios.sum()) * 20_000
    assert (drawn[expected == 0] == 0).all()
    often = expected >= 5
    rest = expected[~often].sum().clamp_min(1e-9), drawn[~often].sum()
    chi_square = ((drawn - expected)[often].square() / expected[often]).sum() + (rest[1] - rest[0]).square() / rest[0]
    freedom = int(often.sum())
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("vocab", [1, 5, 1023, 1024, 1025, 2049, 5000])
def test_parts_of_any_number_race_as_the_reference_says(vocab):
    rows = torch.stack([logits(vocab, seed) for seed in range(40)])
    rows[5:10, :1024] = NONE  # a part without a token
    rows[10:15, 1024:] = NONE
    rows[15:20, vocab // 2] = float("nan")
    rows[20:25, ::700] = float("inf")  # several parts with infinities of equal weight
    rows[25:30] *= 1000  # weights that underflow beside the best
    rows[30:35] = torch.finfo(torch.float32).min
    for temperature in (0.0, 1e-20, 0.9, 1e20):
        options = {"temperature": temperature, "seed": 10, "step": 2}
        assert kernels.sample(rows, **options).tolist() == reference(rows, **options).tolist(), temperature


@pytest.mark.parametrize(
    "options", [{}, {"top_k": 50, "top_p": 0.9}, {"top_p": 0.7}, {"temperature": 0.0}, {"top_k": 3000}, {"top_k": 2999}]
)
def test_eager_code_draws_what_the_reference_draws(options):
    """In float32 and without a sort where none is needed: what the kernel is held beside must not waste time."""
    rows = torch.stack([logits(3000, seed) for seed in range(40)])
    options = {"temperature": 0.9, "seed": 11, **options}
    assert eager(rows, **options).tolist() == reference(rows, **options).tolist()


def test_one_token_above_top_p_is_kept_alone():
    row = torch.zeros(3000)
    row[123] = math.log(2999 * 0.41 / 0.59)  # 41 % of the probability
    assert set(draws(row, 500, top_p=0.4, seed=4).tolist()) == {123}
    assert set(draws(row, 500, top_p=0.0, seed=4).tolist()) == {123}


def test_uniform_logits_draw_ids_and_not_values():
    ids = draws(torch.zeros(3000), 64, temperature=1.0, top_k=5, seed=5)
    assert set(ids.tolist()) <= {0, 1, 2, 3, 4}
    assert ids.dtype == torch.int64


def test_temperature_0_is_argmax_and_a_tiny_one_does_not_overflow():
    rows = torch.stack([logits(3000, seed) for seed in range(4)]) * 100
    rows[1, 7] = rows[1, 2500] = rows.max() + 1  # a tie: the lower id
    expected = rows.argmax(-1)
    expected[1] = 7
    assert kernels.sample(rows, temperature=0.0).tolist() == expected.tolist()
    close = kernels.sample(rows, temperature=1e-4, seed=6)
    assert [rows[i, token].item() for i, token in enumerate(close)] == rows.max(-1).values.tolist()


def test_an_endless_temperature_draws_all_but_what_is_masked():
    row = torch.zeros(3000)
    row[1000:2000] = NONE
    row[2999] = 50.0
    hot = torch.full((400,), float("inf"))
    for options in ({}, {"top_k": 2000}, {"top_p": 0.9}):
        found = draws(row, 400, temperature=hot, seed=12, **options)
        assert not ((found >= 1000) & (found < 2000)).any(), options
        assert (found < 1000).sum() > 100 and (found == 2999).sum() < 20, options


def test_a_number_that_rounds_to_1_in_float32_cuts_nothing():
    rows = torch.stack([logits(3000, seed) for seed in range(20)])
    options = {"top_p": 0.99999999, "seed": 13}
    assert kernels.sample(rows, **options).tolist() == reference(rows, **options).tolist()


@pytest.mark.parametrize("options", [{"top_k": 0}, {"top_k": 20}, {"top_k": 500}, {"top_k": 0, "temperature": 0.0}])
def test_every_way_to_draw_compiles_for_amd(options):
    """It ends the race in a second launch, which no other target has where nothing is cut."""
    spec, target = kernels.get("sample"), Target.named("gfx942")
    inputs = {**spec.inputs({"rows": 4, "vocab": 3001, "top_k": 0}, "float32", "meta"), **options}
    for launch in spec.plan(inputs, spec.default_config(inputs, target), target).launches:
        assert compile_launch(launch, target)


def test_nan_and_masked_logits_are_never_drawn():
    row = torch.full((3000,), NONE)
    row[[3, 700, 1999]] = 1.0
    row[[4, 1500]] = float("nan")
    for options in ({}, {"top_k": 2}, {"top_k": 40}, {"top_k": 500}, {"top_p": 0.9}, {"temperature": 0.0}):
        found = set(draws(row, 300, seed=7, **options).tolist())
        assert found <= {3, 700, 1999}, options
    assert draws(torch.full((3000,), NONE), 2, top_k=3).tolist() == [0, 0]
    assert draws(torch.full((3000,), float("nan")), 2).tolist() == [0, 0]


def test_infinite_logit_wins():
    row = logits(3000)
    row[77] = float("inf")
    for options in ({}, {"top_k": 5}, {"top_p": 0.5}):
        assert set(draws(row, 50, seed=8, **options).tolist()) == {77}


def test_a_slice_of_a_padded_vocabulary_uses_the_row_stride():
    wide = torch.full((4, 100_288), 50.0)
    wide[:, :100_277] = torch.stack([logits(100_277, seed) for seed in range(4)])
    sliced = wide[:, :100_277]
    assert sliced.stride() == (100_288, 1)
    for options in ({"temperature": 0.0}, {"top_k": 50, "seed": 9}):
        expected = reference(sliced.contiguous(), **options)
        assert kernels.sample(sliced, **options).tolist() == expected.tolist()


def test_a_row_draws_the_same_wherever_it_stands_in_the_batch():
    rows = torch.stack([logits(3000, seed) for seed in range(6)])
    options = {
        "temperature": torch.tensor([0.7, 1.0, 0.0, 1.3, 0.9, 0.5]),
        "top_k": torch.tensor([20, 0, 5, 300, 0, 64]),
        "top_p": torch.tensor([0.9, 1.0, 1.0, 0.8, 0.6, 1.0]),
        "seed": torch.tensor([11, 12, 13, 2**40, 15, 16]),
        "step": torch.tensor([0, 1, 2, 3, 4, 5]),
    }
    together = kernels.sample(rows, **options)
    assert together.tolist() == reference(rows, **options).tolist()
    order = torch.tensor([4, 2, 0, 5, 3, 1])
    assert kernels.sample(rows[order], **{n: v[order] for n, v in options.items()}).tolist() == together[order].tolist()


def test_seed_and_step_name_the_draw():
    row = torch.zeros(3000)
    first = draws(row, 50, seed=1, step=0)
    assert first.tolist() == draws(row, 50, seed=1, step=0).tolist()
    assert first.tolist() != draws(row, 50, seed=1, step=1).tolist()
    assert first.tolist() != draws(row, 50, seed=2, step=0).tolist()
    assert len(set(first.tolist())) > 40  # rows have noise of their own


@pytest.mark.parametrize(
    "options, argument",
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 1e-46}, "temperature"),  # 0 in float32, where the row was neither raced nor listed
        ({"top_k": -1}, "top_k"),
        ({"top_k": 2.5}, "top_k"),
        ({"top_p": 1.5}, "top_p"),
        ({"seed": torch.zeros(3, dtype=torch.int64)}, "seed"),
    ],
)
def test_wrong_options_are_named(options, argument):
    with pytest.raises(kernels.InputError) as refused:
        kernels.sample(torch.zeros(2, 10), **options)
    assert refused.value.argument == argument
