"""Attention written for Hopper by hand, in Gluon: what the last tenth of the speed takes. A variant to read.

kernels/attention.py leaves layouts, shared memory and overlap to Triton's compiler. Gluon is the language below it,
shipped with Triton: here the kernel says in which registers a tile lies, allocates shared memory, starts the copy
engine (TMA) and waits for it on barriers, and issues the matrix instructions (wgmma) that run on their own.

That buys one thing the compiler does not find: a block's softmax runs while the tensor cores work. The product
q k^T of block j and the product of the weights of block j - 1 with v are issued together, and the exponentials of
block j are computed as soon as the first of them is done, during the second (the overlap of FlashAttention-3, within
one group of four warps).

The rest is housekeeping. Keys and values pass through rings of STAGES buffers: the copy engine fills a buffer, its
barrier turns, the matrix units read it, and it is filled anew once all warps are past it. Blocks run from the last to
the first, so the masked ones, which the diagonal or the end of the keys cuts, come first. With Q_REGISTERS the queries
travel through the last buffer of v into registers, and the matrix units fetch one operand less from shared memory.

What to look at: wgmma and cp.async.bulk.tensor in the PTX of `attention` and of this, the wait that allows one of two
products to be unfinished, and how much longer it is. Hopper alone has these instructions: elsewhere the kernel is
refused, and `attention` serves.
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels import attention_problem
from kernels.attention import SPEC as FUSED
from kernels.attention import eager, reference
from kernels.attention_peers import BASELINES
from kernels.attention_problem import SMALL
from kernels.checks import InputError
from kernels.online_softmax import LOG2E
from kernels.operands import describe_tiles
from kernels.paged_kv import attention_scale
from kernels.spec import Bug, Config, Dim, Edge, KernelSpec, Launch, Output, Plan

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # Triton 3.6 has the older name

HEAD_DIMS = (64, 128)  # a tile's width is that of the head, and the tensor cores want powers of two


@gluon.jit
def fetch(desc, ring, bars, i, batch, head, row, inside, STAGES: gl.constexpr):
    """Start to copy the block of rows from `row` on into buffer i of the ring; its barrier turns when it is there."""
    slot = i % STAGES
    mbarrier.expect(bars.index(slot), desc.block_type.nbytes, pred=inside)
    tma.async_copy_global_to_shared(desc, [batch, head, row, 0], bars.index(slot), ring.index(slot), pred=inside)


@gluon.jit
def masked(scores, position, row, kv_len, CAUSAL: gl.constexpr, BLOCK: gl.constexpr, SCORES: gl.constexpr):
    """Scores of the keys from `row` on, minus infinity where a query may not meet the key."""
    key = row + gl.arange(0, BLOCK, gl.SliceLayout(0, SCORES))
    seen = (key < kv_len)[None, :]
    if CAUSAL:
        seen = seen & (key[None, :] <= position[:, None])
    return gl.where(seen, scores, float("-inf"))


@gluon.jit
def finite(m, MASKED: gl.constexpr):
    """What to subtract: the maximum, or 0 for a query that has met no key yet, since -inf - -inf is NaN."""
    if MASKED:
        return gl.where(m == float("-inf"), 0.0, m)
    return m


@gluon.jit
def walk(
    q, k_ring, v_ring, k_bars, v_bars, k_desc, v_desc, acc, m, denom, weights, first, last, n, top, position, kv_len,
    batch, kv_head, scale, MASKED: gl.constexpr, CAUSAL: gl.constexpr, HEAD_DIM: gl.constexpr, BLOCK: gl.constexpr,
    STAGES: gl.constexpr, SCORES: gl.constexpr, OUT: gl.constexpr,
):  # fmt: skip
    """Blocks first to last - 1, counted from the end: each one's scores beside the last one's weighted values."""
    none = gl.zeros([BLOCK, BLOCK], gl.float32, SCORES)
    for j in range(first, last):
        k = k_ring.index(j % STAGES).reshape([BLOCK, HEAD_DIM]).permute((1, 0))
        v = v_ring.index((j - 1) % STAGES).reshape([BLOCK, HEAD_DIM])
        mbarrier.wait(k_bars.index(j % STAGES), (j // STAGES) & 1)
        products = warpgroup_mma(q, k, none, use_acc=False, is_async=True)
        mbarrier.wait(v_bars.index((j - 1) % STAGES), ((j - 1) // STAGES) & 1)
        sums = warpgroup_mma(weights, v, acc, is_async=True)
        scores = warpgroup_mma_wait(1, deps=(products,))  # one may still run: the sums
        if MASKED:
            scores = masked(scores, position, top - j * BLOCK, kv_len, CAUSAL, BLOCK, SCORES)
        new_m = gl.maximum(m, gl.max(scores, 1) * scale)
        above = finite(new_m, MASKED)
        p = gl.exp2(scores * scale - above[:, None])
        alpha = gl.exp2(m - above)
        denom = denom * alpha + gl.sum(p, 1)
        m = new_m
        acc, weights = warpgroup_mma_wait(0, deps=(sums, weights))
        acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, OUT))[:, None]
        weights = gl.convert_layout(p.to(k_desc.dtype), gl.DotOperandLayout(0, OUT, 2))
        barrier()  # every warp is past both buffers: they may be filled anew
        fetch(k_desc, k_ring, k_bars, j + STAGES, batch, kv_head, top - (j + STAGES) * BLOCK, j + STAGES < n, STAGES)
        fetch(
            v_desc, v_ring, v_bars, j - 1 + STAGES, batch, kv_head, top - (j - 1 + STAGES) * BLOCK,
            j - 1 + STAGES < n, STAGES,
        )  # fmt: skip
    return acc, m, denom, weights


@gluon.jit
def gluon_attention_kernel(
    q_desc, k_desc, v_desc, out_ptr, scale, n_heads, group, q_len, kv_len, q_blocks, CAUSAL: gl.constexpr,
    HEAD_DIM: gl.constexpr, WARPS: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr,
    Q_REGISTERS: gl.constexpr, MAX_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Program (batch and head, block of BLOCK queries); with CAUSAL those that meet the most keys start first."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, BLOCK, 16]
    )
    OUT: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, HEAD_DIM, 16]
    )
    pid = gl.program_id(0)
    block = q_blocks - 1 - pid % q_blocks if CAUSAL else pid % q_blocks
    batch = pid // q_blocks // n_heads
    head = pid // q_blocks % n_heads
    kv_head = head // group
    out_row = block * BLOCK + gl.arange(0, BLOCK, gl.SliceLayout(1, OUT))
    column = gl.arange(0, HEAD_DIM, gl.SliceLayout(0, OUT))
    out_ptr += (batch * n_heads + head).to(gl.int64) * q_len * HEAD_DIM
    at = out_row[:, None].to(gl.int64) * HEAD_DIM + column[None, :]
    inside = (out_row < q_len)[:, None] & (column < HEAD_DIM)[None, :]
    start = block * BLOCK + kv_len - q_len  # the first query's place among the keys
    high = gl.minimum(start + BLOCK, kv_len) if CAUSAL else kv_len
    full = gl.minimum(start + 1, kv_len) if CAUSAL else kv_len
    n = (gl.maximum(high, 0) + BLOCK - 1) // BLOCK
    cut = n - gl.maximum(full, 0) // BLOCK  # blocks in which some query may not meet some key
    if n == 0:
        gl.store(out_ptr + at, gl.zeros([BLOCK, HEAD_DIM], k_desc.dtype, OUT), mask=inside)
        return
    top = (n - 1) * BLOCK  # the first key of the last block
    position = start + gl.arange(0, BLOCK, gl.SliceLayout(1, SCORES))
    k_ring = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BLOCK, HEAD_DIM], k_desc.layout)
    v_ring = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, 1, BLOCK, HEAD_DIM], v_desc.layout)
    q_bar = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_bars = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_bar, count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_bars.index(i), count=1)
        mbarrier.init(v_bars.index(i), count=1)
    if Q_REGISTERS:  # the queries pass through the last buffer of v
        q_tile = v_ring.index(STAGES - 1)
    else:
        q_tile = gl.allocate_shared_memory(q_desc.dtype, [1, 1, BLOCK, HEAD_DIM], q_desc.layout)
    mbarrier.expect(q_bar, q_desc.block_type.nbytes)
    tma.async_copy_global_to_shared(q_desc, [batch, head, block * BLOCK, 0], q_bar, q_tile)
    for i in gl.static_range(STAGES):
        fetch(k_desc, k_ring, k_bars, i, batch, kv_head, top - i * BLOCK, i < n, STAGES)
        if i < STAGES - 1 or not Q_REGISTERS:
            fetch(v_desc, v_ring, v_bars, i, batch, kv_head, top - i * BLOCK, i < n, STAGES)
    mbarrier.wait(q_bar, 0)
    q = q_tile.reshape([BLOCK, HEAD_DIM])
    if Q_REGISTERS:
        q = q.load(gl.DotOperandLayout(0, SCORES, 2))
        barrier()
        fetch(v_desc, v_ring, v_bars, STAGES - 1, batch, kv_head, top - (STAGES - 1) * BLOCK, n > STAGES - 1, STAGES)
    # Block 0, the last of the keys, has no weights before it to multiply.
    mbarrier.wait(k_bars.index(0), 0)
    k = k_ring.index(0).reshape([BLOCK, HEAD_DIM]).permute((1, 0))
    scores = warpgroup_mma(q, k, gl.zeros([BLOCK, BLOCK], gl.float32, SCORES), use_acc=False)
    scores = masked(scores, position, top, kv_len, CAUSAL, BLOCK, SCORES)
    m = gl.max(scores, 1) * scale
    p = gl.exp2(scores * scale - finite(m, True)[:, None])
    denom = gl.sum(p, 1)
    weights = gl.convert_layout(p.to(k_desc.dtype), gl.DotOperandLayout(0, OUT, 2))
    acc = gl.zeros([BLOCK, HEAD_DIM], gl.float32, OUT)
    barrier()
    fetch(k_desc, k_ring, k_bars, STAGES, batch, kv_head, top - STAGES * BLOCK, n > STAGES, STAGES)
    cut = gl.maximum(cut, 1)
    acc, m, denom, weights = walk(
        q, k_ring, v_ring, k_bars, v_bars, k_desc, v_desc, acc, m, denom, weights, 1, cut, n, top, position, kv_len,
        batch, kv_head, scale, True, CAUSAL, HEAD_DIM, BLOCK, STAGES, SCORES, OUT,
    )  # fmt: skip
    acc, m, denom, weights = walk(
        q, k_ring, v_ring, k_bars, v_bars, k_desc, v_desc, acc, m, denom, weights, cut, n, n, top, position, kv_len,
        batch, kv_head, scale, False, CAUSAL, HEAD_DIM, BLOCK, STAGES, SCORES, OUT,
    )  # fmt: skip
    mbarrier.wait(v_bars.index((n - 1) % STAGES), ((n - 1) // STAGES) & 1)
    v = v_ring.index((n - 1) % STAGES).reshape([BLOCK, HEAD_DIM])
    acc = warpgroup_mma(weights, v, acc)
    acc = acc / gl.convert_layout(denom, gl.SliceLayout(1, OUT))[:, None]
    if CAUSAL:  # queries before the first key meet none
        acc = gl.where((start + out_row - block * BLOCK >= 0)[:, None], acc, 0.0)
    gl.store(out_ptr + at, acc.to(k_desc.dtype), mask=inside)


def gluon_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = True, scale: float | None = None
) -> torch.Tensor:
    """softmax(scale * q k^T) v on a Hopper GPU, as `attention` computes it.

    q: [batch, heads, q_len, head_dim]; k, v: [batch, kv_heads, kv_len, head_dim], heads a multiple of kv_heads,
    bfloat16 or float16, head_dim 64 or 128, its elements side by side and every other stride a multiple of 16 bytes.
    Returns [batch, heads, q_len, head_dim], contiguous. Raises InputError, on any other device too.
    """
    return SPEC.run(q=q, k=k, v=v, causal=causal, scale=scale)


def make_inputs(dims, draw):
    made = attention_problem.make_inputs(dims, draw)
    return {name: made[name] for name in ("q", "k", "v", "causal", "scale")}


def check(inputs):
    attention_problem.check(inputs)
    q = inputs["q"]
    if q.dtype == torch.float32:
        raise InputError("q is float32; this kernel takes bfloat16 or float16: use attention", "q")
    if q.shape[3] not in HEAD_DIMS:
        raise InputError(f"q has a head_dim of {q.shape[3]}; this kernel takes 64 or 128: use attention", "q")


def plan(inputs, config, target):
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    reason = unsupported("bfloat16", target)
    if reason:
        raise InputError(reason, "q")
    batch, heads, q_len, head_dim = q.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    q_blocks = triton.cdiv(q_len, config.meta["BLOCK"])
    empty = not k.shape[2]
    if empty:  # no key at all: one that the kernel does not look at stands for the shape
        k = v = torch.empty(k.shape[0], k.shape[1], 1, head_dim, dtype=q.dtype, device=q.device)
    args = {
        **{f"{name}_desc": _tiles(x, name, config) for name, x in (("q", q), ("k", k), ("v", v))},
        "out_ptr": out,
        "scale": attention_scale(inputs) * LOG2E,
        "n_heads": heads,
        "group": heads // k.shape[1],
        "q_len": q_len,
        "kv_len": inputs["k"].shape[2],
        "q_blocks": q_blocks,
        "CAUSAL": bool(inputs.get("causal", True)),
        "HEAD_DIM": head_dim,
        "WARPS": config.num_warps,
        **{name: 0 for name in ("Q_REGISTERS", "MAX_REGISTERS") if name not in config.meta},
    }
    limit = config.meta.get("MAX_REGISTERS", 0)
    launch = Launch(gluon_attention_kernel, (batch * heads * q_blocks,), args, config, max_registers=limit)
    return Plan((launch,), {"out": out})


def _tiles(x, name, config):
    """The descriptor of x [batch, heads, rows, head_dim] by tiles of BLOCK rows, swizzled as wgmma reads them."""
    block = [1, 1, config.meta["BLOCK"], x.shape[3]]
    if not x.numel():
        x = torch.empty(block, dtype=x.dtype, device=x.device)  # no program will look at it
    found = describe_tiles(x, tuple(block))
    if found is None:
        raise InputError(
            f"{name} has strides {list(x.stride())}; the copy engine needs the last to be 1 and the others multiples "
            f"of 16 bytes: call {name}.contiguous()", name,
        )  # fmt: skip
    dtype = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    return TensorDescriptor.from_tensor(x, block, gl.NVMMASharedLayout.get_default_for(block, dtype))


def configs(inputs, target):
    yield Config({"BLOCK": 64, "STAGES": 2, "Q_REGISTERS": 1})
    # Of 65,536 registers 168 a thread leave room for three programs of four warps, not two.
    yield Config({"BLOCK": 64, "STAGES": 2, "Q_REGISTERS": 1, "MAX_REGISTERS": 168})
    yield Config({"BLOCK": 64, "STAGES": 2})
    yield Config({"BLOCK": 64, "STAGES": 4, "Q_REGISTERS": 1})
    yield Config({"BLOCK": 128, "STAGES": 2, "Q_REGISTERS": 1}, num_warps=8)


def unsupported(dtype, target):
    if target.arch == "sm_90":
        return None
    here = "a CPU" if target.kind == "cpu" else target.arch
    return f"gluon_attention is written for Hopper (sm_90), and this is {here}: use attention, or read its sm_90 code"


SPEC = KernelSpec(
    name="gluon_attention",
    title="Attention, by hand for Hopper",
    doc="Attention in Gluon, the language below Triton: layouts, shared memory, the copy engine and the matrix units "
    "by hand, and a softmax that runs while the tensor cores work. Hopper alone; its code can be read anywhere.",
    function=gluon_attention,
    reference=reference,
    eager=eager,
    dims=(*FUSED.dims[:-1], Dim("head_dim", "elements of a head, 64 or 128", low=64, high=128)),
    presets={**FUSED.presets, "odd": {**FUSED.presets["odd"], "head_dim": 64}},
    default=FUSED.default,
    dtypes=("bfloat16", "float16"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=attention_problem.cost,
    sweep_dim="q_len",
    shrinks="q_len",
    variant_of="attention",
    unsupported=unsupported,
    baselines=BASELINES,
    edges=(
        Edge("All keys", "causal=False, the last block cut by kv_len", SMALL, lambda i: {**i, "causal": False}),
        Edge("One query", "q_len=1, kv_len=20: the offset is kv_len - q_len", {**SMALL, "q_len": 1, "kv_len": 20}),
        Edge("Fewer keys than queries", "the first queries meet no key, and get 0", {**SMALL, "kv_len": 33}),
        Edge("Several rounds", "kv_len=700: each buffer is filled several times", {**SMALL, "kv_len": 700}),
        Edge("No keys", "kv_len=0: zeros", {**SMALL, "kv_len": 0}),
        Edge("No batch", "batch=0: nothing to do", {**SMALL, "batch": 0}),
    ),
    bugs=(
        Bug(
            "Barrier of the wrong round",
            find="mbarrier.wait(k_bars.index(j % STAGES), (j // STAGES) & 1)",
            replace="mbarrier.wait(k_bars.index(j % STAGES), 0)",
            hint="A barrier turns each time its buffer is filled. Which turn is waited for in the third round?",
            symptom="right for a few blocks, then keys that have not arrived",
            dims={**SMALL, "kv_len": 700},
            dtype="bfloat16",
        ),
        Bug(
            "Weights of another block",
            find="v = v_ring.index((j - 1) % STAGES).reshape([BLOCK, HEAD_DIM])",
            replace="v = v_ring.index(j % STAGES).reshape([BLOCK, HEAD_DIM])",
            hint="Whose values belong to the weights that are at hand when the scores of block j are started?",
            symptom="each block's weights meet the next block's values",
            dims={**SMALL, "kv_len": 700},
            dtype="bfloat16",
        ),
    ),
)  # fmt: skip
