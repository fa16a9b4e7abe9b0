"""A case says what it changes in the choice, and gives it back when it is put away."""

from playground.engine.messages import ConfigChoice
from playground.settings import Settings
from playground.ui import bench as form
from playground.ui import cases
from playground.ui.context import Context
from tests.ui.fake_engine import FakeEngine
from tests.ui.samples import REQUEST

MINE = REQUEST.model_copy(
    update={"dims": {"rows": 7, "n": 500}, "dtype": "bfloat16",
            "config": ConfigChoice(meta={"BLOCK_N": 512}, num_warps=4, num_stages=1)}
)  # fmt: skip


def test_a_bug_sets_its_dtype_and_shape_and_says_so():
    kept = cases.taken(MINE, "bug", "Forgotten mask")
    assert (kept.now.bug, kept.now.dtype, kept.now.dims) == ("Forgotten mask", "float32", {"rows": 64, "n": 3000})
    assert cases.said(kept) == (
        "“Forgotten mask” has set dtype to float32, rows to 64 and n to 3000. "
        "Without it dtype bfloat16, rows 7 and n 500 come back."
    )


def test_putting_it_away_brings_back_what_one_had():
    assert (
        cases.put_away(cases.taken(MINE, "bug", "Forgotten mask").now, cases.taken(MINE, "bug", "Forgotten mask"))
        == MINE
    )
    one_row = cases.taken(MINE, "edge", "One row")
    assert cases.put_away(one_row.now, one_row) == MINE


def test_what_was_changed_by_hand_meanwhile_stays():
    kept = cases.taken(MINE, "bug", "Forgotten mask")
    typed = kept.now.model_copy(update={"dims": {"rows": 64, "n": 4096}, "dtype": "float16"})
    back = cases.put_away(typed, kept)
    assert (back.dims, back.dtype, back.bug) == ({"rows": 7, "n": 4096}, "float16", None)


def test_a_case_that_changes_nothing_says_nothing():
    plain = MINE.model_copy(update={"dims": {"rows": 64, "n": 3000}, "dtype": "float32"})
    assert cases.said(cases.taken(plain, "bug", "Forgotten mask")) == "" == cases.said(None)
    assert form.case_note(None) == ""


def test_another_case_stands_on_what_was_there_before_the_first():
    """By the form's own values: bug, then edge, then none; the dtype of the bug does not stay."""
    context = Context(FakeEngine(), Settings())
    spec = context.specs["add_rms_norm"]

    def values(filled, case):
        kernel, _, *rest = filled
        dims = [d["value"] for d in rest[: max(len(s.dims) for s in context.specs.values())]]
        dtype, config, _, baselines, seed, _, kept, note, of = rest[len(dims) :]
        assert of[0] == kernel
        return kept, note, [kernel, *dims, dtype["value"], config["value"], case, baselines["value"], seed]

    kept, note, now = values(form.fill(context, MINE), "bug:Forgotten mask")
    assert note == ""
    kept, note, now = values(form.with_case(context, kept, *now), "edge:One row")
    assert "float32" in note and "data-away" in note
    kept, note, now = values(form.with_case(context, kept, *now), "none")
    assert "bfloat16" in str(now) and "float32" not in note and "n 500" in note
    kept, note, now = values(form.with_case(context, kept, *now), "none")
    assert (now[1:3], now[-5], kept, note) == ([7, 500], "bfloat16", None, "")
    assert spec.name == now[0]
