"""Inductor's Triton is read without a GPU, and what is said of it stands in the source."""

import pytest
import torch

from kernels.spec import InputError
from playground.engine.inductor import decoder_block, inductor
from playground.engine.inductor_messages import InductorRequest
from playground.engine.job import Job
from playground.engine.messages import EngineError

JOB = Job(torch.device("cpu"))


def of(kernel, **request):
    return inductor(InductorRequest(kernel=kernel, **request), JOB)


def test_add_rms_norm_is_one_fused_reduction_and_eager_a_chain():
    found = of("add_rms_norm", dims={"rows": 64, "n": 4096}, dtype="bfloat16")
    (kernel,) = found.kernels
    assert "@triton.jit" in kernel.source and "rsqrt" in kernel.source and "tl.sum" in kernel.source
    assert found.eager_kernels > 4
    # x, residual read, two outputs written, the weight once: what our own cost model says
    assert found.bytes_moved == 4 * 64 * 4096 * 2 + 4096 * 2
    assert any("reduction" in note for note in kernel.notes)
    assert found.source.kind == "compiled"


def test_a_block_of_a_decoder_calls_libraries_between_its_kernels():
    found = of("add_rms_norm", block=True)
    assert len(found.kernels) >= 4
    assert "mm" in found.extern or "addmm" in found.extern


def test_reading_leaves_no_driver_and_no_hook_behind():
    from torch._inductor.graph import GraphLowering
    from triton.runtime.driver import driver

    before, codegen = driver.__dict__.get("_active"), GraphLowering.codegen
    of("silu_mul")
    assert driver.__dict__.get("_active") is before and GraphLowering.codegen is codegen


def test_what_has_no_triton_says_so_in_one_line():
    with pytest.raises(EngineError, match="writes no Triton"):
        of("matmul")
    with pytest.raises(InputError, match="gfx942 is no NVIDIA target"):
        of("softmax", target="gfx942")


def test_the_block_is_causal():
    torch.manual_seed(0)
    x, hidden, inner = torch.randn(8, 16), 16, 32
    square, wide = (hidden, hidden), (inner, hidden)
    shapes = [(hidden,), (hidden,), square, square, square, square, wide, wide, (hidden, inner)]
    weights = [torch.randn(s) * 0.1 for s in shapes]
    later = x.clone()
    later[5:] += 1
    assert torch.allclose(decoder_block(x, *weights)[:5], decoder_block(later, *weights)[:5])
