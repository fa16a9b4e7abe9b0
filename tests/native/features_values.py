"""Arithmetic and whole tensors: mathematics, narrow floats, scans, reductions, sorts, gathers, random bits, dots."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from .cases import case, truth, zeros


@triton.jit
def math_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i)
    u = tl.abs(v) + 0.1
    tl.store(out_ptr + i, tl.exp(v))
    tl.store(out_ptr + BLOCK + i, tl.log(u))
    tl.store(out_ptr + 2 * BLOCK + i, tl.exp2(v))
    tl.store(out_ptr + 3 * BLOCK + i, tl.log2(u))
    tl.store(out_ptr + 4 * BLOCK + i, tl.sin(v) + tl.cos(v))
    tl.store(out_ptr + 5 * BLOCK + i, tl.sqrt(u) + tl.rsqrt(u))
    tl.store(out_ptr + 6 * BLOCK + i, tl.erf(v))
    tl.store(out_ptr + 7 * BLOCK + i, tl.sigmoid(v))
    tl.store(out_ptr + 8 * BLOCK + i, tl.floor(v) + tl.ceil(v))
    tl.store(out_ptr + 9 * BLOCK + i, tl.fma(v, u, v))
    tl.store(out_ptr + 10 * BLOCK + i, tl.clamp(v, -1.0, 1.0))
    tl.store(out_ptr + 11 * BLOCK + i, tl.div_rn(v, u))
    tl.store(out_ptr + 12 * BLOCK + i, tl.softmax(v))


@case
def mathematics():
    x, out = torch.randn(256) * 8, zeros(13, 256)
    math_kernel[(1,)](x, out, BLOCK=256)
    return (out,)


@triton.jit
def libdevice_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i)
    tl.store(out_ptr + i, libdevice.tanh(v) + libdevice.pow(tl.abs(v), 1.5))
    tl.store(out_ptr + BLOCK + i, libdevice.rsqrt(tl.abs(v) + 1) + libdevice.rint(v))
    tl.store(out_ptr + 2 * BLOCK + i, libdevice.log1p(tl.abs(v)) + libdevice.erf(v) + libdevice.fast_expf(v))
    tl.store(out_ptr + 3 * BLOCK + i, tl.where(libdevice.isnan(v).to(tl.int1), 1.0, 2.0))


@case
def libdevice_functions():
    x, out = torch.randn(256), zeros(4, 256)
    x[3] = float("nan")
    libdevice_kernel[(1,)](x, out, BLOCK=256)
    return (out.nan_to_num(7.0),)


@truth("libdevice_functions")
def _():
    x = torch.randn(256)
    x[3] = float("nan")
    rows = [
        x.tanh() + x.abs() ** 1.5,
        (x.abs() + 1).rsqrt() + x.round(),
        x.abs().log1p() + x.erf() + x.exp(),
        torch.where(x.isnan(), 1.0, 2.0),
    ]
    return (torch.stack(rows).nan_to_num(7.0),)


@triton.jit
def integers_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, a // b)
    tl.store(out_ptr + BLOCK + i, a % b)
    tl.store(out_ptr + 2 * BLOCK + i, (a << 3) ^ (a >> 2))
    tl.store(out_ptr + 3 * BLOCK + i, a & b | ~a)
    tl.store(out_ptr + 4 * BLOCK + i, tl.where(a > b, a, b) - tl.minimum(a, b))
    tl.store(out_ptr + 5 * BLOCK + i, tl.umulhi(a.to(tl.uint32), b.to(tl.uint32)).to(tl.int32))
    tl.store(out_ptr + 6 * BLOCK + i, (a.to(tl.int64) * b).to(tl.int32))
    tl.store(out_ptr + 7 * BLOCK + i, a.to(tl.int8).to(tl.int32))
    tl.store(out_ptr + 8 * BLOCK + i, (a.to(tl.uint32) // b.to(tl.uint32)).to(tl.int32))
    tl.store(out_ptr + 9 * BLOCK + i, tl.xor_sum(a, 0) + tl.abs(a))
    tl.store(out_ptr + 10 * BLOCK + i, (a.to(tl.float32) / 3).to(tl.int32))


@case
def integers():
    x = torch.randint(-1000000, 1000000, (256,), dtype=torch.int32)
    y = torch.randint(1, 1000, (256,), dtype=torch.int32)
    out = zeros(11, 256, dtype=torch.int32)
    integers_kernel[(1,)](x, y, out, BLOCK=256)
    return (out,)


@triton.jit
def division_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x_ptr + i, mask=i < n, other=0)
    b = tl.load(y_ptr + i, mask=i < n, other=0)
    tl.store(out_ptr + i, a // b + a % b, mask=i < n)


@case
def division_by_zero_in_masked_lanes():
    x = torch.randint(-99, 99, (50,), dtype=torch.int32)
    y, out = torch.randint(1, 9, (50,), dtype=torch.int32), zeros(50, dtype=torch.int32)
    division_kernel[(1,)](x, y, out, 50, BLOCK=64)
    return (out,)


@triton.jit
def narrow_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, a * b + a)
    tl.store(out_ptr + BLOCK + i, a / b)
    tl.store(out_ptr + 2 * BLOCK + i, tl.maximum(a, b))
    tl.store(out_ptr + 3 * BLOCK + i, tl.exp(a.to(tl.float32)).to(out_ptr.dtype.element_ty))
    tl.store(out_ptr + 4 * BLOCK + i, tl.sum(a.to(tl.float32), 0).to(out_ptr.dtype.element_ty) + tl.zeros_like(a))


@case
def sixteen_bit_floats():
    outs = []
    for dtype in (torch.bfloat16, torch.float16):
        x, y, out = torch.randn(256).to(dtype), torch.randn(256).to(dtype), zeros(5, 256, dtype=dtype)
        narrow_kernel[(1,)](x, y, out, BLOCK=256)
        outs.append(out)
    return outs


@truth("sixteen_bit_floats")
def _():
    outs = []
    for dtype in (torch.bfloat16, torch.float16):
        x, y = torch.randn(256).to(dtype), torch.randn(256).to(dtype)
        total = x.float().sum().to(dtype).expand(256)
        outs.append(torch.stack([x * y + x, (x.float() / y.float()).to(dtype), torch.maximum(x, y), x.exp(), total]))
    return outs


@triton.jit
def fp8_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    bits = tl.load(x_ptr + i)
    tl.store(out_ptr + i, bits.to(tl.float8e5, bitcast=True).to(tl.float32))
    tl.store(out_ptr + BLOCK + i, bits.to(tl.float8e4nv, bitcast=True).to(tl.float32))


@case
def fp8_to_float():
    x, out = torch.arange(256).to(torch.uint8), zeros(512)
    fp8_kernel[(1,)](x, out, BLOCK=256)
    return (out.nan_to_num(1e9, 1e10, -1e10),)


@truth("fp8_to_float")
def _():
    x = torch.arange(256).to(torch.uint8)
    both = torch.cat([x.view(torch.float8_e5m2).float(), x.view(torch.float8_e4m3fn).float()])
    return (both.nan_to_num(1e9, 1e10, -1e10),)


@triton.jit
def to_fp8_kernel(x_ptr, five_ptr, four_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i)
    tl.store(five_ptr + i, v.to(tl.float8e5))
    tl.store(four_ptr + i, v.to(tl.float8e4nv))


def _fp8_inputs():
    ordinary = torch.randn(1000) * torch.logspace(-7, 3, 1000)
    edges = torch.tensor(
        [0.0, -0.0, 448.0, 463.0, 465.0, 1e9, -1e9, float("inf"), -float("inf"), 2**-9, 2**-10, 2**-16]
    )
    return torch.cat([ordinary, edges, -edges])[:1024]


@case
def float_to_fp8():
    x = _fp8_inputs()
    five, four = zeros(1024, dtype=torch.float8_e5m2), zeros(1024, dtype=torch.float8_e4m3fn)
    to_fp8_kernel[(1,)](x, five, four, BLOCK=1024)
    return five.float(), four.float()


@truth("float_to_fp8")
def _():
    x = _fp8_inputs()  # a GPU's conversion saturates, PyTorch's does not
    return (
        x.clamp(-57344, 57344).to(torch.float8_e5m2).float(),
        x.clamp(-448, 448).to(torch.float8_e4m3fn).float(),
    )


@triton.jit
def scans_kernel(x_ptr, rows_ptr, back_ptr, product_ptr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x_ptr + i)
    tl.store(rows_ptr + i, tl.cumsum(v, 1))
    tl.store(back_ptr + i, tl.cumsum(v, 0, reverse=True))
    tl.store(product_ptr + i, tl.cumprod(v, 1))


@case
def scans():
    x, outs = torch.rand(8, 64) + 0.5, [zeros(8, 64) for _ in range(3)]
    scans_kernel[(1,)](x, *outs, M=8, N=64)
    return outs


@triton.jit
def welford(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    d = mean_b - mean_a
    n = n_a + n_b
    part = tl.where(n == 0, 0.0, n_b / n)
    return mean_a + d * part, m2_a + m2_b + d * d * n_a * part, n


@triton.jit
def reductions_kernel(x_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x_ptr + i)
    mean, m2, n = tl.reduce((v, v * 0, v * 0 + 1), 1, welford)
    rows = tl.arange(0, M)
    tl.store(out_ptr + rows, mean)
    tl.store(out_ptr + M + rows, m2 / n)
    tl.store(out_ptr + 2 * M + rows, tl.argmax(v, 1).to(tl.float32))
    columns = tl.arange(0, N)
    tl.store(out_ptr + 3 * M + columns, tl.min(v, 0) + tl.argmin(v, 0))
    tl.store(out_ptr + 3 * M + N, tl.sum(v))


@case
def reductions_of_several_values():
    x, out = torch.randn(16, 64) + 3, zeros(16 * 3 + 65)
    reductions_kernel[(1,)](x, out, M=16, N=64)
    return (out,)


@triton.jit
def sorting_kernel(x_ptr, sorted_ptr, flipped_ptr, top_ptr, counts_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i)
    tl.store(sorted_ptr + i, tl.sort(v))
    tl.store(flipped_ptr + i, tl.flip(v, 0))
    tl.store(top_ptr + tl.arange(0, 8), tl.topk(v, 8))
    tl.store(counts_ptr + tl.arange(0, 16), tl.histogram((tl.abs(v) * 5).to(tl.int32) % 16, 16))


@case
def sort_topk_flip_histogram():
    x, outs = torch.randn(64), (zeros(64), zeros(64), zeros(8), zeros(16, dtype=torch.int32))
    sorting_kernel[(1,)](x, *outs, BLOCK=64)
    return outs


@triton.jit
def pairs_kernel(x_ptr, index_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i)
    a, b = tl.split(tl.join(v, v * 2))
    tl.store(out_ptr + i, a + b)
    tl.store(out_ptr + BLOCK + tl.arange(0, 2 * BLOCK), tl.interleave(v, -v))
    tl.store(out_ptr + 3 * BLOCK + i, tl.gather(v, tl.load(index_ptr + i), 0))


@case
def join_split_interleave_gather():
    x, index, out = torch.randn(64), torch.randint(0, 64, (64,), dtype=torch.int32), zeros(256)
    pairs_kernel[(1,)](x, index, out, BLOCK=64)
    return (out,)


@triton.jit
def random_kernel(floats_ptr, bits_ptr, seed, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(floats_ptr + i, tl.rand(seed, i))
    tl.store(floats_ptr + BLOCK + i, tl.randn(seed, i))
    a, b, c, d = tl.randint4x(seed, i)
    tl.store(bits_ptr + i, tl.randint(seed, i))
    tl.store(bits_ptr + BLOCK + i, a ^ b ^ c ^ d)


@case
def random_numbers():
    floats, bits = zeros(2, 256), zeros(2, 256, dtype=torch.int32)
    random_kernel[(1,)](floats, bits, 1234, BLOCK=256)
    return floats, bits


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(a_ptr + m[:, None] * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], tl.dot(a, b))


@case
def products_of_integers_and_doubles():
    a, b = (torch.randint(-128, 127, (32, 32), dtype=torch.int8) for _ in range(2))
    c = zeros(32, 32, dtype=torch.int32)
    dot_kernel[(1,)](a, b, c, M=32, N=32, K=32)
    x, y, z = torch.randn(16, 64).double(), torch.randn(64, 32).double(), zeros(16, 32, dtype=torch.float64)
    dot_kernel[(1,)](x, y, z, M=16, N=32, K=64)
    return c, z


@triton.jit
def large_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n, other=-float("inf"))
    p = tl.exp(v - tl.max(v, 0))
    q = p / tl.sum(p, 0)
    tl.store(out_ptr + i, q, mask=i < n)
    tl.store(out_ptr + n, tl.sum(q * p, 0))
    tl.store(out_ptr + n + 1, tl.max(tl.cumsum(q, 0), 0))


@case
def a_block_larger_than_the_stack():
    x, out = torch.randn(1000000), zeros(1000002)
    large_kernel[(1,)](x, out, 1000000, BLOCK=1048576)
    return (out,)


@triton.jit
def tuples_kernel(pointers, sizes, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(pointers[0] + i, mask=i < sizes[0], other=0.0)
    tl.store(pointers[1] + i, v * sizes[1], mask=i < sizes[0])


@case
def tuples_of_arguments():
    x, out = torch.randn(50), zeros(50)
    tuples_kernel[(1,)]((x, out), (50, 3), BLOCK=64)
    return (out,)
