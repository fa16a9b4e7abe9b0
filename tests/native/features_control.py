"""Control flow and memory: loops, branches, calls, strides, block pointers, descriptors, atomics, barriers."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .cases import case, truth, zeros


@triton.jit
def loops_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    if n < 0:
        return
    k = 0
    while k < n:
        total += tl.load(x_ptr + k * BLOCK + i, eviction_policy="evict_last")
        k += 1
    if n > 5:  # noqa: SIM108 - an `if` is the point
        total = total * 2
    else:
        total = total + 1
    tl.store(out_ptr + i, total)


@case
def while_if_and_early_return():
    x, outs = torch.randn(640), [zeros(64) for _ in range(3)]
    for out, n in zip(outs, (7, 3, -3), strict=True):
        loops_kernel[(1,)](x, out, n, BLOCK=64)
    return outs


@triton.jit
def swap_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x_ptr + i)
    b = tl.load(x_ptr + BLOCK + i)
    c = a * 0
    for _ in range(n):
        a, b = b, a + b
        c = tl.flip(c, 0) + a
    tl.store(out_ptr + i, a)
    tl.store(out_ptr + BLOCK + i, b)
    tl.store(out_ptr + 2 * BLOCK + i, c)


@case
def values_swapped_by_a_loop():
    x, out = torch.randn(128), zeros(192)
    swap_kernel[(1,)](x, out, 6, BLOCK=64)
    return (out,)


@triton.jit
def nested_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    count = 0
    for a in range(n):
        for b in tl.static_range(2):
            if a % 2 == b:
                total += tl.load(x_ptr + a * BLOCK + i)
                tl.store(out_ptr + BLOCK + i, total)
            else:
                total -= tl.load(out_ptr + BLOCK + i)
                count += a
    tl.store(out_ptr + i, total + count)


@case
def effects_in_nested_regions():
    x, out = torch.randn(8, 64), zeros(128)
    nested_kernel[(1,)](x, out, 8, BLOCK=64)
    return (out,)


@triton.jit
def branch_only_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.max(tl.load(x_ptr + i)[None, :] + tl.load(x_ptr + BLOCK + i)[:, None], 0) * 0.5
    w = v
    if n > 20:
        w = tl.reshape(tl.trans(tl.reshape(v, (4, BLOCK // 4))), (BLOCK,))
    tl.store(out_ptr + i, v)
    tl.store(out_ptr + BLOCK + i, w)


@case
def a_buffer_filled_in_a_branch_not_taken():
    x, out = torch.randn(64), zeros(64)
    branch_only_kernel[(1,)](x, out, 3, BLOCK=32)
    return (out,)


@triton.jit(noinline=True)
def sum_and_double(x, y):
    return x + y, x * 2


@triton.jit
def call_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v, index = tl.max(tl.load(x_ptr + i), 0, return_indices=True)
    u, w = sum_and_double(v, index)
    tl.store(out_ptr, u)
    tl.store(out_ptr + 1, w)


@case
def calls_that_are_not_inlined():
    x, out = torch.randn(64), zeros(2)
    call_kernel[(1,)](x, out, BLOCK=64)
    return (out,)


@triton.jit
def overlapping_kernel(x_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + BLOCK - 1 - i, tl.load(x_ptr + i) + 1)
    tl.store(x_ptr + (i + 7) % BLOCK, tl.load(x_ptr + i) * 2)
    tl.store(x_ptr + 3 + i, tl.load(x_ptr + i) + 0.5)


@case
def stores_over_what_is_being_read():
    x = torch.randn(300)
    overlapping_kernel[(1,)](x, BLOCK=256)
    return (x,)


@triton.jit
def strided_kernel(x_ptr, out_ptr, xm, xn, om, on, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    v = tl.load(x_ptr + i * xm + j * xn)
    tl.store(out_ptr + i * om + j * on, tl.trans(tl.trans(v) * 2) + 1)


@case
def strides_of_every_kind():
    x = torch.randn(64, 64)
    outs = []
    for source in (x[:, :32], x.t()[:, ::2], x[:1, :32].expand(64, 32)):
        for target in (zeros(64, 32), zeros(32, 64).t()):
            strided_kernel[(1,)](source, target, *source.stride(), *target.stride(), M=64, N=32)
            outs.append(target.contiguous())
    return outs


@triton.jit
def block_pointer_kernel(x_ptr, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    start = tl.program_id(0) * BM
    source = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (start, 0), (BM, BN), (1, 0))
    target = tl.make_block_ptr(out_ptr, (M, N), (N, 1), (start, 0), (BM, BN), (1, 0))
    for _ in range(0, N, BN):
        v = tl.load(source, boundary_check=(0, 1), padding_option="zero")
        tl.store(target, v * 2, boundary_check=(0, 1))
        source = tl.advance(source, (0, BN))
        target = tl.advance(target, (0, BN))


@case
def block_pointers():
    x, out = torch.randn(40, 60), zeros(40, 60)
    block_pointer_kernel[(3,)](x, out, 40, 60, BM=16, BN=32)
    return (out,)


@triton.jit
def device_descriptor_kernel(x_ptr, out_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    a = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    b = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    row = tl.program_id(0) * BM
    b.store([row, 0], a.load([row, 0]) * 2 + 1)


@case
def descriptors_made_by_the_kernel():
    x, out = torch.randn(40, 28), zeros(40, 28)
    device_descriptor_kernel[(3,)](x, out, 40, 28, BM=16, BN=32)
    return (out,)


@triton.jit
def host_descriptor_kernel(a, b, BM: tl.constexpr):
    row = tl.program_id(0) * BM
    b.store([row, 0], a.load([row, 0]) * 3)


@case
def descriptors_from_the_host():
    x, out = torch.randn(40, 32), zeros(40, 32)
    source, target = (TensorDescriptor.from_tensor(t, [16, 32]) for t in (x, out))
    host_descriptor_kernel[(3,)](source, target, BM=16)
    return (out,)


@triton.jit
def atomics_kernel(x_ptr, sums_ptr, most_ptr, bits_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + i, mask=i < n, other=0)
    tl.atomic_add(sums_ptr + i % 7, v, mask=i < n)
    tl.atomic_max(most_ptr + i % 5, v, mask=i < n)
    tl.atomic_min(most_ptr + 5 + i % 5, v, mask=i < n)
    tl.atomic_add(sums_ptr + 7, tl.sum(v, 0))
    tl.atomic_or(bits_ptr, tl.program_id(0) * 4 + 1)


@case
def atomics():
    x = torch.randint(0, 100, (1000,)).float()
    sums, most, bits = zeros(8), zeros(10), zeros(1, dtype=torch.int32)
    atomics_kernel[(4,)](x, sums, most, bits, 1000, BLOCK=256)
    return sums, most, bits


@triton.jit
def lock_kernel(lock_ptr, count_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(count_ptr, tl.load(count_ptr) + 1)
    tl.atomic_xchg(lock_ptr, 0)


@case
def a_lock():
    lock, count = zeros(1, dtype=torch.int32), zeros(1)
    lock_kernel[(64,)](lock, count)
    return (count,)


@triton.jit
def barrier_kernel(count_ptr, x_ptr, out_ptr, PROGRAMS: tl.constexpr):
    p = tl.program_id(0)
    for turn in range(3):
        tl.store(x_ptr + p, tl.load(x_ptr + p) + p + turn)
        tl.atomic_add(count_ptr, 1)
        while tl.atomic_add(count_ptr, 0) < PROGRAMS * (2 * turn + 1):
            pass
        tl.store(out_ptr + p, tl.sum(tl.load(x_ptr + tl.arange(0, PROGRAMS)), 0))
        tl.atomic_add(count_ptr, 1)
        while tl.atomic_add(count_ptr, 0) < PROGRAMS * (2 * turn + 2):
            pass


@case
def a_barrier_across_the_grid():
    count, x, out = zeros(1, dtype=torch.int32), zeros(4), zeros(4)
    barrier_kernel[(4,)](count, x, out, PROGRAMS=4, launch_cooperative_grid=True)
    return (out,)


@truth("a_barrier_across_the_grid")
def _():
    return (torch.full((4,), 3 * (0 + 1 + 2 + 3) + 4 * (0 + 1 + 2.0)),)  # the interpreter runs one program at a time
