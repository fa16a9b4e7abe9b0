"""In Triton's interpreter a kernel gets what a compiled one gets."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BITS = """
import torch, triton, triton.language as tl
import kernels

@triton.jit
def bits_kernel(out_ptr, x):
    tl.store(out_ptr, x.to(tl.int32, bitcast=True))

out = torch.zeros(1, dtype=torch.int32)
for x in (0.1, -2.0, 1e39, 1e-46):
    bits_kernel[(1,)](out, x)
    print(f"{out.item() & 0xFFFFFFFF:08x}", end=" ")
"""


LOOP = """
import torch, triton, triton.language as tl
import kernels

@triton.jit
def count_kernel(out_ptr, end, step):
    total = 0
    for i in range(0, end, step):
        total += i
    tl.store(out_ptr, total)

out = torch.zeros(1, dtype=torch.int32)
count_kernel[(1,)](out, 10, 3)
print(out.item())
"""


def printed(tmp_path, text, switch="1"):
    script = tmp_path / "script.py"  # a jit function's text is read from its file
    script.write_text(text)
    env = {**os.environ, "TRITON_INTERPRET": switch, "PYTHONPATH": os.getcwd()}
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, timeout=120)
    assert not run.returncode, run.stderr
    return run.stdout.split()


@pytest.mark.parametrize("switch", ("1", "true"))  # whatever Triton takes for yes
def test_a_float_is_a_float32(tmp_path, switch):
    assert printed(tmp_path, BITS, switch) == ["3dcccccd", "c0000000", "7f800000", "00000000"]


def test_arguments_are_the_end_and_the_step_of_a_loop(tmp_path):
    """Triton 3.6 under NumPy 2.4 took none."""
    assert printed(tmp_path, LOOP) == ["18"]
