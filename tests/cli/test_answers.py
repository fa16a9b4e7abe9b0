"""The answers as scripts see them: exit codes, the promised JSON, strict; and as people do."""

from __future__ import annotations

import pytest

from playground import cli
from playground.cli import answers, arguments, doctor, show
from playground.engine.messages import BenchRequest, ConfigChoice, EngineError, Failure, RunResult, Source
from playground.settings import Settings
from tests.cli.conftest import H200, Stage, bench_result, call, run_result

RUN = ("run", "softmax")
VERBS = ("doctor", "kernels", "run", "bench", "sweep", "compile", "trace", "chat", "record", "record-check")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("input", 2), ("unavailable", 3), ("crashed", 4), ("timeout", 4), ("cancelled", 4), ("failed", 4)],
)
def test_exit_codes_of_failures(stage, capsys, kind, expected):
    stage.answer = EngineError(Failure(kind=kind, message="so\nit is", argument="n"))
    code, said, _ = call(capsys, *RUN)
    assert code == expected
    assert said == {"error": {"kind": kind, "message": "so it is", "argument": "n"}}


def test_stopping_is_clean(stage, capsys):
    stage.answer = KeyboardInterrupt()
    code, said, err = call(capsys, *RUN)
    assert (code, said["error"]["kind"], err) == (4, "cancelled", "")


def test_a_fault_of_our_own_is_no_traceback(stage, capsys):
    stage.answer = ZeroDivisionError("division by zero")
    code, said, _ = call(capsys, *RUN)
    assert code == 4
    assert said["error"] == {"kind": "failed", "message": "ZeroDivisionError: division by zero", "argument": ""}


def test_right_wrong_and_no_answer(stage, capsys):
    for answer, expected in [
        (run_result(), 0),
        (run_result(ok=False), 1),
        (run_result(ok=False).model_copy(update={"outputs": {}}), 4),
    ]:
        stage.answer = answer
        code, said, _ = call(capsys, *RUN)
        assert code == expected
        assert RunResult.model_validate(said).ok == answer.ok
    stage.answer = run_result(ok=False)
    _, said, _ = call(capsys, *RUN)
    assert said["outputs"]["out"]["wrong"]["got"] == "NaN"


def test_what_is_typed_reaches_the_engine(stage, capsys):
    stage.answer = run_result()
    words = "--dims rows=64,n=3000 --dtype float16 --seed 7 --config BLOCK_M=1,BLOCK_N=4096,num_warps=8 --checked"
    call(capsys, *RUN, *words.split(), "--baselines", "eager,Liger", "--device", "cpu")
    (request,) = stage.asked
    assert (request.kernel, request.dims, request.dtype, request.seed) == (
        "softmax",
        {"rows": 64, "n": 3000},
        "float16",
        7,
    )
    assert request.config == ConfigChoice(meta={"BLOCK_M": 1, "BLOCK_N": 4096}, num_warps=8)
    assert (request.baselines, request.device, request.checked) == (("eager", "Liger"), "cpu", True)


def test_dims_override_a_preset(stage, capsys):
    stage.answer = run_result()
    call(capsys, *RUN, "--preset", "decode", "--dims", "rows=3")
    from kernels import get

    assert stage.asked[0].dims == {**get("softmax").presets["decode"], "rows": 3}


def test_a_bench_on_a_cpu_has_the_recording_beside_it(stage, capsys):
    stage.answer = bench_result()
    stage.found = (bench_result(source=H200), bench_result(source=H200, note="farther away"))
    code, said, _ = call(capsys, "bench", "softmax")
    answer = answers.BenchAnswer.model_validate(said)
    assert code == 0
    assert (answer.source.kind, answer.source.device) == ("measured", "a CPU")
    assert [(r.source.kind, r.source.device, r.note) for r in answer.recorded] == [("recorded", "NVIDIA H200", "")]
    assert said["providers"]["triton"]["us"] == {"p20": 1.0, "p50": 2.0, "p80": 3.0}
    assert said["providers"]["triton"]["gbps"] == "Infinity"


def test_where_nothing_can_be_measured_the_recording_answers(stage, capsys):
    stage.answer = EngineError(Failure(kind="unavailable", message="no native path"))
    stage.found = (bench_result(source=H200),)
    code, said, _ = call(capsys, "bench", "softmax")
    assert (code, said["source"]["kind"]) == (0, "recorded")
    assert "not measured here: no native path" in said["note"]
    stage.found = ()
    code, said, _ = call(capsys, "bench", "softmax")
    assert (code, said["error"]["kind"]) == (3, "unavailable")
    assert "no native path" in said["error"]["message"]


def test_a_bench_of_a_wrong_answer_exits_1(stage, capsys):
    stage.answer = bench_result(ok=False)
    code, said, _ = call(capsys, "bench", "softmax")
    assert (code, said["ok"]) == (1, False)


def test_bench_over_a_range(stage, capsys):
    """A size that fails is a step with an error; the others have their results."""

    def answer(request: BenchRequest):
        if request.dims["n"] == 512:
            return EngineError(Failure(kind="failed", message="memory ran out"))
        return bench_result()

    stage.answer = answer
    code, said, _ = call(capsys, "bench", "softmax", "--dims", "rows=4", "--over", "n=256..2000")
    over = answers.BenchOverAnswer.model_validate(said)
    assert (code, over.ok, over.over) == (0, True, "n")
    assert [step.value for step in over.steps] == [256, 512, 1024, 2000]
    assert [bool(step.result) for step in over.steps] == [True, False, True, True]
    assert over.steps[1].error.message == "memory ran out"
    assert [request.dims["rows"] for request in stage.asked] == [4] * 4


def test_bench_over_a_range_without_any_result_fails(stage, capsys):
    stage.answer = EngineError(Failure(kind="crashed", message="it crashed"))
    code, said, _ = call(capsys, "bench", "softmax", "--over", "n=256..512")
    assert (code, said["error"]["kind"]) == (4, "crashed")


def test_kernels_lists_what_a_script_needs(stage, capsys):
    import kernels

    code, said, _ = call(capsys, "kernels")
    listed = answers.KernelsAnswer.model_validate(said).kernels
    assert code == 0
    assert [k.name for k in listed] == list(kernels.all_kernels())
    for kernel, spec in zip(said["kernels"], kernels.all_kernels().values(), strict=True):
        assert {"name", "title", "dims", "presets", "dtypes", "configs"} <= set(kernel)
        assert list(kernel["dims"]) == [dim.name for dim in spec.dims]
        assert kernel["configs"]
        assert all(set(preset) <= set(kernel["dims"]) for preset in kernel["presets"].values())


def test_record_needs_a_gpu(stage, capsys):
    code, said, _ = call(capsys, "record")
    assert (code, said["error"]["kind"]) == (3, "unavailable")
    assert "record needs a GPU" in said["error"]["message"]


def test_record_check_lists_what_is_stale(stage, capsys, monkeypatch):
    from playground.decoder import recorded
    from playground.engine import recordings

    monkeypatch.setattr(recorded, "check", lambda directory: [])
    monkeypatch.setattr(recordings, "check", lambda directory: ["nvidia-h200/softmax: recorded with an older kernel"])
    for words in (("record-check",), ("record", "--check")):
        code, said, _ = call(capsys, *words)
        answer = answers.RecordAnswer.model_validate(said)
        assert (code, answer.ok, len(answer.lines)) == (1, False, 1)
    monkeypatch.setattr(recordings, "check", lambda directory: [])
    monkeypatch.setattr(recorded, "check", lambda directory: ["NVIDIA H200, the decoder: recorded with older kernels"])
    assert call(capsys, "record-check")[0] == 1
    monkeypatch.setattr(recorded, "check", lambda directory: [])
    assert call(capsys, "record-check")[0] == 0


def test_doctor_says_why_each_thing_does_not_work(tmp_path, monkeypatch):
    """On a host where nothing works but Python: every check is there, none raises."""
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    (tmp_path / "file").write_text("")
    Stage.answer = EngineError(Failure(kind="crashed", message="the worker crashed"))
    with Stage(Settings(cache=tmp_path / "file" / "cache", recordings=tmp_path)) as engine:
        answer = doctor.doctor(engine)
    checks = {check.name: check for check in answer.checks}
    assert not answer.ok
    failing = [
        "torch", "triton", "gpu", "native CPU path", "interpreter", "offline compiler", "C compiler", "C++ compiler",
        "cache", "recordings", "gradio",
    ]  # fmt: skip
    for name in failing:
        assert not checks[name].ok and checks[name].why, name
    assert "PLAYGROUND_CACHE" in checks["cache"].why
    assert checks["python"].ok


def test_doctor_knows_what_is_part_of_pytorch_from_what_is_to_be_installed(monkeypatch):
    monkeypatch.setattr(doctor, "_version", {"torch": "2.13.0", "flash-attn": None, "liger-kernel": "0.8"}.get)
    found = {check.name: check for check in doctor._baselines()}
    assert found["baseline FlexAttention"].ok and "torch 2.13.0" in found["baseline FlexAttention"].why
    assert found["baseline Liger"].why == "0.8"
    missing = found["baseline flash-attn"]
    assert not missing.ok and missing.why.startswith("not installed: pip install flash-attn")


def test_doctor_tells_a_native_answer_from_a_stand_in(tmp_path):
    interpreted = Source(kind="interpreted", device="a CPU", date="2026-01-01")
    Stage.answer = run_result(note="interpreted: llvmlite is missing").model_copy(update={"source": interpreted})
    with Stage(Settings(cache=tmp_path)) as engine:
        native, stepping = doctor._native(engine), doctor._interpreter(engine)
    assert (native.ok, native.why) == (False, "interpreted: llvmlite is missing")
    assert stepping.ok


def test_help_names_every_verb(capsys):
    with pytest.raises(SystemExit) as e:
        cli.main(["--help"])
    said = capsys.readouterr().out
    assert e.value.code == 0
    assert tuple(arguments.VERBS) == VERBS
    assert all(f"    {verb}" in said for verb in VERBS)


def test_words_for_every_answer(stage, capsys):
    """Each answer has words, and they say what matters: verdict, source, the first wrong index, what is missing."""
    said = show.text(run_result(ok=False, note="float32 stood in"))
    assert "WRONG, measured on a CPU, 2026-01-02 (torch 2.13.0)" in said
    assert "out[1, 2] is nan and should be 1; 3 of 32 are wrong" in said
    assert "float32 stood in" in said
    answer = answers.BenchAnswer(**dict(bench_result()), recorded=(bench_result(source=H200, stale=True),))
    said = show.text(answer)
    assert "2 (1-3)" in said and "not installed: pip install liger-kernel" in said
    assert "recorded on NVIDIA H200, 2026-01-01" in said and "recorded with an older kernel" in said
    steps = (
        answers.BenchStep(value=1024, result=answer),
        answers.BenchStep(value=2048, error=Failure(kind="failed", message="no room")),
    )
    said = show.text(answers.BenchOverAnswer(ok=True, kernel="softmax", over="n", steps=steps))
    assert "1,024" in said and "no room" in said
    check = answers.Check(name="gpu", ok=False, why="none")
    assert "no  gpu   none" in show.text(answers.DoctorAnswer(ok=True, checks=(check,)))
    assert show.text(answers.RecordAnswer(verb="record-check", ok=True, lines=()))
    assert cli.main(["kernels"]) == cli.main(["kernels", "softmax"]) == 0
    assert "presets" not in capsys.readouterr().err
