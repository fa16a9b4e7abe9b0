"""What the Memory tab shows of a trace: figures, units, sources, and the words that explain them."""

import json
import re
import threading

import pytest

from playground.engine.dram import DramBytes, DramRecording
from playground.engine.gpus import CATALOGUE, listed, this_device
from playground.engine.messages import Curve, EngineError, HostRequest, OutOfBounds, Roofs
from playground.settings import Settings
from playground.ui.context import Context
from playground.ui.tabs.memory import access_map, charts, drawn, journey, measure, occupancy, traffic, views
from playground.ui.tabs.memory import facts as memory_facts
from playground.ui.tabs.memory import trials as memory_trials
from playground.ui.tabs.memory.charts import Roof
from tests.ui.fake_engine import HERE as MEASURED
from tests.ui.fake_engine import FakeEngine, bench_result
from tests.ui.memory_samples import CHOICE, H200, REQUEST, TENSOR, WEIGHT, code, facts, trace

PLAIN = re.compile("<[^>]+>")


def words(html):
    return " ".join(PLAIN.sub(" ", html).split())


# The answer


def test_the_banner_says_what_moves_against_the_least_and_eager():
    said = words(views.banner(facts()))
    assert "240 B asked for, 204 B is the least" in said
    # Eager: 3 tensors, then 2 tensors and the weight.
    assert f"moves {4 * TENSOR + WEIGHT} B" in said and f"eager's {5 * TENSOR + WEIGHT} B" in said.replace(
        "&#x27;", "'"
    )


def test_an_access_out_of_bounds_is_the_headline():
    miss = OutOfBounds(kind="load", tensor="x_ptr", index=24, program=(3, 0, 0), lane=6, line=52,
                       message="load outside of x_ptr: element 24")  # fmt: skip
    html = views.banner(facts(trace=trace(misses=(miss,))))
    assert 'class="verdict wrong"' in html and "Out of bounds: 1 access" in html and "element 24" in html
    (launch,) = json.loads(access_map.as_json(trace(misses=(miss,))))["launches"]
    assert launch["misses"] == [{"line": 52, "tensor": "x_ptr", "index": 24, "lane": 6, "program": 3}]


# The levels


def test_levels_have_capacity_rates_with_their_source_and_the_kernels_share():
    html = views.hierarchy(facts())
    said = words(html)
    for part in ("256 KB per SM", "228 KB per SM", "60 MB", "141 GB", "4.25 TB/s", "7.90 TB/s", "4.80 TB/s datasheet"):
        assert part in said, part
    assert said.count("recorded") == 3  # shared memory by L1, L2, memory
    # 64 registers x 4 bytes x 32 lanes x 1 warp
    assert "8 KB a program, 32 programs on an SM" in said and "2 KB a program" in said
    assert "4 programs over 132 SMs, all at once" in said


def test_what_is_not_measured_is_said_and_never_guessed():
    gpu = CATALOGUE["A100"]
    html = words(views.hierarchy(facts(gpu=gpu, rates=memory_facts.rates_of(gpu, "bfloat16", {}))))
    assert "40 MB not measured" in html and "2.04 TB/s datasheet" in html and "recorded" not in html


def test_this_cpu_has_its_own_levels():
    base = facts()
    curve = Curve(bytes=(2**14, 2**20, 2**26), gbps=(90.0, 60.0, 9.0), source=MEASURED)
    host = base.host.model_copy(update={"curve": curve, "roofs": Roofs(copy_gbps=9.5, source=MEASURED)})
    roofs, _ = memory_facts.known_roofs(Settings().recordings / "none", host)
    gpu = memory_facts.gpu_named(memory_facts.HERE, host)
    shown = facts(gpu=gpu, host=host, code=None, residents=(), rates=memory_facts.rates_of(gpu, "float32", roofs))
    said = words(views.hierarchy(shown))
    assert "48 KB 90.0 GB/s measured" in said and "2 MB 90.0 GB/s measured" in said and "9.50 GB/s measured" in said


def test_a_copy_that_is_all_call_is_not_taken_for_a_cache():
    base = facts()
    curve = Curve(bytes=(2**14, 2**20, 2**26), gbps=(20.0, 60.0, 9.0), source=MEASURED)
    host = base.host.model_copy(update={"curve": curve})
    shown = facts(gpu=memory_facts.gpu_named(memory_facts.HERE, host), host=host, code=None, residents=())
    said = words(views.hierarchy(shown))
    assert "48 KB not measured" in said and "2 MB 60.0 GB/s measured" in said


def test_a_slice_of_a_card_is_none_of_the_catalogue():
    assert listed("NVIDIA H200").name == "H200" and listed("NVIDIA L40S").name == "L40S"
    assert listed("NVIDIA H200 MIG 1g.18gb") is None and listed("Some GPU") is None


def test_a_gpu_that_is_here_is_described_by_itself():
    host = FakeEngine(gpu=True).host().model_copy(update={"units": 60, "caches": {"L2": 25 * 2**20}})
    gpu = this_device(host)
    assert (gpu.sms, gpu.l2_bytes, gpu.memory_rate) == (60, 25 * 2**20, 0.0)  # not measured yet: no rate


# The journey


def test_the_journey_moves_each_byte_once_through_memory_and_the_rest_from_l2():
    ours, eager = journey.lanes(facts())
    assert ours["total"] == 4 * TENSOR + WEIGHT and eager["total"] == 5 * TENSOR + WEIGHT
    verbs = [(s["verb"], s["tensor"], s["level"]) for s in ours["steps"]]
    assert verbs == [
        ("load", "x", "hbm"), ("load", "residual", "hbm"), ("load", "weight", "hbm"), ("load", "weight", "l2"),
        ("compute", "", "registers"), ("store", "new_residual", "hbm"), ("store", "out", "hbm"),
    ]  # fmt: skip
    again = ours["steps"][3]
    assert again["bytes"] == TENSOR - WEIGHT
    assert again["us"] == pytest.approx((TENSOR - WEIGHT) / 7.9e12 * 1e6)
    assert ours["steps"][0]["us"] == pytest.approx(TENSOR / 4.245e12 * 1e6)


def test_bytes_of_a_sampled_launch_are_no_more_than_the_tensor_holds():
    sampled = trace(exact=False)
    (launch,) = sampled.launches
    launch = launch.model_copy(update={"programs_traced": 2})
    by_name = {t.name: t for t in launch.tensors}
    assert memory_facts.fresh_bytes(launch, by_name["weight_ptr"], "load") == WEIGHT
    assert memory_facts.fresh_bytes(launch, by_name["x_ptr"], "load") == TENSOR


# Bytes three ways


def test_the_three_figures_and_what_is_absent():
    said = words(traffic.three_ways(facts()))
    assert "Compulsory 204 B modelled" in said and "Asked for 240 B interpreted" in said
    assert "DRAM saw absent" in said and "ncu" in said


def test_what_dram_saw_stands_beside_them_and_is_explained():
    shape = DramBytes(dims=dict(CHOICE.dims), dtype="bfloat16", read=150, written=20)
    recording = DramRecording(kernel="add_rms_norm", source_hash="x", shapes=(shape,), source=H200)
    shown = facts(counted=(recording, shape, False))
    assert "DRAM saw 170 B recorded" in words(traffic.three_ways(shown))
    assert "34 B less than the least" in words(traffic.differences(shown)).replace("34.0", "34")
    far = shape.model_copy(update={"dims": {"rows": 4096, "n": 4096}})
    said = words(traffic.three_ways(facts(counted=(recording, far, True))))
    assert "DRAM saw absent" in said and "at rows=4096, n=4096 it was 170 B" in said and "older kernel" in said


def test_the_difference_is_explained_by_masks_rereads_and_sectors():
    said = words(traffic.differences(facts()))
    assert "25 % of the lanes ask for nothing" in said
    assert "weight is asked for 4 times over: 36.0 B more than its 12.0 B" in said
    assert "uses 38 % of the 32-byte sectors" in said


# The map and the charts


def test_the_map_holds_each_access_of_each_program():
    (launch,) = json.loads(access_map.as_json(trace()))["launches"]
    assert [p["id"] for p in launch["programs"]] == [0, 1, 2, 3]
    assert launch["programs"][2]["accesses"][0]["runs"] == [[12, 1, 6]]
    assert launch["programs"][2]["accesses"][0]["samples"][1] == [1, 13, "0.5"]
    again = {site["name"]: site["again"] for site in launch["sites"]}
    assert again["weight"] == "each byte 4 times" and again["x"] == "each byte once"


def recorded():
    choice = CHOICE.model_copy(update={"dims": {"rows": 4096, "n": 4096}})
    small = CHOICE.model_copy(update={"dims": {"rows": 64, "n": 4096}})
    return (bench_result(choice, H200, 4245.0), bench_result(small, H200, 4245.0))


def test_charts_have_units():
    shown = facts(recorded=recorded())
    roof, sizes = drawn.roofline(shown), drawn.bandwidth(shown)
    assert roof.layout.yaxis.title.text == "TFLOP/s" and "FLOP per byte" in roof.layout.xaxis.title.text
    assert sizes.layout.yaxis.title.text in ("GB/s", "TB/s") and sizes.layout.xaxis.title.text == "bytes touched"
    names = {t.name for t in sizes.data}
    assert {"Triton", "eager", "copy, measured roof"} <= names


def test_the_roofline_names_every_roof_and_says_what_is_served_from_l2():
    fast = recorded()[0]
    quick = fast.providers["triton"].model_copy(
        update={"us": fast.providers["triton"].us.model_copy(update={"p50": 1.0})}
    )
    fast = fast.model_copy(update={"providers": {"triton": quick}})
    roof = drawn.roofline(facts(recorded=(fast,)))
    texts = [a.text for a in roof.layout.annotations]
    for part in (
        "HBM3e 4.25 TB/s",
        "L2 7.90 TB/s",
        "L1 29.0 TB/s",
        "products, bfloat16: 800",
        "B200",
        "served from L2",
    ):
        assert part in texts, part


def test_roofs_that_lie_together_share_a_label():
    """Each with its own, the upper label hid the lower one."""
    near, far = [Roof("L2", "l2", 14e12), Roof("L1", "sram", 16e12)], [Roof("L2", "l2", 7e12), Roof("L1", "sram", 3e13)]
    said = []
    for roofs in (near, far):
        fig = charts.roofline([Roof("HBM", "hbm", 4e12), *roofs], {"products": 8e14}, [], {}, 1.0, False)
        said.append({a.text for a in fig.layout.annotations})
    assert {"L1 16.0 TB/s<br>L2 14.0 TB/s", "HBM 4.00 TB/s"} <= said[0]
    assert {"L1 30.0 TB/s", "L2 7.00 TB/s", "HBM 4.00 TB/s"} <= said[1]


def test_a_kernel_that_computes_nothing_has_no_roofline():
    assert drawn.roofline(facts(trace=trace(flops=0))) is None


def test_flows_are_on_one_scale_and_named():
    fig = drawn.flows(facts())
    eager, ours = fig.data
    assert sum(ours.link.value) == 4 * TENSOR + WEIGHT and sum(eager.link.value) == 5 * TENSOR + WEIGHT
    assert "add_rms_norm_kernel" in ours.node.label and "\0" not in "".join(ours.node.label)


# Occupancy


def test_the_limit_that_decides_is_marked():
    html = occupancy.limits(facts())
    assert "32 programs on an SM, 50 % of its warps" in words(html)
    assert re.search(r'class="decides"><span>registers</span>', html)


def test_the_what_if_tries_blocks_and_warps():
    context = Context(FakeEngine(), Settings())
    *_, (progress, trials) = memory_trials.try_all(context, facts(), threading.Event())
    assert progress.done == progress.total == len(trials) == 15
    html = occupancy.what_if(trials, memory_trials.key_of(CHOICE.config))
    assert html.count("<tr>") == 4 and html.count('class="now"') == 1
    assert "64 reg<br>32 prog" in html


def test_a_config_that_cannot_be_is_a_cell_with_its_reason():
    trial = occupancy.Trial("x", 4, failure="does not fit: <too much>")
    html = occupancy.what_if({("BLOCK 8", 4): trial}, None)
    assert "not possible" in html and "&lt;too much&gt;" in html


# Asking


def test_a_trace_is_asked_for_once():
    context, traces = Context(FakeEngine(), Settings()), memory_facts.Traces()
    for _ in range(2):
        *_, last = memory_facts.ask_for(context, REQUEST, "H200", traces, None, threading.Event())
    assert isinstance(last, memory_facts.Facts)
    assert sum(type(asked).__name__ == "TraceRequest" for asked in context.engine.asked) == 1


def test_what_cannot_be_traced_is_said():
    context = Context(FakeEngine(), Settings())
    bad = REQUEST.model_copy(update={"dims": {"rows": -1}})
    with pytest.raises(EngineError, match="rows must be 1 or more"):
        list(memory_facts.ask_for(context, bad, "H200", memory_facts.Traces(), None, threading.Event()))


def test_sizes_to_measure_grow_from_small_to_the_limit():
    from kernels import get

    shapes = measure.shapes(get("add_rms_norm"), REQUEST, 2**26)
    rows = [shape["rows"] for shape in shapes]
    assert rows == sorted(rows) and 4 <= len(rows) <= measure.SIZES and all(s["n"] == 6 for s in shapes)


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_every_gpu_of_the_catalogue_can_be_shown(name):
    gpu = CATALOGUE[name]
    compiled = code(target=gpu.arch)
    residents = (memory_facts.residency(compiled.launches[0].resources, (4,), gpu),)
    shown = facts(gpu=gpu, rates=memory_facts.rates_of(gpu, "bfloat16", {}), code=compiled, residents=residents)
    said = words(views.hierarchy(shown))
    assert (
        gpu.memory_kind in said
        and "datasheet" in said
        and f"over {gpu.sms} {'CU' if gpu.name[:2] == 'MI' else 'SM'}s" in said
    )
    assert drawn.roofline(shown) is not None and "decides" in occupancy.limits(shown)


class Measuring(FakeEngine):
    """Also measures its device; 2,048 rows have no right answer."""

    def stream(self, request, cancel):
        if isinstance(request, HostRequest):
            curve = Curve(bytes=(2**14, 2**26), gbps=(80.0, 9.0), source=MEASURED)
            roofs = Roofs(copy_gbps=9.0, matmul_tflops={"float32": 0.1}, source=MEASURED)
            yield facts().host.model_copy(update={"roofs": roofs, "curve": curve})
            return
        for event in super().stream(request, cancel):
            yield (
                event.model_copy(update={"ok": False})
                if request.dims["rows"] == 2**11 and hasattr(event, "ok")
                else event
            )


def test_this_device_is_measured_once_and_the_kernel_beside_it():
    context, devices = Context(Measuring(), Settings()), measure.Devices()
    *_, now = measure.measure(context, devices, REQUEST, threading.Event())
    assert devices.host is now.host and now.progress is None
    rows = [r.choice.dims["rows"] for r in now.results]
    assert len(rows) >= 4 and 2**11 not in rows and 2**9 in rows
    fig = drawn.here(now.host, list(now.results))
    assert {t.name for t in fig.data} == {"copy", "copy, measured roof", "Triton", "eager"}
    assert "L1 48 KB" in [a.text for a in fig.layout.annotations]
