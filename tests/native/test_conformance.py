"""The kernels of a decoder, in three dtypes, against float64."""

import pytest
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

BARS = {torch.float32: 1e-6, torch.float16: 6e-4, torch.bfloat16: 5e-3}
DTYPES = pytest.mark.parametrize("dtype", BARS, ids=str)


def close(got, wanted, dtype, factor=1):
    error = ((got.double() - wanted).norm() / wanted.norm()).item()
    assert error < BARS[dtype] * factor, f"relative error {error:.1e}"


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + i, mask=i < n, other=-float("inf")).to(tl.float32)
    p = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row + i, (p / tl.sum(p, 0)).to(out_ptr.dtype.element_ty), mask=i < n)


@triton.jit
def looped_softmax_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    highest, total = -float("inf"), 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + i, mask=start + i < n, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(highest, tl.max(x, 0))
        total = total * tl.exp(highest - higher) + tl.sum(tl.exp(x - higher), 0)
        highest = higher
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + row + start + i, mask=start + i < n, other=-float("inf")).to(tl.float32)
        out = (tl.exp(x - highest) / total).to(out_ptr.dtype.element_ty)
        tl.store(out_ptr + row + start + i, out, mask=start + i < n)


@DTYPES
@pytest.mark.parametrize("n", [1, 17, 1000, 5000])
def test_softmax(dtype, n):
    x = torch.randn(4, n).to(dtype)
    for kernel, block in ((softmax_kernel, triton.next_power_of_2(n)), (looped_softmax_kernel, 512)):
        out = torch.zeros_like(x)
        kernel[(4,)](x, out, n, block)
        close(out, x.double().softmax(-1), dtype)


@triton.jit
def add_rms_norm_kernel(x_ptr, residual_ptr, weight_ptr, out_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + i, mask=i < n, other=0) + tl.load(residual_ptr + row + i, mask=i < n, other=0)
    tl.store(residual_ptr + row + i, x, mask=i < n)
    x = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / n + eps)
    weight = tl.load(weight_ptr + i, mask=i < n, other=0).to(tl.float32)
    tl.store(out_ptr + row + i, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=i < n)


@DTYPES
def test_add_rms_norm_in_place(dtype):
    x, residual, weight = torch.randn(3, 576).to(dtype), torch.randn(3, 576).to(dtype), torch.randn(576).to(dtype)
    out, wanted = torch.zeros_like(x), x + residual
    add_rms_norm_kernel[(3,)](x, residual, weight, out, 576, 1e-5, 1024)
    assert torch.equal(residual, wanted)
    close(out, F.rms_norm(wanted.double(), (576,), weight.double(), 1e-5), dtype)


@triton.jit
def silu_mul_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + i, mask=i < n).to(tl.float32)
    up = tl.load(up_ptr + i, mask=i < n).to(tl.float32)
    tl.store(out_ptr + i, (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty), mask=i < n)


@DTYPES
def test_silu_mul(dtype):
    gate, up = torch.randn(1500).to(dtype) * 3, torch.randn(1500).to(dtype)
    out = torch.zeros_like(up)
    silu_mul_kernel[(6,)](gate, up, out, 1500, 256)
    close(out, F.silu(gate.double()) * up.double(), dtype)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, am, ak, bk, bn, cm, cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid, rows, columns = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * columns)
    height = min(rows - group * GROUP, GROUP)
    pm = group * GROUP + (pid % (GROUP * columns)) % height
    pn = (pid % (GROUP * columns)) // height
    m, n, k = (pm * BM + tl.arange(0, BM)) % M, (pn * BN + tl.arange(0, BN)) % N, tl.arange(0, BK)
    a_ptrs, b_ptrs = a_ptr + m[:, None] * am + k[None, :] * ak, b_ptr + k[:, None] * bk + n[None, :] * bn
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=k[None, :] < K - start * BK, other=0.0)
        b = tl.load(b_ptrs, mask=k[:, None] < K - start * BK, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BK * ak
        b_ptrs += BK * bk
    m, n = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + m[:, None] * cm + n[None, :] * cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


@DTYPES
@pytest.mark.parametrize("blocks", [(16, 16, 16), (32, 64, 32), (64, 32, 64)], ids=str)
@pytest.mark.parametrize("turned", ["neither", "a", "b"])
def test_matmul_with_grouped_programs(dtype, blocks, turned):
    M, N, K = 130, 151, 200
    a = torch.randn(K, M).to(dtype).t() if turned == "a" else torch.randn(M, K).to(dtype)
    b = torch.randn(N, K).to(dtype).t() if turned == "b" else torch.randn(K, N).to(dtype)
    c = torch.full((M, N), float("nan"), dtype=dtype)
    grid = (triton.cdiv(M, blocks[0]) * triton.cdiv(N, blocks[1]),)
    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), *blocks, GROUP=4)
    close(c, a.double() @ b.double(), dtype)


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, T, GROUP, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    block, head = tl.program_id(0), tl.program_id(1)
    m, d, n = block * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    own, shared = head * T * D, head // GROUP * T * D
    q = tl.load(q_ptr + own + m[:, None] * D + d[None, :], mask=m[:, None] < T, other=0.0)
    highest, total = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in range(0, tl.minimum((block + 1) * BM, T), BN):
        at = shared + (start + n)[:, None] * D + d[None, :]
        k = tl.load(k_ptr + at, mask=(start + n)[:, None] < T, other=0.0)
        v = tl.load(v_ptr + at, mask=(start + n)[:, None] < T, other=0.0)
        s = tl.dot(q, tl.trans(k)) * (scale * 1.44269504)
        s = tl.where(m[:, None] >= start + n[None, :], s, -1e30)
        higher = tl.maximum(highest, tl.max(s, 1))
        p, shrink = tl.exp2(s - higher[:, None]), tl.exp2(highest - higher)
        total = total * shrink + tl.sum(p, 1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        highest = higher
    out = (acc / total[:, None]).to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + own + m[:, None] * D + d[None, :], out, mask=m[:, None] < T)


@DTYPES
@pytest.mark.parametrize("T", [1, 100, 200])
def test_causal_attention(dtype, T):
    q, k, v = (torch.randn(h, T, 64).to(dtype) for h in (6, 2, 2))
    out = torch.zeros_like(q)
    attention_kernel[(triton.cdiv(T, 64), 6)](q, k, v, out, 0.125, T, 3, D=64, BM=64, BN=32)
    wanted = F.scaled_dot_product_attention(
        *(x.double()[None] for x in (q, k, v)), is_causal=True, enable_gqa=True
    )[0]  # fmt: skip
    close(out, wanted, dtype, factor=2)


@triton.jit
def vector_times_matrix_kernel(x_ptr, w_ptr, out_ptr, N, K, BN: tl.constexpr, BK: tl.constexpr):
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BN, BK), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(x_ptr + start + k, mask=start + k < K, other=0.0).to(tl.float32)
        mask = (n[:, None] < N) & (start + k[None, :] < K)
        w = tl.load(w_ptr + n[:, None] * K + start + k[None, :], mask=mask, other=0.0).to(tl.float32)
        acc += w * x[None, :]
    tl.store(out_ptr + n, tl.sum(acc, 1).to(out_ptr.dtype.element_ty), mask=n < N)


@DTYPES
def test_vector_times_matrix(dtype):
    x, w, out = torch.randn(576).to(dtype), torch.randn(961, 576).to(dtype), torch.zeros(961, dtype=dtype)
    vector_times_matrix_kernel[(241,)](x, w, out, 961, 576, 4, 64)
    close(out, w.double() @ x.double(), dtype)
