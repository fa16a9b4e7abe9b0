"""Attention written for Hopper by hand, in Gluon: within 3 % of NVIDIA's own library. A variant to read.

kernels/attention.py leaves layouts, shared memory and overlap to Triton's compiler. Gluon is the language below it,
shipped with Triton: here the kernel says in which registers a tile lies, allocates shared memory, starts the copy
engine (TMA) and waits for it on barriers, and issues the matrix instructions (wgmma) that run on their own. That buys
two overlaps which the compiler does not find, those of FlashAttention-3.

Warps of different trades. A program is two groups of four warps that compute, 64 queries each, and one warp that does
nothing but start copies. Keys and values pass through rings of STAGES buffers, each with two barriers: `full` turns
when the copy engine has filled the buffer, `free` when both groups are done with it. So copies run ahead on their own,
the groups never wait for each other, and while one computes exponentials the tensor cores work for the other. The
copying warp gives its registers away: 24 are enough for it, and those that compute have 240.

Softmax beside products. Within a group the scores q k^T of block j and the sum of block j - 1's weights times v are
issued together, and the exponentials of block j are computed as soon as the first of them is done, during the second.

Blocks run from the last to the first, so the masked ones, which the diagonal or the end of the keys cuts, come first;
the rest is computed without masks. Weights pass from one block to the next as float32: as bfloat16 each would have a
register of its own between two loops, and 64 instructions would pack them anew. With Q_REGISTERS the queries are taken
from shared memory into registers once; beside blocks of 64 keys there is room for them.

What to look at: wgmma, cp.async.bulk.tensor and setmaxnreg in the PTX of `attention` and of this, and the wait that
allows one of two products to be unfinished. Hopper alone has these instructions: elsewhere the kernel is refused, and
`attention` serves.
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.attention import SPEC as FUSED
from kernels.attention import eager, reference
from kernels.attention_peers import BASELINES
from kernels.attention_problem import SMALL, cost
from kernels.attention_problem import check as check_attention
from kernels.attention_problem import make_inputs as attention_inputs
from kernels.checks import InputError
from kernels.online_softmax import LOG2E
from kernels.operands import describe_tiles
from kernels.paged_kv import attention_scale, far_out
from kernels.spec import Bug, Config, Dim, Edge, KernelSpec, Launch, Output, Plan

HEAD_DIMS = (64, 128)  # a tile's width is that of the head, and the tensor cores want powers of two
ROWS = 64  # queries of a group of four warps: the height of Hopper's matrix instruction


@gluon.jit
def fetch(desc, ring, full, j, batch, head, row, STAGES: gl.constexpr):
    """Start to copy the block of rows from `row` on into buffer j of the ring; `full` turns when it is there."""
    slot = j % STAGES
    mbarrier.expect(full.index(slot), desc.block_type.nbytes)
    tma.async_copy_global_to_shared(desc, [batch, head, row, 0], full.index(slot), ring.index(slot))


@gluon.jit
def copying(
    q_desc, k_desc, v_desc, q_tiles, k_ring, v_ring, q_full, k_full, k_free, v_full, v_free, query, top, n, batch, head,
    kv_head, ROWS: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """The warp that copies: both groups' queries, then block after block into the rings, as their buffers get free."""
    for group in gl.static_range(2):
        mbarrier.expect(q_full.index(group), q_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(
            q_desc, [batch, head, query + group * ROWS, 0], q_full.index(group), q_tiles.index(group)
        )
    for j in range(n):
        # A barrier that has never turned counts as turned before: the first round finds every buffer free.
        mbarrier.wait(k_free.index(j % STAGES), (j // STAGES + 1) & 1)
        fetch(k_desc, k_ring, k_full, j, batch, kv_head, top - j * BLOCK, STAGES)
        mbarrier.wait(v_free.index(j % STAGES), (j // STAGES + 1) & 1)
        fetch(v_desc, v_ring, v_full, j, batch, kv_head, top - j * BLOCK, STAGES)


@gluon.jit
def masked(scores, position, row, kv_len, CAUSAL: gl.constexpr, BLOCK: gl.constexpr, SCORES: gl.constexpr):
    """Scores of the keys from `row` on, minus infinity where a query may not meet the key."""
    key = row + gl.arange(0, BLOCK, gl.SliceLayout(0, SCORES))
    seen = (key < kv_len)[None, :]
    if CAUSAL:
        seen = seen & (key[None, :] <= position[:, None])
    return gl.where(seen, scores, float("-inf"))


@gluon.jit
def scale_of_rows(top, scale):
    """As in kernels/online_softmax.py: a power of two for rows whose largest score is far out."""
    power = (scale.to(gl.int32, bitcast=True) + 0x7FFFFF) & 0x7F800000
    return gl.where(gl.abs(top) < 2.0**28 / scale, scale, power.to(gl.float32, bitcast=True))


@gluon.jit
def walk(
    q, k_ring, v_ring, k_full, k_free, v_full, v_free, acc, m, denom, p, first, last, top, position, kv_len,
    scale, MASKED: gl.constexpr, CAUSAL: gl.constexpr, HEAD_DIM: gl.constexpr, ROWS: gl.constexpr,
    BLOCK: gl.constexpr, STAGES: gl.constexpr, SCORES: gl.constexpr, OUT: gl.constexpr,
):  # fmt: skip
    """Blocks first to last - 1, counted from the end: each one's scores beside the last one's weighted values."""
    none = gl.zeros([ROWS, BLOCK], gl.float32, SCORES)
    for j in range(first, last):
        k = k_ring.index(j % STAGES).reshape([BLOCK, HEAD_DIM]).permute((1, 0))
        v = v_ring.index((j - 1) % STAGES).reshape([BLOCK, HEAD_DIM])
        mbarrier.wait(k_full.index(j % STAGES), (j // STAGES) & 1)
        products = warpgroup_mma(q, k, none, use_acc=False, is_async=True)
        weights = gl.convert_layout(p.to(v_ring.dtype), gl.DotOperandLayout(0, OUT, 2))
        mbarrier.wait(v_full.index((j - 1) % STAGES), ((j - 1) // STAGES) & 1)
        sums = warpgroup_mma(weights, v, acc, is_async=True)
        scores = warpgroup_mma_wait(1, deps=(products,))  # one may still run: the sums
        mbarrier.arrive(k_free.index(j % STAGES), count=1)
        if MASKED:
            scores = masked(scores, position, top - j * BLOCK, kv_len, CAUSAL, BLOCK, SCORES)
        largest = gl.max(scores, 1)
        by_row = scale_of_rows(largest, scale)
        new_m = gl.maximum(m, largest * by_row)
        p = gl.exp2(scores * by_row[:, None] - new_m[:, None])
        alpha = gl.exp2(m - new_m)
        denom = denom * alpha + gl.sum(p, 1)
        m = new_m
        acc, _ = warpgroup_mma_wait(0, deps=(sums, weights))
        mbarrier.arrive(v_free.index((j - 1) % STAGES), count=1)
        acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, OUT))[:, None]
    return acc, m, denom, p


@gluon.jit
def computing(
    GROUP: gl.constexpr, q_tiles, k_ring, v_ring, q_full, k_full, k_free, v_full, v_free, out_ptr, query, q_len, kv_len,
    top, n, scale, CAUSAL: gl.constexpr, HEAD_DIM: gl.constexpr, ROWS: gl.constexpr, BLOCK: gl.constexpr,
    STAGES: gl.constexpr, Q_REGISTERS: gl.constexpr,
):  # fmt: skip
    """A group of four warps: the answers of ROWS queries, of all that the copying warp brings."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], warps_per_cta=[4, 1], instr_shape=[16, HEAD_DIM, 16])
    first = query + GROUP * ROWS
    start = first + kv_len - q_len  # the first query's place among the keys
    full = gl.minimum(start + 1, kv_len) if CAUSAL else kv_len
    cut = gl.maximum(n - gl.maximum(full, 0) // BLOCK, 1)  # blocks in which some query may not meet some key
    position = start + gl.arange(0, ROWS, gl.SliceLayout(1, SCORES))
    mbarrier.wait(q_full.index(GROUP), 0)
    q = q_tiles.index(GROUP).reshape([ROWS, HEAD_DIM])
    if Q_REGISTERS:
        q = q.load(gl.DotOperandLayout(0, SCORES, 2))
    # Block 0, the last of the keys, has no weights before it to multiply.
    mbarrier.wait(k_full.index(0), 0)
    k = k_ring.index(0).reshape([BLOCK, HEAD_DIM]).permute((1, 0))
    scores = warpgroup_mma(q, k, gl.zeros([ROWS, BLOCK], gl.float32, SCORES), use_acc=False)
    mbarrier.arrive(k_free.index(0), count=1)
    scores = masked(scores, position, top, kv_len, CAUSAL, BLOCK, SCORES)
    largest = gl.max(scores, 1)
    by_row = scale_of_rows(largest, scale)
    # Float32's lowest number for a query that has met no key yet, since -inf - -inf is NaN.
    m = gl.maximum(largest * by_row, -3.4028234663852886e38)
    p = gl.exp2(scores * by_row[:, None] - m[:, None])
    denom = gl.sum(p, 1)
    acc = gl.zeros([ROWS, HEAD_DIM], gl.float32, OUT)
    acc, m, denom, p = walk(
        q, k_ring, v_ring, k_full, k_free, v_full, v_free, acc, m, denom, p, 1, cut, top, position, kv_len,
        scale, True, CAUSAL, HEAD_DIM, ROWS, BLOCK, STAGES, SCORES, OUT,
    )  # fmt: skip
    acc, m, denom, p = walk(
        q, k_ring, v_ring, k_full, k_free, v_full, v_free, acc, m, denom, p, cut, n, top, position, kv_len,
        scale, False, CAUSAL, HEAD_DIM, ROWS, BLOCK, STAGES, SCORES, OUT,
    )  # fmt: skip
    mbarrier.wait(v_full.index((n - 1) % STAGES), ((n - 1) // STAGES) & 1)
    weights = gl.convert_layout(p.to(v_ring.dtype), gl.DotOperandLayout(0, OUT, 2))
    acc = warpgroup_mma(weights, v_ring.index((n - 1) % STAGES).reshape([BLOCK, HEAD_DIM]), acc)
    denom = gl.convert_layout(denom, gl.SliceLayout(1, OUT))[:, None]
    acc = gl.where(denom == 0.0, 0.0, acc / denom)  # a query that meets no key, whatever values weigh nothing
    row = first + gl.arange(0, ROWS, gl.SliceLayout(1, OUT))
    column = gl.arange(0, HEAD_DIM, gl.SliceLayout(0, OUT))
    inside = (row < q_len)[:, None] & (column < HEAD_DIM)[None, :]
    gl.store(out_ptr + row[:, None].to(gl.int64) * HEAD_DIM + column[None, :], acc.to(v_ring.dtype), mask=inside)


@gluon.jit
def gluon_attention_kernel(
    q_desc, k_desc, v_desc, out_ptr, scale, n_heads, group, q_len, kv_len, q_blocks, CAUSAL: gl.constexpr,
    HEAD_DIM: gl.constexpr, ROWS: gl.constexpr, BLOCK: gl.constexpr, STAGES: gl.constexpr, Q_REGISTERS: gl.constexpr,
):  # fmt: skip
    """Program (batch and head, block of 2 * ROWS queries); with CAUSAL those that meet the most keys start first."""
    pid = gl.program_id(0)
    block = q_blocks - 1 - pid % q_blocks if CAUSAL else pid % q_blocks
    batch = pid // q_blocks // n_heads
    head = pid // q_blocks % n_heads
    kv_head = head // group
    out_ptr += (batch * n_heads + head).to(gl.int64) * q_len * HEAD_DIM
    query = block * 2 * ROWS
    high = gl.minimum(query + 2 * ROWS + kv_len - q_len, kv_len) if CAUSAL else kv_len
    n = gl.maximum((high + BLOCK - 1) // BLOCK, 1)  # without a key to meet one block is looked at, and masked
    top = (n - 1) * BLOCK  # the first key of the last block
    q_tiles = gl.allocate_shared_memory(q_desc.dtype, [2, 1, 1, ROWS, HEAD_DIM], q_desc.layout)
    k_ring = gl.allocate_shared_memory(k_desc.dtype, [STAGES, 1, 1, BLOCK, HEAD_DIM], k_desc.layout)
    v_ring = gl.allocate_shared_memory(v_desc.dtype, [STAGES, 1, 1, BLOCK, HEAD_DIM], v_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(q_full.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(k_free.index(i), count=2)  # both groups
        mbarrier.init(v_free.index(i), count=2)
    gl.warp_specialize(
        [
            (computing, (
                0, q_tiles, k_ring, v_ring, q_full, k_full, k_free, v_full, v_free, out_ptr, query, q_len, kv_len, top,
                n, scale, CAUSAL, HEAD_DIM, ROWS, BLOCK, STAGES, Q_REGISTERS,
            )),
            (computing, (
                1, q_tiles, k_ring, v_ring, q_full, k_full, k_free, v_full, v_free, out_ptr, query, q_len, kv_len, top,
                n, scale, CAUSAL, HEAD_DIM, ROWS, BLOCK, STAGES, Q_REGISTERS,
            )),
            (copying, (
                q_desc, k_desc, v_desc, q_tiles, k_ring, v_ring, q_full, k_full, k_free, v_full, v_free, query, top, n,
                batch, head, kv_head, ROWS, BLOCK, STAGES,
            )),
        ],
        [4, 1],  # warps of the second group and of those that copy; the first group is the launch's own
        [240, 24],  # registers of a thread
    )  # fmt: skip


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
    made = attention_inputs(dims, draw)
    return {name: made[name] for name in ("q", "k", "v", "causal", "scale")}


def check(inputs):
    check_attention(inputs)
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
    q_blocks = triton.cdiv(q_len, 2 * ROWS)
    empty = not k.shape[2]
    if empty:  # no key at all: one stands for the shape, which no query meets
        k = v = torch.empty(k.shape[0], k.shape[1], 1, head_dim, dtype=q.dtype, device=q.device)
    args = {
        "q_desc": _tiles(q, "q", ROWS),
        "k_desc": _tiles(k, "k", config.meta["BLOCK"]),
        "v_desc": _tiles(v, "v", config.meta["BLOCK"]),
        "out_ptr": out,
        "scale": attention_scale(inputs) * LOG2E,
        "n_heads": heads,
        "group": heads // k.shape[1],
        "q_len": q_len,
        "kv_len": inputs["k"].shape[2],
        "q_blocks": q_blocks,
        "CAUSAL": bool(inputs.get("causal", True)),
        "HEAD_DIM": head_dim,
        "ROWS": ROWS,
        **({} if "Q_REGISTERS" in config.meta else {"Q_REGISTERS": 0}),
    }
    launch = Launch(gluon_attention_kernel, (batch * heads * q_blocks,), args, config)
    return Plan((launch,), {"out": out})


def _tiles(x, name, rows):
    """The descriptor of x [batch, heads, rows, head_dim] by tiles of so many rows, swizzled as wgmma reads them."""
    block = [1, 1, rows, x.shape[3]]
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
    yield Config({"BLOCK": 128, "STAGES": 2})
    yield Config({"BLOCK": 64, "STAGES": 4, "Q_REGISTERS": 1})
    yield Config({"BLOCK": 64, "STAGES": 2, "Q_REGISTERS": 1})


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
    cost=cost,
    sweep_dim="q_len",
    shrinks="q_len",
    variant_of="attention",
    unsupported=unsupported,
    baselines=BASELINES,
    edges=(
        Edge("All keys", "causal=False, the last block cut by kv_len", SMALL, lambda i: {**i, "causal": False}),
        Edge("One query", "q_len=1, kv_len=20: the offset is kv_len - q_len", {**SMALL, "q_len": 1, "kv_len": 20}),
        Edge("Fewer keys than queries", "the first queries meet no key, and get 0", {**SMALL, "kv_len": 33}),
        Edge("Scores far out", "scores of about 10^10: the maximum comes off exactly", SMALL, far_out),
        Edge("Several rounds", "kv_len=700: each buffer is filled several times", {**SMALL, "kv_len": 700}),
        Edge("No keys", "kv_len=0: zeros", {**SMALL, "kv_len": 0}),
        Edge("No batch", "batch=0: nothing to do", {**SMALL, "batch": 0}),
    ),
    bugs=(
        Bug(
            "Barrier of the wrong round",
            find="mbarrier.wait(k_full.index(j % STAGES), (j // STAGES) & 1)",
            replace="mbarrier.wait(k_full.index(j % STAGES), 0)",
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
