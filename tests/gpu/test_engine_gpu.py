"""The engine on a real GPU: routing, sticky CUDA errors, and no CUDA context in the page's process."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from playground.engine.engine import Engine
from playground.engine.messages import BenchRequest, EngineError, RunRequest
from playground.settings import ROOT

pytestmark = pytest.mark.gpu


class FaultyEngine(Engine):
    def __init__(self):
        super().__init__(handlers="tests.gpu.gpu_faults")

    def validate(self, request):
        return None


@pytest.fixture(scope="module")
def engine():
    with FaultyEngine() as engine:
        yield engine


def test_the_gpu_is_the_default(engine):
    assert engine.default_device == "cuda:0"
    host = engine.host()
    assert (host.kind, host.device) == ("gpu", engine.gpus()[0][0])
    result = engine.run(RunRequest(kernel="vector_add", dims={"n": 1000}))
    assert result.ok
    assert (result.source.kind, result.source.device) == ("measured", host.device)


@pytest.mark.parametrize("fault", ["device assert", "wild pointer"])
def test_a_sticky_error_costs_the_worker_and_not_the_next_run(engine, fault):
    with pytest.raises(EngineError) as e:
        engine.run(RunRequest(kernel="vector_add", dims={"n": 1000}, edge=fault))
    assert e.value.failure.kind in ("failed", "crashed")
    assert "CUDA" in e.value.failure.message
    assert engine.run(RunRequest(kernel="vector_add", dims={"n": 1000})).ok


def test_too_little_memory_keeps_the_worker(engine):
    worker = engine._lane("cuda:0")._worker
    with pytest.raises(EngineError, match="memory ran out"):
        engine.run(RunRequest(kernel="vector_add", dims={"n": 1000}, edge="no memory"))
    assert engine.run(RunRequest(kernel="vector_add", dims={"n": 1000})).ok
    assert engine._lane("cuda:0")._worker is worker


def test_the_cpu_beside_the_gpu(engine):
    result = engine.run(RunRequest(kernel="vector_add", dims={"n": 1000}, device="cpu"))
    assert result.ok
    assert result.source.device != engine.host().device


def test_a_bench_is_measured_on_the_gpu(engine):
    result = engine.run(BenchRequest(kernel="vector_add", dims={"n": 2**24}, baselines=(), quick=True))
    assert result.ok
    assert result.providers["triton"].us.p50 > 0
    assert result.source.kind == "measured"


def test_the_process_of_the_engine_has_no_cuda_context():
    script = """
import torch
from playground.engine.engine import Engine
from playground.engine.messages import RunRequest
with Engine() as engine:
    engine.host()
    assert engine.run(RunRequest(kernel="vector_add")).ok
    assert not torch.cuda.is_initialized()
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=300)


def test_the_command_line_on_a_gpu():
    words = ["run", "softmax", "--dims", "rows=64,n=3000", "--dtype", "float32", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "playground", *words], capture_output=True, text=True, cwd=ROOT, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["ok"]
    assert said["source"]["kind"] == "measured"
    assert "CPU" not in said["source"]["device"]
