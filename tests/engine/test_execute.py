"""`run` on this CPU: verdicts of every implementation, what stood in for what, and failures that stay lines."""

from __future__ import annotations

import gc
import subprocess
import sys
import time

import pytest
import torch

import kernels
from kernels.spec import Baseline, Output, Plan
from playground import native
from playground.engine import baselines, choose, edits, execute
from playground.engine.job import Cancelled, Job, NeedsInterpreter
from playground.engine.messages import ConfigChoice, EngineError, RunRequest, RunResult
from playground.settings import ROOT

CPU = torch.device("cpu")


def run(kernel: str = "vector_add", job: Job | None = None, **asked) -> RunResult:
    asked.setdefault("baselines", ())
    return execute.run(RunRequest(kernel=kernel, **asked), job or Job(CPU))


def changed(monkeypatch, kernel: str, **fields) -> None:
    """The spec with other fields, for everyone who asks by name."""
    import dataclasses

    spec = dataclasses.replace(kernels.get(kernel), **fields)
    monkeypatch.setitem(kernels.all_kernels(), kernel, spec)


def test_a_right_kernel_passes_and_says_how_it_was_obtained():
    result = run("add_rms_norm", dims={"rows": 9, "n": 300}, seed=3)
    assert result.ok and set(result.outputs) == {"out", "new_residual"}
    assert result.source.kind == "measured" and {"torch", "triton", "python"} <= set(result.source.versions)
    assert result.choice.seed == 3 and result.choice.dims == {"rows": 9, "n": 300}
    assert result.choice.config_origin == "spec" and result.choice.config.meta["BLOCK_N"] == 512
    assert RunResult.model_validate_json(result.model_dump_json()) == result


def test_a_run_leaves_no_tensor_to_the_collector():
    """The collector comes by seldom: gigabytes of large shapes would lie about meanwhile."""
    run("add_rms_norm", dims={"rows": 9, "n": 300})
    gc.collect()
    gc.disable()
    try:
        before = {id(o) for o in gc.get_objects() if type(o) is torch.Tensor}
        run("add_rms_norm", dims={"rows": 9, "n": 300})
        left = [o for o in gc.get_objects() if type(o) is torch.Tensor and o.numel() == 9 * 300]
        assert [o.shape for o in left if id(o) not in before] == []
    finally:
        gc.enable()


def test_compiling_is_counted_where_it_happens():
    source = edits.source_of(kernels.get("vector_add"))
    new = run(dims={"n": 64}, source=source.replace("x.to(tl.float32) + y", f"{time.time_ns() % 2**30} * 0 + x + y"))
    assert new.ok and 0.0 < new.compile_seconds < new.seconds
    run(dims={"n": 64})
    assert run(dims={"n": 64}).compile_seconds == 0.0


def test_the_choice_reproduces_the_run():
    first = run("vector_add", dims={"n": 3000}, dtype="bfloat16", seed=11)
    chosen = first.choice
    again = run(dims=chosen.dims, dtype=chosen.dtype, seed=chosen.seed, config=chosen.config)
    assert again.outputs == first.outputs and again.choice.config_origin == "given"
    assert run(dims=chosen.dims, dtype=chosen.dtype, seed=12).outputs != first.outputs


@pytest.mark.parametrize(
    "name,fault",
    [("zeros", lambda out: out.zero_()), ("one element", lambda out: out[700:701].add_(1.0)),
     ("drift", lambda out: out.mul_(1.0001))],
)  # fmt: skip
def test_a_wrong_answer_fails_with_its_first_index(monkeypatch, name, fault):
    launch = execute.launch
    monkeypatch.setattr(
        execute, "launch", lambda plan, job, checked=False: (launch(plan, job, checked), fault(plan.outputs["out"]))
    )
    result = run(dims={"n": 1000})
    assert not result.ok and result.providers["eager"].ok
    assert result.outputs["out"].wrong.count >= {"zeros": 1000, "one element": 1, "drift": 900}[name]
    if name == "one element":
        assert result.outputs["out"].wrong.index == (700,) and result.outputs["out"].wrong.count == 1


def test_what_a_kernel_leaves_unwritten_fails(monkeypatch):
    monkeypatch.setattr(execute, "launch", lambda plan, job, checked=False: None)
    result = run(dims={"n": 64})
    assert not result.ok and result.outputs["out"].wrong.count == 64


def test_poison_spares_what_is_written_in_place():
    cache, fresh, ints = torch.ones(4), torch.ones(4), torch.ones(4, dtype=torch.int8)
    execute.poison(Plan((), {"cache": cache[:2], "fresh": fresh, "codes": ints}), {"cache": cache, "n": 4})
    assert cache.equal(torch.ones(4)) and fresh.isnan().all() and (ints == 122).all()


def test_in_place_kernels_get_copies_and_leave_the_inputs_alone():
    with execute.prepare(RunRequest(kernel="kv_cache_write"), Job(CPU)) as case:
        before = {name: t.clone() for name, t in case.inputs.items() if isinstance(t, torch.Tensor)}
        execute.launch(case.plan(), case.job)
        assert all(torch.equal(case.inputs[name], t) for name, t in before.items())


# Implementations


def test_a_baseline_that_raises_or_is_missing_is_a_line_of_its_own(monkeypatch):
    def absent():
        raise ImportError("no module")

    def crooked():
        return lambda x, y: x[:1]

    changed(
        monkeypatch,
        "vector_add",
        baselines=(
            Baseline("Absent", absent, "pip install absent", ("cpu",)),
            Baseline("Elsewhere", absent, "pip install elsewhere"),
            Baseline("Crooked", crooked, "", ("cpu",)),
            Baseline("Broken", lambda: lambda x, y: 1 / 0, "", ("cpu",)),
        ),
    )
    result = run(baselines=None, dims={"n": 100})
    found = result.providers
    assert result.ok and found["eager"].ok
    assert found["Absent"].missing == "not installed: pip install absent"
    assert found["Elsewhere"].missing == "needs a GPU, and this is a CPU"
    assert "shape [1]" in found["Crooked"].outputs["out"].note
    assert found["Broken"].failure == "ZeroDivisionError: division by zero"
    assert found["torch.compile"].missing == baselines.NOT_ASKED


def test_only_the_baselines_asked_for_run():
    assert set(run(dims={"n": 10}, baselines=("eager",)).providers) == {"triton", "eager"}


def test_torch_compile_without_a_compiler_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(baselines.host, "cpp_compiler", lambda: None)
    assert "install g++" in run(dims={"n": 10}, baselines=("torch.compile",)).providers["torch.compile"].missing


def test_eager_that_raises_leaves_the_dtypes_eps_as_the_bar(monkeypatch):
    changed(monkeypatch, "vector_add", eager=lambda x, y: 1 / 0)
    result = run(dims={"n": 100}, dtype="float32")
    assert result.ok and result.providers["eager"].failure.startswith("ZeroDivisionError")
    assert result.outputs["out"].bar == 4 * 2.0**-23


# What stood in for what


def test_the_interpreter_runs_bfloat16_in_float32_and_says_so():
    assert execute.data_dtype("bfloat16", Job(CPU, interpreted=True)) == (
        "float32", ["float32 stood in for bfloat16, whose sums and products the interpreter gets wrong"],
    )  # fmt: skip
    assert execute.data_dtype("float16", Job(CPU, interpreted=True)) == ("float16", [])
    assert execute.data_dtype("bfloat16", Job(CPU)) == ("bfloat16", [])


INTERPRETED = """
import torch, triton, triton.language as tl
from playground.engine import execute
from playground.engine.job import Job
from playground.engine.messages import RunRequest

@triton.jit
def total(x_ptr, out_ptr, N: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, N))))

for dtype in (torch.bfloat16, torch.float16):
    x, out = torch.ones(64, dtype=dtype), torch.zeros(1, dtype=dtype)
    total[(1,)](x, out, 64)
    print(dtype, out.item())
result = execute.run(RunRequest(kernel="add_rms_norm", dtype="bfloat16", dims={"rows": 2, "n": 100}, baselines=()),
                     Job(torch.device("cpu"), interpreted=True))
print(result.ok, result.source.kind, result.choice.dtype, result.outputs["out"].bar < 1e-5, "stood in" in result.note)
"""


def test_the_interpreter_is_wrong_in_bfloat16_and_right_in_float16():
    """Why float32 stands in: on the Triton that is installed, a bfloat16 sum of 64 ones is not 64."""
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], capture_output=True, text=True, timeout=120, check=True, cwd=ROOT,
        env={"TRITON_INTERPRET": "1", "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    bf16, fp16, mine = done.stdout.splitlines()
    assert bf16.split()[0] == "torch.bfloat16" and float(bf16.split()[1]) != 64.0
    assert fp16 == "torch.float16 64.0"
    assert mine == "True interpreted bfloat16 True True"


def test_what_the_native_path_cannot_do_asks_for_the_interpreter(monkeypatch):
    def refuse(plan):
        raise native.Unsupported("inline PTX")

    monkeypatch.setattr(Plan, "run", refuse)
    with pytest.raises(NeedsInterpreter, match="inline PTX"):
        run(dims={"n": 10})


def test_an_access_out_of_bounds_is_reported_with_its_place(monkeypatch):
    def outside(plan):
        raise native.OutOfBounds(
            tensor="out_ptr", index=1025, program=(1, 0, 0), lane=1, file="vector_add.py", line=31, kind="store",
            elements=1025,
        )  # fmt: skip

    monkeypatch.setattr(Plan, "run", outside)
    result = run(dims={"n": 1025})
    found = result.out_of_bounds
    assert not result.ok and result.outputs == {} and result.checked
    assert (found.kind, found.tensor, found.index, found.program, found.lane, found.line) == (
        "store", "out_ptr", 1025, (1, 0, 0), 1, 31,
    )  # fmt: skip
    assert result.providers["triton"].failure == found.message and result.providers["eager"].ok


def test_checked_mode_is_the_default_where_it_does_not_hurt():
    for n, asked, expected in ((1000, None, True), (2**24, None, False), (1000, False, False), (2**24, True, True)):
        with execute.prepare(RunRequest(kernel="vector_add", dims={"n": n}, checked=asked), Job(CPU)) as case:
            assert execute.wants_checked(case) is expected


# Bad input and stops


def test_a_config_that_does_not_compile_is_a_line_and_the_next_run_works():
    result = run("vector_add", config=ConfigChoice(meta={"BLOCK": 1000}), dims={"n": 50})
    failure = result.providers["triton"].failure
    assert not result.ok and "power of 2" in failure and "\n" not in failure
    assert result.providers["eager"].ok and run(dims={"n": 50}).ok


def test_a_config_without_a_block_is_refused():
    with pytest.raises(kernels.InputError, match="config lacks"):
        run("vector_add", config=ConfigChoice(meta={}))


def test_an_edit_that_does_not_compile_names_the_line():
    source = edits.source_of(kernels.get("vector_add")).replace(
        "mask = offsets < n_elements", "mask = offsets < unknown"
    )
    failure = run("vector_add", source=source, dims={"n": 50}).providers["triton"].failure
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "< unknown" in text)
    assert failure.startswith("does not compile: ") and "unknown is not defined" in failure
    assert failure.endswith(f"(at line {line}: `mask = offsets < unknown`)") and "\n" not in failure


def test_an_edited_plan_that_raises_is_a_line_too():
    source = edits.source_of(kernels.get("vector_add")).replace("out = torch.empty(", "out = torch.empti(")
    failure = run("vector_add", source=source, dims={"n": 50}).providers["triton"].failure
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "empti(" in text)
    assert "no attribute 'empti'" in failure and failure.endswith(f"(line {line})")


def test_a_dtype_that_the_target_lacks_is_unavailable(monkeypatch):
    changed(monkeypatch, "vector_add", unsupported=lambda dtype, target: f"{target.arch} has no {dtype}")
    with pytest.raises(EngineError) as caught:
        run(dims={"n": 5})
    assert caught.value.failure.kind == "unavailable" and caught.value.failure.message == "cpu has no float32"


def test_too_large_is_refused_before_anything_is_allocated(monkeypatch):
    monkeypatch.setattr(execute.host, "available_bytes", lambda device: 2**28)
    monkeypatch.setattr(choose, "in_float64", lambda inputs: inputs)
    with pytest.raises(kernels.InputError, match=r"256\.0 MiB are free|0\.2 GiB are free"):
        run(dims={"n": 2**27})


def test_stop_is_heard_between_implementations():
    heard = []

    def stop() -> bool:
        heard.append(1)
        return len(heard) > 2

    with pytest.raises(Cancelled):
        run(job=Job(CPU, stopped=stop), dims={"n": 10})


def test_results_are_matched_with_outputs_by_order():
    spec = kernels.get("add_rms_norm")
    assert [o.name for o in spec.outputs] == ["out", "new_residual"] and isinstance(spec.outputs[0], Output)
    x = torch.ones(2)
    assert baselines.named(x, ["out"]) == {"out": x}
    with pytest.raises(ValueError, match="gave 1 results; 2 are needed"):
        baselines.named((x,), ["out", "new_residual"])


@pytest.mark.parametrize("words", ["CUDA error: misaligned address", "HIP error: an illegal memory access"])
def test_an_error_that_a_gpus_context_does_not_survive_ends_the_run(monkeypatch, words):
    """As a line of its own it would leave a worker at work that answers every later request with the same error."""

    def broken(**inputs):
        raise RuntimeError(words)

    changed(monkeypatch, "vector_add", baselines=(Baseline("broken", lambda: broken, "never", ("cpu",)),))
    with pytest.raises(RuntimeError, match=words):
        run(baselines=("broken",))
