"""Attention of a prompt ("flash attention"): softmax(scale * Q K^T) V without ever storing the score matrix.

The scores of a prompt of 4,096 tokens are 16 million numbers for each head: PyTorch written step by step sends them
through memory four times. Here one program owns BLOCK_M queries of one head and walks along the keys, BLOCK_N at a
time, with an online softmax (kernels/online_softmax.py): what is read is Q, K and V, what is written the answer, and
the tensor cores set the pace. 16-bit inputs are multiplied exactly and summed in float32; float32 inputs are
multiplied exactly as well (IEEE, not TF32), which is slower.

Which keys a query meets: with `causal`, those up to its own place, counted from the end when there are more keys than
queries (a decode step has q_len = 1), so the offset is kv_len - q_len; with `window`, only the latest `window` of
them. The walk has three parts: blocks that no query meets are never loaded, blocks that all queries meet need no
mask, and only those that the diagonal or the window's edge cuts are masked. Query heads share kv heads in groups of
any size (GQA). A query that meets no key at all gets 0.

On Hopper and later the copy engine (TMA) brings the tiles, described once by shape and strides: no addresses in
registers, no masks at the edges, and the matrix units read the tiles where they land in shared memory. Two small
programs on a multiprocessor then hide each other's softmax better than one large one. Where a tensor does not lie as
the engine needs it (rows of 16 bytes, one dimension without gaps), and on older GPUs, pointers do the same.

What to look at: TFLOP/s against the matmul roof; that causal takes half the time; the registers with and without
TMA; and what naive_attention, the variant beside it, needs in bytes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.attention_peers import BASELINES, sdpa
from kernels.attention_problem import SMALL, check, cost, make_inputs, seen_keys
from kernels.online_softmax import LOG2E, attend_block, no_key_yet, normalised
from kernels.operands import describe_tiles
from kernels.paged_kv import attention_scale
from kernels.spec import Bug, Config, Dim, Edge, KernelSpec, Launch, Output, Plan
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def load_rows(ptr, desc, batch, head, start, stride_n, stride_d, n_rows, MASKED: tl.constexpr,
              HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """BLOCK rows of one head [BLOCK, BLOCK_D], 0 where there are none: by the copy engine, or by pointers."""
    if desc is not None:
        # What lies outside the descriptor's shape comes as 0: no masks, no address arithmetic.
        return tl.reshape(desc.load([batch, head, start, 0]), [BLOCK, BLOCK_D])
    else:
        rows = (start + tl.arange(0, BLOCK))[:, None]
        d = tl.arange(0, BLOCK_D)[None, :]
        mask = (d < HEAD_DIM) & (rows < n_rows) if MASKED else d < HEAD_DIM
        return tl.load(ptr + rows.to(tl.int64) * stride_n + d * stride_d, mask=mask, other=0.0)


@triton.jit
def capped(x, softcap):
    """softcap * tanh(x / softcap): by the sigmoid, and near 0, where its difference from 1/2 is lost, by a series."""
    t = x * (1.0 / softcap)
    s = t * t
    near = x * (1.0 + s * (-1.0 / 3 + s * (2.0 / 15 + s * (-17.0 / 315 + s * (62.0 / 2835)))))
    return tl.where(tl.abs(t) < 0.3, near, softcap * (2.0 * tl.sigmoid(2.0 * t) - 1.0))


@triton.jit
def attend_keys(
    q, acc, m, denom, k_ptr, v_ptr, k_desc, v_desc, batch, kv_head, low, high, last_key, kv_len, scale, softcap,
    stride_kn, stride_kd, stride_vn, stride_vd, MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Blocks of keys from low to high; last_key [M]: the last key each query may meet."""
    for start in range(low, high, BLOCK_N):
        k = load_rows(
            k_ptr, k_desc, batch, kv_head, start, stride_kn, stride_kd, kv_len, MASKED, HEAD_DIM, BLOCK_D, BLOCK_N
        )
        products = tl.dot(q, tl.trans(k), input_precision="ieee")  # [M, N]
        if SOFTCAP:
            products = capped(products, softcap)
        if MASKED:
            n = start + tl.arange(0, BLOCK_N)
            seen = (n < kv_len)[None, :]
            if CAUSAL:
                seen = seen & (n[None, :] <= last_key[:, None])
            if WINDOW > 0:
                seen = seen & (n[None, :] > last_key[:, None] - WINDOW)
                if not CAUSAL:
                    seen = seen & (n[None, :] < last_key[:, None] + WINDOW)
            products = tl.where(seen, products, float("-inf"))
        v = load_rows(
            v_ptr, v_desc, batch, kv_head, start, stride_vn, stride_vd, kv_len, MASKED, HEAD_DIM, BLOCK_D, BLOCK_N
        )
        acc, m, denom = attend_block(acc, m, denom, products, scale, v, None)
    return acc, m, denom


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, q_desc, k_desc, v_desc, out_ptr, scale, softcap, n_heads, group, q_len, kv_len, q_blocks,
    stride_qb, stride_qh, stride_qm, stride_qd, stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, TMA: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Program (batch and head, block of queries): the blocks that meet the most keys start first."""
    pid = tl.program_id(0)
    block = q_blocks - 1 - pid % q_blocks if CAUSAL else pid % q_blocks
    batch = pid // q_blocks // n_heads
    head = pid // q_blocks % n_heads
    kv_head = head // group
    q_ptr += batch.to(tl.int64) * stride_qb + head.to(tl.int64) * stride_qh
    k_ptr += batch.to(tl.int64) * stride_kb + kv_head.to(tl.int64) * stride_kh
    v_ptr += batch.to(tl.int64) * stride_vb + kv_head.to(tl.int64) * stride_vh
    queries = block * BLOCK_M + tl.arange(0, BLOCK_M)
    q = load_rows(
        q_ptr, q_desc, batch, head, block * BLOCK_M, stride_qm, stride_qd, q_len, True, HEAD_DIM, BLOCK_D, BLOCK_M
    )
    offset = kv_len - q_len
    last_key = queries + offset  # a query's own place among the keys
    first = block * BLOCK_M + offset  # that of the block's first query
    # Keys that some query of the block meets, and in [full, middle) those that every query meets.
    low = 0
    high = tl.minimum(first + BLOCK_M, kv_len) if CAUSAL else kv_len
    full = 0
    middle = tl.maximum(tl.minimum(first + 1, kv_len) if CAUSAL else kv_len, 0) // BLOCK_N * BLOCK_N
    if WINDOW > 0:
        low = tl.maximum(first - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
        if not CAUSAL:
            high = tl.minimum(first + BLOCK_M - 1 + WINDOW, kv_len)
            middle = tl.maximum(tl.minimum(first + WINDOW, kv_len), 0) // BLOCK_N * BLOCK_N
        full = tl.maximum(tl.cdiv(first + BLOCK_M - WINDOW, BLOCK_N) * BLOCK_N, low)
        middle = tl.maximum(middle, full)
    acc, m, denom = no_key_yet(BLOCK_M, BLOCK_D)
    if WINDOW > 0:
        acc, m, denom = attend_keys(
            q, acc, m, denom, k_ptr, v_ptr, k_desc, v_desc, batch, kv_head, low, tl.minimum(full, high), last_key,
            kv_len, scale, softcap, stride_kn, stride_kd, stride_vn, stride_vd, True, CAUSAL, WINDOW, SOFTCAP,
            HEAD_DIM, BLOCK_D, BLOCK_N,
        )  # fmt: skip
    acc, m, denom = attend_keys(
        q, acc, m, denom, k_ptr, v_ptr, k_desc, v_desc, batch, kv_head, full, middle, last_key, kv_len, scale, softcap,
        stride_kn, stride_kd, stride_vn, stride_vd, False, CAUSAL, WINDOW, SOFTCAP, HEAD_DIM, BLOCK_D, BLOCK_N,
    )  # fmt: skip
    acc, m, denom = attend_keys(
        q, acc, m, denom, k_ptr, v_ptr, k_desc, v_desc, batch, kv_head, middle, high, last_key, kv_len, scale, softcap,
        stride_kn, stride_kd, stride_vn, stride_vd, True, CAUSAL, WINDOW, SOFTCAP, HEAD_DIM, BLOCK_D, BLOCK_N,
    )  # fmt: skip
    row = (batch * n_heads + head).to(tl.int64) * q_len + queries
    d = tl.arange(0, BLOCK_D)
    mask = (queries < q_len)[:, None] & (d < HEAD_DIM)[None, :]  # [M, D]
    tl.store(out_ptr + row[:, None] * HEAD_DIM + d[None, :], normalised(acc, denom), mask=mask)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool = True,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
) -> torch.Tensor:
    """softmax(scale * q k^T) v.

    q: [batch, heads, q_len, head_dim]; k, v: [batch, kv_heads, kv_len, head_dim], heads a multiple of kv_heads, the
    same dtype, any strides; causal: query i meets keys up to i + kv_len - q_len; scale: 1 / sqrt(head_dim) by
    default; window: only the latest `window` keys; softcap: scores become softcap * tanh(score / softcap). A query
    that meets no key gets 0. Returns [batch, heads, q_len, head_dim], contiguous. Raises InputError.
    """
    return SPEC.run(q=q, k=k, v=v, causal=causal, scale=scale, window=window, softcap=softcap)


def reference(q, k, v, causal=True, scale=None, window=None, softcap=None):
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    group = q.shape[1] // k.shape[1]
    k, v = (x.to(wide).repeat_interleave(group, dim=1) for x in (k, v))
    scores = q.to(wide) @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    seen = seen_keys(q.shape[2], k.shape[2], causal, window, q.device)
    weights = torch.softmax(scores.masked_fill(~seen, float("-inf")), dim=-1)
    return torch.where(seen.any(-1, keepdim=True), weights @ v, 0.0).to(q.dtype)


def eager(q, k, v, causal=True, scale=None, window=None, softcap=None):
    """PyTorch's own scaled_dot_product_attention, as it chooses."""
    if softcap is not None:  # the fused kernels have none
        return reference(q, k, v, causal, scale, window, softcap)
    return sdpa(q, k, v, causal, scale, window)


def plan(inputs, config, target):
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    batch, heads, q_len, head_dim = q.shape
    softcap, scale = inputs.get("softcap"), attention_scale(inputs)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    block_m, block_n = config.meta["BLOCK_M"], config.meta["BLOCK_N"]
    block_d = max(pow2(head_dim), 16)
    q_blocks = triton.cdiv(q_len, block_m)
    tiles = [describe_tiles(x, (1, 1, rows, block_d)) for x, rows in ((q, block_m), (k, block_n), (v, block_n))]
    # Where one tensor does not lie as the copy engine needs it, all are read by pointers.
    tma = bool(config.meta.get("TMA")) and None not in tiles
    config = Config({"BLOCK_M": block_m, "BLOCK_N": block_n, "TMA": 1} if tma else
                    {"BLOCK_M": block_m, "BLOCK_N": block_n}, config.num_warps, config.num_stages)  # fmt: skip
    args = {
        "q_ptr": q,
        "k_ptr": k,
        "v_ptr": v,
        **dict(zip(("q_desc", "k_desc", "v_desc"), tiles if tma else (None,) * 3, strict=True)),
        "out_ptr": out,
        # With a softcap the kernel bends scale * product, which it gets as softcap / scale on the products.
        "scale": scale * LOG2E,
        "softcap": min(softcap / scale, 1e37) if softcap else 0.0,  # from there on it bends nothing
        "n_heads": heads,
        "group": heads // k.shape[1],
        "q_len": q_len,
        "kv_len": k.shape[2],
        "q_blocks": q_blocks,
        **{f"stride_q{d}": q.stride(i) for i, d in enumerate("bhmd")},
        **{f"stride_{n}{d}": x.stride(i) for n, x in (("k", k), ("v", v)) for i, d in enumerate("bhnd")},
        "CAUSAL": bool(inputs.get("causal", True)),
        "WINDOW": int(inputs.get("window") or 0),
        "SOFTCAP": softcap is not None,
        "HEAD_DIM": head_dim,
        "BLOCK_D": block_d,
        **({} if tma else {"TMA": 0}),
    }
    return Plan((Launch(attention_kernel, (batch * heads * q_blocks,), args, config),), {"out": out})


def configs(inputs, target):
    q = inputs["q"]
    width = max(pow2(q.shape[3]), 16) * q.element_size()
    choices = [c for c in _choices(q, target) if (c[0] + 2 * c[1] * c[3]) * width <= 0.95 * target.shared_bytes]
    short = pow2(max(q.shape[2], 16))  # a block of more queries than there are would be idle
    for block_m, block_n, num_warps, stages, tma in dict.fromkeys(
        (min(c[0], short), c[1], min(c[2], max(short // 16, 1)), *c[3:]) for c in choices or [(16, 16, 2, 1, 0)]
    ):
        meta = {"BLOCK_M": block_m, "BLOCK_N": block_n}
        yield Config({**meta, "TMA": 1} if tma else meta, num_warps, stages)


def _choices(q, target):
    """(BLOCK_M, BLOCK_N, warps, stages, whether the copy engine loads), the default of each kind of target first."""
    if target.kind == "cpu":
        return [(64, 64, 1, 1, 0), (32, 64, 1, 1, 0), (64, 32, 1, 1, 0), (128, 64, 1, 1, 0)]
    if q.dtype == torch.float32:  # exact products keep the tiles in registers
        return [(32, 32, 4, 2, 0), (64, 32, 4, 2, 0), (16, 32, 4, 2, 0)]
    if target.kind == "hip":
        return [(128, 64, 4, 1, 0), (128, 32, 4, 1, 0), (64, 64, 4, 1, 0)]
    plain = [(128, 64, 8, 3, 0), (64, 64, 4, 3, 0), (128, 64, 4, 3, 0), (64, 32, 4, 3, 0)]
    if target.capability in (90, 100):
        # Two programs of 64 queries hide each other's softmax on a multiprocessor; larger tiles were slower.
        return [(64, 64, 4, 3, 1), (128, 64, 8, 3, 1), (64, 64, 4, 2, 1), (128, 128, 8, 2, 1), *plain[:2]]
    return plain


def _with(**options):
    return lambda inputs: {**inputs, **options}


def _sliced_qkv(inputs):
    """As a projection leaves them: [batch, tokens, heads, head_dim], seen as heads first."""
    return {
        **inputs, **{name: inputs[name].transpose(1, 2).contiguous().transpose(1, 2) for name in ("q", "k", "v")},
    }  # fmt: skip


SPEC = KernelSpec(
    name="attention",
    title="Attention",
    doc="Attention of a prompt without the score matrix: an online softmax walks along the keys. Look at the TFLOP/s "
    "against the matmul roof, and at the blocks that causal skips.",
    function=attention,
    reference=reference,
    eager=eager,
    dims=(
        Dim("batch", "sequences"),
        Dim("kv_heads", "key and value heads", high=1024),
        Dim("group", "query heads for each of them", high=128),
        Dim("q_len", "queries of each sequence"),
        Dim("kv_len", "keys of each sequence"),
        Dim("head_dim", "elements of a head", high=256),
    ),
    presets={
        "decode": {"batch": 1, "kv_heads": 8, "group": 4, "q_len": 1, "kv_len": 4096, "head_dim": 128},
        "prefill": {"batch": 4, "kv_heads": 32, "group": 1, "q_len": 4096, "kv_len": 4096, "head_dim": 128},
        "odd": {"batch": 2, "kv_heads": 3, "group": 3, "q_len": 333, "kv_len": 401, "head_dim": 80},
        "largest": {"batch": 1, "kv_heads": 8, "group": 4, "q_len": 32_768, "kv_len": 32_768, "head_dim": 128},
    },
    default={"batch": 1, "kv_heads": 3, "group": 3, "q_len": 256, "kv_len": 256, "head_dim": 64},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="q_len",
    shrinks="q_len",
    baselines=BASELINES,
    edges=(
        Edge("All keys", "causal=False", SMALL, _with(causal=False)),
        Edge("One query", "q_len=1, kv_len=20: the offset is kv_len - q_len", {**SMALL, "q_len": 1, "kv_len": 20}),
        Edge("Fewer keys than queries", "the first queries meet no key, and get 0", {**SMALL, "kv_len": 33}),
        Edge("No keys", "kv_len=0: zeros", {**SMALL, "kv_len": 0}),
        Edge("Window", "only the latest 17 keys", SMALL, _with(window=17)),
        Edge("Softcap", "scores bent below 2", SMALL, _with(softcap=2.0)),
        Edge("Large scores", "scores in the thousands: exp overflows without the maximum", SMALL, _with(scale=60.0)),
        Edge("Scores far out", "scores of about 10^10: the maximum comes off exactly", SMALL, _with(scale=1e9)),
        Edge("Odd head", "head_dim=40: a mask on the lanes", {**SMALL, "head_dim": 40}),
        Edge("Heads inside", "[batch, tokens, heads, head_dim] in memory: strides", SMALL, _sliced_qkv),
        Edge("No batch", "batch=0: nothing to do", {**SMALL, "batch": 0}),
    ),
    bugs=(
        Bug(
            "Offset forgotten",
            find="offset = kv_len - q_len",
            replace="offset = 0",
            hint="Which key is the last one that the last query may meet?",
            symptom="right for a whole prompt, wrong for a continued one",
            dims={**SMALL, "q_len": 20},
        ),
        Bug(
            "Sums not rescaled",
            find="        acc, m, denom = attend_block(acc, m, denom, products, scale, v, None)",
            replace="        acc, _, denom = attend_block(acc, m * 0 - 4.0, denom, products, scale, v, None)",
            hint="What happens to earlier sums when a larger maximum comes along?",
            symptom="each block is weighted by a maximum of its own",
            dims={**SMALL, "q_len": 200, "kv_len": 200},
        ),
        Bug(
            "Too early without a mask",
            find="middle = tl.maximum(tl.minimum(first + 1, kv_len) if CAUSAL",
            replace="middle = tl.maximum(tl.minimum(first + BLOCK_M, kv_len) if CAUSAL",
            hint="Up to which key do all queries of a block meet all keys?",
            symptom="queries at the start of a block see the future",
            dims={**SMALL, "q_len": 200, "kv_len": 200},
        ),
        Bug(
            "Neighbour's kv head",
            find="kv_head = head // group",
            replace="kv_head = head % (n_heads // group)",
            hint="Which kv head serves query head 1 in a group of 2?",
            symptom="right without groups, wrong with them",
            dims=SMALL,
        ),
    ),
)
