"""The math that is written here, in ulps; the conversions, on every value where they can be counted."""

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def function_kernel(x_ptr, out_ptr, n, WHICH: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    if WHICH == "exp":
        y = tl.exp(x)
    elif WHICH == "exp2":
        y = tl.exp2(x)
    elif WHICH == "log":
        y = tl.log(x)
    elif WHICH == "log2":
        y = tl.log2(x)
    else:
        y = libdevice.tanh(x)
    tl.store(out_ptr + i, y, mask=i < n)


def apply(name: str, x: torch.Tensor, block: int = 1024) -> torch.Tensor:
    out = torch.zeros_like(x)
    function_kernel[(triton.cdiv(len(x), block),)](x, out, len(x), name, block)
    return out


def ulps(got: torch.Tensor, wanted: torch.Tensor) -> float:
    """Of normal results."""
    exact = wanted.float()
    size = (torch.nextafter(exact.abs(), torch.tensor(float("inf"))) - exact.abs()).double()
    normal = exact.isfinite() & (exact.abs() > 2.0**-126)
    return ((got.double() - wanted).abs() / size)[normal].max().item()


RANGES = {"exp": (-87, 88), "exp2": (-125, 127), "log": None, "log2": None, "tanh": (-20, 20)}


@pytest.mark.parametrize("name", RANGES)
def test_within_a_few_ulps_of_float64(name):
    if RANGES[name]:
        low, high = RANGES[name]
        x = torch.cat([torch.linspace(low, high, 200_000), torch.randn(50_000) * 1e-3])
    else:
        x = torch.cat([torch.logspace(-37, 38, 200_000), 1 + torch.randn(50_000) * 1e-3])
    assert ulps(apply(name, x), getattr(torch, name)(x.double())) < (3.0 if name == "log2" else 2.0)


@pytest.mark.parametrize("name", RANGES)
def test_special_values_are_pytorchs(name):
    infinity = float("inf")
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, infinity, -infinity, float("nan"), 1e-40, -1e-40, 3e38, -3e38, 1e-30])
    wanted = getattr(torch, name)(x.double()).float()
    for block in (1, 16):
        got = apply(name, x, block)
        assert torch.equal(got.isnan(), wanted.isnan())
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-38, equal_nan=True)


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_denormal_results(name):
    x = torch.linspace(-103 if name == "exp" else -149, -87, 4096)
    wanted = getattr(torch, name)(x.double()).float()
    torch.testing.assert_close(apply(name, x), wanted, rtol=1e-6, atol=3e-45)


@triton.jit
def cast_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n).to(out_ptr.dtype.element_ty), mask=i < n)


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    out = torch.zeros(x.shape, dtype=dtype)
    cast_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), 1024)
    return out


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_sixteen_bit_float_there_and_back(dtype):
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    wide = cast(x, torch.float32)
    assert same(wide, x.float())
    assert same(cast(wide, dtype).float(), x.float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounding_is_to_the_nearest_even(dtype):
    x = torch.randn(100_000) * torch.logspace(-8, 5, 100_000)
    values = torch.arange(0, 1 << 14).to(torch.int16).view(dtype).float()
    borders = (values[:-1] + values[1:]) / 2
    x = torch.cat([x, borders, -borders])
    assert same(cast(x, dtype).float(), x.to(dtype).float())


def test_floats_to_integers_and_back():
    x = torch.tensor([0.0, 1.5, -1.5, 2.999, -2.999, 200.0, -200.0, 1e6])
    assert torch.equal(cast(x, torch.int32), x.to(torch.int32))
    assert cast(x, torch.int8).tolist() == [0, 1, -1, 2, -2, -56, 56, 64]  # truncated, then wrapped, as on a GPU
    integers = torch.arange(-500, 500, dtype=torch.int32)
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        assert torch.equal(cast(integers, dtype), integers.to(dtype))


@triton.jit
def divide_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i, mask=i < n), tl.load(y_ptr + i, mask=i < n, other=1)
    tl.store(out_ptr + i, x // y, mask=i < n)
    tl.store(out_ptr + n + i, x % y, mask=i < n)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32], ids=str)
def test_division_of_integers_is_exact(dtype):
    edge = [1, 2, 3, 7, 2**31 - 1, 2**31 - 2, 2**16, 2**16 + 1]
    pairs = torch.cartesian_prod(torch.tensor([0, *edge]), torch.tensor(edge))
    low = -(2**31) if dtype == torch.int32 else 0
    more = torch.randint(low, low + 2**32, (5000, 2))
    pairs = torch.cat([pairs, more[(more[:, 1] != 0) & ~((more[:, 0] == low) & (more[:, 1] == -1))]])
    x, y = (column.to(dtype).contiguous() for column in pairs.t())
    out = torch.zeros(2 * len(pairs), dtype=dtype)
    divide_kernel[(triton.cdiv(len(pairs), 256),)](x, y, out, len(pairs), 256)
    quotient = torch.div(pairs[:, 0], pairs[:, 1], rounding_mode="trunc")
    assert torch.equal(out.to(torch.int64), torch.cat([quotient, pairs[:, 0] - quotient * pairs[:, 1]]))
