"""The traced bytes of every kernel at an odd shape, masks included, are those that a person counts."""

import json
import os
import subprocess
import sys

import pytest
from triton.experimental.gluon._runtime import GluonJITFunction

import kernels
from kernels.spec import Target
from tests.engine.traced_by_hand import BY_HAND

IDS = [f"{row[0]}-{row[3].label if row[3] else 'default'}" for row in BY_HAND]


@pytest.fixture(scope="module")
def found():
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.traced_by_hand"],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("row", range(len(BY_HAND)), ids=IDS)
def test_bytes(found, row):
    expected = {name: list(both) for name, both in BY_HAND[row][-1].items()}
    assert found[row]["tensors"] == expected


@pytest.mark.parametrize("name", sorted(kernels.all_kernels()))
def test_every_kernel_is_counted(name):
    spec, target = kernels.get(name), Target.named("sm_90")
    inputs = spec.inputs(spec.presets["prefill"], spec.dtypes[0], "meta")
    launches = spec.plan(inputs, spec.default_config(inputs, target), target).launches
    if any(isinstance(launch.kernel, GluonJITFunction) for launch in launches):
        pytest.skip(f"{name} is written in Gluon, which is not interpreted")
    if name not in {row[0] for row in BY_HAND}:
        pytest.skip(f"count the bytes of {name} by hand: tests/engine/traced_by_hand.py")
