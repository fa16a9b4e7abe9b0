"""A link restores the choice it was copied from, and a broken one gives one line and something that works."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels
from kernels import InputError
from playground.engine.messages import ConfigChoice, Request
from playground.ui import links

SPECS = kernels.all_kernels()
NAMES = st.sampled_from(("kernel", "rows", "n", "dtype", "seed", "config", "edge", "bug", "baselines"))
START = links.first_choice(SPECS["add_rms_norm"])


def requests_of(spec) -> list[Request]:
    """The first choice, every preset, every case, and one with everything set."""
    first = links.first_choice(spec)
    found = [first, *(first.model_copy(update={"dims": dict(p)}) for p in spec.presets.values())]
    for kind, cases in (("edge", spec.edges), ("bug", spec.bugs)):
        for case in cases:
            dims, dtype = {**first.dims, **case.dims}, case.dtype or first.dtype
            found.append(first.model_copy(update={kind: case.name, "dims": dims, "dtype": dtype}))
    config = ConfigChoice(meta={"BLOCK": 64}, num_warps=2, num_stages=4)
    found.append(first.model_copy(update={"seed": 7, "config": config, "baselines": ("torch.compile",)}))
    return [*found, first.model_copy(update={"baselines": ()})]


@pytest.mark.parametrize("name", SPECS)
def test_a_link_restores_the_choice(name):
    for request in requests_of(SPECS[name]):
        link = links.restore(links.query(request), START)
        assert (link.request, link.problem) == (request, "")


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"kernel": "nope"}, "no kernel is named 'nope'"),
        ({"kernel": "add_rms_norm", "rows": "abc"}, "rows is 'abc'; set rows to a whole number"),
        ({"kernel": "add_rms_norm", "rows": "-1"}, "rows must be 1 or more, and it is -1"),
        ({"kernel": "add_rms_norm", "n": "3.5"}, "n must be whole, and it is 3.5"),
        ({"kernel": "add_rms_norm", "n": "1e400"}, "n is '1e400'"),
        ({"kernel": "add_rms_norm", "dtype": "float8"}, "add_rms_norm has no dtype 'float8'"),
        ({"kernel": "add_rms_norm", "bug": "<b>"}, "no bug is named '<b>'"),
        ({"kernel": "add_rms_norm", "config": "x=y"}, "config is 'x=y'"),
        ({"kernel": "add_rms_norm", "config": "num_warps=999"}, "config is 'num_warps=999'"),
        ({"kernel": "add_rms_norm", "seed": "-3"}, "seed must be from 0"),
        ({"kernel": "add_rms_norm", "baselines": "nope"}, "add_rms_norm has no baseline 'nope'"),
    ],
)
def test_what_cannot_be_used_is_named_and_left_out(params, says):
    link = links.restore({**params, "tab": "Run"}, START)
    assert link.problem.startswith(says)
    assert "; " in link.problem and "\n" not in link.problem
    assert link.request == START


def test_the_usable_part_of_a_broken_link_is_kept():
    link = links.restore({"kernel": "softmax", "rows": "oops", "seed": "5"}, START)
    assert (link.request.kernel, link.request.seed) == ("softmax", 5)
    assert link.request.dims == links.first_choice(SPECS["softmax"]).dims


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, st.text(max_size=30) | st.sampled_from(("add_rms_norm", "softmax", "nan", "1e9", "-0"))))
def test_no_link_breaks_the_page(params):
    link = links.restore(params, START)
    assert link.request.kernel in SPECS


@pytest.mark.parametrize(
    "given", [None, "", " ", "1.5", "nan", "inf", "-inf", "12x", "--5", "-", 1e300 + 0.0, float("nan"), [1]]
)
def test_what_is_no_whole_number_is_refused(given):
    if given == 1e300:
        assert links.whole(given, "n") == int(1e300)
        return
    with pytest.raises(InputError, match=r"^n .*; set n to a whole number$"):
        links.whole(given, "n")


def test_whole_numbers_in_any_writing_are_taken():
    assert [links.whole(v, "n") for v in (7, "7", 7.0, "7.0", "1e3", -2, "-2")] == [7, 7, 7, 7, 1000, -2, -2]
