"""Checked mode finds the first access outside a tensor, and says where it was."""

import inspect
import threading

import pytest
import torch
import triton
import triton.language as tl

from playground import native


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    y = tl.load(y_ptr + i)  # the mask is forgotten
    tl.store(out_ptr + i, x + y, mask=i < n)


@triton.jit
def store_kernel(out_ptr, at, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + at + i, i.to(tl.float32))  # where at moves it out


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + tl.load(index_ptr + i)))  # an index may be anything


@triton.jit
def tile_kernel(x_ptr, out_ptr, row_stride, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(x_ptr + rows * row_stride + columns, mask=columns < N - 1)  # rows are not masked
    tl.store(out_ptr + rows * N + columns, x)


@triton.jit
def atomic_kernel(out_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(out_ptr + tl.arange(0, BLOCK), 1.0)  # one too many


@triton.jit
def walking_kernel(x_ptr, out_ptr, steps, BLOCK: tl.constexpr):
    pointers = x_ptr + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(steps):
        total += tl.load(pointers)  # a step too far
        pointers += BLOCK
    tl.store(out_ptr + tl.arange(0, BLOCK), total)


def line_of(kernel, text: str) -> int:
    source, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, line in enumerate(source) if text in line)


def found(launch) -> native.OutOfBounds:
    with pytest.raises(native.OutOfBounds) as caught, native.checked():
        launch()
    return caught.value


@pytest.mark.parametrize(("block", "program", "lane"), [(64, 15, 40), (256, 3, 232), (1024, 0, 1000)])
def test_a_forgotten_mask(block, program, lane):
    x, y, out = (torch.zeros(1000) for _ in range(3))
    error = found(lambda: add_kernel[(triton.cdiv(1000, block),)](x, y, out, 1000, block))
    assert (error.tensor, error.index, error.kind) == ("y_ptr", 1000, "load")
    assert (error.program, error.lane) == ((program, 0, 0), lane)
    assert error.line == line_of(add_kernel, "forgotten") and error.file == __file__
    assert "\n" not in str(error) and "y_ptr" in str(error) and str(error.line) in str(error)


def test_the_first_program_is_the_one_reported():
    x, y, out = torch.zeros(100_000), torch.zeros(40_000), torch.zeros(100_000)
    for _ in range(20):
        error = found(lambda: add_kernel[(1563,)](x, y, out, 100_000, 64))
        assert error.program == (625, 0, 0) and error.index == 40_000


@pytest.mark.parametrize(("at", "index"), [(-3, -3), (60, 64), (1 << 20, 1 << 20)])
def test_a_store_is_found_and_not_made(at, index):
    memory = torch.zeros(192)
    out = memory[64:128]
    error = found(lambda: store_kernel[(1,)](out, at, 16))
    assert (error.tensor, error.index, error.kind) == ("out_ptr", index, "store")
    assert error.line == line_of(store_kernel, "moves it out")
    assert not memory[:64].any() and not memory[128:].any()


@pytest.mark.parametrize("bad", [-1, 100, 2**31 - 1])
def test_a_gathered_index(bad):
    index = torch.arange(64, dtype=torch.int64)
    index[37] = bad
    error = found(lambda: gather_kernel[(1,)](torch.zeros(100), index, torch.zeros(64), 64))
    assert (error.tensor, error.index, error.lane) == ("x_ptr", bad, 37)
    assert error.line == line_of(gather_kernel, "anything")


def test_rows_outside_a_strided_view():
    x = torch.zeros(30, 100)[:, :32]
    error = found(lambda: tile_kernel[(1,)](x, torch.zeros(32, 32), 100, 32, 32))
    assert (error.tensor, error.index, error.lane) == ("x_ptr", 3000, 30 * 32)


def test_atomics_and_loops():
    error = found(lambda: atomic_kernel[(1,)](torch.zeros(63), 64))
    assert (error.index, error.kind, error.line) == (63, "store", line_of(atomic_kernel, "too many"))
    error = found(lambda: walking_kernel[(1,)](torch.zeros(100), torch.zeros(32), 4, 32))
    assert (error.tensor, error.index, error.line) == ("x_ptr", 100, line_of(walking_kernel, "too far"))


def test_narrow_types_and_empty_tensors():
    for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.bool, torch.float64):
        x = torch.zeros(1000, dtype=dtype)
        assert found(lambda x=x: add_kernel[(4,)](x, x, x, 1000, 256)).index == 1000
    assert found(lambda: gather_kernel[(1,)](torch.zeros(0), torch.zeros(64).long(), torch.zeros(64), 64)).index == 0


def test_what_is_inside_is_left_alone():
    x, y, out = torch.randn(1000), torch.randn(1024), torch.zeros(1000)
    with native.checked():
        add_kernel[(4,)](x, y, out, 1000, 256)
    assert torch.equal(out, x + y[:1000])
    expanded = torch.randn(1).expand(1024)
    with native.checked():
        tile_kernel[(1,)](expanded.view(32, 32).contiguous(), torch.zeros(32, 32), 32, 32, 32)


def test_only_launches_inside_and_only_this_thread_are_checked():
    roomy = torch.zeros(2048)
    short = roomy[:1000]
    launch = lambda: add_kernel[(4,)](short, short, torch.zeros(1024), 1000, 256)  # noqa: E731
    launch()
    found(launch)
    launch()
    failures = []

    def elsewhere():
        try:
            launch()
        except native.OutOfBounds as error:
            failures.append(error)

    with native.checked():
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join()
    assert not failures


@triton.jit
def asserting_kernel(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.device_assert(x < 100, "too big")


def test_device_assert():
    x = torch.zeros(64)
    asserting_kernel[(1,)](x, 64, debug=True)
    x[5] = 1000
    asserting_kernel[(1,)](x, 64)  # without debug it is not compiled in, as on a GPU
    with pytest.raises(native.DeviceAssertError, match=r"too big .*lane 5"):
        asserting_kernel[(1,)](x, 64, debug=True)


@triton.jit
def printing_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.device_print("value 100% ", tl.load(x_ptr + tl.arange(0, BLOCK)))


def test_device_print(capfd):
    printing_kernel[(1,)](torch.tensor([1.5, 2.5, -3.0, 0.0]), 4)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 4 and "idx (2)" in lines[2] and "value 100%: -3.0" in lines[2]
