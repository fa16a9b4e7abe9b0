"""Quantizes to fp8 (e4m3): each row, or each group of neighbours, with a scale of its own.

    scale = max |group| / 448      q = the nearest e4m3 number to group / scale

An e4m3 number has 4 bits of exponent and 3 of mantissa: its steps are relative, so small values keep their share of
the precision, where int8 would round them to 0. One scale for each 128 values, as DeepSeek's weights have it, keeps an
outlier from costing a whole row its precision, at 4 bytes for each group.

A group is a short row: the kernels of kernels/quantize_int8.py do the work, on x seen as [groups, group_size].
e4m3 as PyTorch has it (e4m3fn) has no infinity: values are clamped to +-448 before the cast, since casts beyond that
differ between devices; NaN stays NaN. What to look at: the groups against the rows in bytes per second, and which
GPUs have the conversion at all: sm_89 and newer.
"""

from __future__ import annotations

import math

import torch

from kernels.checks import FLOATS, InputError, need_dtype, need_min_rank, need_no_grad, need_same_device
from kernels.codes import LARGEST, code_reference, need_fp8, no_fp8, scale_reference
from kernels.quantize_int8 import every_second_column, launch_rows, not_finite, one_zero_row
from kernels.rows import row_configs
from kernels.spec import Bug, Cost, Dim, Edge, KernelSpec, Output, Plan, nbytes, next_power_of_2

FP8 = torch.float8_e4m3fn


def quantize_fp8(x: torch.Tensor, group_size: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """(q, scale): e4m3 codes and a scale for each row, or for each group of the last dimension.

    x: [..., n], float32, float16 or bfloat16, any strides; group_size: a divisor of n, None for the whole row. q:
    float8_e4m3fn, x's shape; scale: float32 [...], or [..., n / group_size]. Infinities become +-448, NaN stays NaN,
    and neither counts for the scale; a group of zeros has the scale 1. Returns new contiguous tensors.
    Raises InputError, for a GPU without e4m3 too.
    """
    return SPEC.run(x=x, group_size=group_size)


def reference(x, group_size=None):
    groups = x.unflatten(-1, (-1, group_size)) if group_size else x
    scale = scale_reference(groups, LARGEST[FP8])
    return code_reference(groups, scale[..., None], FP8).reshape(x.shape), scale


def make_inputs(dims, draw):
    # A shape that the groups do not divide is quantized by rows.
    size = dims["group_size"]
    return {"x": draw.normal(dims["rows"], dims["n"]), "group_size": size if dims["n"] % size == 0 else None}


def check(inputs):
    x, size = inputs["x"], inputs.get("group_size")
    need_min_rank(x, "x", 1)
    need_dtype(x, "x", FLOATS)
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1 or x.shape[-1] % size):
        raise InputError(
            f"group_size is {size!r} and x is {x.shape[-1]} wide; it needs a divisor of that, or None for whole rows",
            "group_size",
        )
    need_same_device(x=x)
    need_no_grad(x=x)


def _groups(inputs):
    """x as [groups, group_size], a view where strides allow it."""
    x = inputs["x"]
    width = inputs.get("group_size") or x.shape[-1]
    return x.reshape(-1, width) if x.numel() else x.reshape(math.prod(x.shape[:-1]) if not width else 0, width)


def plan(inputs, config, target):
    x, size = inputs["x"], inputs.get("group_size")
    need_fp8(target, "x")
    shape = (*x.shape[:-1], x.shape[-1] // size) if size else x.shape[:-1]
    q = torch.empty(x.shape, dtype=FP8, device=x.device)
    scale = torch.empty(shape, dtype=torch.float32, device=x.device)
    largest = 448.0
    return Plan((launch_rows(_groups(inputs), q, scale, largest, config, target),), {"q": q, "scale": scale})


def configs(inputs, target):
    groups = _groups(inputs)
    # Short groups share a program, as long as there are programs enough.
    several = max(min(2048 // next_power_of_2(groups.shape[-1]), groups.shape[0] // (8 * target.num_sms)), 1)
    return row_configs(groups, target, many=(several, 1024, 16))


def cost(inputs):
    """Read, take the magnitude, compare, divide, round."""
    x = inputs["x"]
    return Cost(nbytes(x), x.numel() + 4 * _groups(inputs).shape[0], 4 * x.numel())


def _flag_gems():
    import flag_gems

    def run(x, group_size):
        return flag_gems.per_token_group_quant_fp8(x, group_size or x.shape[-1])

    return run


def _tiny(inputs):
    return {**inputs, "x": (inputs["x"] * 1e-38).float()}


def _outlier(inputs):
    inputs["x"][:, 5] = 3e4
    return inputs


_SMALL = {"rows": 4, "n": 256, "group_size": 64}

SPEC = KernelSpec(
    name="quantize_fp8",
    title="Quantize to fp8",
    doc="Rows or groups to e4m3 codes with a scale each, in one pass. Look at an outlier's price with and without "
    "groups, and at the clamp before the cast.",
    function=quantize_fp8,
    reference=reference,
    dims=(
        Dim("rows", "tokens"),
        Dim("n", "width of a row", high=2**20),
        Dim("group_size", "values that share a scale; one that does not divide n: the whole row", high=2**20),
    ),
    presets={
        "decode": {"rows": 1, "n": 4096, "group_size": 128},
        "prefill": {"rows": 16_384, "n": 4096, "group_size": 128},
        "odd": {"rows": 33, "n": 4097, "group_size": 4097},
        "largest": {"rows": 65_536, "n": 8192, "group_size": 128},
    },
    default={"rows": 64, "n": 3072, "group_size": 128},
    dtypes=("bfloat16", "float16", "float32"),
    outputs=(Output("q", "bits"), Output("scale")),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="rows",
    shrinks="rows",
    unsupported=lambda dtype, target: no_fp8(target),
    edges=(
        Edge("NaN and infinity", "clamped to 448, NaN stays, the scale is not spoilt", _SMALL, not_finite),
        Edge("An outlier", "30,000 among ones: only its group pays", _SMALL, _outlier),
        Edge("A row of zeros", "0 / 0: its scale is 1", _SMALL, one_zero_row),
        Edge("Tiny values", "1e-38: the scale must not become 0", _SMALL, _tiny, "float32"),
        Edge("Whole rows", "one scale a row", {**_SMALL, "group_size": 256}),
        Edge("Wider than a block", "n=20,000 in one group", {"rows": 3, "n": 20_000, "group_size": 20_000}),
        Edge("Every second column", "x[:, ::2]", _SMALL, every_second_column),
        Edge("No rows", "rows=0: nothing to do", {**_SMALL, "rows": 0}),
    ),
    bugs=(
        Bug(
            "Another format's range",
            find="largest = 448.0",
            replace="largest = 240.0",
            hint="The largest number of e4m3fnuz is 240. Which format is this?",
            symptom="every scale is 1.9 times too large, and the upper codes are never used",
            dims=_SMALL,
        ),
        Bug(
            "Scale of the first group",
            find="launch_rows(_groups(inputs), q, scale, largest, config, target)",
            replace="launch_rows(_groups(inputs)[:1].expand_as(_groups(inputs)), q, scale, largest, config, target)",
            hint="What does the second group look like after quantizing?",
            symptom="every group holds the first one's codes",
            dims=_SMALL,
        ),
    ),
)
