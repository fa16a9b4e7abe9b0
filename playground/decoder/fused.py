"""A decode step of one sequence in five kernels a layer instead of eleven.

At batch 1 a GPU reads the weights faster than it can start kernels, so a step of 330 small ones is bound by their
launches, even in a graph. Here each matrix-vector product takes in what stands before it (the norm, computed anew
by every program, since a row of the residual is small) and what follows it (silu, the residual's addition); rotation,
cache write, attention and the joining of its splits are one kernel, whose last program of each head does the joining.

On Hopper and newer each kernel is launched while the one before still runs (programmatic dependent launch): it loads
its weights, which nobody writes, and waits only then. The sums are in float32 and are rounded where the separate
kernels' are, or later; the norm's result is not rounded before its product.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.spec import Config, Launch, Plan
from kernels.spec import next_power_of_2 as pow2
from kernels.targets import Target

LOG2E = 1.4426950408889634
WIDEST = 8192  # columns that one program keeps in registers
JOINED_VALUES = 8192  # of the parts, that a program of 128 threads keeps in registers while it joins them
HEAD_DIMS = (32, 64, 128, 256)  # each half is a side of a product of matrices, 16 or more


@triton.jit
def wait_for_inputs(PDL: tl.constexpr):
    """Let the next kernel start to load its weights, and wait until the one before has written ours."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def linear_add_kernel(
    x_ptr, weight_ptr, residual_ptr, n_rows, n_cols, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """residual += weight @ x, in place."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_K)
    live = cols < n_cols
    mask = (rows < n_rows)[:, None] & live[None, :]
    weight = tl.load(weight_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0)  # [N, K]
    wait_for_inputs(PDL)
    # Both are asked for before either is needed: their ways from memory pass side by side.
    x = tl.load(x_ptr + cols, mask=live, other=0.0)
    residual = tl.load(residual_ptr + rows, mask=rows < n_rows, other=0.0)
    total = residual.to(tl.float32) + tl.sum(weight.to(tl.float32) * x.to(tl.float32)[None, :], axis=1)
    tl.store(residual_ptr + rows, total, mask=rows < n_rows)


@triton.jit
def norm_linear_kernel(
    x_ptr, norm_ptr, weight_ptr, out_ptr, n_rows, n_cols, eps,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = weight @ rms_norm(x)."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_K)
    live = cols < n_cols
    mask = (rows < n_rows)[:, None] & live[None, :]
    weight = tl.load(weight_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0)  # [N, K]
    norm = tl.load(norm_ptr + cols, mask=live, other=0.0).to(tl.float32)
    wait_for_inputs(PDL)
    x = tl.load(x_ptr + cols, mask=live, other=0.0).to(tl.float32)
    x *= norm * tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    tl.store(out_ptr + rows, tl.sum(weight.to(tl.float32) * x[None, :], axis=1), mask=rows < n_rows)


@triton.jit
def norm_linear_silu_kernel(
    x_ptr, norm_ptr, weight_ptr, out_ptr, n_rows, n_cols, eps,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = silu(gate @ h) * (up @ h), h = rms_norm(x). gate is the first n_rows of weight, up the rest."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    cols = tl.arange(0, BLOCK_K)
    live = cols < n_cols
    mask = (rows < n_rows)[:, None] & live[None, :]
    gate_ptrs = weight_ptr + rows[:, None] * n_cols + cols[None, :]
    gate = tl.load(gate_ptrs, mask=mask, other=0.0)  # [N, K]
    up = tl.load(gate_ptrs + n_rows.to(tl.int64) * n_cols, mask=mask, other=0.0)
    norm = tl.load(norm_ptr + cols, mask=live, other=0.0).to(tl.float32)
    wait_for_inputs(PDL)
    x = tl.load(x_ptr + cols, mask=live, other=0.0).to(tl.float32)
    x *= norm * tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    g = tl.sum(gate.to(tl.float32) * x[None, :], axis=1)
    u = tl.sum(up.to(tl.float32) * x[None, :], axis=1)
    tl.store(out_ptr + rows, g / (1.0 + tl.exp(-g)) * u, mask=rows < n_rows)


@triton.jit
def rotate_pair(a, b, cos, sin):
    return a * cos - b * sin, b * cos + a * sin


@triton.jit
def attend_fused_kernel(
    qkv_ptr, k_ptr, v_ptr, cos_ptr, sin_ptr, position_ptr, table_ptr, acc_ptr, max_ptr, sum_ptr, done_ptr, out_ptr,
    scale_log2, stride_kp, stride_kh, N_HEADS: tl.constexpr, N_KV_HEADS: tl.constexpr, GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr, PAGE_SIZE: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_N: tl.constexpr,
    SPLITS: tl.constexpr, JOINED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Program (kv head, split): the GROUP heads of a kv head over one part of the context.

    The first split also takes the new token, from registers, and writes it to the cache. Whichever program of a head
    comes last joins the parts, JOINED heads at once; the counter in done_ptr is 0 again afterwards. A position of -1
    is padding.
    """
    HALF: tl.constexpr = HEAD_DIM // 2
    head = tl.program_id(0)
    split = tl.program_id(1)
    wait_for_inputs(PDL)
    position = tl.load(position_ptr).to(tl.int32)
    if position < 0:
        return
    part = tl.cdiv(tl.cdiv(position, SPLITS), BLOCK_N) * BLOCK_N
    first = split * part
    last = tl.minimum(first + part, position)
    g = tl.arange(0, BLOCK_G)
    c = tl.arange(0, HALF)
    d = tl.arange(0, HEAD_DIM)
    n = tl.arange(0, BLOCK_N)
    live = (g < GROUP)[:, None]
    cos = tl.load(cos_ptr + position * HALF + c).to(tl.float32)
    sin = tl.load(sin_ptr + position * HALF + c).to(tl.float32)
    q_ptrs = qkv_ptr + (head * GROUP + g[:, None]) * HEAD_DIM + c[None, :]
    a = tl.load(q_ptrs, mask=live, other=0.0).to(tl.float32)
    b = tl.load(q_ptrs + HALF, mask=live, other=0.0).to(tl.float32)
    a, b = rotate_pair(a, b, cos[None, :], sin[None, :])
    kind = k_ptr.dtype.element_ty
    qa = a.to(kind)  # [G, HALF]; the two halves of each head stay apart, since a dot product is their sum
    qb = b.to(kind)
    m = tl.full([BLOCK_G], -1e30, tl.float32)
    denominator = tl.zeros([BLOCK_G], tl.float32)
    acc = tl.zeros([BLOCK_G, HEAD_DIM], tl.float32)
    if split == 0:
        new = qkv_ptr + (N_HEADS + head) * HEAD_DIM
        ka, kb = rotate_pair(tl.load(new + c).to(tl.float32), tl.load(new + HALF + c).to(tl.float32), cos, sin)
        ka = ka.to(kind)
        kb = kb.to(kind)
        value = tl.load(new + N_KV_HEADS * HEAD_DIM + d)
        page = tl.load(table_ptr + position // PAGE_SIZE).to(tl.int64)
        at = page * stride_kp + head * stride_kh + (position % PAGE_SIZE) * HEAD_DIM
        tl.store(k_ptr + at + c, ka)
        tl.store(k_ptr + at + HALF + c, kb)
        tl.store(v_ptr + at + d, value)
        m = tl.sum(qa.to(tl.float32) * ka.to(tl.float32)[None, :], axis=1)
        m += tl.sum(qb.to(tl.float32) * kb.to(tl.float32)[None, :], axis=1)
        m *= scale_log2
        denominator += 1.0
        acc += value.to(tl.float32)[None, :]
    for start in range(first, last, BLOCK_N):
        inside = start + n < last
        page = tl.load(table_ptr + (start + n) // PAGE_SIZE, mask=inside, other=0).to(tl.int64)
        at = page * stride_kp + head * stride_kh + ((start + n) % PAGE_SIZE) * HEAD_DIM
        k_ptrs = k_ptr + at[None, :] + c[:, None]
        ka = tl.load(k_ptrs, mask=inside[None, :], other=0.0)  # [HALF, N]
        kb = tl.load(k_ptrs + HALF, mask=inside[None, :], other=0.0)
        v = tl.load(v_ptr + at[:, None] + d[None, :], mask=inside[:, None], other=0.0)  # [N, D]
        scores = tl.dot(qb, kb, tl.dot(qa, ka, input_precision="ieee"), input_precision="ieee") * scale_log2
        scores = tl.where(inside[None, :], scores, -1e30)
        new_m = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.where(inside[None, :], tl.exp2(scores - new_m[:, None]), 0.0)
        shrink = tl.exp2(m - new_m)
        denominator = denominator * shrink + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None], input_precision="ieee")
        m = new_m
    heads = head * GROUP + g
    tl.store(acc_ptr + (heads[:, None] * SPLITS + split) * HEAD_DIM + d[None, :], acc, mask=live)
    tl.store(max_ptr + heads * SPLITS + split, m, mask=g < GROUP)
    tl.store(sum_ptr + heads * SPLITS + split, denominator, mask=g < GROUP)
    tl.debug_barrier()  # every thread has stored before one of them says so
    if tl.atomic_add(done_ptr + head, 1, sem="acq_rel") == SPLITS - 1:
        tl.debug_barrier()
        s = tl.arange(0, SPLITS)
        for start in range(0, GROUP, JOINED):
            row = start + tl.arange(0, JOINED)
            mine = row < GROUP
            at = (head * GROUP + row)[:, None] * SPLITS + s[None, :]  # [JOINED, SPLITS]
            # Past L1, which may hold what another program has changed since.
            parts = tl.load(max_ptr + at, mask=mine[:, None], other=0.0, cache_modifier=".cg")
            sums = tl.load(sum_ptr + at, mask=mine[:, None], other=1.0, cache_modifier=".cg")
            values = tl.load(
                acc_ptr + at[:, :, None] * HEAD_DIM + d, mask=mine[:, None, None], other=0.0, cache_modifier=".cg"
            )
            weight = tl.exp2(parts - tl.max(parts, axis=1)[:, None])
            out = tl.sum(values * weight[:, :, None], axis=1) / tl.sum(weight * sums, axis=1)[:, None]
            tl.store(out_ptr + (head * GROUP + row)[:, None] * HEAD_DIM + d, out, mask=mine[:, None])
        tl.store(done_ptr + head, 0)


def has_pdl(target: Target) -> bool:
    return target.capability >= 90


def _product(kernel: Any, args: dict[str, Any], weight: torch.Tensor, rows: int, target: Target) -> Launch:
    n_cols = weight.shape[1]
    block_n, num_warps = _blocks(rows, n_cols)
    pdl = has_pdl(target)
    args |= {"weight_ptr": weight, "n_rows": rows, "n_cols": n_cols, "BLOCK_K": pow2(n_cols), "PDL": pdl}
    if pdl:
        args["launch_pdl"] = True
    return Launch(kernel, (triton.cdiv(rows, block_n),), args, Config({"BLOCK_N": block_n}, num_warps=num_warps))


def _blocks(rows: int, cols: int) -> tuple[int, int]:
    """Rows and warps of a program, tuned on an H200: enough bytes in flight, and enough programs for every SM."""
    if rows >= 32_768:  # the output head
        return (16, 4) if cols < 1024 else (8, 8)
    if cols < 1024:
        return 4, 4
    if cols < 2048:
        return 2, 4
    return (4, 8) if rows >= 4096 else (2, 8) if cols > 2048 else (2, 4)


def linear_add(inputs: Mapping[str, Any], target: Target) -> Plan:
    """residual [1, n] += x [1, k] @ weight.T"""
    weight, residual = inputs["weight"], inputs["residual"]
    args = {"x_ptr": inputs["x"], "residual_ptr": residual}
    return Plan((_product(linear_add_kernel, args, weight, weight.shape[0], target),), {})


def norm_linear(inputs: Mapping[str, Any], target: Target) -> Plan:
    x, weight = inputs["x"], inputs["weight"]
    out = torch.empty(1, weight.shape[0], dtype=x.dtype, device=x.device)
    args = {"x_ptr": x, "norm_ptr": inputs["norm"], "out_ptr": out, "eps": inputs["eps"]}
    return Plan((_product(norm_linear_kernel, args, weight, weight.shape[0], target),), {"out": out})


def norm_linear_silu(inputs: Mapping[str, Any], target: Target) -> Plan:
    x, weight = inputs["x"], inputs["weight"]
    rows = weight.shape[0] // 2
    out = torch.empty(1, rows, dtype=x.dtype, device=x.device)
    args = {"x_ptr": x, "norm_ptr": inputs["norm"], "out_ptr": out, "eps": inputs["eps"]}
    return Plan((_product(norm_linear_silu_kernel, args, weight, rows, target),), {"out": out})


def attend(inputs: Mapping[str, Any], target: Target) -> Plan:
    """Rotate, write to the cache, attend: qkv [1, rows] -> [1, heads * head_dim]."""
    qkv, k_cache, heads = inputs["qkv"], inputs["k_cache"], inputs["heads"]
    _, kv_heads, page_size, head_dim = k_cache.shape
    group, device = heads // kv_heads, qkv.device
    splits = pow2(max(1, target.num_sms // kv_heads))
    splits = splits // 2 if kv_heads * splits > 1.2 * target.num_sms and splits > 1 else splits
    out = torch.empty(1, heads * head_dim, dtype=qkv.dtype, device=device)
    parts = torch.empty(heads * splits * (head_dim + 2), dtype=torch.float32, device=device)
    acc, largest, total = parts.split([heads * splits * head_dim, heads * splits, heads * splits])
    args = {
        "qkv_ptr": qkv, "k_ptr": k_cache, "v_ptr": inputs["v_cache"], "cos_ptr": inputs["cos"],
        "sin_ptr": inputs["sin"], "position_ptr": inputs["positions"], "table_ptr": inputs["block_table"],
        "acc_ptr": acc, "max_ptr": largest, "sum_ptr": total,
        "done_ptr": torch.zeros(kv_heads, dtype=torch.int32, device=device), "out_ptr": out,
        "scale_log2": inputs["scale"] * LOG2E, "stride_kp": k_cache.stride(0), "stride_kh": k_cache.stride(1),
        "N_HEADS": heads, "N_KV_HEADS": kv_heads, "GROUP": group, "HEAD_DIM": head_dim, "PAGE_SIZE": page_size,
        "BLOCK_G": max(16, pow2(group)), "BLOCK_N": 64, "SPLITS": splits,
        "JOINED": min(pow2(group), max(JOINED_VALUES // (splits * head_dim), 1)), "PDL": has_pdl(target),
    }  # fmt: skip
    if has_pdl(target):
        args["launch_pdl"] = True
    return Plan((Launch(attend_fused_kernel, (kv_heads, splits), args, Config({}, num_warps=4)),), {"out": out})
