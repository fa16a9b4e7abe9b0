"""Recordings: saved and found again, the nearest shape named, and stale once the kernel's code has changed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import linecache
import sys
import types

import pytest
import torch

import kernels
from playground.engine import choose, fingerprint, record, recordings, roofs
from playground.engine.job import Job
from playground.engine.messages import (
    BenchResult,
    Choice,
    ConfigChoice,
    EngineError,
    ProviderBench,
    Roofs,
    RunRequest,
    Source,
    Times,
)
from playground.engine.recordings import Recording
from playground.engine.sweep_messages import SweepResult

SOURCE = Source(kind="recorded", device="NVIDIA H200", date="2026-01-02T03:04:05+00:00", versions={"triton": "3.6.0"})
SPEC = kernels.get("vector_add")


def benched(n: int, dtype: str = "float32", us: float = 10.0) -> BenchResult:
    times = Times(p20=us, p50=us, p80=us)
    return BenchResult(
        ok=True, providers={"triton": ProviderBench(ok=True, us=times, method="cold L2", cold_us=times)},
        choice=Choice(
            kernel="vector_add", dims={"n": n}, dtype=dtype, seed=0, config=ConfigChoice(), config_origin="spec"
        ),
        bytes_moved=12 * n, flops=n, roofs=Roofs(copy_gbps=4300.0, source=SOURCE), bound="memory", floor_us=1.0,
        source=SOURCE,
    )  # fmt: skip


def recorded(*benches: BenchResult, **fields) -> Recording:
    fields = {"source_hash": fingerprint.source_hash(SPEC), "gpu": "NVIDIA H200", **fields}
    return Recording(
        arch="sm_90", kernel="vector_add", date=SOURCE.date, versions=SOURCE.versions,
        roofs=Roofs(copy_gbps=4300.0, source=SOURCE), benches=benches, **fields,
    )  # fmt: skip


def chosen(**asked):
    return choose.validate(RunRequest(kernel="vector_add", **asked))


def test_what_is_saved_is_loaded_again_and_readable(tmp_path):
    whole = recorded(benched(4096, us=1.23456789), skipped={"n=8 float32": "no room"})
    path = recordings.save(tmp_path, whole)
    assert path == tmp_path / "nvidia-h200" / "vector_add.json"
    again = recordings.load(path)
    assert again.benches[0].providers["triton"].us.p50 == 1.23457  # six digits
    assert again.skipped == whole.skipped and again.roofs == whole.roofs
    assert json.loads(path.read_text())["gpu"] == "NVIDIA H200"
    assert list(path.parent.iterdir()) == [path]  # no half-written file beside it


def test_the_exact_shape_comes_first_and_as_it_is(tmp_path):
    recordings.save(tmp_path, recorded(benched(1024), benched(4096, us=3.0), benched(4096, "float16"), benched(65536)))
    found = recordings.find(tmp_path, chosen(dims={"n": 4096}))
    assert [b.choice.dims["n"] for b in found] == [4096, 1024, 65536]
    assert found[0].note == "" and not found[0].stale and found[0].source.kind == "recorded"


def test_the_nearest_shape_says_which_one_it_is(tmp_path):
    recordings.save(tmp_path, recorded(benched(1024), benched(4096)))
    first, second = recordings.find(tmp_path, chosen(dims={"n": 3000}))
    assert first.note == "recorded for n=4,096, the nearest to n=3,000" and second.note == ""


def test_distance_is_in_factors_of_two_over_all_dims():
    assert recordings.distance({"m": 3, "n": 7}, {"m": 3, "n": 7}) == 0
    assert recordings.distance({"m": 3, "n": 7}, {"m": 7, "n": 3}) == 2.0
    assert recordings.distance({"m": 3}, {"n": 3}) == float("inf")


def test_another_dtype_an_edge_or_a_bug_finds_nothing(tmp_path):
    recordings.save(tmp_path, recorded(benched(4096)))
    assert recordings.find(tmp_path, chosen(dims={"n": 4096})) != ()
    assert recordings.find(tmp_path, chosen(dims={"n": 4096}, dtype="bfloat16")) == ()
    assert recordings.find(tmp_path, chosen(edge="One element")) == ()
    assert recordings.find(tmp_path, chosen(bug=SPEC.bugs[0].name)) == ()
    assert recordings.find(tmp_path / "nowhere", chosen()) == ()


def test_a_recording_of_an_older_kernel_is_stale_and_listed(tmp_path):
    recordings.save(tmp_path, recorded(benched(4096), source_hash="0123456789abcdef"))
    assert recordings.find(tmp_path, chosen())[0].stale
    assert recordings.check(tmp_path) == [
        "nvidia-h200/vector_add: recorded with an older kernel on 2026-01-02; record it again"
    ]
    recordings.save(tmp_path, recorded(benched(4096)))
    assert recordings.check(tmp_path) == []


def test_measurements_beside_peers_of_an_older_kernel_are_listed_once_for_each(tmp_path):
    rows = [("vector_add", fingerprint.current_hash("vector_add")), ("softmax", "0" * 16), ("softmax", "0" * 16)]
    (tmp_path / "gpu").mkdir()
    lines = [json.dumps({"kernel": k, "source_hash": h, "date": "2026-01-02T03:04"}) for k, h in rows]
    (tmp_path / "gpu" / "peers.jsonl").write_text("\n".join(lines) + "\n")
    assert recordings.check(tmp_path) == [
        "gpu/peers, softmax: measured with an older kernel on 2026-01-02; measure it again"
    ]


def test_files_that_are_no_recordings_are_listed_and_do_no_harm(tmp_path):
    folder = tmp_path / "nvidia-h200"
    recordings.save(tmp_path, recorded(benched(4096), gpu="Other"))
    folder.mkdir()
    (folder / "vector_add.json").write_text('{"gpu": 3}')
    (folder / "gone.json").write_text(recorded().model_copy(update={"kernel": "gone"}).model_dump_json())
    assert len(recordings.find(tmp_path, chosen())) == 1
    lines = recordings.check(tmp_path)
    assert len(lines) == 2
    assert "no kernel is named 'gone'" in lines[0] and "cannot be read as a recording" in lines[1]


# What counts as a change

KERNEL = '''
import triton
import triton.language as tl
from kernels.checks import need_rank
BLOCK = 64
def scale(x): return x * 2
@triton.jit
def helper(x):
    return x + 1
@triton.jit
def kernel(x_ptr, N: tl.constexpr):
    """What it does."""
    tl.store(x_ptr, helper(tl.load(x_ptr)) + N)  # a comment
def plan(inputs, config, target):
    need_rank(inputs, "x", 1)
    return scale(BLOCK)
def configs(inputs, target):
    yield BLOCK
'''


def hash_of(source: str) -> str:
    """The hash of a spec whose file has this text."""
    module = types.ModuleType("kernels.made_up")
    file = f"<{hash(source)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, file, "exec"), module.__dict__)
        return fingerprint.source_hash(dataclasses.replace(SPEC, plan=module.plan, configs=module.configs))
    finally:
        del sys.modules[module.__name__], linecache.cache[file]


@pytest.mark.parametrize(
    "find,replace",
    [("x + 1", "x + 2"), ("+ N)", "- N)"), ("BLOCK = 64", "BLOCK = 128"), ("x * 2", "x * 3"),
     ("scale(BLOCK)", "BLOCK"), ("yield BLOCK", "yield 2 * BLOCK")],
)  # fmt: skip
def test_code_that_runs_changes_the_hash(find, replace):
    assert find in KERNEL
    assert hash_of(KERNEL.replace(find, replace)) != hash_of(KERNEL)


@pytest.mark.parametrize(
    "find,replace",
    [("What it does.", "Other words."), ("  # a comment", ""), ("BLOCK = 64\n", "\n\nBLOCK = 64\n"),
     ("return x + 1", "return x  +  1"), ("def scale", "UNUSED = 3\ndef scale")],
)  # fmt: skip
def test_comments_docstrings_and_formatting_do_not(find, replace):
    assert find in KERNEL
    assert hash_of(KERNEL.replace(find, replace)) == hash_of(KERNEL)


@pytest.mark.parametrize("name", list(kernels.all_kernels()))
def test_every_kernel_has_a_hash_and_no_two_share_one(name):
    own = fingerprint.current_hash(name)
    assert len(own) == 16
    assert [other for other in kernels.all_kernels() if fingerprint.current_hash(other) == own] == [name]


# What is recorded


@pytest.mark.parametrize("spec", list(kernels.all_kernels().values()), ids=lambda s: s.name)
def test_steps_hold_every_preset_in_every_dtype_and_a_sweep_of_one_dim(spec):
    steps = list(record.steps([spec]))
    for name, dims in spec.presets.items():
        assert {s.dtype for s in steps if s.preset == name and s.dims == dims} == set(spec.dtypes)
    sweep = [s for s in steps if not s.preset and s.dtype == spec.dtypes[0]]
    assert 4 <= len(sweep) <= record.SIZES
    others = {tuple((n, v) for n, v in s.dims.items() if n != spec.sweep_dim) for s in sweep}
    assert len(others) == 1
    sizes = [s.dims[spec.sweep_dim] for s in sweep]
    assert all(b == 2 * a for a, b in itertools.pairwise(sizes))


def test_a_step_is_done_once_it_is_measured_or_noted():
    step = record.Step(SPEC, {"n": 4096}, "float32")
    assert not record.has(recorded(), step) and not record.has(recorded(benched(4096, "float16")), step)
    assert record.has(recorded(benched(4096)), step)
    assert record.has(recorded(skipped={step.label: "no room"}), step)


def test_a_sweep_of_an_older_kernel_is_shown_as_that_and_stays_until_it_is_made_anew(tmp_path, monkeypatch):
    job, peaks = Job(torch.device("cpu")), Roofs(copy_gbps=10.0, source=SOURCE)
    monkeypatch.setitem(roofs._measured, job.device, peaks)
    new = record.opened(SPEC, tmp_path, peaks, job, force=False)
    swept = SweepResult(choice=benched(4096).choice, configs=(), done=True)
    path = recordings.save(tmp_path, new.model_copy(update={"source_hash": "0" * 16, "sweeps": (swept,)}))
    for recording in (recordings.load(path), record.opened(SPEC, tmp_path, peaks, job, force=False)):
        recordings.save(tmp_path, recording)
        near, exact = (recordings.find_sweeps(tmp_path, chosen(dims={"n": n}))[0] for n in (1000, 4096))
        assert near.stale and near.recorded_note == "recorded with an older kernel for n=4,096, the nearest shape"
        assert exact.stale and exact.recorded_note == "recorded with an older kernel for n=4,096"
    assert recordings.check(tmp_path) == [
        f"{path.parent.name}/vector_add: 1 of 1 sweeps recorded with an older kernel; record it again"
    ]
    recordings.save(tmp_path, new.model_copy(update={"sweeps": (swept,)}))
    fresh = recordings.find_sweeps(tmp_path, chosen())[0]
    assert not fresh.stale and fresh.recorded_note.startswith("recorded for n=4,096")


def test_times_of_an_older_kernel_stay_as_stale_until_their_shape_is_measured_anew(tmp_path, monkeypatch):
    """A recording that was stopped early after a change left nothing of the shapes behind it."""
    job, peaks = Job(torch.device("cpu")), Roofs(copy_gbps=10.0, source=SOURCE)
    monkeypatch.setitem(roofs._measured, job.device, peaks)
    new = record.opened(SPEC, tmp_path, peaks, job, force=False)
    older = new.model_copy(update={"source_hash": "0" * 16, "benches": (benched(4096), benched(1024))})
    path = recordings.save(tmp_path, older)
    opened = record.opened(SPEC, tmp_path, peaks, job, force=False)
    assert opened.source_hash == new.source_hash and [b.stale for b in opened.benches] == [True, True]
    step = record.Step(SPEC, {"n": 4096}, "float32")
    assert not record.has(opened, step)
    after, _ = record.measure(opened, step, job)
    assert [(b.choice.dims["n"], b.stale) for b in after.benches] == [(1024, True), (4096, False)]
    assert record.has(after, step) and recordings.save(tmp_path, after) == path
    assert [b.stale for b in recordings.find(tmp_path, chosen(dims={"n": 1000}))] == [True, False]
    assert recordings.check(tmp_path) == [
        f"{path.parent.name}/vector_add: 1 of 2 shapes recorded with an older kernel; record it again"
    ]


def test_recording_without_a_gpu_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(record.torch.cuda, "is_available", lambda: False)
    with pytest.raises(EngineError) as caught:
        record.record(None, tmp_path)
    assert caught.value.failure.kind == "unavailable" and "needs a GPU" in caught.value.failure.message
