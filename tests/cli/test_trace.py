"""`trace` as scripts and people read it: the promised fields, exit codes, and one real trace."""

from __future__ import annotations

import pytest

from playground import cli
from playground.engine.messages import OutOfBounds
from tests.cli.conftest import call
from tests.cli.test_real import playground, strict
from tests.ui.memory_samples import trace

WORDS = ("trace", "add_rms_norm", "--dims", "rows=4,n=6")
MISS = OutOfBounds(kind="load", tensor="x_ptr", index=24, program=(3, 0, 0), lane=6, line=52, message="load outside x")
PROMISED = (
    "bytes_loaded", "bytes_stored", "unique_bytes", "sectors", "masked_share", "out_of_bounds", "accesses", "source",
)  # fmt: skip


def test_the_promised_fields(stage, capsys):
    stage.answer = trace()
    code, said, err = call(capsys, *WORDS)
    assert (code, err) == (0, "")
    assert all(name in said for name in PROMISED)
    assert (said["bytes_loaded"], said["bytes_stored"]) == (144, 96)
    (request,) = stage.asked
    assert (request.dims, request.programs, request.seconds) == ({"rows": 4, "n": 6}, (), 20.0)


def test_an_access_out_of_bounds_is_a_wrong_answer(stage, capsys):
    stage.answer = trace(misses=(MISS,))
    code, said, _ = call(capsys, *WORDS, "--programs", "0,3", "--seconds", "5")
    assert code == 1 and said["out_of_bounds"][0]["index"] == 24
    assert (stage.asked[0].programs, stage.asked[0].seconds) == ((0, 3), 5.0)


@pytest.mark.parametrize(
    ("words", "argument"),
    [(("--programs", "-1"), "programs"), (("--programs", "x"), "programs"), (("--seconds", "0"), "seconds")],
)
def test_bad_input_is_one_line(stage, capsys, words, argument):
    code, said, _ = call(capsys, *WORDS, *(f"{words[0]}={word}" for word in words[1:]))
    assert (code, said["error"]["argument"]) == (2, argument)
    assert stage.asked == []


def test_people_read_sums_lines_and_what_is_outside(stage, capsys):
    stage.answer = trace(misses=(MISS,))
    assert cli.main(list(WORDS)) == 1
    text = capsys.readouterr().out
    assert "OUT OF BOUNDS" in text and "144 bytes loaded and 96 stored, 240 in all" in text
    assert "25.0% of the lanes are masked" in text and "load outside x" in text
    assert text.count("tl.load(") == 3 and text.count("tl.store(") == 2


def test_a_real_trace():
    """5 rows of 300 bfloat16: two inputs and two outputs of 3,000 bytes, and 600 bytes of weight once a row."""
    done = playground("trace", "add_rms_norm", "--dims", "rows=5,n=300", "--dtype", "bfloat16", "--config",
                      "BLOCK_M=1,BLOCK_N=512,num_warps=1", "--json")  # fmt: skip
    said = strict(done.stdout)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert (said["bytes_loaded"], said["bytes_stored"], said["exact"]) == (9000, 6000, True)
    assert said["unique_bytes"] == said["compulsory_bytes"] == 12600


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--programs", "3"), "there is no program 3: the programs are 0 to 2; choose from these"),
        (("--config", "num_warps=4"), "config lacks 'BLOCK_N'; give 'BLOCK_N' a value"),
    ],
)
def test_what_the_plan_has_not_is_bad_input(words, message):
    done = playground(*WORDS[:2], "--dims", "rows=3,n=300", "--config", "BLOCK_M=1,BLOCK_N=512", *words, "--json")
    assert (done.returncode, strict(done.stdout)["error"]["message"]) == (2, message)


def test_the_config_shown_is_the_one_launched():
    done = playground("trace", "softmax", "--dims", "rows=2,n=9000", "--config", "BLOCK_M=1,BLOCK_N=4096", "--json")
    said = strict(done.stdout)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert said["choice"]["config"]["meta"] == {"BLOCK_N": 4096}
