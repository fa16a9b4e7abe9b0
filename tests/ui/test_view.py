"""What the page says of an answer: the headline, the sources, and nothing that a person typed as markup."""

import math
import re
import threading
from dataclasses import replace
from html import escape

import pytest

import kernels
from playground.engine import bench, edits
from playground.engine.messages import Failure, Progress, Times
from playground.ui import panels
from playground.ui.answer import Answer
from playground.ui.tabs.run import lesson, method, sheet, sweep_sheet, view
from tests.ui.fake_engine import FakeEngine, bench_result
from tests.ui.samples import REQUEST, answer, faster


def plain(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)).strip()


@pytest.mark.parametrize(
    ("gain", "headline"),
    [(3.6, "Right, and 3.6 times as fast as eager"), (1.01, "Right, and as fast as eager"),
     (0.42, "Right, at 0.42 of eager's speed"), (None, "Right")],
)  # fmt: skip
def test_the_headline_states_the_result(gain, headline):
    found = answer()
    assert view.headline(faster(found, gain) if gain else replace(found, bench=None)) == headline


def test_times_whose_spreads_overlap_are_not_ranked():
    found = faster(answer(), 3.6)
    providers = found.bench.providers
    wide = Times(p20=providers["triton"].us.p20, p50=200.0, p80=900.0)
    eager = providers["eager"].model_copy(update={"us": wide})
    noisy = replace(found, bench=found.bench.model_copy(update={"providers": {**providers, "eager": eager}}))
    assert view.headline(noisy) == "Right; the times are too noisy to say which is faster"


def test_a_time_taken_on_a_busy_host_says_so_beside_the_headline():
    found = faster(answer(), 3.6)
    busy = "the host was busy (load 9.1 on 2 cores): these times are noisy"
    noisy = replace(found, bench=found.bench.model_copy(update={"note": busy}))
    assert "The host was busy (load 9.1 on 2 cores): these times are noisy." in plain(view.banner(noisy))
    assert "busy" not in plain(view.banner(found))
    assert view.headline(noisy) == "Right, and faster than eager; how much, a busy host cannot say"
    slower = replace(noisy, bench=faster(answer(), 0.5).bench.model_copy(update={"note": busy}))
    assert view.headline(slower) == "Right; the times are too noisy to say which is faster"


def test_a_headline_never_takes_its_time_from_a_recording():
    found = replace(answer(), bench=None, untimed="This host cannot time.")
    assert found.recorded and view.headline(found) == "Right"
    assert "times as fast" not in view.banner(found) and "recorded" not in view.banner(found)


def test_no_time_stands_beside_a_wrong_answer():
    found = answer(bug="Mean over the block")
    shown = plain(view.banner(found) + view.picture(found))
    assert shown.startswith("Wrong from index [0, 3000] of out on Got 7134.2, expected 0.4219.")
    assert not re.search(r"\d (µs|ms|GB/s|TB/s)", shown)
    assert "70 of 192 elements are wrong" in shown


@pytest.mark.parametrize("way", [bench.COLD, bench.WARM_CPU, bench.GRAPH_COLD, bench.GRAPH_WARM])
def test_every_way_of_timing_is_explained_one_click_beside_its_figures(way):
    found = answer().bench
    own = found.providers["triton"].model_copy(update={"method": way})
    shown = plain(method.timed(found.model_copy(update={"providers": {"triton": own}})))
    assert shown.startswith("How it is judged and timed") and way.lower() in shown.lower() and "float64" in shown
    assert ("256 and 512 MiB" in shown) == ("row by the host" in shown) == (way == bench.WARM_CPU)


def test_what_was_only_judged_says_how():
    assert plain(method.judged()).startswith("How it is judged Right or wrong")
    note = sheet.draw(replace(answer(bug="Mean over the block"), recorded=None), None)[1]["value"]
    assert method.judged() in note


def test_an_answer_that_is_a_little_off_everywhere_names_no_single_index():
    found = answer(bug="Mean over the block")
    near = found.run.outputs["out"].model_copy(
        update={"error": 1e-3, "bar": 2e-3, "note": "no element is over the bar"}
    )
    shown = plain(view.banner(replace(found, run=found.run.model_copy(update={"outputs": {"out": near}}))))
    assert shown.startswith("Wrong all over, a little everywhere No element is over the bar.")


def test_a_wrong_implementation_has_no_time_in_the_table():
    found = answer()
    spoiled = found.bench.providers["Liger"].model_copy(update={"ok": False, "us": None})
    timed = found.bench.model_copy(update={"providers": {**found.bench.providers, "Liger": spoiled}})
    row = next(r for r in view.table(timed).split("<tr") if "Liger" in r)
    assert 'aria-label="wrong"' in row and plain("<tr" + row).count("–") == 5
    assert "Liger" not in str(view.bars(timed).to_dict()["data"])


def test_out_of_bounds_shows_the_source_line_as_it_ran():
    found = answer(bug="Forgotten mask")
    note = lesson.note(kernels.get("add_rms_norm"), found.request, found.run)
    hit = re.search(r'<span class="hit"><i>53</i>(.*?)</span>', note)[1]
    assert hit in escape(edits.source_of(kernels.get("add_rms_norm")))
    assert "Out of bounds: a load outside x" in view.banner(found)


def test_a_write_that_only_a_guard_zone_saw_is_wrong_too():
    found = answer(bug="Mean over the block")
    own = found.run.providers["triton"].model_copy(
        update={"failure": "wrote outside out_ptr: element 1,025, past its last"}
    )
    run = found.run.model_copy(update={"providers": {**found.run.providers, "triton": own}})
    shown = plain(view.banner(replace(found, run=run)))
    assert shown.startswith("Wrote outside out_ptr Element 1,025, past its last. No time is shown")


def test_a_bug_is_shown_with_its_hint_and_its_change():
    spec = kernels.get("add_rms_norm")
    for bug in spec.bugs:
        note = lesson.note(spec, REQUEST.model_copy(update={"bug": bug.name}), None)
        assert escape(bug.hint) in note
        removed = re.findall(r'<span class="del">-(.*?)</span>', note)
        added = re.findall(r'<span class="ins">\+(.*?)</span>', note)
        assert escape(bug.find.strip().splitlines()[0]) in "\n".join(removed) and added


def test_every_figure_carries_its_source():
    found = answer()
    for html in (view.table(found.bench), panels.reasons(view.why(found))):
        assert html
    kinds = [getattr(r.source, "kind", r.source) for r in view.why(found)]
    assert kinds == ["measured", "modelled", "compiled", None]  # a config is chosen, and no figure
    assert 'class="badge measured"' in view.banner(found)


def test_more_than_the_roof_says_why():
    found = answer()
    own = found.bench.providers["triton"].model_copy(update={"share_of_peak": 1.31})
    bench = found.bench.model_copy(update={"providers": {**found.bench.providers, "triton": own}})
    assert "served from cache" in plain(view.table(bench))
    assert any("served from cache" in s.small for s in view.key_figures(bench))


def test_a_recording_of_another_shape_or_an_older_kernel_says_so():
    found = answer()
    assert view.recorded_note(found).startswith("the nearest shape that was recorded; NVIDIA H200, 2026-11-20")
    stale = replace(found, recorded=found.recorded.model_copy(update={"stale": True}))
    assert view.recorded_note(stale).startswith("recorded with an older kernel; ")
    for one, begin in ((found, ""), (stale, "recorded with an older kernel; ")):
        assert f"</span> {begin}NVIDIA H200, 2026-11-20" in sweep_sheet._recorded_head([one.recorded], "n")


def test_what_compute_binds_is_told_in_flops():
    spec = kernels.get("matmul")
    choice = answer(kernel="matmul", dims=dict(spec.default)).run.choice
    source = answer().bench.source
    bench = bench_result(choice, source, 4200.0).model_copy(update={"bound": "compute"})
    assert "FLOP/s" in view.table(bench) and "of matmul" in view.table(bench)
    assert any("FLOP/s" in s.unit for s in view.key_figures(bench))
    assert view.sweep_chart([bench], spec.sweep_dim).layout.xaxis.title.text == spec.sweep_dim


def test_a_ceiling_keeps_the_charts_unit_where_another_roof_binds():
    """A product with few rows is bound by the copy: its ceiling is FLOP/s too, not the copy's bytes a second."""
    found = answer(kernel="matmul", dims=dict(kernels.get("matmul").default))
    thin = bench_result(found.run.choice, found.bench.source, 4200.0)
    thin = thin.model_copy(update={"bound": "memory", "flops": 33_554_432, "floor_us": 8.0})
    wide = thin.model_copy(update={"bound": "compute", "flops": 137_438_953_472, "floor_us": 170.0})
    ceiling = view.sweep_chart([thin, wide], "m").data[0]
    assert [round(v, 1) for v in ceiling.y] == [4.2, 808.5]
    assert ceiling.name == "copy and matmul ceiling"


# What others typed or said is text


EVIL = '<img src=x onerror="alert(1)">'


def test_nothing_is_markup_that_came_from_elsewhere():
    found = answer()
    failure = Failure(kind="failed", message=f"{EVIL}; {EVIL}")
    run = found.run.model_copy(update={"note": EVIL})
    shown = [
        view.banner(replace(found, run=None, failure=failure)),
        view.banner(replace(found, run=run)),
        panels.busy(Progress(what=EVIL, done=1, total=2, unit=EVIL)),
        panels.working(Progress(what=EVIL)),
        panels.failed(EVIL),
        panels.section(EVIL, None, EVIL),
        panels.chips([("edge", EVIL, EVIL)], EVIL),
        panels.header(FakeEngine().host().model_copy(update={"device": EVIL}), EVIL),
        panels.compare_table([panels.Row(EVIL, gone=EVIL)], "µs", "GB/s", "copy", EVIL),
        panels.badge(found.run.source.model_copy(update={"device": EVIL})),
        lesson.diff("a", EVIL),
    ]
    assert [html for html in shown if "<img" in html] == []


@pytest.mark.parametrize("kind", ["crashed", "timeout", "unavailable", "failed", "input"])
def test_a_failure_names_what_happened_and_a_remedy(kind):
    found = Answer(REQUEST, failure=Failure(kind=kind, message="the worker died"))
    html = view.banner(found)
    assert 'role="alert"' in html and re.search(r"<b>[A-Z].*\.</b>", html)
    assert ("Nothing was run." in html) == (kind in ("unavailable", "input"))


def test_the_look_of_a_refused_size():
    html = panels.failed("rows must be 1 or more, and it is -1; set rows to 1 or more")
    assert plain(html) == "rows must be 1 or more, and it is -1 Nothing was run. Set rows to 1 or more."


def test_who_waits_sees_their_place():
    assert "2 requests before yours" in panels.busy(Progress(what="Waiting", place=2))
    assert "1 request before yours" in panels.working(Progress(what="Waiting", place=1))


def test_nan_and_infinities_are_words():
    found = answer(bug="Mean over the block")
    verdict = found.run.outputs["out"]
    wrong = verdict.wrong.model_copy(update={"got": math.nan, "expected": -math.inf})
    run = found.run.model_copy(update={"outputs": {"out": verdict.model_copy(update={"wrong": wrong})}})
    assert "Got NaN, expected -infinity." in view.banner(replace(found, run=run))


def test_stopping_is_no_failure():
    engine = FakeEngine(pause=threading.Event())
    stopped = Answer(REQUEST, failure=Failure(kind="cancelled", message="stopped"))
    assert plain(view.banner(stopped)).startswith("Stopped") and engine
