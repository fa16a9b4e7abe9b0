"""In Triton's interpreter a kernel gets what a compiled one gets."""

from __future__ import annotations

import os
import subprocess
import sys

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


def test_a_float_is_a_float32(tmp_path):
    script = tmp_path / "bits.py"  # a jit function's text is read from its file
    script.write_text(BITS)
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.getcwd()}
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, timeout=120)
    assert run.stdout.split() == ["3dcccccd", "c0000000", "7f800000", "00000000"], run.stderr
