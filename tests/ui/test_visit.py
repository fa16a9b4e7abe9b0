"""The runs of a visit: kept with their numbers, opened again, and compared within one source alone."""

import csv
import io
import json
from dataclasses import replace

from playground.ui.tabs.run import export, visit
from playground.ui.tabs.run.visit import Visit
from tests.ui.fake_engine import FakeEngine
from tests.ui.samples import answer


def of(*answers):
    made = Visit()
    for found in answers:
        made = made.added(found)
    return made


def test_runs_keep_their_numbers_and_the_oldest_goes_first():
    one = answer()
    made = of(*[one] * (visit.MOST + 3))
    assert len(made.runs) == visit.MOST and made.runs[-1][0] == visit.MOST + 3 and made.shown == visit.MOST + 3
    assert made.opened(1).shown == made.shown and made.opened(5).shown == 5


def test_two_picked_runs_are_compared():
    slow = answer(dims={"rows": 64, "n": 4096})
    own = slow.bench.providers["triton"]
    twice = own.model_copy(update={"us": own.us.model_copy(update={"p50": 2 * own.us.p50})})
    fast = replace(slow, bench=slow.bench)
    slow = replace(slow, bench=slow.bench.model_copy(update={"providers": {**slow.bench.providers, "triton": twice}}))
    made = of(slow, fast).picking([1, 2])
    html = visit.listing(made)
    assert "against 1" in html and "2.0×" in html
    assert [list(t.y) for t in visit.chart(made).data] == [["1: add_rms_norm"], ["2: add_rms_norm"]]


def test_times_of_two_devices_are_never_compared():
    made = of(answer(), answer(FakeEngine(gpu=True))).picking([1, 2])
    assert "another device" in visit.listing(made) and visit.chart(made) is None


def test_a_wrong_run_is_listed_without_a_time():
    html = visit.listing(of(answer(bug="Mean over the block")))
    assert "Mean over the block" in html and "wrong" in html and "µs" not in html


def test_csv_has_a_row_for_each_implementation_and_names_its_source():
    found = answer()
    rows = list(csv.DictReader(io.StringIO(export.as_csv(found))))
    assert {(r["provider"], r["source"]) for r in rows} >= {("triton", "measured"), ("triton", "recorded")}
    own = next(r for r in rows if (r["provider"], r["source"]) == ("triton", "measured"))
    assert float(own["us_p50"]) == found.bench.providers["triton"].us.p50
    assert (own["dims"], own["dtype"], own["seed"]) == ("rows=64 n=3000", "float32", "0")
    assert not any(r["provider"] == "FlagGems" for r in rows)  # not installed, so it has no figures


def test_a_wrong_runs_csv_has_verdicts_and_no_times():
    rows = list(csv.DictReader(io.StringIO(export.as_csv(answer(bug="Mean over the block")))))
    assert [(r["provider"], r["ok"], r["us_p50"]) for r in rows] == [("triton", "False", ""), ("eager", "True", "")]


def test_json_is_strict_and_holds_what_was_asked():
    found = answer()
    data = json.loads(export.as_json(found), parse_constant=lambda name: 1 / 0)
    assert data["request"]["dims"] == {"rows": 64, "n": 3000} and data["bench"]["source"]["kind"] == "measured"
    assert data["recorded"]["source"]["kind"] == "recorded"
