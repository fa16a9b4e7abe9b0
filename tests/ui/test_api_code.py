"""compile_kernel and sweep_kernel: the engine's own handlers behind them, compact JSON, one line for a mistake."""

import json

import gradio as gr
import pytest
import torch

from playground.engine import choose, sweep
from playground.engine.code import code
from playground.engine.compile import resources
from playground.engine.job import Job
from playground.engine.messages import EngineError, Failure, ResourcesRequest
from playground.settings import Settings
from playground.ui.api import endpoints
from playground.ui.context import Context

JOB = Job(torch.device("cpu"))


class Door:
    """Compiles in this process."""

    compilers = 1

    def run(self, request, cancel=None):
        return resources(request, JOB) if isinstance(request, ResourcesRequest) else code(request, JOB)

    def sweep(self, request, cancel):
        chosen = choose.validate(request)
        return sweep.sweep(self, request, chosen, choose.Target.named("cpu"), cancel)

    def recorded_sweeps(self, request):
        return ()


@pytest.fixture(scope="module")
def functions():
    with gr.Blocks() as demo:
        endpoints.add(Context(Door(), Settings()))
    return {fn.api_name: fn.fn for fn in demo.fns.values()}


def test_a_compiled_kernel_comes_with_its_code_and_what_to_look_at(functions):
    found = functions["compile_kernel"]("vector_add", "sm_90", "ptx", {"n": 4096}, "float32")
    (launch,) = found["launches"]
    assert launch["code"].startswith(".version") and launch["lines"] == len(launch["code"].splitlines())
    assert "16-byte loads" in [f["claim"] for f in launch["findings"]]
    assert found["source"]["kind"] == "compiled"
    json.dumps(found, allow_nan=False)


def test_a_sweep_offline(functions):
    found = functions["sweep_kernel"]("vector_add", "gfx942", {"n": 100_000}, "float32", timed=False)
    assert found["best"] is None and found["source"] is None and found["target"] == "gfx942"
    assert len(found["configs"]) > 3 and all(c["registers"] > 0 for c in found["configs"])
    json.dumps(found, allow_nan=False)


def test_mistakes_are_one_line(functions):
    stage = functions["compile_kernel"]("vector_add", stage="ptxx")
    assert stage["error"]["message"] == "no stage is named 'ptxx'; choose ttir, ttgir, llir, ptx, sass, amdgcn"
    assert functions["compile_kernel"]("vector_add", "sm_1")["error"]["argument"] == "target"
    assert functions["compile_kernel"]("nothing")["error"]["argument"] == "kernel"


def test_an_engine_that_cannot_says_why(functions, monkeypatch):
    def refuse(*_):
        raise EngineError(Failure(kind="unavailable", message="no compiler here"))

    monkeypatch.setattr(Door, "run", refuse)
    assert functions["compile_kernel"]("vector_add")["error"]["message"] == "no compiler here"
