"""`compile` and `sweep`: real code for a GPU that is not here, the JSON of the design, exit codes."""

from playground import cli
from playground.cli import answers, show, show_code, verbs
from playground.engine.engine import Engine
from playground.engine.messages import ConfigChoice
from playground.engine.sweep_messages import ConfigResult, SweepResult
from tests.cli.conftest import CHOICE, HERE, TIMES, strict
from tests.cli.test_real import playground

FIRST, SECOND = (ConfigChoice(meta={"BLOCK": b}, num_warps=4) for b in (256, 512))


def swept(*configs, **fields):
    return SweepResult(choice=CHOICE, configs=configs, done=True, target="sm_90", source=HERE, compiled=HERE, **fields)


def test_real_code_for_a_gpu_that_is_not_here():
    done = playground("compile", "vector_add", "--target", "sm_90", "--stage", "ptx", "--dims", "n=4096", "--json")
    said = strict(done.stdout)
    assert done.returncode == 0, done.stderr
    assert said["code"].startswith(".version") and said["lines"] == len(said["code"].splitlines())
    assert said["registers"] > 0 and said["spills"] == 0 and said["shared_bytes"] == 0
    assert said["source"]["kind"] == "compiled"


def test_a_sweep_is_read_fastest_first_with_its_failures():
    slow = TIMES.model_copy(update={"p50": 9.0})
    result = swept(
        ConfigResult(config=FIRST, ok=True, us=slow, method="warm cache", registers=20, occupancy=1.0),
        ConfigResult(config=SECOND, ok=True, us=TIMES, method="warm cache", registers=40, occupancy=0.5),
        ConfigResult(config=FIRST, ok=False, failure="out: wrong, so not timed"),
        best=1, default=0, speedup=4.5, seconds=3.0, calls_to_repay=428_571, note="the host was busy",
    )  # fmt: skip
    lines = show.text(result).splitlines()
    assert lines[1].startswith("BLOCK 512") and "best" in lines[1]
    assert "wrong: out: wrong, so not timed" in lines[3]
    assert "Note: the host was busy.\n" in show.text(result)
    assert "4.50 times as fast as the default" in show.text(result) and "428,571 calls" in show.text(result)


def test_exit_codes_of_a_sweep(monkeypatch, capsys):
    """0 where a config has a time, 1 where answers are wrong alone, 4 where nothing worked.

    2 or 3 where all was bad input, or is not available here.
    """
    ok = ConfigResult(config=FIRST, ok=True, us=TIMES, method="warm cache")
    wrong = ConfigResult(config=FIRST, ok=False, failure="wrong")
    hung = ConfigResult(config=FIRST, failure="took longer than 60 s")
    compiled = ConfigResult(config=FIRST, registers=12)
    elsewhere = ConfigResult(config=FIRST, failure="for Hopper alone", failure_kind="unavailable", registers=12)
    refused = ConfigResult(config=FIRST, refusal="config lacks 'BLOCK_N'", failure_kind="input")
    cases = [
        ((), swept(ok, wrong, best=0), 0),
        ((), swept(wrong), 1),
        ((), swept(hung), 4),
        ((), swept(elsewhere, elsewhere), 3),
        ((), swept(elsewhere, hung), 4),
        ((), swept(elsewhere, wrong), 1),
        ((), swept(refused), 2),
        (("--target", "sm_90"), swept(compiled), 0),
        (("--target", "sm_90"), swept(hung), 4),
        (("--target", "sm_90"), swept(refused), 2),
    ]
    for words, result, code in cases:
        monkeypatch.setattr(Engine, "sweep", lambda self, request, cancel, result=result: iter([result]))
        monkeypatch.setattr(Engine, "warm", lambda self, device="auto": None)
        assert cli.main(["sweep", "softmax", *words, "--json"]) == code, result
        SweepResult.model_validate(strict(capsys.readouterr().out))


def test_compiled_code_ends_with_its_figures_as_a_comment():
    answer = answers.CompileAnswer(
        kernel="k", choice=CHOICE, target="gfx942", stage="amdgcn", code="s_endpgm", lines=1, registers=9, spills=0,
        shared_bytes=0, occupancy=1.0, source=HERE,
    )  # fmt: skip
    assert show.text(answer).splitlines()[-1] == "; k for gfx942: 9 registers, 0 bytes spilled, 0 bytes shared"
    assert show_code and verbs.VERBS["compile"]


def test_a_config_that_lacks_a_name_is_bad_input():
    for words in (("compile", "softmax"), ("sweep", "softmax", "--target", "sm_90")):
        done = playground(*words, "--config", "num_warps=4")
        said = "config lacks 'BLOCK_N'; give 'BLOCK_N' a value\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said), words
