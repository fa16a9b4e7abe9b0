"""The verdict: what passes, what fails, and where it says the fault lies. References: float64, and values by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from playground.engine import judge

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def verdict(got, ref, eager=None, kind="float", dtype=None, tf32=False):
    bar = judge.bars(eager, ref, dtype or got.dtype, tf32) if kind == "float" else judge.Bars(0.0, 0.0, 0.0)
    return judge.judge(got, ref, bar, kind, dtype)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_correctly_rounded_answer_passes_at_half_an_ulp(dtype):
    ref = normal(100, 70)
    found = verdict(ref.to(dtype), ref, ref.to(dtype))
    assert found.ok and found.wrong is None
    assert 0.4 < found.ulps <= 0.5001  # rounding to nearest is half a unit at the most


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1,), (3, 5), (64, 300)], ids=str)
def test_zeros_fail_whatever_eager_gave(dtype, shape):
    ref = normal(*shape)
    zeros = torch.zeros(shape, dtype=dtype)
    for eager in (ref.to(dtype), zeros, torch.full(shape, math.nan, dtype=dtype), None):
        assert not verdict(zeros, ref, eager).ok


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_what_is_a_little_off_everywhere_fails(dtype):
    """Each element is within its bar; no rounding errs in one direction."""
    ref = normal(64, 300)
    found = verdict((ref * (1 + 2.5 * torch.finfo(dtype).eps)).to(dtype), ref, ref.to(dtype))
    assert not found.ok and found.rms_error > found.rms_bar and found.error <= found.bar
    assert "all together" in found.note and found.wrong.count == 1


def test_an_honest_reordering_passes():
    """Sums of 4096 float16 products in another order differ by many ulps, and both are right."""
    a, b = normal(8, 4096, seed=1).half(), normal(4096, 8, seed=2).half()
    ref = a.double() @ b.double()
    eager = (a.float() @ b.float()).half()
    assert verdict(eager, ref, eager).ok
    assert verdict((a.flip(1).float() @ b.flip(0).float()).half(), ref, eager).ok


@given(
    shape=st.sampled_from([(1,), (17,), (4, 9), (2, 3, 5), (40, 1000)]),
    where=st.floats(0, 0.999),
    dtype=st.sampled_from(DTYPES),
)
@settings(max_examples=60, deadline=None)
def test_one_wrong_element_is_found_with_its_index(shape, where, dtype):
    ref = normal(*shape)
    got = ref.to(dtype)
    flat = int(where * got.numel())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), shape))
    got[index] += 3.0
    found = verdict(got, ref, ref.to(dtype))
    assert not found.ok
    assert found.wrong.index == index and found.wrong.count == 1 and found.wrong.total == got.numel()
    assert found.wrong.got == got[index].item() and found.wrong.expected == ref[index].item()


def test_an_error_over_chunks_is_counted_once_and_the_first_is_named():
    n = 3 * judge.CHUNK["cpu"] + 11
    ref = normal(n)
    got = ref.float()
    wrong = [judge.CHUNK["cpu"] + 5, 2 * judge.CHUNK["cpu"], n - 1]
    got[wrong] = 100.0
    found = verdict(got, ref, ref.float())
    assert found.wrong.index == (wrong[0],) and found.wrong.count == 3


def test_picture_shows_the_share_of_wrong_elements_in_each_cell():
    ref = torch.ones(24, 96, dtype=torch.float64)
    got = ref.float()
    got[2:4, 0:2] = 5.0  # exactly one cell of 2 x 2
    got[23, 95] = 5.0  # a quarter of the last one
    wrong = verdict(got, ref, ref.float()).wrong
    assert wrong.cell == (2, 2) and len(wrong.picture) == 12 and len(wrong.picture[0]) == 48
    assert wrong.picture[1][0] == 1.0 and wrong.picture[11][47] == 0.25
    assert sum(map(sum, wrong.picture)) == 1.25


@pytest.mark.parametrize("shape", [(1, 1), (13, 49), (5, 7), (100, 1000), (3,), (97,), ()], ids=str)
def test_picture_covers_every_element_within_its_bounds(shape):
    ref = torch.ones(shape, dtype=torch.float64)
    wrong = verdict(torch.zeros(shape), ref, ref.float()).wrong
    assert len(wrong.picture) <= 12 and len(wrong.picture[0]) <= 48
    assert all(share == 1.0 for row in wrong.picture for share in row)  # all wrong: every cell is full
    rows, cols = (math.prod(shape[:-1]), shape[-1]) if shape else (1, 1)
    assert len(wrong.picture) == math.ceil(rows / wrong.cell[0])
    assert len(wrong.picture[0]) == math.ceil(cols / wrong.cell[1])


def test_nan_and_infinity_must_stand_where_the_reference_has_them():
    ref = normal(6)
    ref[1], ref[2], ref[3] = math.nan, math.inf, -math.inf
    good = ref.float()
    assert verdict(good, ref, good).ok
    for index, value in ((0, math.nan), (0, math.inf), (1, 0.0), (2, -math.inf), (3, 7.0)):
        bad = good.clone()
        bad[index] = value
        found = verdict(bad, ref, good)
        assert not found.ok and found.wrong.index == (index,) and math.isinf(found.error)


def test_infinity_is_right_where_the_dtype_holds_no_more():
    ref = torch.tensor([1.0, 70000.0, -1e6], dtype=torch.float64)
    assert verdict(ref.half(), ref, ref.half()).ok  # float16 ends at 65,504
    assert not verdict(torch.tensor([1.0, 65504.0, -math.inf]).half(), ref, ref.half()).ok


def test_unwritten_poison_fails():
    ref = normal(50)
    got = ref.float()
    got[49] = math.nan
    assert not verdict(got, ref, ref.float()).ok


def test_an_all_zero_reference_takes_zeros_and_nothing_else():
    ref = torch.zeros(10, dtype=torch.float64)
    assert verdict(torch.zeros(10), ref, torch.zeros(10)).ok
    got = torch.zeros(10)
    got[4] = 1e-3
    assert verdict(got, ref, torch.zeros(10)).wrong.index == (4,)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_empty_is_right_where_shapes_agree(dtype):
    ref = torch.empty(0, 64, dtype=torch.float64)
    found = verdict(ref.to(dtype), ref, ref.to(dtype))
    assert found.ok and found.error == found.rms_error == found.ulps == 0.0
    assert not verdict(torch.empty(64, 0, dtype=dtype), ref, ref.to(dtype)).ok


def test_wrong_shape_or_dtype_is_wrong_and_says_so():
    ref = normal(4, 5)
    assert "shape [5, 4]" in verdict(ref.float().T.contiguous(), ref, ref.float()).note
    found = verdict(ref.float(), ref, ref.half(), dtype=torch.float16)
    assert not found.ok and found.note == "the answer is float32; float16 is asked for"
    assert not judge.judge(3.0, ref, judge.Bars(1, 1, 1), "float").ok


def test_eagers_own_error_raises_the_bar_four_times_and_never_to_half():
    ref = normal(1000)
    eager = (ref * 1.001).float()
    bar = judge.bars(eager, ref, torch.float32)
    assert bar.worst == pytest.approx(4 * judge.measure(eager, ref).worst)
    assert judge.bars((ref * 3).float(), ref, torch.float32).worst == judge.HIGHEST_BAR < 0.5


def added_in_turn(a, b):
    """a [M, K] @ b [K, N] in float32, a product and a rounded sum at a time."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total += a[:, k : k + 1] * b[k]
    return total


def test_a_long_sum_in_turn_is_right_beside_a_library_that_adds_in_short_parts():
    """16,384 terms: the honest loop is off by more than four times the library's error, and a wrong one by far more."""
    terms, mix = 16_384, torch.Generator().manual_seed(5)
    a, b = torch.randn(64, terms, generator=mix), torch.randn(terms, 64, generator=mix)
    ref = a.double() @ b.double()
    parts = sum((a[:, k : k + 64] @ b[k : k + 64]).double() for k in range(0, terms, 64)).float()
    loop = added_in_turn(a, b)
    alone, fair = judge.bars(parts, ref, torch.float32), judge.bars(parts, ref, torch.float32, terms=terms)
    assert not judge.judge(loop, ref, alone, "float").ok and judge.judge(loop, ref, fair, "float").ok
    lacking = loop - a[:, -1:] * b[-1]  # one term of 16,384
    halved = (a.half().float() @ b.half().float()).float()  # inputs rounded to float16
    for wrong in (lacking, halved, loop * 1.00001, loop * 2, torch.zeros_like(loop)):
        assert not judge.judge(wrong, ref, fair, "float").ok
    assert judge.bars(parts, ref, torch.float32, terms=4) == alone  # a short sum has eager's bar and eps


def test_eagers_finite_values_set_the_bar_where_others_are_nan_alone():
    """As in attention of queries that may meet no key: PyTorch says NaN, float64 says 0."""
    ref = normal(1000)
    eager = (ref * 1.001).float()
    eager[:10] = float("nan")
    bar = judge.bars(eager, ref, torch.float32)
    assert bar.worst == pytest.approx(4 * judge.measure(eager[10:], ref[10:]).worst) and "NaN" in bar.note
    assert not judge.judge(eager, ref, bar, "float").ok
    assert judge.bars(torch.full_like(eager, torch.nan), ref, torch.float32).worst == 4 * 2.0**-23


def test_bar_is_the_dtypes_eps_where_eager_is_exact_or_absent():
    ref = normal(1000).float().double()
    assert judge.bars(ref.float(), ref, torch.float32).worst == 4 * 2.0**-23
    assert judge.bars(ref.float(), ref, torch.float32, tf32=True).worst == 4 * 2.0**-10
    assert judge.bars(None, ref, torch.bfloat16).worst == 4 * 2.0**-7


@pytest.mark.parametrize(
    "value,step,dtype",
    [(1.0, 2.0**-23, torch.float32), (1.5, 2.0**-23, torch.float32), (2.0, 2.0**-22, torch.float32),
     (0.75, 2.0**-11, torch.float16), (1.0, 2.0**-7, torch.bfloat16), (2.0**-24, 2.0**-24, torch.float16)],
)  # fmt: skip
def test_ulps_are_spacings_of_the_dtype(value, step, dtype):
    """Spacing by IEEE 754: 2^(exponent - mantissa bits); subnormals share the smallest."""
    ref = torch.tensor([value], dtype=torch.float64)
    assert judge.measure((ref + 3 * step).to(dtype), ref).ulps == pytest.approx(3.0)


def test_ulps_of_a_value_far_below_the_rest_are_the_rests():
    """A product that cancels to 2^-30 beside values of 1: its error of 2^-23 is one unit, and not 2^30 / 2^23."""
    ref = torch.tensor([1.0, -1.0, 1.0, 2.0**-30], dtype=torch.float64)
    got = ref.float()
    got[3] += 2.0**-24
    assert judge.measure(got, ref).ulps == pytest.approx(1.0)  # the rms is just below 1, where a unit is 2^-24


def test_bits_are_compared_bit_for_bit():
    ref = torch.tensor([1.0, -0.0, math.nan, 2.0**-140], dtype=torch.float64)
    assert verdict(ref.float(), ref, kind="bits").ok
    assert verdict(torch.tensor([1.0, 0.0, math.nan, 2.0**-140]), ref, kind="bits").wrong.index == (1,)
    off = ref.float()
    off[0] = 1.0000001
    assert verdict(off, ref, kind="bits").wrong.index == (0,)
    ints = torch.tensor([1, 2, 3], dtype=torch.int32)
    assert verdict(ints, ints.clone(), kind="bits").ok and not verdict(ints, ints + 1, kind="bits").ok


def test_codes_may_be_off_by_one_only_on_a_rounding_border():
    quotient = torch.tensor([0.5, 1.5, 2.4, -7.5000001, 126.9], dtype=torch.float64)
    for codes in ([0, 2, 2, -8, 127], [1, 1, 2, -7, 127]):
        assert verdict(torch.tensor(codes, dtype=torch.int8), quotient, kind="codes").ok
    found = verdict(torch.tensor([0, 2, 3, -8, 127], dtype=torch.int8), quotient, kind="codes")
    assert not found.ok and found.wrong.index == (2,)
    exact = torch.tensor([1, 2], dtype=torch.int8)
    assert not verdict(torch.tensor([1, 3], dtype=torch.int8), exact, kind="codes").ok


def test_an_integer_where_a_float_is_due_is_wrong():
    ref = torch.zeros(5, dtype=torch.float64)
    assert not judge.judge(torch.zeros(5, dtype=torch.int32), ref, judge.Bars(1, 1, 1), "float").ok
