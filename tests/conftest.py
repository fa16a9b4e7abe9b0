"""Where the tests run kernels, and which tests a host without a GPU leaves out.

PLAYGROUND_TEST_DEVICE is "cuda", "cpu" (natively) or "interpreter"; without it, the GPU where there is one, else "cpu".
"""

import os

import pytest

# Read when PyTorch is loaded. Threads that have nothing to do sleep: those of two processes would wait for each other
# in loops, each in the way of the one that it waits for, and a computation of many small parts take twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
if os.environ.get("PLAYGROUND_TEST_DEVICE") == "interpreter":
    os.environ["TRITON_INTERPRET"] = "1"  # read when @triton.jit decorates, so before any kernel is imported


def pytest_collection_modifyitems(items):
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="no GPU here"))
