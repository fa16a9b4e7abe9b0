"""A linear layer for few rows: x @ weight^T + bias, where reading the weight is all the work.

When a model decodes, x holds one row for each sequence, and the weight [N, K] is by far the larger operand: at one
row, two operations for every weight. So the aim is not arithmetic but to stream the weight once, at full bandwidth,
whatever the number of rows; libraries tuned for large matrices reach three quarters of that.

One program owns BLOCK_N outputs, that is BLOCK_N rows of the weight, each contiguous in memory: long loads, and no
two programs read the same byte. The weight's block is loaded once and multiplied with every row of x. For a single
row (DOT 0) products are added lane by lane, and one reduction across lanes comes at the very end; for more rows
(DOT 1) the tensor cores multiply, with x padded to BLOCK_M rows. The order of the sum differs from a library's, and
is float32 throughout; float32 inputs are multiplied exactly (IEEE), never in TF32.

With PDL (programmatic dependent launch, Hopper and later) a program begins while the kernel before it still runs: it
asks for the bias and its first weights at once and waits only before it reads x. That hides a launch, but only where
no kernel that may still run has written weight or bias, which nothing here can know: so it is a config to choose, never
the default.

What to look at: bytes per second against the copy roof. For a single row a GPU takes up to eight blocks of K without a
loop, so that the loads of one are in flight while the last is multiplied.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.checks import (
    FLOATS,
    InputError,
    need_dtype,
    need_no_grad,
    need_rank,
    need_same_device,
    need_same_dtype,
    need_shape,
)
from kernels.dependent import let_next_begin, wait_for_last
from kernels.spec import Bug, Config, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan, nbytes
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def add_block(
    acc, start, x_rows, weight_rows, row_mask, col_mask, k_size, stride_xk, stride_wk,
    EVEN_K: tl.constexpr, DOT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """acc and the products of the BLOCK_K columns from `start` on."""
    k = (start + tl.arange(0, BLOCK_K))[None, :]
    inside = True if EVEN_K else k < k_size
    # Each weight is read once: it should not push x out of the cache.
    weight = tl.load(
        weight_rows + k.to(tl.int64) * stride_wk, mask=col_mask & inside, other=0.0, eviction_policy="evict_first"
    )  # fmt: skip
    wait_for_last(PDL)  # x comes from the kernel before, the weight does not
    x = tl.load(x_rows + k.to(tl.int64) * stride_xk, mask=row_mask & inside, other=0.0)
    if BLOCK_M == 1:
        return acc + x.to(tl.float32) * weight.to(tl.float32)  # [1, K] * [N, K]
    elif DOT:
        return tl.dot(x, tl.trans(weight), acc, input_precision="ieee")  # [M, K] @ [K, N]
    else:
        return acc + x.to(tl.float32)[:, None, :] * weight.to(tl.float32)[None, :, :]  # [M, N, K]


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, n_rows, n_cols, k_size,
    stride_xm, stride_xk, stride_wn, stride_wk, EVEN_K: tl.constexpr, UNROLLED: tl.constexpr,
    DOT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """BLOCK_M rows by BLOCK_N outputs; the blocks of rows come first, so that they share the weight in L2."""
    let_next_begin(PDL)
    row_blocks = tl.cdiv(n_rows, BLOCK_M)
    rows = (tl.program_id(0) % row_blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = (tl.program_id(0) // row_blocks).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask = (rows < n_rows)[:, None]
    col_mask = (cols < n_cols)[:, None]
    ONE: tl.constexpr = BLOCK_M == 1  # a row keeps its products in two dimensions, and so in the order of its loads
    acc = tl.zeros(
        [BLOCK_M, BLOCK_N] if DOT else [BLOCK_N, BLOCK_K] if ONE else [BLOCK_M, BLOCK_N, BLOCK_K], tl.float32
    )
    x_rows, weight_rows = x_ptr + rows[:, None] * stride_xm, weight_ptr + cols[:, None] * stride_wn
    bias = None
    if bias_ptr is not None:  # asked for first: after the sums its way from memory would be waited for alone
        bias = tl.load(bias_ptr + cols, mask=cols < n_cols, other=0.0)
    if UNROLLED:  # so that weights of the next block are on their way while this one is multiplied
        for block in tl.static_range(UNROLLED):
            acc = add_block(
                acc, block * BLOCK_K, x_rows, weight_rows, row_mask, col_mask, k_size, stride_xk, stride_wk,
                EVEN_K, DOT, BLOCK_M, BLOCK_K, PDL,
            )  # fmt: skip
    else:
        for start in range(0, k_size, BLOCK_K):
            acc = add_block(
                acc, start, x_rows, weight_rows, row_mask, col_mask, k_size, stride_xk, stride_wk,
                EVEN_K, DOT, BLOCK_M, BLOCK_K, PDL,
            )  # fmt: skip
    out = acc if DOT else tl.sum(acc, axis=1)[None, :] if ONE else tl.sum(acc, axis=2)  # [M, N]
    wait_for_last(PDL)  # where K is 0 nothing has waited yet, and the kernel before may still read what is written
    if bias is not None:
        out += bias.to(tl.float32)[None, :]
    tl.store(out_ptr + rows[:, None] * n_cols + cols[None, :], out, mask=row_mask & (cols < n_cols)[None, :])


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x @ weight^T + bias, made for few rows.

    x: [M, K]; weight: [N, K], the same dtype (float32, float16, bfloat16), any strides; bias: [N] or None. Summed in
    float32, rounded once. Any M is right; beyond 64 rows a matmul is faster. Returns [M, N]. Raises InputError.
    """
    return SPEC.run(x=x, weight=weight, bias=bias)


def reference(x, weight, bias=None):
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    out = x.to(wide) @ weight.to(wide).T
    return (out if bias is None else out + bias.to(wide)).to(x.dtype)


def eager(x, weight, bias=None):
    return torch.nn.functional.linear(x, weight, bias)


def make_inputs(dims, draw):
    return {
        "x": draw.normal(dims["m"], dims["k"]),
        # As a trained layer has it: outputs of the size of the inputs.
        "weight": draw.normal(dims["n"], dims["k"], std=max(dims["k"], 1) ** -0.5),
        "bias": draw.normal(dims["n"]),
    }


def check(inputs):
    x, weight, bias = inputs["x"], inputs["weight"], inputs.get("bias")
    need_rank(x, "x", 2)
    need_dtype(x, "x", FLOATS)
    need_rank(weight, "weight", 2)
    need_shape(weight, "weight", (weight.shape[0], x.shape[1]), "the last dimension of x")
    need_same_dtype(weight, "weight", x, "x")
    given = {"x": x, "weight": weight}
    if bias is not None:
        need_shape(bias, "bias", weight.shape[:1], "weight")
        need_dtype(bias, "bias", FLOATS)
        given["bias"] = bias
    need_same_device(**given)
    need_no_grad(**given)


def plan(inputs, config, target):
    x, weight, bias = inputs["x"], inputs["weight"], inputs.get("bias")
    (n_rows, k_size), n_cols = x.shape, weight.shape[0]
    out = torch.empty(n_rows, n_cols, dtype=x.dtype, device=x.device)
    args = {
        "x_ptr": x,
        "weight_ptr": weight,
        "bias_ptr": None if bias is None else bias.contiguous(),
        "out_ptr": out,
        "n_rows": n_rows,
        "n_cols": n_cols,
        "k_size": k_size,
        "stride_xm": x.stride(0),
        "stride_xk": x.stride(1),
        "stride_wn": weight.stride(0),
        "stride_wk": weight.stride(1),
        "DOT": _dot(config, target),
        "EVEN_K": k_size % config.meta["BLOCK_K"] == 0,
        "UNROLLED": _unrolled(k_size, config, target),
        **({} if "PDL" in config.meta else {"PDL": 0}),
    }
    pdl = "PDL" in config.meta
    if pdl and target.capability < 90:
        raise InputError(f"PDL is for Hopper and later, and this is {target.arch}; choose a config without", "config")
    grid = (triton.cdiv(n_rows, config.meta["BLOCK_M"]) * triton.cdiv(n_cols, config.meta["BLOCK_N"]),)
    return Plan((Launch(linear_kernel, grid, args, config, pdl=pdl),), {"out": out})


def _unrolled(k_size, config, target):
    """How many blocks of K a GPU's program for one row takes without a loop; 0 where it loops."""
    blocks = triton.cdiv(k_size, config.meta["BLOCK_K"])
    return blocks if config.meta["BLOCK_M"] == 1 and target.kind != "cpu" and blocks <= 8 else 0


def _dot(config, target):
    """Whether tl.dot multiplies: a GPU's tensor cores want 16 rows; on a CPU it pays from 2 by 16 on."""
    rows, cols = config.meta["BLOCK_M"], config.meta["BLOCK_N"]
    return rows > 1 and cols >= 16 if target.kind == "cpu" else rows >= 16


def configs(inputs, target):
    n_rows, k_size = inputs["x"].shape
    if target.kind == "cpu":
        yield from _cpu_configs(n_rows, k_size)
    elif n_rows <= 1:
        yield from _one_row_configs(k_size, target)
    else:
        yield from _few_rows_configs(inputs["x"], inputs["weight"].shape[0], target)


def _config(m, n, k, num_warps=1, num_stages=3):
    return Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_warps, num_stages)


def _once(choices):
    """_config of each, without the same one twice."""
    for choice in dict.fromkeys(choices):
        yield _config(*choice)


def _cpu_configs(n_rows, k_size):
    """Short blocks of K keep the sums in vector registers; the weight's rows lie in the order they are read."""
    block_m = min(pow2(n_rows), 8)
    first = (8, 16) if n_rows <= 2 else (32, 32)  # up to two rows are added lane by lane, more are multiplied as tiles
    choices = (first, (4, 16), (4, 64), (8, 32), (2, 64), (32, 64), (64, 64))
    yield from _once((block_m, block_n, min(block_k, pow2(k_size))) for block_n, block_k in choices)


def _one_row_configs(k_size, target):
    whole = min(pow2(k_size), 4096)
    choices = [(2, 2048, 4), (4, 2048, 8), (2, whole, 4), (4, 1024, 4), (8, 1024, 4), (1, whole, 4)]
    choices += [(4, 2048, 4), (2, 1024, 2), (1, whole, 2), (1, whole, 1), (4, whole, 8), (16, 512, 4)]
    choices = list(dict.fromkeys((block_n, min(block_k, whole), warps) for block_n, block_k, warps in choices))
    for i, (block_n, block_k, num_warps) in enumerate(choices):
        yield _config(1, block_n, block_k, num_warps)
        if i < 4 and target.capability >= 90:  # never the default: see the module's docstring
            yield Config({"BLOCK_M": 1, "BLOCK_N": block_n, "BLOCK_K": block_k, "PDL": 1}, num_warps)


def _few_rows_configs(x, n_cols, target):
    n_rows, k_size = x.shape
    block_m = 16 if n_rows <= 16 else 32 if n_rows <= 32 else 64
    wide = x.dtype == torch.float32  # exact products in registers: smaller blocks
    choices = []
    wish = [(64, 128, 4, 3), (32, 128, 4, 4), (16, 256, 4, 4), (32, 64, 4, 4), (128, 64, 4, 3)]
    # The widest block of which there is one for most multiprocessors comes first.
    first = next((i for i in range(3) if triton.cdiv(n_cols, wish[i][0]) >= target.num_sms), 2)
    wish.insert(0, wish.pop(first))
    for block_n, block_k, num_warps, num_stages in wish:
        block_k = max(min(block_k // 2 if wide else block_k, pow2(k_size)), 16)
        stages = 2 if target.kind == "hip" else num_stages
        while stages > 1 and (block_m + block_n) * block_k * x.element_size() * stages > 0.9 * target.shared_bytes:
            stages -= 1
        choices.append((block_m, block_n, block_k, num_warps, stages))
    yield from _once(choices)


def cost(inputs):
    x, weight, bias = inputs["x"], inputs["weight"], inputs.get("bias")
    out = x.shape[0] * weight.shape[0]
    read = nbytes(x, weight) + (nbytes(bias) if bias is not None else 0)
    return Cost(read, out * x.element_size(), 2 * out * x.shape[1])


def _no_bias(inputs):
    return {**inputs, "bias": None}


def _transposed_weight(inputs):
    return {**inputs, "weight": inputs["weight"].T.contiguous().T}


def _strided(inputs):
    return {**inputs, "x": inputs["x"].repeat_interleave(2, dim=1)[:, ::2], "weight": inputs["weight"].flip(0)}


def _same_row(inputs):
    return {**inputs, "x": inputs["x"][:1].expand_as(inputs["x"])}


def _large(inputs):
    # Sums of products of 100 and more, in the thousands: beyond what a sum in float16 could hold exactly.
    return {**inputs, "x": inputs["x"] * 100}


_SMALL = {"m": 1, "n": 130, "k": 200}

SPEC = KernelSpec(
    name="linear",
    title="Linear, few rows",
    doc="A linear layer for the few rows of a decode step: the weight is read once, at full bandwidth. Look at the "
    "bytes per second, and at the loop that a wide enough block does away with.",
    function=linear,
    reference=reference,
    eager=eager,
    dims=(
        Dim("m", "rows: sequences that decode together", high=4096),
        Dim("n", "outputs"),
        Dim("k", "inputs"),
    ),
    presets={
        "decode": {"m": 1, "n": 4096, "k": 4096},
        "prefill": {"m": 64, "n": 14_336, "k": 4096},
        "odd": {"m": 3, "n": 1003, "k": 577},
        "largest": {"m": 1, "n": 128_256, "k": 8192},
    },
    default={"m": 1, "n": 960, "k": 576},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="n",
    shrinks="n",
    edges=(
        Edge("No bias", "bias=None", _SMALL, _no_bias),
        Edge("Eight rows", "m=8: the weight is read once for all", {**_SMALL, "m": 8}),
        Edge("Many rows", "m=70: more than one block of rows", {**_SMALL, "m": 70}),
        Edge("Nothing to sum", "k=0: the bias alone, or zeros", {**_SMALL, "k": 0}),
        Edge("One of each", "m=1, n=1, k=1", {"m": 1, "n": 1, "k": 1}),
        Edge("No rows", "m=0: nothing to do", {**_SMALL, "m": 0}),
        Edge("Transposed weight", "stored as [K, N]: strides, not widths", _SMALL, _transposed_weight),
        Edge("Strided", "x[:, ::2]", {**_SMALL, "m": 2}, _strided),
        Edge("Expanded", "every row is the same one, stride 0", {**_SMALL, "m": 5}, _same_row),
        Edge("Large values", "sums in the thousands, in float16", {**_SMALL, "k": 4096}, _large, "float16"),
    ),
    bugs=(
        Bug(
            "K not masked",
            find="inside = True if EVEN_K else k < k_size",
            replace="inside = k < k_size + BLOCK_K",
            hint="200 columns in blocks of 64: what do the last lanes read?",
            symptom="the start of the next row is multiplied as well",
            dims={"m": 4, "n": 130, "k": 200},
        ),
        Bug(
            "Sum started anew",
            find="return acc + x.to(tl.float32) * weight",
            replace="return x.to(tl.float32) * weight",
            hint="What is left of the first block of K after the second?",
            symptom="only the last block of K is summed",
            dims={"m": 1, "n": 130, "k": 10_000},
        ),
        Bug(
            "Sum in low precision",
            find="return acc + x.to(tl.float32) * weight.to(tl.float32)",
            replace="return (acc + x * weight).to(tl.float16).to(tl.float32)",
            hint="In which dtype are the products added up?",
            symptom="small products are lost against a large sum",
            dims={"m": 1, "n": 130, "k": 30_000},
            dtype="float16",
        ),
    ),
)
