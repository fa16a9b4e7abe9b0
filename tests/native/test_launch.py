"""Launches: arguments of every kind, autotuning, threads, what is refused, and switching it all off."""

import threading

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from playground import native


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, factor, offset=None, BLOCK: tl.constexpr = 64):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + i, mask=i < n) * factor
    if offset is not None:
        y += offset
    tl.store(out_ptr + i, y, mask=i < n)


@pytest.mark.parametrize("factor", [1, 2, 1 << 40, -3, 1.0, 0.5, True])
@pytest.mark.parametrize("offset", [None, 1, 2.5])
def test_scalars_of_every_kind(factor, offset):
    x, out = torch.randn(100).double(), torch.zeros(100).double()
    scale_kernel[(2,)](x, out, 100, factor, offset=offset)
    torch.testing.assert_close(out, x * factor + (offset or 0))


def test_a_constant_is_known_by_its_type_too():
    x, out = torch.ones(64), torch.zeros(64)
    for flag, wanted in ((1, "int"), (True, "bool"), (1.0, "float")):
        typed_kernel[(1,)](x, out, FLAG=flag)
        assert out[0].item() == {"int": 1, "bool": 2, "float": 3}[wanted]


@triton.jit
def typed_kernel(x_ptr, out_ptr, FLAG: tl.constexpr):
    kind: tl.constexpr = 2 if FLAG is True else (1 if isinstance(FLAG, int) else 3)
    tl.store(out_ptr, tl.load(x_ptr) * kind)


def test_wrong_arguments_are_named():
    x = torch.zeros(64)
    with pytest.raises(TypeError, match="factor"):
        scale_kernel[(1,)](x, x, 64)
    with pytest.raises(TypeError, match="BLOKC"):
        scale_kernel[(1,)](x, x, 64, 2.0, BLOKC=64)
    with pytest.raises(TypeError, match="complex64"):
        scale_kernel[(1,)](x.to(torch.complex64), x, 64, 2.0)


def test_an_empty_grid_and_grids_of_three_axes():
    out = torch.zeros(2, 3, 4)
    grid_kernel[(0,)](out)
    grid_kernel[lambda meta: (4, 3, 2)](out)
    assert torch.equal(out.flatten(), torch.arange(24).float() + 24)


@triton.jit
def grid_kernel(out_ptr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    size = tl.num_programs(0) * tl.num_programs(1) * tl.num_programs(2)
    tl.store(out_ptr + at, (at + size).to(tl.float32))


@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % 2 == 0})
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2 + EVEN, mask=i < n)


def test_autotuned_and_heuristic_kernels():
    x, out = torch.randn(1000), torch.zeros(1000)
    tuned_kernel[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000)
    assert torch.equal(out, x * 2 + 1)
    assert tuned_kernel.best_config.kwargs["BLOCK"] in (64, 128)


@triton.jit
def assembly_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, 7.0)
    x = tl.load(x_ptr + i)
    y = tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out_ptr + i, y)


def test_what_has_no_meaning_on_a_cpu_is_refused_before_anything_runs():
    x, out = torch.randn(64), torch.zeros(64)
    with pytest.raises(native.Unsupported, match="elementwise_inline_asm") as caught:
        assembly_kernel[(1,)](x, out, 64)
    assert "\n" not in str(caught.value) and "test_launch.py" in str(caught.value)
    assert not out.any()


def test_ttir_of_another_triton_is_refused_in_one_line():
    from playground.native import cpu, jit

    for line in (
        "%a = tt.load %missing : !tt.ptr<f32>",
        "%r = scf.for something {",
        "%b = tt.invented %x : !tt.ptr<f32>",
    ):
        text = "tt.func public @k(%x: !tt.ptr<f32>) attributes {} {\n" + line + "\n}\n}"
        with pytest.raises(native.Unsupported) as caught:
            jit.compile_ttir(text, cpu.host())
        assert "\n" not in str(caught.value)


@triton.jit
def work_kernel(x_ptr, out_ptr, n, rounds, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + i, mask=i < n)
    for _ in range(rounds):
        y = y * 0.5 + 1.0
    tl.store(out_ptr + i, y, mask=i < n)


def test_two_python_threads_launch_at_once():
    x = torch.randn(100_000)
    wanted = torch.zeros_like(x)
    work_kernel[(98,)](x, wanted, 100_000, 20, BLOCK=1024)
    results = [[], []]

    def launch(mine: list) -> None:
        for _ in range(30):
            out = torch.zeros_like(x)
            work_kernel[(98,)](x, out, 100_000, 20, BLOCK=1024)
            mine.append(torch.equal(out, wanted))

    workers = [threading.Thread(target=launch, args=(mine,)) for mine in results]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [[True] * 30] * 2


@pytest.mark.parametrize("count", [1, 2, 5])
def test_any_number_of_threads(count):
    before = native.threads()
    native.set_threads(count)
    try:
        x, out = torch.randn(100_000), torch.zeros(100_000)
        scale_kernel[(1563,)](x, out, 100_000, 3.0)
        assert native.threads() == count and torch.equal(out, x * 3)
    finally:
        native.set_threads(before)
    with pytest.raises(ValueError, match="at least 1"):
        native.set_threads(0)


def test_without_openmp_it_runs_on_threads_of_its_own(monkeypatch):
    from playground.native import pool

    monkeypatch.setenv("PLAYGROUND_NATIVE_OPENMP", "0")
    pool.parallel.cache_clear()
    try:
        assert pool.parallel() is pool._pool
        x, out = torch.randn(100_000), torch.zeros(100_000)
        for _ in range(20):
            scale_kernel[(1563,)](x, out, 100_000, 3.0)
        assert torch.equal(out, x * 3)
    finally:
        pool.parallel.cache_clear()


def test_enable_and_disable(native_on):
    launched = JITFunction.run
    native_on.enable()
    assert native_on.is_enabled() and JITFunction.run is launched
    native_on.disable()
    native_on.disable()
    assert not native_on.is_enabled() and JITFunction.run is not launched
    native_on.enable()


def test_stats_count_what_was_compiled():
    before = native.stats()
    fresh_kernel[(1,)](torch.zeros(4))
    after = native.stats()
    assert after["cold"] == before["cold"] + 1 and after["cold_seconds"] > before["cold_seconds"]
    fresh_kernel[(1,)](torch.zeros(4))
    assert native.stats() == after


@triton.jit
def fresh_kernel(x_ptr):
    tl.store(x_ptr, tl.load(x_ptr) + 41)
