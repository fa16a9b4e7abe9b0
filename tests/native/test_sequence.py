"""Launches joined in one call do what they do one by one, in order, on any number of threads, run after run."""

import pytest
import torch
import triton
import triton.language as tl

from playground import native
from playground.native import pool
from playground.native.sequence import Sequence, bind

N = 1 << 16


@triton.jit
def halve_and_turn_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out[i] = x[n - 1 - i] / 2 + 1: every program reads what another one has written in the launch before."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + n - 1 - i, mask=i < n) * 0.5 + 1, mask=i < n)


@triton.jit
def talking_kernel(x_ptr):
    tl.device_print("x", tl.load(x_ptr))


def wanted(x: torch.Tensor, times: int) -> torch.Tensor:
    x = x.double()
    for _ in range(times):
        x = x.flip(0) / 2 + 1
    return x


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    before = native.threads()
    native.set_threads(request.param)
    yield request.param
    native.set_threads(before)


@pytest.fixture(params=["1", "0"])
def openmp(request, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_NATIVE_OPENMP", request.param)
    pool.parallel.cache_clear()
    yield
    pool.parallel.cache_clear()


@pytest.mark.parametrize("block", [256, 1 << 14])
def test_each_launch_sees_what_those_before_it_wrote(threads, openmp, block):
    a, b = torch.randn(N), torch.empty(N)
    first = a.clone()
    steps = [bind(halve_and_turn_kernel, (N // block,), *pair, N, block) for pair in [(a, b), (b, a)] * 10]
    assert any(one.is_parallel for one in steps) == (threads > 1)
    run = Sequence(steps)
    for times in (20, 40, 60):
        run()
        torch.testing.assert_close(a.double(), wanted(first, times), rtol=1e-6, atol=1e-6)


def test_small_and_large_launches_mix(threads):
    large, small = torch.randn(N), torch.randn(8)
    out, small_out = torch.empty(N), torch.empty(8)
    run = Sequence(
        [
            bind(halve_and_turn_kernel, (1,), small, small_out, 8, 8),
            bind(halve_and_turn_kernel, (N // 256,), large, out, N, 256),
            bind(halve_and_turn_kernel, (1,), small_out, small, 8, 8),
        ]
    )
    first = small.clone()
    run()
    torch.testing.assert_close(out.double(), wanted(large, 1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(small.double(), wanted(first, 2), rtol=1e-6, atol=1e-6)


def test_what_must_be_launched_by_itself_is_not_bound():
    x = torch.zeros(8)
    assert bind(talking_kernel, (1,), x) is None
    assert bind(halve_and_turn_kernel, (0,), x, x, 8, 8) is None
    assert bind(halve_and_turn_kernel, (1,), x.to("meta"), x, 8, 8) is None
    with native.checked():
        assert bind(halve_and_turn_kernel, (1,), x, x.clone(), 8, 8) is None


def test_the_tensors_live_as_long_as_the_sequence():
    x, out = torch.ones(N), torch.empty(N)
    run = Sequence([bind(halve_and_turn_kernel, (N // 256,), x.clone(), out, N, 256)])
    junk = [torch.full((N,), 7.0) for _ in range(8)]  # would lie where the clone lay
    run()
    assert torch.equal(out, torch.full((N,), 1.5))
    assert len(junk) == 8
