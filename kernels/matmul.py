"""Matrix multiplication: [M, K] @ [K, N], any strides.

Each program owns a tile of the answer and walks along K: a tile of a and a tile of b come in, the tensor cores
multiply them, and float32 registers add up. Every element of a is used N times and every element of b M times, so a
good kernel is bound by arithmetic. What to look at:

- The order of the tiles. Programs that run at the same time should share rows of a and columns of b, which then come
  from L2. GROUP_M rows of tiles are walked column by column; with GROUP_M 1 the tiles go row by row, and all of b
  passes through L2 for each of them.
- The mask on K, with zeros for what lies beyond: a mask on M and N alone reads garbage into every sum.
- `matmul_descriptor_kernel`, for Hopper and later: tensor descriptors let the copy engine bring whole tiles, with the
  bounds checked in hardware, and each program stays for several tiles. A matrix whose rows do not start at multiples
  of 16 bytes is copied once to where they do: operands.py.

The precision of float32 products is chosen, never by accident: "ieee" multiplies in full (no tensor cores), "tf32"
rounds each factor to 10 bits of mantissa first, about ten times as fast. None follows PyTorch's own setting,
`torch.backends.cuda.matmul.fp32_precision`, which is IEEE unless someone has changed it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.checks import FLOATS, need_dtype, need_no_grad, need_rank, need_same_device, need_same_dtype, need_shape
from kernels.operands import copy_to_aligned, describe
from kernels.spec import Baseline, Bug, Config, Cost, Dim, Edge, InputError, KernelSpec, Launch, Output, Plan, nbytes
from kernels.spec import next_power_of_2 as pow2

WORTH_A_COPY = 2**16  # elements from which an operand is copied to where descriptors reach it


@triton.jit
def _tile(pid, n_tiles_m, n_tiles_n, GROUP_M: tl.constexpr):
    """The tile of the pid-th program: GROUP_M rows of tiles, column by column, then the next GROUP_M rows."""
    per_group = GROUP_M * n_tiles_n
    first_m = pid // per_group * GROUP_M
    height = min(n_tiles_m - first_m, GROUP_M)  # the last group may be lower
    return first_m + pid % per_group % height, pid % per_group // height


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, out_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    tile_m, tile_n = _tile(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    rows = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * stride_am + ks[None, :].to(tl.int64) * stride_ak  # [BLOCK_M, BLOCK_K]
    b_ptrs = b_ptr + ks[:, None].to(tl.int64) * stride_bk + cols[None, :] * stride_bn  # [BLOCK_K, BLOCK_N]
    step = tl.full((), BLOCK_K, tl.int64)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        inside = start + ks < K
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & inside[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=inside[:, None] & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += step * stride_ak
        b_ptrs += step * stride_bk
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(out_ptr + rows[:, None] * N + cols[None, :], acc.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def matmul_descriptor_kernel(
    a_desc, b_desc, out, M, N, K,
    PRECISION: tl.constexpr, A_TRANSPOSED: tl.constexpr, B_TRANSPOSED: tl.constexpr, OUT_DESCRIBED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    FLATTEN: tl.constexpr,
):  # fmt: skip
    """Each program takes every num_programs-th tile. What lies outside a tensor is read as 0 and never written."""
    n_tiles_m, n_tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    # FLATTEN makes one loop of the two, so that the next tile's first loads are under way while this one is stored.
    for pid in tl.range(tl.program_id(0), n_tiles_m * n_tiles_n, tl.num_programs(0), flatten=FLATTEN):
        tile_m, tile_n = _tile(pid, n_tiles_m, n_tiles_n, GROUP_M)
        row, col = tile_m * BLOCK_M, tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for start in range(0, K, BLOCK_K):
            a = a_desc.load([start, row]).T if A_TRANSPOSED else a_desc.load([row, start])
            b = b_desc.load([col, start]).T if B_TRANSPOSED else b_desc.load([start, col])
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
        if OUT_DESCRIBED:
            out.store([row, col], acc.to(out.dtype))
        else:  # a plain pointer: the answer's rows do not start at multiples of 16 bytes
            rows = row.to(tl.int64) + tl.arange(0, BLOCK_M)[:, None]
            cols = col + tl.arange(0, BLOCK_N)[None, :]
            tl.store(out + rows * N + cols, acc.to(out.dtype.element_ty), mask=(rows < M) & (cols < N))


def matmul(a: torch.Tensor, b: torch.Tensor, precision: str | None = None) -> torch.Tensor:
    """a @ b, added up in float32.

    a: [M, K], b: [K, N], the same dtype (float32, float16 or bfloat16), any strides. precision: how float32 factors
    are multiplied, "ieee" or "tf32"; None follows `torch.backends.cuda.matmul.fp32_precision`. "tf32" is leave to
    round, not an order: a device without it multiplies in full. Returns a contiguous [M, N] tensor of a's dtype,
    zeros where K is 0. Raises InputError.
    """
    return SPEC.run(a=a, b=b, precision=precision)


def reference(a, b, precision=None):
    before = torch.backends.cuda.matmul.fp32_precision
    if not (a.is_cuda and a.dtype == torch.float32 and precision) or precision == before:
        return a @ b
    torch.backends.cuda.matmul.fp32_precision = precision
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def make_inputs(dims, draw):
    return {"a": draw.normal(dims["m"], dims["k"]), "b": draw.normal(dims["k"], dims["n"])}


def _precision(inputs, target):
    given = inputs.get("precision") or torch.backends.cuda.matmul.fp32_precision
    allowed = inputs["a"].dtype == torch.float32 and _no_tf32(target) is None
    return "tf32" if given == "tf32" and allowed else "ieee"


def _no_tf32(target):
    if target.capability >= 80 or target.arch == "gfx942":
        return None
    return f"{target.arch} has no TF32: its float32 products are computed in full; choose float32"


def check(inputs):
    a, b = inputs["a"], inputs["b"]
    need_rank(a, "a", 2)
    need_rank(b, "b", 2)
    need_dtype(a, "a", FLOATS)
    need_same_dtype(b, "b", a, "a")
    need_shape(b, "b", (a.shape[1], b.shape[1]), "a's second dimension")
    need_same_device(a=a, b=b)
    need_no_grad(a=a, b=b)
    precision = inputs.get("precision")
    if precision not in (None, "ieee", "tf32"):
        raise InputError(
            f'precision is {precision!r}; choose "ieee", "tf32", or None for PyTorch\'s setting', "precision"
        )


def plan(inputs, config, target):
    a, b = inputs["a"], inputs["b"]
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty(m, n, dtype=a.dtype, device=a.device)
    meta = dict(config.meta)
    tiles = triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"])
    args = {"M": m, "N": n, "K": k, "PRECISION": _precision(inputs, target)}
    if "FLATTEN" in meta:
        launches = _descriptor_launches(a, b, out, args, tiles, config, target)
        if launches is not None:
            return Plan(launches, {"out": out})
        del meta["FLATTEN"]
    strides = {
        "stride_am": a.stride(0), "stride_ak": a.stride(1), "stride_bk": b.stride(0), "stride_bn": b.stride(1),
    }  # fmt: skip
    launch = Launch(
        matmul_kernel, (tiles,), {"a_ptr": a, "b_ptr": b, "out_ptr": out, **args, **strides},
        Config(meta, config.num_warps, config.num_stages),
    )  # fmt: skip
    return Plan((launch,), {"out": out})


def _descriptor_launches(a, b, out, args, tiles, config, target):
    """None where a tensor does not lie as descriptors need it and is too small to be worth a copy."""
    block_m, block_n, block_k = (config.meta[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    # Tensor cores take 16-bit tiles either way round, but TF32 tiles only with their K elements side by side.
    along = (1, 0) if args["PRECISION"] == "tf32" else (None, None)
    launches, found = [], []
    for tensor, block, side in ((a, (block_m, block_k), along[0]), (b, (block_k, block_n), along[1])):
        described = describe(tensor, block, side)
        if described is None:
            if tensor.numel() < WORTH_A_COPY:
                return None
            copying, aligned = copy_to_aligned(tensor, side)
            launches.append(copying)
            described = describe(aligned, block, side)
        found.append(described)
    (a_transposed, a_desc), (b_transposed, b_desc) = found
    out_desc = describe(out, (block_m, block_n))
    launch = Launch(
        matmul_descriptor_kernel,
        (min(target.num_sms, tiles),),
        {
            "a_desc": a_desc,
            "b_desc": b_desc,
            "out": out_desc[1] if out_desc and not out_desc[0] else out,
            **args,
            "A_TRANSPOSED": a_transposed,
            "B_TRANSPOSED": b_transposed,
            "OUT_DESCRIBED": bool(out_desc and not out_desc[0]),
        },
        config,
    )
    return (*launches, launch)


def configs(inputs, target):
    a, b = inputs["a"], inputs["b"]
    precision = _precision(inputs, target) if a.dtype == torch.float32 else "tensor cores"
    seen = []
    for meta, num_warps, num_stages in _candidates(a.shape[0], b.shape[1], precision, target):
        block_m, block_n, block_k = meta[:3]
        stages = 2 if target.kind == "hip" else num_stages
        # Every stage holds a tile of a and of b; a descriptor's answer leaves through shared memory as well.
        needed = (block_m + block_n) * block_k * stages + (block_m * block_n if len(meta) == 5 else 0)
        named = zip(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "FLATTEN"), meta, strict=False)
        each = Config(dict(named), num_warps, stages)
        if needed * a.element_size() <= target.shared_bytes and each not in seen:
            seen.append(each)
            yield each


def _cpu_candidates(m, n, precision, target):
    """The larger a tile, the less is copied for each product; but every core wants two of them."""
    tiles = ((256, 128, 64), (128, 128, 64)) if precision == "ieee" else ((256, 256, 128), (128, 256, 128))
    for block_m, block_n, block_k in (*tiles, (64, 64, 64)):
        if triton.cdiv(m, block_m) * triton.cdiv(n, block_n) >= 2 * target.num_sms:
            yield (block_m, block_n, block_k, 8), 4, 1
    yield (64, 64, 64, 8), 4, 1
    yield (128, 128, 64, 8), 4, 1
    yield (32, 64, 32, 8), 4, 1


def _candidates(m, n, precision, target):
    """((BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M[, FLATTEN]), num_warps, num_stages), the default first."""
    if target.kind == "cpu":
        yield from _cpu_candidates(m, n, precision, target)
        return
    if m <= 16:  # few rows: b is read once, and enough programs must share it out
        for block_n, block_k, stages in ((32, 128, 4), (16, 256, 4), (64, 128, 3), (16, 128, 4), (64, 32, 2)):
            yield (16, block_n, block_k, 1), 4, stages
        return
    if precision == "ieee":
        for block_m, block_n, block_k, num_warps in (
            (64, 64, 16, 4), (128, 64, 16, 8), (64, 64, 32, 8), (32, 32, 32, 4),
        ):  # fmt: skip
            yield (block_m, block_n, block_k, 8), num_warps, 2
        return
    if target.capability >= 90 and precision != "tf32":
        yield _largest_that_fills(m, n, target)
    if m * n < 128 * 128 * target.num_sms:  # large tiles would leave multiprocessors idle
        if target.capability >= 90 and precision != "tf32":
            yield (64, 128, 64, 8, 0), 4, 4
            yield (64, 64, 128, 8, 0), 4, 4
        yield (64, 64, 64, 8), 4, 3
        yield (64, 64, 32, 8), 4, 4
    if target.capability >= 90 and precision == "tf32":
        yield (128, 128, 32, 8, 0), 8, 4
        yield (128, 128, 32, 8, 0), 4, 4
        yield (128, 128, 32, 8, 1), 8, 4
        yield (128, 256, 32, 8, 0), 8, 2
    elif target.capability >= 90:
        yield (128, 256, 64, 8, 1), 8, 3
        yield (128, 256, 64, 8, 0), 8, 3
        yield (256, 128, 64, 8, 1), 8, 3
        yield (128, 128, 64, 8, 1), 4, 4
        yield (128, 128, 64, 8, 0), 4, 4
        yield (128, 128, 128, 8, 0), 8, 3
    yield (128, 128, 32, 8), 4, 3
    yield (128, 128, 64, 8), 4, 4
    yield (128, 256, 64, 8), 8, 3
    yield (64, 128, 64, 8), 4, 3
    yield (64, 64, 32, 8), 4, 2
    yield (32, 32, 32, 8), 4, 2
    yield (128, 128, 32, 1), 4, 3  # row by row: what the order of the tiles is worth


def _largest_that_fills(m, n, target):
    """The larger a tile the better, if it is no taller or wider than needed and keeps 70 % of the multiprocessors busy.

    Programs run in rounds, one for each multiprocessor; the last round may be all but empty.
    """
    tiles = (
        ((128, 256, 64, 8, 1), 8, 3), ((128, 128, 64, 8, 0), 8, 6), ((64, 128, 128, 8, 0), 4, 4),
        ((64, 64, 128, 8, 0), 4, 4), ((64, 32, 128, 8, 0), 4, 4), ((32, 32, 128, 8, 0), 4, 4),
    )  # fmt: skip
    for tile in tiles:
        block_m, block_n = tile[0][:2]
        programs = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
        busy = programs / (triton.cdiv(programs, target.num_sms) * target.num_sms) if programs else 1.0
        if busy >= 0.7 and block_m <= max(pow2(m), 32) and block_n <= max(pow2(n), 32):
            return tile
    return tiles[-1]


def cost(inputs):
    a, b = inputs["a"], inputs["b"]
    (m, k), n = a.shape, b.shape[1]
    return Cost(nbytes(a, b), m * n * a.element_size(), 2 * m * n * k)


def unsupported(dtype, target):
    return _no_tf32(target) if dtype == "tf32" else None


def _flag_gems():
    import flag_gems

    return lambda a, b, precision: flag_gems.mm(a, b)


def _both_transposed(inputs):
    return {**inputs, "a": inputs["a"].t().contiguous().t(), "b": inputs["b"].t().contiguous().t()}


def _every_second(inputs):
    spread = {name: inputs[name].repeat_interleave(2, dim=1)[:, ::2] for name in ("a", "b")}
    return {**inputs, **spread}


def _expanded(inputs):
    return {**inputs, "a": inputs["a"][:1].expand_as(inputs["a"])}


def _sliced(inputs):
    # The neighbours of the slice are NaN: a read beyond it shows.
    wide = torch.full((inputs["a"].shape[0] + 2, inputs["a"].shape[1] + 7), float("nan")).to(inputs["a"])
    wide[1:-1, 3:-4] = inputs["a"]
    return {**inputs, "a": wide[1:-1, 3:-4]}


def _not_finite(inputs):
    inputs["a"][1, 2] = float("nan")
    inputs["b"][3, 4] = float("inf")
    return inputs


SPEC = KernelSpec(
    name="matmul",
    title="Matrix multiply",
    doc="Multiplies two matrices tile by tile on the tensor cores. The bound is arithmetic, not memory, as long as "
    "tiles are reused: look at the order in which they are taken, at the mask along K, and at how float32 factors are "
    "rounded (IEEE or TF32).",
    function=matmul,
    reference=reference,
    dims=(
        Dim("m", "rows of a", high=2**20), Dim("n", "columns of b", high=2**20),
        Dim("k", "columns of a, rows of b", low=0, high=2**20),
    ),
    presets={
        "decode": {"m": 1, "n": 4096, "k": 4096}, "prefill": {"m": 4096, "n": 4096, "k": 4096},
        "odd": {"m": 1000, "n": 999, "k": 1001}, "largest": {"m": 8192, "n": 8192, "k": 8192},
    },
    default={"m": 200, "n": 300, "k": 250},
    dtypes=("bfloat16", "float16", "float32", "tf32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    check=check,
    plan=plan,
    configs=configs,
    cost=cost,
    sweep_dim="m",
    shrinks="m",
    unsupported=unsupported,
    baselines=(Baseline("FlagGems", _flag_gems, "pip install flag-gems"),),
    edges=(
        Edge("One of everything", "1 x 1 x 1: all lanes but one are masked", {"m": 1, "n": 1, "k": 1}),
        Edge("K = 0", "an empty sum is 0, not what was in memory", {"m": 20, "n": 30, "k": 0}),
        Edge("K = 1", "the mask on K leaves one product", {"m": 65, "n": 33, "k": 1}),
        Edge("One past a tile", "129 x 65 x 33: masks on all three", {"m": 129, "n": 65, "k": 33}),
        Edge("Both transposed", "neighbours lie the other way", {"m": 70, "n": 50, "k": 90}, _both_transposed),
        Edge("Every second column", "no dimension without gaps", {"m": 40, "n": 40, "k": 70}, _every_second),
        Edge("Expanded a", "one row for all, stride 0", {"m": 40, "n": 40, "k": 70}, _expanded),
        Edge("A slice among NaN", "whatever is read beyond K shows", {"m": 50, "n": 40, "k": 37}, _sliced),
        Edge("NaN and infinity", "spread along their row and column only", {"m": 40, "n": 50, "k": 60}, _not_finite),
    ),
    bugs=(
        Bug(
            "No mask along K",
            find="inside = start + ks < K",
            replace="inside = start + ks < K + BLOCK_K",
            hint="What does the last step along K read?",
            symptom="the next row's elements are in every sum, and the read runs past the end",
            dims={"m": 100, "n": 90, "k": 70},
        ),
        Bug(
            "Low-precision accumulator",
            find="acc = tl.dot(a, b, acc, input_precision=PRECISION)\n        a_ptrs",
            replace="acc = tl.dot(a, b, acc, input_precision=PRECISION).to(tl.float16).to(tl.float32)\n        a_ptrs",
            hint="How many digits does the running sum keep?",
            symptom="the error grows with K",
            dims={"m": 64, "n": 64, "k": 2000},
        ),
        Bug(
            "Lower last group",
            find="height = min(n_tiles_m - first_m, GROUP_M)",
            replace="height = GROUP_M",
            hint="How many rows of tiles has the last group?",
            symptom="some tiles are computed outside the answer, and others never",
            dims={"m": 200, "n": 300, "k": 50},
        ),
    ),
)  # fmt: skip
