"""Every mistake that can be typed is one line that names the argument and the remedy, and exit 2."""

from __future__ import annotations

import pytest

from playground import cli
from playground.cli import answers, arguments
from tests.cli.conftest import call, strict

RUN = ("run", "softmax")
NAMES = ("dtype", "preset", "edge", "bug", "baselines", "device")
MISTAKES = [
    ((), "verb", "choose doctor, kernels, run, bench, sweep, compile, trace, chat, record, record-check"),
    (("frobnicate",), "verb", "no verb is named 'frobnicate'; choose doctor"),
    (("run",), "kernel", "KERNEL is missing"),
    (("run", "nope"), "kernel", "no kernel is named 'nope'; there are"),
    (("kernels", "nope"), "kernel", "no kernel is named 'nope'"),
    (("record", "nope"), "kernel", "no kernel is named 'nope'"),
    ((*RUN, "--dims", "rows=-1,n=5"), "rows", "rows must be 1 or more, and it is -1"),
    ((*RUN, "--dims", "rows=0"), "rows", "rows must be 1 or more"),
    ((*RUN, "--dims", "n=3.5"), "n", "n is '3.5'; it needs a whole number, such as n=64"),
    ((*RUN, "--dims", "n=1e6"), "n", "it needs a whole number"),
    ((*RUN, "--dims", "n=many"), "n", "it needs a whole number"),
    ((*RUN, "--dims", "n="), "n", "it needs a whole number"),
    ((*RUN, "--dims", "n=nan"), "n", "it needs a whole number"),
    ((*RUN, "--dims", "n=" + "9" * 19), "n", "below 2^63"),
    ((*RUN, "--dims", "n=" + "9" * 5000), "n", "below 2^63"),
    ((*RUN, "--dims", f"n={2**62}"), "n", "n must be"),
    ((*RUN, "--dims", "rows=2000000000,n=2000000000"), "n", "n must be"),
    ((*RUN, "--dims", "columns=4"), "columns", "softmax has no dim 'columns'; its dims are rows, n"),
    ((*RUN, "--dims", "64"), "dims", "write a name and a number, such as rows=64,n=3000"),
    ((*RUN, "--dims", "n=4,,rows=2"), "dims", "write a name and a number"),
    ((*RUN, "--dims", "n=4,n=5"), "n", "n is given twice"),
    ((*RUN, "--dims"), "dims", "expected one argument"),
    ((*RUN, "--dtype", "int3"), "dtype", "softmax has no dtype 'int3'; choose float32"),
    ((*RUN, "--dtype", "tf32"), "dtype", "softmax has no dtype 'tf32'"),
    ((*RUN, "--seed", "x"), "seed", "seed is 'x'; it needs a whole number, such as --seed 8"),
    ((*RUN, "--seed", "-1"), "seed", "seed must be from 0"),
    ((*RUN, "--preset", "gigantic"), "preset", "softmax has no preset 'gigantic'; choose decode"),
    ((*RUN, "--edge", "Nothing"), "edge", "no edge is named 'Nothing'"),
    ((*RUN, "--bug", "Nothing"), "bug", "no bug is named 'Nothing'"),
    ((*RUN, "--baselines", "cuDNN"), "baselines", "softmax has no baseline 'cuDNN'"),
    ((*RUN, "--device", "tpu"), "device", "no device is named 'tpu'; choose auto or cpu or interpreter"),
    ((*RUN, "--config", "BLOCK_N"), "config", "write a name and a number, such as BLOCK_N=4096,num_warps=8"),
    ((*RUN, "--config", "BLOCK_N=64,num_warps=99"), "config", "num_warps is 99; it needs to be from 1 to 32"),
    ((*RUN, "--config", "num_stages=0"), "config", "num_stages is 0; it needs to be from 1 to 10"),
    *(((*RUN, f"--{name}", "x" * 3000), name, "'xxx") for name in NAMES),
    ((*RUN, "--bogus"), "", "unrecognized arguments: --bogus"),
    (("run", "softmax", "extra"), "", "unrecognized arguments: extra"),
    (("bench", "softmax", "--device", "interpreter"), "device", "the interpreter's times say nothing of a kernel"),
    (("bench", "softmax", "--over", "n"), "over", "write a dim and a range, such as n=256..16384"),
    (("bench", "softmax", "--over", "n=9..3"), "over", "it needs to rise from 1 or more"),
    (("bench", "softmax", "--over", "n=0..3"), "over", "it needs to rise from 1 or more"),
    (("bench", "softmax", "--over", "n=1..x"), "n", "it needs a whole number"),
    (("bench", "softmax", "--over", "m=1..4"), "m", "softmax has no dim 'm'"),
    (("bench", "softmax", "--over", "n=1..4", "--steps", "0"), "steps", "from 1 to 64"),
    (("compile", "softmax", "--stage", "ptxx"), "stage", "no stage is named 'ptxx'; choose ttir"),
    (("sweep", "softmax", "--target", "sm_1"), "target", "no target is named 'sm_1'; choose from sm_75"),
    (("sweep", "softmax", "--dims", "rows=-1"), "rows", "rows must be 1 or more"),
    (("bench", "softmax", "--steps", "4"), "steps", "--steps needs a range; give --over"),
]


@pytest.mark.parametrize(
    ("words", "argument", "message"), MISTAKES, ids=[" ".join(w)[:50] or "-" for w, _, _ in MISTAKES]
)
def test_a_mistake_is_one_line_and_exit_2(stage, capsys, words, argument, message):
    code, said, err = call(capsys, *words)
    assert code == 2
    assert set(said) == {"error"}
    assert set(said["error"]) == {"kind", "message", "argument"}
    assert (said["error"]["kind"], said["error"]["argument"]) == ("input", argument)
    assert message in said["error"]["message"]
    assert len(said["error"]["message"]) < 400
    assert err == ""
    assert stage.asked == []
    answers.ErrorAnswer.model_validate(said)


def test_a_mistake_without_json_is_one_line_on_stderr(stage, capsys):
    assert cli.main(["run", "softmax", "--dims", "rows=-1,n=5"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("rows must be 1 or more, and it is -1")


def test_json_may_stand_anywhere(stage, capsys):
    assert cli.main(["--json", "run", "nope"]) == 2
    assert strict(capsys.readouterr().out)["error"]["argument"] == "kernel"


def test_a_setting_that_cannot_be_used_is_bad_input(stage, capsys, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_RUN_SECONDS", "soon")
    code, said, _ = call(capsys, *RUN)
    assert (code, said["error"]["argument"]) == (2, "PLAYGROUND_RUN_SECONDS")


@pytest.mark.parametrize(
    ("low", "high", "steps", "expected"),
    [
        (256, 16384, None, [256, 512, 1024, 2048, 4096, 8192, 16384]),
        (100, 300, None, [100, 200, 300]),
        (5, 5, None, [5]),
        (1, 10000, 5, [1, 10, 100, 1000, 10000]),
        (1, 3, 10, [1, 2, 3]),
        (7, 9000, 1, [7]),
        (7, 9000, 2, [7, 9000]),
    ],
)
def test_sizes_rise_by_equal_factors(low, high, steps, expected):
    assert arguments.sizes(low, high, steps) == expected
