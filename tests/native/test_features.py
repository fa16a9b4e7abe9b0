"""The language, feature by feature: natively against the interpreter, or PyTorch where that is wrong."""

import os
import subprocess
import sys

import pytest
import torch

from . import features


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory) -> dict:
    path = tmp_path_factory.mktemp("interpreted") / "outputs.pt"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.native.features", str(path)]
    subprocess.run(command, env=environment, check=True, timeout=120)
    return torch.load(path)


@pytest.mark.parametrize("name", features.CASES)
def test_feature(name, interpreted):
    got = features.run(name)
    wanted = features.expected(name) if name in features.TRUTHS else interpreted[name]
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        if not b.is_floating_point():
            assert torch.equal(a, b)
            continue
        error = ((a.double() - b.double()).norm() / (b.double().norm() + 1e-30)).item()
        bar = 3e-6 if b.element_size() > 2 else 1e-4  # one ulp somewhere, where a result lies on a rounding border
        assert error < bar and torch.equal(a.isfinite(), b.isfinite()), f"relative error {error:.1e}"
