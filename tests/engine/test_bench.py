"""Times and what is made of them: clocks against a known wait, figures by hand, and no time without a verdict."""

from __future__ import annotations

import math
import time

import pytest
import torch

import kernels
from kernels.spec import Cost, Target
from playground.engine import bench, device, execute, host, roofs, shares, timing
from playground.engine.bench import Measured
from playground.engine.job import Job
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    ConfigChoice,
    EngineError,
    ProviderBench,
    Roofs,
    Source,
    Times,
)

CPU = torch.device("cpu")
SOURCE = Source(kind="measured", device="this one", date="2026-01-01")
PEAKS = Roofs(copy_gbps=10.0, matmul_tflops={"float32": 0.1, "bfloat16": 0.4}, source=SOURCE)


@pytest.fixture(autouse=True)
def given_roofs(monkeypatch):
    """Roofs known beforehand, and a small cache: measuring and flushing take seconds, and are tests of their own."""
    monkeypatch.setattr(roofs, "roofs", lambda job: PEAKS)
    monkeypatch.setattr(host, "last_level_cache", lambda device: 2**22)


def run(kernel: str = "vector_add", **asked) -> BenchResult:
    asked.setdefault("dims", {"n": 4096})
    request = BenchRequest(kernel=kernel, quick=True, **{"baselines": (), **asked})
    return bench.bench(request, Job(CPU))


def times(us: float) -> Times:
    return Times(p20=us, p50=us, p80=us)


# Clocks


@pytest.mark.parametrize("way", ["cold", "warm", "launched"])
def test_a_known_wait_is_measured_as_that_wait(way):
    clock = timing.CpuTimer(CPU, seconds=0.05)
    found = timing.percentiles(getattr(clock, way)(lambda: time.sleep(0.004)))
    assert 4000 <= found.p20 <= found.p50 <= found.p80 and found.p20 < 20_000  # a busy host wakes a sleeper late


def test_percentiles_are_by_nearest_rank():
    assert timing.percentiles(range(1, 101)) == Times(p20=20, p50=50, p80=80)
    assert timing.percentiles([7.0]) == Times(p20=7, p50=7, p80=7)
    assert timing.percentiles([3.0, 1.0]) == Times(p20=1, p50=1, p80=3)


def test_cold_goes_through_a_buffer_before_each_call_and_warm_does_not():
    clock = timing.CpuTimer(CPU, seconds=0.01)
    seen: list[int] = []
    clock.cold(lambda: seen.append(int(clock._flush[0])))
    assert len(set(seen[-3:])) == 3  # the buffer has changed between any two timed calls
    before = int(clock._flush[0])
    clock.warm(lambda: None)
    assert int(clock._flush[0]) == before


def test_the_flushing_buffer_is_as_large_as_the_cache_but_never_takes_the_memory(monkeypatch):
    monkeypatch.setattr(host, "last_level_cache", lambda device: 2**34)
    monkeypatch.setattr(host, "available_bytes", lambda device: 2**26)
    assert timing.CpuTimer(CPU)._flush.nbytes == 2**24


# Figures


def test_every_figure_follows_from_the_times_and_the_cost():
    result = run(dims={"n": 100_000})
    assert result.ok and result.bytes_moved == 12 * 100_000 and result.flops == 100_000
    assert result.bound == "memory" and result.floor_us == pytest.approx(1_200_000 / 10e9 * 1e6)
    for name in ("triton", "eager"):
        own = result.providers[name]
        assert own.ok and own.method == "warm cache" and own.us == own.warm_us and own.graph_us is None
        assert own.gbps == pytest.approx(1_200_000 / (own.us.p50 * 1e-6) / 1e9)
        assert own.tflops == pytest.approx(100_000 / (own.us.p50 * 1e-6) / 1e12)
        assert own.share_of_peak == pytest.approx(result.floor_us / own.us.p50)
        assert own.speedup == pytest.approx(result.providers["eager"].us.p50 / own.us.p50)
        assert own.ulps == 0.5 and own.calls >= 13
    assert result.source.kind == "measured" and result.source.device == host.name(CPU)
    assert BenchResult.model_validate_json(result.model_dump_json()) == result


@pytest.mark.parametrize(
    "cost,dtype,expected",
    [
        (Cost(6000, 4000, 10), "float32", ("memory", 1.0)),  # 10 KB at 10 GB/s
        (Cost(6000, 4000, 10**6), "float32", ("compute", 10.0)),  # 1 MFLOP at 0.1 TFLOP/s
        (Cost(6000, 4000, 10**6), "bfloat16", ("compute", 2.5)),
        (Cost(6000, 4000, 10**6), "float16", ("compute", 10.0)),  # no roof of its own: float32's
        (Cost(0, 0, 0), "float32", ("memory", 0.0)),
    ],
)
def test_floor_is_the_roof_that_binds(cost, dtype, expected):
    bound, us = shares.floor(cost.bytes_moved, cost.flops, PEAKS, dtype)
    assert (bound, us) == (expected[0], pytest.approx(expected[1]))


def test_more_than_the_roof_says_why():
    result = run(dims={"n": 100_000}).model_copy(
        update={"providers": {"triton": ProviderBench(ok=True, us=times(2.0))}}
    )

    def own(bytes_moved: int, gbps: float) -> ProviderBench:
        roof = PEAKS.model_copy(update={"copy_gbps": gbps})
        return shares.against(result.model_copy(update={"bytes_moved": bytes_moved, "flops": 0}), roof, 100).providers[
            "triton"
        ]

    assert own(300, 0.1).share_of_peak == pytest.approx(1.5)  # 3 us at 0.1 GB/s, in 2 us
    assert "served from cache" in own(300, 0.1).note
    assert "reads more than it writes" in own(4000, 1.0).note
    assert own(300, 0.3).share_of_peak == pytest.approx(0.5) and own(300, 0.3).note == ""


def test_times_need_not_wait_for_roofs_and_take_their_shares_later(monkeypatch):
    def not_now(job: Job) -> Roofs:
        raise AssertionError("the roofs were measured")

    whole = run(dims={"n": 100_000})
    monkeypatch.setattr(roofs, "roofs", not_now)
    monkeypatch.delitem(roofs._measured, CPU, raising=False)  # what another test of this process measured
    alone = run(dims={"n": 100_000}, roofs=False)
    own = alone.providers["triton"]
    assert alone.ok and alone.roofs is None and alone.bound == "memory" and alone.floor_us == 0.0
    assert own.us and own.gbps and own.share_of_peak is None and own.speedup
    later = shares.against(alone, PEAKS, 2**22)
    assert (later.roofs, later.bound, later.floor_us) == (whole.roofs, whole.bound, whole.floor_us)
    assert later.providers["triton"].share_of_peak == pytest.approx(later.floor_us / own.us.p50)
    monkeypatch.setitem(roofs._measured, CPU, PEAKS)  # known by now: they cost nothing
    assert run(dims={"n": 100_000}, roofs=False).roofs == PEAKS


def test_a_kernel_is_short_where_its_launch_takes_as_long():
    def made(kernel: float, launch: float) -> dict[str, Times]:
        return {"cold_us": times(kernel), "warm_us": times(kernel), "launch_us": times(launch)}

    assert bench.is_short(made(5, 30)) and not bench.is_short(made(500, 530))


def test_one_method_is_quoted_for_all_and_a_peer_without_it_names_its_own():
    cold_only = Measured({"cold_us": times(9.0), "warm_us": times(8.0), "launch_us": times(40.0)}, 3)
    both = Measured({**cold_only.times, "graph_us": times(4.0)}, 3, graph=bench.GRAPH_COLD)
    gpu = torch.device("cuda:0")
    assert bench.headline({"triton": both, "eager": cold_only}, gpu) == "graph_us"
    assert bench.headline({"triton": cold_only, "eager": both}, gpu) == "cold_us"
    assert bench.headline({"triton": both}, CPU) == "warm_us"
    mine = bench._figures(both, cold_only, "graph_us", Cost(1, 1, 1))
    assert mine.method == bench.GRAPH_COLD and mine.us.p50 == 4.0
    assert mine.speedup is None  # a graph's time is never divided by a call's
    theirs = bench._figures(cold_only, cold_only, "graph_us", Cost(1, 1, 1))
    assert theirs.method == bench.COLD and theirs.us.p50 == 9.0 and theirs.speedup == 1.0


# No time without a verdict


@pytest.mark.parametrize("name", kernels.all_kernels())
def test_every_kernel_gets_a_time(name):
    reason = kernels.get(name).unsupported(kernels.get(name).dtypes[0], Target.of(CPU))
    if reason:
        pytest.skip(reason)
    own = run(name, dims={}, alone=True).providers["triton"]
    assert own.ok and own.us.p50 > 0, own.failure


def test_a_planted_bug_gets_no_time():
    result = run(bug="Wrong offset", dims={})
    own = result.providers["triton"]
    assert not result.ok and own.us is own.warm_us is None and "wrong, so not timed" in own.failure
    assert result.providers["eager"].us is not None


def test_a_bug_that_reaches_outside_its_tensors_is_a_line_and_not_the_end_of_the_process():
    own = run("prefill_attention", bug="Blocks miscounted", dims={}, alone=True).providers["triton"]
    assert not own.ok and "outside q_ptr" in own.failure and own.us is None


def test_case_25_an_answer_that_goes_wrong_while_it_is_timed_gets_no_time(monkeypatch):
    """As in llm.c#852: right at first, wrong after the benchmark."""
    plans = []
    honest = execute.guarded
    monkeypatch.setattr(execute, "guarded", lambda plan, inputs: plans.append(honest(plan, inputs)) or plans[-1])
    launched = timing.CpuTimer.launched

    def spoil(clock, call):
        plans[0].outputs["out"][7] = 100.0
        return launched(clock, call)

    monkeypatch.setattr(timing.CpuTimer, "launched", spoil)
    own = run().providers["triton"]
    assert not own.ok and own.us is None and "wrong after the benchmark" in own.failure


def test_in_place_kernels_are_timed_on_copies_and_verified_on_fresh_ones():
    request = BenchRequest(kernel="kv_cache_write", baselines=(), quick=True)
    result = bench.bench(request, Job(CPU))
    assert result.ok and result.providers["triton"].us is not None


def test_the_interpreter_gives_no_times():
    with pytest.raises(EngineError) as caught:
        bench.bench(BenchRequest(kernel="vector_add"), Job(CPU, interpreted=True))
    assert caught.value.failure.kind == "unavailable"


def test_progress_comes_between_implementations():
    told = []
    bench.bench(
        BenchRequest(kernel="vector_add", dims={"n": 64}, baselines=(), quick=True), Job(CPU, report=told.append)
    )
    assert [p.what for p in told][-2:] == ["timing triton", "timing eager"] and told[-1].total == 2


def test_inputs_rotate_only_where_copies_are_like_the_first_and_not_too_many(monkeypatch):
    monkeypatch.setattr(host, "last_level_cache", lambda device: 2**20)
    for asked, expected in (
        ({"dims": {"n": 2**16}}, 5),  # 2.5 MiB over 0.5 MiB
        ({"dims": {"n": 2**22}}, 2),
        ({"dims": {"n": 16}}, 0),
        ({"edge": "Every second element"}, 0),
    ):
        with execute.prepare(BenchRequest(kernel="vector_add", **asked), Job(CPU)) as case:
            found = bench.rotation(case)
            assert len(found) == expected
            assert all(torch.equal(inputs["x"], case.inputs["x"]) for inputs in found)
            assert len({inputs["x"].data_ptr() for inputs in found}) == len(found)


def test_cpu_roofs_are_positive_and_finite(monkeypatch):
    monkeypatch.setitem(roofs.COPY_BYTES, "cpu", (2**22,))
    monkeypatch.setitem(roofs.MATMUL_N, "cpu", (64,))
    found = roofs._measure(Job(CPU))
    figures = [found.copy_gbps, *found.matmul_tflops.values()]
    assert set(found.matmul_tflops) == {"float32", "bfloat16"}
    assert all(math.isfinite(f) and f > 0 for f in figures) and found.copy_gbps < 10_000


def test_a_busy_host_is_named_beside_cpu_times(monkeypatch):
    monkeypatch.setattr(host.os, "getloadavg", lambda: (9.5, 0.0, 0.0))
    monkeypatch.setattr(host, "cpu_cores", lambda: 4)
    assert run().note == "the host was busy (load 9.5 on 4 cores): these times are noisy"
    monkeypatch.setattr(host.os, "getloadavg", lambda: (4.0, 0.0, 0.0))
    assert run().note == ""


def test_host_names_the_device_and_its_versions():
    from playground.engine.messages import HostRequest

    found = device.device(HostRequest(), Job(CPU))
    assert found.kind == "cpu" and found.detail.endswith("no GPU") and found.arch == "cpu" and found.roofs is None
    assert found.versions["torch"] == torch.__version__ and found.device
    assert 2**28 < host.available_bytes(CPU) < found.memory_bytes < 2**44
    assert device.device(HostRequest(), Job(CPU, interpreted=True)).kind == "interpreter"


def test_files_that_a_container_has_read_take_no_room(monkeypatch):
    """Its limit counts them until someone needs the room; a run is not to be refused for them."""
    group = {
        "memory.max": "1000000000",
        "memory.current": "990000000",
        "memory.stat": "anon 1\ninactive_file 600000000",
    }
    files = {f"{host.GROUP}/{name}": text.splitlines() for name, text in group.items()}
    monkeypatch.setattr(host, "_lines", lambda path: files.get(path, ["MemAvailable: 4000000 kB"]))
    assert host.available_bytes(CPU) == 0.9 * 610_000_000


def test_a_config_that_lacks_a_name_is_bad_input_and_no_row():
    with pytest.raises(kernels.InputError, match="config lacks 'BLOCK'"):
        run(config=ConfigChoice(num_warps=4))
