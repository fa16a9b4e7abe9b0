"""What the Autotune and Code tabs make of results: exports, spread, diffs, what to notice in Inductor's code."""

import csv
import io
import json
import re

import gradio as gr
import pytest

from kernels import InputError, get
from playground.engine import edits
from playground.engine.code_messages import CodeRequest, CodeResult, CodeRow, LaunchCode
from playground.engine.inductor_messages import InductorKernel, InductorResult
from playground.engine.messages import Choice, ConfigChoice, Request, Resources, Source, Times
from playground.engine.sweep_messages import ConfigResult, SweepResult
from playground.settings import Settings
from playground.ui.context import Context
from playground.ui.tabs.autotune import charts, export, method, tab, view
from playground.ui.tabs.code import compare, inductor
from playground.ui.tabs.code import view as code_view
from playground.ui.tabs.code.compare import EDITED, SAME
from tests.ui.fake_engine import FakeEngine

HERE = Source(kind="measured", device="Test CPU", date="2026-11-29")
CONFIGS = [ConfigChoice(meta={"BLOCK": block}, num_warps=4) for block in (512, 1024, 2048, 4096)]
CHOICE = Choice(
    kernel="vector_add", dims={"n": 4096}, dtype="float32", seed=0, config=CONFIGS[0], config_origin="spec"
)  # fmt: skip


def us(p50):
    return Times(p20=p50, p50=p50, p80=p50)


def swept(**change):
    """Four configs: 5 us, the default with 8 us, a wrong one, one that does not fit."""
    found = (
        ConfigResult(config=CONFIGS[0], ok=True, us=us(8.0), method="warm", registers=18),
        ConfigResult(config=CONFIGS[1], ok=True, us=us(5.0), method="warm", registers=24),
        ConfigResult(config=CONFIGS[2], ok=False, failure="out: wrong, so not timed", registers=30),
        ConfigResult(config=CONFIGS[3], refusal="needs 300,000 bytes of shared memory"),
    )
    given = {"choice": CHOICE, "configs": found, "done": True, "best": 1, "default": 0, "speedup": 1.6, "source": HERE}
    return SweepResult(**(given | change))


def test_configs_to_paste_hold_the_right_ones_alone_the_fastest_first():
    names: dict = {}
    text = export.triton_configs(swept())

    class Config:
        def __init__(self, meta, num_warps, num_stages):
            self.meta = meta

    exec(text, {"triton": type("triton", (), {"Config": Config})}, names)
    assert [c.meta["BLOCK"] for c in names["configs"]] == [1024, 512]


def test_a_recorded_sweep_tells_its_device_and_wins_nothing_here():
    there = Source(kind="recorded", device="NVIDIA H200", date="2026-11-30")
    recorded = swept(source=there, recorded_note="recorded for n=4,096, the nearest shape")
    shown, said = view.as_recorded(recorded), view.recorded_banner(recorded)
    assert [c.recorded_us and c.recorded_us.p50 for c in shown.configs] == [8.0, 5.0, None, None]
    assert [c.us for c in shown.configs] == [None] * 4 and (shown.best, shown.source, shown.recorded) == (
        None,
        None,
        there,
    )
    assert view.shown_first(shown) == "time recorded" and "NVIDIA H200" in said
    assert "Recorded for n=4,096, the nearest shape. Sweep configs tries them on this device." in said


def test_the_table_has_no_column_without_a_figure_and_says_when_it_scrolls():
    def heads(result):
        return re.findall(r"<th scope=col[^>]*>([^<]*)</th>", view.table(result))

    assert heads(swept()) == ["config", "", "µs here", "registers"]
    assert "µs recorded" not in heads(swept(done=False)) and "first call, ms" in heads(swept(done=False))
    recorded = tuple(c.model_copy(update={"recorded_us": us(3.0)}) for c in swept().configs)
    assert heads(swept(configs=recorded)) == ["config", "", "µs here", "µs recorded", "registers"]
    assert 'colspan="2"' in view.table(swept()) and "scrolls" not in view.table(swept())
    many = view.table(swept(configs=swept().configs * 4))
    assert "16 configs, the fastest first: the table scrolls." in many and 'class="scroll tall"' in many


def test_csv_and_json_hold_every_config_with_its_reason():
    rows = list(csv.DictReader(io.StringIO(export.as_csv(swept()))))
    assert [row["us_p50"] for row in rows] == ["8.0", "5.0", "", ""]
    assert rows[2]["ok"] == "False" and rows[3]["reason"].startswith("needs 300,000")
    assert rows[0]["device"] == "Test CPU" and rows[2]["device"] == ""
    assert [c["ok"] for c in json.loads(export.as_json(swept()))["configs"]] == [True, True, False, None]


def test_the_spread_is_in_order_and_leaves_out_what_has_no_time():
    (points,) = charts.distribution(swept(), "time here").data
    assert list(points.y) == [5.0, 8.0] and points.marker.size[0] > points.marker.size[1]
    assert charts.distribution(swept(configs=swept().configs[:1]), "time here") is None


def test_the_lines_are_headed_by_the_config_that_they_set_off():
    """Of two that are as fast, the one that the answer above names."""
    assert view.leader(swept(), "time here") == f"Fastest with {CONFIGS[1].label}: 5.00 µs"
    assert view.leader(swept(), "registers") == f"Least with {CONFIGS[0].label}: 18 per thread"
    tied = [ConfigResult(config=c, ok=True, us=us(5.0)) for c in CONFIGS]
    result = swept(configs=tuple(tied), best=2)
    thick = [line for line in charts.parallel(result, "time here").data if line.line.width == 4]
    assert [CONFIGS[2].label in line.hovertemplate for line in thick] == [True]
    assert CONFIGS[2].label in view.leader(result, "time here")


def test_a_wide_spread_has_round_ticks_and_whole_configs():
    slow = [c.model_copy(update={"us": us(5.0 * 10**i), "ok": True}) for i, c in enumerate(swept().configs)]
    layout = charts.distribution(swept(configs=tuple(slow)), "time here").layout
    assert layout.yaxis.type == "log" and layout.xaxis.dtick == 1
    assert dict(zip(layout.yaxis.ticktext, layout.yaxis.tickvals, strict=True))["1,000"] == 1000
    assert charts.distribution(swept(), "time here").layout.yaxis.type != "log"


def test_a_busy_host_is_told_beside_the_winner():
    assert "The host was busy" in view.banner(swept(note="the host was busy (load 9.0 on 2 cores)"))
    assert "busy" not in view.banner(swept())


def test_on_a_busy_host_nothing_is_said_to_be_faster():
    """Two processes on one core give medians that are hundreds of times too long."""
    said = view.banner(swept(note="the host was busy (load 9.0 on 2 cores)", calls_to_repay=7))
    assert "no ranking is sure" in said and "times as fast" not in said and "repaid" not in said
    assert "1.03 times as fast as the default" in view.banner(swept(speedup=1.0278))


def test_a_winner_within_the_noise_is_none():
    default, best, *others = swept().configs
    wide = best.model_copy(update={"us": Times(p20=4.0, p50=5.0, p80=9.0)})
    assert "no faster than the default beyond the noise" in view.banner(swept(configs=(default, wide, *others)))
    assert "1.6 times as fast as the default" in view.banner(swept())
    assert "1 other cannot be told from the best" in view.banner(swept(configs=(default, wide, *others)))
    assert view.ties(swept(configs=(default, wide, *others))) == [0] and view.ties(swept()) == []
    assert "tied</small>" in view.table(swept(configs=(default, wide, *others))) and "tied" not in view.table(swept())


def test_the_heading_has_three_digits_and_a_unit():
    slow = swept().configs[1].model_copy(update={"us": us(5736.0)})
    assert view.leader(swept(configs=(slow,), best=0), "time here").endswith(": 5.74 ms")
    assert "<h3>Fastest at num_warps 4, BLOCK 1,024</h3>" in view.grid(swept(), "time here", "num_warps", "BLOCK")
    split = ConfigResult(config=ConfigChoice(meta={"BLOCK": 256, "BLOCKS": 2}, num_warps=4), ok=True, us=us(9.0))
    some = swept(configs=(*swept().configs, split))  # the fastest has no BLOCKS
    assert "<h3>Fastest at BLOCK 1,024</h3>" in view.grid(some, "time here", "BLOCKS", "BLOCK")
    assert "<h3>Least at BLOCK 512</h3>" in view.grid(swept(), "registers", "BLOCK", "BLOCK")


def test_how_a_sweep_is_timed_and_ranked_is_told_for_these_figures():
    told = method.how(swept(configs=tuple(c.model_copy(update={"method": "warm cache"}) for c in swept().configs)))
    assert "Calls in a row by the host" in told and "Best, tied" in told and "float64" in told
    offline = tuple(ConfigResult(config=c, registers=18) for c in CONFIGS)
    assert "tied" not in method.how(swept(configs=offline, best=None, source=None))


def test_a_recorded_time_keeps_its_device_in_the_csv():
    there = Source(kind="recorded", device="NVIDIA H200", date="2026-11-30T05:12:16+00:00")
    recorded = view.as_recorded(swept(source=there))
    rows = list(csv.DictReader(io.StringIO(export.as_csv(recorded))))
    assert [row["recorded_on"] for row in rows] == ["NVIDIA H200, 2026-11-30"] * 2 + [""] * 2


def test_own_ranges_are_every_combination_and_refused_where_they_cannot_be():
    asked = Request(kernel="vector_add", dims={"n": 4096}, dtype="float32")
    made = tab.ranges_of("BLOCK=512,1024 num_warps=2,4,8", asked)
    assert len(made) == 6 and {c.num_warps for c in made} == {2, 4, 8}
    for text, why in (
        ("WIDTH=3", "vector_add has BLOCK"),
        ("num_warps=3", "needs to be 1, 2, 4"),
        ("num_stages=99", "from 1 to 10"),
        ("BLOCK=a", "write names and values"),
        ("BLOCK=²", "write names and values"),
        (f"BLOCK={'1,' * 9000} num_warps={'1,' * 9000} num_stages={'1,' * 9000}", "729,000,000,000 configs"),
        (f"BLOCK={','.join('9' * n for n in range(1, 8))} num_warps=1,2,4,8,16,32 num_stages=1,2", "64 are the most"),
    ):
        with pytest.raises(InputError, match=why):
            tab.ranges_of(text, asked)


# Compare


def launch(name, ptx, registers=18):
    used = Resources(kernel=name, target="sm_90", registers=registers, spills=0, shared_bytes=0, num_warps=4)
    return LaunchCode(
        kernel=name, file="k.py", python=(f"def {name}():", f"    return {registers}"), first_line=1,
        stages={"ptx": tuple(CodeRow(text=line) for line in ptx)}, findings=(), resources=used, occupancy=1.0,
    )  # fmt: skip


def code(*launches):
    return CodeResult(choice=CHOICE, target="sm_90", launches=launches, source=HERE)


def test_a_diff_covers_every_launch_and_the_python():
    before = code(launch("first", ["add", "ret"]), launch("second", ["add", "ret"]))
    after = code(launch("first", ["add", "ret"]), launch("second", ["mul", "ret"], registers=20))
    html = code_view.diff(before, after, "ptx")
    assert '<li class="minus" data-mark="−">add</li>' in html and '<li class="plus" data-mark="+">mul</li>' in html
    assert "return 20" in code_view.diff(before, after, "python")
    assert "PTX is the same" in code_view.diff(before, before, "ptx")
    assert "only one of the two targets" in code_view.diff(before, after, "amdgcn")
    table = code_view.resources_table(before, after, ("as it is", "edited"))
    assert table.count("registers a thread") == 2 and "<td>+2</td>" in table and "second" in table


def test_the_other_side_is_what_was_changed_and_nothing_else():
    asked = CodeRequest(kernel="vector_add", dims={"n": 4096}, dtype="float32")
    own = edits.source_of(get("vector_add"))
    assert compare._changed(asked, SAME, SAME, SAME, SAME, "") == asked
    assert compare._changed(asked, SAME, SAME, SAME, EDITED, own + "\n") == asked  # nothing was edited
    edit = compare._changed(asked, "sm_80", SAME, "BLOCK=512,num_warps=2", EDITED, own.replace("+", "*"))
    assert (edit.target, edit.config.num_warps) == ("sm_80", 2) and edit.source != own
    bug = get("vector_add").bugs[0].name
    assert compare._changed(asked, SAME, SAME, SAME, bug, "").bug == bug


def test_what_is_to_be_compared_stays_chosen_until_another_kernel_is_compiled():
    where = Context(FakeEngine(), Settings())
    values = ("vector_add", 4096, "float32", "auto", "none", [], 0)
    of, config, *others = compare.offered(where, "sm_90", "", SAME, values)
    assert of == "vector_add" and config["value"] == SAME and all(gr.skip() != update for update in others)
    listed = [value for _, value in config["choices"]]
    assert listed[0] == SAME and len(listed) > 3
    of, config, *others = compare.offered(where, "sm_80", "vector_add", listed[2], values)
    assert (of, config["value"]) == ("vector_add", listed[2]) and others == [gr.skip()] * 3
    assert compare.offered(where, "sm_90", "vector_add", "BLOCK=3", values)[1]["value"] == SAME
    another = compare.offered(where, "sm_90", "vector_add", listed[2], ("softmax", 7, 77, *values[2:]))
    assert another[1]["value"] == another[3]["value"] == SAME and another[4]["value"] == ""
    # What cannot be compiled is said by the compilation, and changes no choice.
    refused = ("vector_add", -1, *values[2:])
    assert compare.offered(where, "sm_90", "vector_add", SAME, refused) == [gr.skip()] * 5


# Inductor


def written(*names, extern=(), eager=9, moved=100, eager_bytes=400, notes=()):
    kernels = tuple(InductorKernel(name=name, source="@triton.jit", notes=notes) for name in names)
    return InductorResult(
        kernel="add_rms_norm", block=bool(extern), dims={}, dtype="float32", kernels=kernels, extern=extern,
        bytes_moved=moved, eager_kernels=eager, eager_bytes=eager_bytes, source=HERE,
    )  # fmt: skip


def test_three_things_are_noticed_in_a_block():
    found = written(
        "triton_per_fused_add_mean_rsqrt_0", "triton_per_fused__softmax_1", "triton_per_fused_add_mean_rsqrt_2",
        "triton_poi_fused_mul_silu_3", extern=("mm", "mm", "bmm", "bmm"),
    )  # fmt: skip
    fused, patterns, left = inductor.notice(found)
    assert fused[0] == "9 kernels of eager become 8" and "75 %" in fused[1]
    assert patterns[0] == "3 patterns to find" and "a norm (2 kernels" in patterns[1]
    assert "mm 2×, bmm 2×" in left[1] and "scores go to memory" in left[1]


def test_three_things_are_noticed_in_one_kernel():
    notes = ("fuses add", "pointwise: every element on its own", "masks by xmask")
    found = written("triton_poi_fused_add_0", eager=1, moved=300, eager_bytes=300, notes=notes)
    fused, name, walked = inductor.notice(found)
    assert fused == ("1 kernel of eager becomes 1", "Nothing is saved in bytes: the operation was one pass through "
                     "memory already.")  # fmt: skip
    assert "triton_poi_fused_add_0" in name[1]
    assert walked == ("Pointwise", "every element on its own; masks by xmask.")


def test_statements_of_several_lines_are_known_and_a_loops_body_is_not_its_head():
    text = """    @triton.jit
    def f(x_ptr, n,
          B: tl.constexpr):
        \"""Two
        lines.\"""
        x = tl.load(
            x_ptr, mask=n > 0,
        )
        for i in range(
            n
        ):
            x += i
        return x"""
    assert code_view.spans(text.split("\n"), 100) == [(105, 107), (108, 110)]
    assert code_view.spans(["x = ("], 1) == []
