"""AVX-512, AVX2 and plain x86-64 code give the same answers (each is compiled and run here)."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from . import features

LEVELS = ["x86-64", "x86-64-v3"]


def runs_here(level: str) -> bool:
    if platform.machine() != "x86_64":
        return False
    with open("/proc/cpuinfo") as file:
        flags = file.read()
    return level == "x86-64" or "avx2" in flags


@pytest.mark.parametrize("level", LEVELS)
def test_a_lesser_cpu_gives_the_same_answers(level, tmp_path):
    if not runs_here(level):
        pytest.skip(f"this CPU does not run {level} code")
    path = tmp_path / "outputs.pt"
    environment = {**os.environ, "PLAYGROUND_NATIVE_CPU": level}
    command = [sys.executable, "-W", "ignore", "-m", "tests.native.features", str(path), "--native"]
    subprocess.run(command, env=environment, check=True, timeout=300)
    for name, theirs in torch.load(path).items():
        for a, b in zip(features.run(name), theirs, strict=True):
            if not a.is_floating_point():
                assert torch.equal(a, b), name
                continue
            error = ((a.double() - b.double()).norm() / (b.double().norm() + 1e-30)).item()
            assert error < (3e-6 if a.element_size() > 2 else 1e-4), f"{name}: relative error {error:.1e}"
