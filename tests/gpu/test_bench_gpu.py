"""The clocks, roofs and verdicts on a real GPU: physics that a wrong clock would break.

Cold calls are slower than warm ones where the data fits in L2; a graph replay is shorter than a call with its
launch; a copy kernel reaches the copy roof; what an implementation wrote last is judged again after its timing.
"""

from __future__ import annotations

import functools

import pytest
import torch

import kernels
from playground.engine import bench, execute, host, record, recordings, roofs, timing
from playground.engine import compile as offline
from playground.engine.job import Job
from playground.engine.messages import BenchRequest, BenchResult, ResourcesRequest, RunRequest

pytestmark = pytest.mark.gpu

SPECS = tuple(kernels.all_kernels().values())
DATASHEET_GBPS = {"NVIDIA H200": 4800, "NVIDIA H100 80GB HBM3": 3350, "NVIDIA A100-SXM4-80GB": 2039}


@functools.cache
def job() -> Job:
    return Job(torch.device("cuda:0"))


@functools.cache
def timed(kernel: str, dtype: str, quick: bool = True, **dims: int) -> BenchResult:
    request = BenchRequest(kernel=kernel, dims=dims, dtype=dtype, baselines=(), quick=quick)
    return bench.bench(request, job())


@pytest.mark.parametrize("spec,dtype", [(s, d) for s in SPECS for d in s.dtypes], ids=lambda v: getattr(v, "name", v))
def test_every_spec_is_right_in_every_dtype(spec, dtype):
    reason = spec.unsupported(dtype, kernels.spec.Target.of(job().device))
    if reason:
        pytest.skip(reason)
    result = execute.run(RunRequest(kernel=spec.name, dims=dict(spec.default), dtype=dtype, baselines=()), job())
    assert result.ok, result.providers["triton"]
    assert result.source.kind == "measured" and result.source.device == host.name(job().device)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_spec_gets_a_time(spec):
    reason = spec.unsupported(spec.dtypes[0], kernels.spec.Target.of(job().device))
    if reason:
        pytest.skip(reason)
    own = timed(spec.name, spec.dtypes[0]).providers["triton"]
    assert own.ok and own.us.p50 > 0, own.failure


def test_copy_roof_is_near_the_datasheet_and_never_above():
    name, roof = host.name(job().device), roofs.roofs(job()).copy_gbps
    if name not in DATASHEET_GBPS:
        pytest.skip(f"no datasheet figure for {name} here")
    assert 0.8 * DATASHEET_GBPS[name] < roof < 0.96 * DATASHEET_GBPS[name]


def test_product_roofs_stand_in_the_order_of_their_precision():
    peaks = roofs.roofs(job()).matmul_tflops
    assert peaks["float32"] < peaks["tf32"] < peaks["bfloat16"]
    assert 0.7 < peaks["float16"] / peaks["bfloat16"] < 1.4


def test_case_24_cold_is_slower_than_warm_where_l2_holds_the_data():
    # 3 * 8 MiB lie in any L2 of 40 MB or more.
    own = timed("vector_add", "float32", n=2**21).providers["triton"]
    assert own.ok and own.cold_us.p50 > 1.15 * own.warm_us.p50


def test_cold_and_warm_agree_where_nothing_stays_in_l2():
    own = timed("vector_add", "float32", n=2**27).providers["triton"]
    assert own.ok and 0.9 < own.cold_us.p50 / own.warm_us.p50 < 1.15


def test_case_24_graph_replay_is_shorter_than_a_call_with_its_launch():
    result = timed("vector_add", "float32", n=2**14)
    for name in ("triton", "eager"):
        provider = result.providers[name]
        assert provider.graph_us.p50 < 0.5 * provider.launch_us.p50
        assert provider.us == provider.graph_us and provider.method.startswith("CUDA graph")


def test_rotating_inputs_make_a_graph_cold():
    result = timed("vector_add", "float32", n=2**20)
    own = result.providers["triton"]
    assert own.method == bench.GRAPH_COLD
    assert own.share_of_peak < 1.05  # 12 MB from memory and not from L2


def test_every_size_of_a_sweep_is_quoted_no_faster_than_the_roof_allows():
    for power in (22, 24, 26, 28):
        own = timed("vector_add", "float32", n=2**power).providers["triton"]
        assert own.ok and own.share_of_peak < 1.05


def test_a_large_copy_like_kernel_reaches_the_copy_roof():
    own = timed("vector_add", "float32", quick=False, n=2**28).providers["triton"]
    assert own.method == bench.COLD and own.share_of_peak > 0.95


def test_percentiles_are_in_order_and_close():
    own = timed("vector_add", "float32", n=2**27).providers["triton"]
    assert own.launch_us.p20 <= own.launch_us.p50 <= own.launch_us.p80
    for times in (own.cold_us, own.warm_us):
        assert times.p20 <= times.p50 <= times.p80 < 1.2 * times.p20


def test_gpu_time_of_a_known_wait_is_that_wait():
    """torch.cuda._sleep spins for a number of clocks: twice as many take twice as long."""
    clock = timing.timer(job().device, quick=True)
    one, two = (timing.percentiles(clock.cold(lambda n=n: torch.cuda._sleep(n * 10**6))).p50 for n in (1, 2))
    assert 1.9 < two / one < 2.1


def test_case_25_an_answer_that_goes_wrong_during_the_benchmark_gets_no_time(monkeypatch):
    """A kernel whose output is spoiled after its first launches, as llm.c#852 saw: right at first, wrong after."""
    honest, plans = execute.guarded, []
    monkeypatch.setattr(execute, "guarded", lambda plan, inputs: plans.append(honest(plan, inputs)) or plans[-1])

    def warm_then_spoil(clock, call):
        call()
        plans[0].outputs["out"].zero_()
        return [1.0]

    monkeypatch.setattr(timing.GpuTimer, "launched", warm_then_spoil)
    request = BenchRequest(kernel="vector_add", dims={"n": 2**24}, baselines=(), quick=True)
    own = bench.bench(request, job()).providers["triton"]
    assert not own.ok and own.us is None and "wrong after" in own.failure


def test_a_planted_bug_gets_no_time():
    request = BenchRequest(kernel="add_rms_norm", bug="Mean over the block", baselines=(), quick=True)
    result = bench.bench(request, job())
    assert not result.ok and result.providers["triton"].us is None
    assert result.providers["eager"].us is not None


def test_a_store_past_the_end_is_seen_though_the_answer_is_right():
    request = RunRequest(kernel="vector_add", bug="Forgotten mask", baselines=())
    result = execute.run(request, job())
    assert not result.ok and "wrote outside out_ptr: element 1,025" in result.providers["triton"].failure


def test_tf32_is_judged_beside_eager_in_tf32():
    request = RunRequest(kernel="matmul", dims={"m": 512, "n": 512, "k": 512}, dtype="tf32", baselines=())
    result = execute.run(request, job())
    assert result.ok
    for provider in result.providers.values():
        (verdict,) = provider.outputs.values()
        assert 2.0**-16 < verdict.rms_error < 2.0**-8  # not float32, and no less than TF32


def test_too_large_is_refused_before_allocating(monkeypatch):
    monkeypatch.setattr(host, "available_bytes", lambda device: 2**30)
    before = torch.cuda.memory_allocated()
    with pytest.raises(kernels.InputError, match=r"1\.0 GiB are free; set n to"):
        execute.run(RunRequest(kernel="vector_add", dims={"n": 2**28}, dtype="float32"), job())
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("kernel", ["add_rms_norm", "softmax", "matmul", "vector_add", "silu_mul"])
def test_offline_code_is_the_code_that_the_launch_ran(kernel):
    """Same specialisation: the PTX that is compiled on meta tensors is the one that the device's cache holds."""
    spec = kernels.get(kernel)
    dtype, target = spec.dtypes[0], kernels.spec.Target.of(job().device)
    for dims in spec.presets["prefill"], spec.presets["odd"]:
        real = spec.inputs(dims, dtype, job().device)
        plan = spec.plan(real, spec.default_config(real, target), target)
        plan.run()
        meta = spec.inputs(dims, dtype, "meta")
        ghost = spec.plan(meta, spec.default_config(meta, target), target)
        for launch, other in zip(plan.launches, ghost.launches, strict=True):
            built = offline.compile_launch(other, target)
            cached = launch.kernel.device_caches[0][0].values()
            assert any(ran.asm["ptx"] == built.stages["ptx"] for ran in cached), f"{kernel} {dims}"


def test_registers_are_the_loaded_binarys_own():
    """Against the CUDA driver, which knows what it loaded."""
    spec = kernels.get("softmax")
    target = kernels.spec.Target.of(job().device)
    real = spec.inputs(spec.default, "float32", job().device)
    plan = spec.plan(real, spec.default_config(real, target), target)
    plan.run()
    result = offline.resources(
        ResourcesRequest(kernel="softmax", dims=dict(spec.default), dtype="float32", target=target.arch), job()
    )
    loaded = [k.n_regs for k in plan.launches[0].kernel.device_caches[0][0].values()]
    assert result.launches[0].registers in loaded


def test_recording_resumes_and_is_found_again(tmp_path):
    first = record.record(["vector_add"], tmp_path, seconds=0.0, report=lambda line: None)
    lines: list[str] = []
    again = record.record(["vector_add"], tmp_path, seconds=0.0, report=lines.append)
    assert first and again and len(lines) == 2  # one step each, then out of time
    (found,) = recordings.all_of(tmp_path, "vector_add")
    assert len(found.benches) + len(found.skipped) == 2
    assert all(b.source.kind == "recorded" and b.source.device == host.name(job().device) for b in found.benches)
    assert recordings.check(tmp_path) == []
