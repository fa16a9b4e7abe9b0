"""What this device reaches, measured: copy bandwidth, and matrix products by dtype.

These are PyTorch's own copy and matmul (and for the copy a plain Triton kernel), the best of a few sizes: a roof
that a real program can stand under, not a datasheet's. On a GPU also reading from L2 and from L1, by a Triton kernel
that walks a small buffer again and again. Measured once in a process for each device.
"""

from __future__ import annotations

import functools
import time

import torch
import triton
import triton.language as tl

from playground.engine import execute, host, timing
from playground.engine.job import Job
from playground.engine.messages import Roofs

COPY_BYTES = {"cuda": (2**29, 2**30, 2**31), "cpu": (2**28, 2**29)}  # of one side; beyond every cache
COPY_BLOCK = 8192
MATMUL_N = {"cuda": (4096, 8192), "cpu": (1024,)}
MATMUL_DTYPES = {"cuda": ("float32", "tf32", "float16", "bfloat16"), "cpu": ("float32", "bfloat16")}
REST = 0.4  # seconds before a burst of products: sustained load lowers the clock
BURST = 5  # products
# Reading from a cache: KiB of the buffer that all programs share (L2) or that each has for itself (L1).
READ_BLOCK, L2_KIB, L1_KIB = 2048, 16 * 1024, 32
PROGRAMS_PER_SM = {"l2": 8, "l1": 4}


@triton.jit
def _copy_kernel(src_ptr, dst_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst_ptr + offsets, tl.load(src_ptr + offsets))


@triton.jit
def _read_kernel(src_ptr, out_ptr, rounds, chunks, first, BLOCK: tl.constexpr, CACHE: tl.constexpr):
    """Each program reads `rounds` chunks of a ring of `chunks`; `first` parts one program's ring from the next."""
    program = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(rounds):
        chunk = program * first + (program + i) % chunks
        total += tl.load(src_ptr + chunk * BLOCK + lanes, cache_modifier=CACHE)
    tl.store(out_ptr + program * BLOCK + lanes, total)


def roofs(job: Job) -> Roofs:
    """Raises Cancelled. Copy is in GB/s, read and written both counted; products in TFLOP/s."""
    return _measured.get(job.device) or _measured.setdefault(job.device, _measure(job))


def known(device: torch.device) -> Roofs | None:
    """The roofs if they have been measured in this process."""
    return _measured.get(device)


_measured: dict[torch.device, Roofs] = {}


def _measure(job: Job) -> Roofs:
    job.progress("measuring copy bandwidth")
    copy = _copy_gbps(job.device)
    products = {}
    for dtype in MATMUL_DTYPES[job.device.type]:
        job.progress(f"measuring {dtype} products")
        products[dtype] = _matmul_tflops(dtype, job.device)
    levels = {}
    if job.device.type == "cuda":
        job.progress("measuring L2 and L1")
        sms = torch.cuda.get_device_properties(job.device).multi_processor_count
        levels = {level: read_gbps(level, job.device, sms * PROGRAMS_PER_SM[level], 1024) for level in PROGRAMS_PER_SM}
    return Roofs(copy_gbps=copy, matmul_tflops=products, levels_gbps=levels, source=execute.source(job))


def read_gbps(level: str, device: torch.device, programs: int, rounds: int) -> float:
    """GB/s of all programs together that read a level's buffer round after round."""
    chunks = (L2_KIB if level == "l2" else L1_KIB) * 1024 // (4 * READ_BLOCK)
    shared = level == "l2"
    src = torch.zeros((1 if shared else programs) * chunks * READ_BLOCK, dtype=torch.float32, device=device)
    out = torch.empty(programs * READ_BLOCK, dtype=torch.float32, device=device)

    def call() -> None:
        # .cg leaves L1 out; .ca is kept there.
        _read_kernel[(programs,)](
            src, out, rounds, chunks, 0 if shared else chunks, BLOCK=READ_BLOCK, CACHE=".cg" if shared else ".ca",
            num_warps=8, num_stages=1,
        )  # fmt: skip

    call()
    us = timing.percentiles(timing.timer(device, quick=True).warm(call)).p50
    return 4 * READ_BLOCK * rounds * programs / us / 1e3


def _copy_gbps(device: torch.device) -> float:
    clock = timing.timer(device, quick=True)
    best = 0.0
    for size in COPY_BYTES[device.type]:
        if 3 * size > host.available_bytes(device):
            break
        src = torch.zeros(size // 4, dtype=torch.float32, device=device)
        dst = torch.zeros_like(src)
        copies: list[timing.Call] = [functools.partial(dst.copy_, src)]
        if device.type == "cuda":
            grid = (src.numel() // COPY_BLOCK,)
            copies.append(functools.partial(_copy_kernel[grid], src, dst, BLOCK=COPY_BLOCK))
        for copy in copies:
            copy()
            times = clock.cold(copy)
            # Other work on the cores only ever slows a CPU's copy down: its best is what the memory can do.
            us = timing.percentiles(times).p50 if device.type == "cuda" else min(times)
            best = max(best, 2 * size / us / 1e3)
    return best


def _matmul_tflops(dtype: str, device: torch.device) -> float:
    data = getattr(torch, "float32" if dtype == "tf32" else dtype)
    best = 0.0
    with execute.arithmetic(dtype):
        for n in MATMUL_N[device.type]:
            a, b = (torch.randn(n, n, dtype=torch.float32, device=device).to(data) for _ in range(2))
            out = torch.empty(n, n, dtype=data, device=device)
            torch.mm(a, b, out=out)
            for _ in range(3):
                execute.synchronize(device)
                time.sleep(REST if device.type == "cuda" else 0)
                best = max(best, 2 * n**3 / _burst_us(a, b, out) / 1e6)
    return best


def _burst_us(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> float:
    """Microseconds of one product, the best of a burst."""
    if a.device.type == "cuda":
        pairs = []
        for _ in range(BURST):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            torch.mm(a, b, out=out)
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize(a.device)
        return min(start.elapsed_time(end) for start, end in pairs) * 1e3
    spent = []
    for _ in range(BURST):
        began = time.perf_counter()
        torch.mm(a, b, out=out)
        spent.append((time.perf_counter() - began) * 1e6)
    return min(spent)
