"""Patching Triton's language once must change nothing but the time, and must give way where Triton has changed."""

from __future__ import annotations

import os
import subprocess
import sys
import types

from playground.engine import interpreter
from playground.settings import ROOT

# Kernels with nested jit calls, reductions, scans, dots, loops, descriptors and tuples, bit for bit.
COMPARE = """
import torch, triton, triton.language as tl
from triton.runtime import interpreter as it
from playground.engine import interpreter

calls = 0
original = it._patch_lang
def counted(fn):
    global calls
    calls += 1
    return original(fn)

@triton.jit
def twice(x):
    return tl.sum(x, axis=0) + tl.max(x, axis=0)

@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    square = tl.reshape(x, (BLOCK // 16, 16))
    total = tl.dot(square, tl.trans(square), input_precision="ieee")
    y = tl.cumsum(x, axis=0) * tl.exp(-tl.abs(x)) + twice(x) + tl.sum(tl.sum(total, 0), 0)
    for i in tl.static_range(2):
        y += tl.where(y > i, y, -y).to(tl.float32)
    if n > 100:
        y = tl.sort(y)
    tl.store(out_ptr + offsets, y, mask=mask)

def run():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    out = torch.full_like(x, float("nan"))
    kernel[(4,)](x, out, 1000, BLOCK=256)
    return out

it._patch_lang = counted
before = run()
assert calls > 1, calls
assert interpreter.patch_once() == "" and interpreter.patch_once() == ""
calls, after = 0, run()
assert calls == 0, calls
assert torch.equal(before, after) and not after.isnan().any()
"""


def test_the_answers_are_the_same_bits(tmp_path):
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    script = tmp_path / "compare.py"  # jit reads its source from a file
    script.write_text(COMPARE)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_another_triton_is_left_as_it_is():
    class Launcher:
        def __call__(self):
            """Patches nothing by name."""

    changed = types.SimpleNamespace(
        _patch_lang=len, GridExecutor=Launcher, InterpretedFunction=Launcher, tl=types.ModuleType("tl")
    )
    assert interpreter._missing(changed) == "call of _patch_lang in Launcher"
    del changed._patch_lang
    assert interpreter._missing(changed) == "_patch_lang"
