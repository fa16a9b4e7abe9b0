"""What is played from a tape is what Triton's interpreter computes, bit for bit, on tensors that no tape has seen."""

import json
import os
import subprocess
import sys

import pytest

from playground.decoder.messages import TAPES

pytestmark = pytest.mark.skipif(not TAPES, reason="tapes know the interpreter of Triton 3.7 and later")

# By nature: a branch on what a launch has itself written, a shift that the interpreter does in place, a descriptor.
INTERPRETED = ("a branch after a store", "sample", "quantize_fp8", "TMA")


@pytest.fixture(scope="module")
def found():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.engine.taped"],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_a_tape_gives_the_interpreters_bits(found):
    assert len(found) > 25
    assert {name for name, row in found.items() if not row["alike"]} == set()


def test_what_a_decoder_runs_is_played_from_tapes(found):
    untaped = {name for name, row in found.items() if not row["tapes"]}
    assert untaped and all(any(known in name for known in INTERPRETED) for name in untaped)


def test_each_way_that_a_program_goes_is_a_tape_of_its_own(found):
    assert found["two ways"]["tapes"] == 3  # the fourth draw goes the second's way
    assert found["a branch after a store"]["void"] == ["a branch follows a store"]
