"""Looks up rows of a table: the embedding of token ids.

    out[i] = table[ids[i]]

The first step of a decoder, and a gather in its purest form: a row of the table for each token, in any order. There
is nothing to compute; what counts is that each row, some kilobytes long, is read and written in long pieces, and
that many rows are on their way at once. One program copies BLOCK_T rows in blocks of BLOCK_N columns.

An id outside the table would read another tensor's memory. It is refused on the CPU; a GPU, where reading ids would
make the host wait, gives a row of NaN, which no one overlooks. What to look at: repeated ids are served from L2, so
more bytes per second than memory has.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.checks import FLOATS, InputError, need_dtype, need_no_grad, need_rank, need_same_device, need_tensor
from kernels.rows import aligned, vector_width
from kernels.spec import Bug, Config, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan
from kernels.spec import next_power_of_2 as pow2


@triton.jit
def embedding_kernel(
    ids_ptr, table_ptr, out_ptr, n_ids, n_rows, n_cols, stride_tm, stride_tn,
    VECTOR: tl.constexpr, BLOCK_T: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    stride_tm, n_cols = aligned(stride_tm, VECTOR), aligned(n_cols, VECTOR)
    blocks = tl.cdiv(n_cols, BLOCK_N)
    tokens = (tl.program_id(0) // blocks).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)[:, None]  # [BLOCK_T, 1]
    cols = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    ids = tl.load(ids_ptr + tokens, mask=tokens < n_ids, other=-1).to(tl.int64)
    mask = (tokens < n_ids) & (cols < n_cols)
    known = mask & (ids >= 0) & (ids < n_rows)
    rows = tl.load(table_ptr + ids * stride_tm + cols * stride_tn, mask=known, other=float("nan"))
    tl.store(out_ptr + tokens * n_cols + cols, rows, mask=mask)


def embedding(ids: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """table[ids].

    ids: int32 or int64, any shape; table: [vocab, n], float32, float16 or bfloat16, any strides. Returns
    [*ids.shape, n], contiguous. Raises InputError; on the CPU for an id outside the table too, for which a GPU gives
    a row of NaN.
    """
    check({"ids": ids, "table": table})
    if ids.device.type == "cpu" and ids.numel() and not (int(ids.min()) >= 0 and int(ids.max()) < table.shape[0]):
        wrong = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise InputError(f"ids holds {wrong}; the table has rows 0 to {table.shape[0] - 1}", "ids")
    return SPEC.run(ids=ids, table=table)


def reference(ids, table):
    return table[ids.long()]


def make_inputs(dims, draw):
    return {
        "ids": draw.integers(dims["tokens"], low=0, high=dims["vocab"]),
        "table": draw.normal(dims["vocab"], dims["n"]),
    }


def check(inputs):
    ids, table = inputs["ids"], inputs["table"]
    need_tensor(ids, "ids")
    need_dtype(ids, "ids", (torch.int32, torch.int64))
    need_rank(table, "table", 2)
    need_dtype(table, "table", FLOATS)
    need_same_device(table=table, ids=ids)
    need_no_grad(table=table)


def plan(inputs, config, target):
    ids, table = inputs["ids"], inputs["table"]
    n_rows, n_cols = table.shape
    out = torch.empty(*ids.shape, n_cols, dtype=table.dtype, device=table.device)
    args = {
        "ids_ptr": ids.contiguous(),
        "table_ptr": table,
        "out_ptr": out,
        "n_ids": ids.numel(),
        "n_rows": n_rows,
        "n_cols": n_cols,
        "stride_tm": table.stride(0),
        "stride_tn": table.stride(1),
        "VECTOR": vector_width(n_cols, table.stride(0)) if n_cols else 1,
    }
    blocks = triton.cdiv(n_cols, config.meta["BLOCK_N"])
    return Plan(
        (Launch(embedding_kernel, (triton.cdiv(ids.numel(), config.meta["BLOCK_T"]) * blocks,), args, config),),
        {"out": out},
    )


def configs(inputs, target):
    width = pow2(max(inputs["table"].shape[1], 1))
    choices = ((1, 2048, 4), (1, 4096, 8), (1, 1024, 4), (2, 2048, 8), (4, 1024, 8), (1, 8192, 8))
    cpu = target.kind == "cpu"
    for block_t, block_n, num_warps in dict.fromkeys((t, min(n, width), 1 if cpu else w) for t, n, w in choices):
        yield Config({"BLOCK_T": block_t, "BLOCK_N": block_n}, num_warps)


def cost(inputs):
    """Each id and a row for each, the rows of the table at most once each."""
    ids, table = inputs["ids"], inputs["table"]
    row = table.shape[1] * table.element_size()
    return Cost(ids.numel() * ids.element_size() + min(ids.numel(), table.shape[0]) * row, ids.numel() * row, 0)


def _same_id(inputs):
    return {**inputs, "ids": inputs["ids"][:1].expand_as(inputs["ids"])}


def _last_id(inputs):
    return {**inputs, "ids": torch.full_like(inputs["ids"], inputs["table"].shape[0] - 1)}


def _transposed(inputs):
    return {**inputs, "table": inputs["table"].T.contiguous().T}


_SMALL = {"tokens": 9, "vocab": 100, "n": 72}

SPEC = KernelSpec(
    name="embedding",
    title="Embedding",
    doc="A row of a table for each token id: a pure gather. Look at the bytes per second, and at repeated ids.",
    function=embedding,
    reference=reference,
    dims=(
        Dim("tokens", "ids to look up"),
        Dim("vocab", "rows of the table", high=2**24),
        Dim("n", "width of a row", high=2**20),
    ),
    presets={
        "decode": {"tokens": 1, "vocab": 49_152, "n": 576},
        "prefill": {"tokens": 16_384, "vocab": 128_256, "n": 4096},
        "odd": {"tokens": 333, "vocab": 1003, "n": 577},
        "largest": {"tokens": 131_072, "vocab": 128_256, "n": 8192},
    },
    default={"tokens": 64, "vocab": 10_000, "n": 576},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("out", "bits"),),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="tokens",
    shrinks="tokens",
    edges=(
        Edge("Last row", "the end of the table", _SMALL, _last_id),
        Edge("One id for all", "ids expanded, stride 0", _SMALL, _same_id),
        Edge("Transposed table", "stored as [n, vocab]: strides, not widths", _SMALL, _transposed),
        Edge("Wider than a block", "n=9000: three blocks of columns", {**_SMALL, "n": 9000}),
        Edge("No ids", "tokens=0: nothing to do", {**_SMALL, "tokens": 0}),
    ),
    bugs=(
        Bug(
            "Counted, not looked up",
            find="table_ptr + ids * stride_tm",
            replace="table_ptr + tokens * stride_tm",
            hint="Which row belongs to the first token?",
            symptom="the first rows of the table, whatever the ids",
            dims=_SMALL,
        ),
        Bug(
            "One row early",
            find="known = mask & (ids >= 0) & (ids < n_rows)",
            replace="known = mask & (ids > 0) & (ids < n_rows - 1)",
            hint="Which is the first row of the table, and which the last?",
            symptom="the rows at both ends come back as NaN",
            dims={"tokens": 400, "vocab": 20, "n": 72},
        ),
    ),
)
