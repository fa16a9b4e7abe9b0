"""A first launch inside torch.compile, which goes on with what it cannot trace as PyTorch would."""

import torch

import kernels
from playground.native import jit


def test_a_kernel_that_is_not_compiled_yet_is_launched_from_compiled_code(monkeypatch, tmp_path):
    """Dynamo followed the launch into the compiler, and ended in a RecursionError."""
    monkeypatch.setenv("PLAYGROUND_NATIVE_CACHE", str(tmp_path))
    x = torch.randn(3, 1042)  # a width that nothing else here has
    before = jit.stats()["cold"]
    doubled = torch.compile(lambda x: kernels.softmax(x * 2) + 1, backend="eager")
    torch.testing.assert_close(doubled(x), torch.softmax(x * 2, -1) + 1)
    assert jit.stats()["cold"] > before
    torch.testing.assert_close(doubled(-x), torch.softmax(-x * 2, -1) + 1)
