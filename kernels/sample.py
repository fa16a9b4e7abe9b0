"""Draws the next token: temperature, top-k and top-p fused, seeded, and without sorting the vocabulary.

Sorting 128,000 logits to keep fifty of them costs ten times what reading them does. Three ideas avoid it.

A race instead of a softmax (kernels/noise.py): the token with the least E / w wins, E being a random number named by
(seed, token, row, step). Without top-k and top-p it is run in two rounds, and one pass over the logits is all: each
part of 1024 tokens races with the sum of its weights, then the tokens of the part that won.

Maxima of groups, for top-k: a first kernel leaves the largest logit of every GROUP tokens. At least k tokens reach
the k-th largest of the maxima, so the few that reach that threshold hold the k best. A second kernel finds the
threshold and the groups that reach it; a third, many programs for each row, puts their tokens that do on a short list;
a fourth, one program for each row, ranks the list by comparing all with all.

Rejection, for the rest (top-p alone, top-k beyond MOST_K, more ties than fit): the race's winner among all tokens is
the winner among the kept ones, if it is kept itself, and whether it is takes one pass that counts what lies above it.
If not, all kept tokens lie above it, and they race again. A few passes, and exact.

Ties at the k-th logit keep the lowest ids, exactly k. Top-p keeps a token while the probability before it, of the k
kept ones, is below p: the best token always. Temperature 0 is argmax. A NaN counts as -inf, which is never drawn,
infinity as the largest number; a row of nothing but -inf gives id 0. Each option is a number or a tensor [rows] on
the device, so that one captured graph serves every row's own settings; a row of a seed tensor draws the same wherever
in the batch it stands.

But for AMD the race needs no second kernel: a row's last program to arrive runs it. On Hopper and later the launches
overlap: each lets the next one begin, and waits for the one before.

What to look at: how few bytes beyond the logits are moved, and that the last kernel works on 128 tokens.
"""

from __future__ import annotations

import torch
import triton

from kernels.checks import FLOATS, InputError, need_dtype, need_no_grad, need_rank, need_same_device, need_shape
from kernels.sample_race import race_kernel
from kernels.sample_reference import eager, reference
from kernels.sample_top_k import choose_kernel, maxima_kernel, pick_kernel, threshold_kernel
from kernels.spec import Bug, Config, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan, nbytes
from kernels.spec import next_power_of_2 as pow2

MOST_K = 64  # the largest top-k that is found by maxima of groups
LIST = 128  # tokens that can be ranked by comparing all with all

OPTIONS = {
    "temperature": (1.0, (torch.float32, torch.float16, torch.bfloat16)),
    "top_k": (0, (torch.int32, torch.int64)),
    "top_p": (1.0, (torch.float32, torch.float16, torch.bfloat16)),
    "seed": (0, (torch.int64, torch.int32)),
    "step": (0, (torch.int64, torch.int32)),
}


def sample(
    logits: torch.Tensor,
    temperature: float | torch.Tensor = 1.0,
    top_k: int | torch.Tensor = 0,
    top_p: float | torch.Tensor = 1.0,
    seed: int | torch.Tensor = 0,
    step: int | torch.Tensor = 0,
) -> torch.Tensor:
    """A token id for each row, drawn from softmax(logits / temperature) cut to its top k, then to its top p.

    logits: [rows, vocab], float32, float16 or bfloat16, any strides. Each option is a number, or a tensor [rows] on
    the logits' device: temperature 0 (argmax) or from 1e-38 on, top_k >= 0 (0: all), top_p in [0, 1] (1: all), seed,
    and step, which should differ for each token drawn with one seed. With a number as seed every row draws its own.
    The same arguments give the same ids on every device, but for near ties in float32. Returns int64 [rows].
    Raises InputError.
    """
    return SPEC.run(logits=logits, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, step=step)


def make_inputs(dims, draw):
    return {
        "logits": draw.normal(dims["rows"], dims["vocab"], std=3.0),
        "temperature": 0.8,
        "top_k": dims["top_k"],
        "top_p": 0.9 if dims["top_k"] else 1.0,
        "seed": 20_250_401,
        "step": 3,
    }


def check(inputs):
    logits = inputs["logits"]
    need_rank(logits, "logits", 2)
    need_dtype(logits, "logits", FLOATS)
    need_no_grad(logits=logits)
    need_same_device(logits=logits)
    if not logits.shape[1]:
        raise InputError("logits has a vocabulary of 0 tokens; it needs at least 1", "logits")
    for name, (default, dtypes) in OPTIONS.items():
        value = inputs.get(name, default)
        if isinstance(value, torch.Tensor):
            need_shape(value, name, logits.shape[:1], "logits")
            need_dtype(value, name, dtypes)
            need_same_device(logits=logits, **{name: value})
        else:
            _check_number(name, value)


def _check_number(name, value):
    whole = name in ("top_k", "seed", "step")
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        kind = "an integer" if whole else "a number"
        raise InputError(f"{name} is {value!r}; it needs {kind} or a tensor [rows]", name)
    low, high = {"temperature": (1e-38, 1e30), "top_p": (0, 1)}.get(name, (0, 2**63 - 1))
    if not low <= value <= high and not (name == "temperature" and value == 0):
        also = "0 (argmax) or " if name == "temperature" else ""
        raise InputError(f"{name} is {value}; it needs {also}a value from {low} to {high}", name)


def _option_args(inputs):
    """Each option as a pointer and a number, one of which counts."""
    args = {}
    for name, (default, _) in OPTIONS.items():
        value = inputs.get(name, default)
        tensor = isinstance(value, torch.Tensor)
        args[f"{name}_ptr"] = value.contiguous() if tensor else None
        args[name] = (0 if tensor else value) if isinstance(default, int) else (0.0 if tensor else float(value))
    return args


def _which(inputs):
    """(raced, grouped, cut): whether rows may need the race over all, the maxima, and top-k or top-p at all."""
    temperature, top_k, top_p = (inputs.get(name, OPTIONS[name][0]) for name in ("temperature", "top_k", "top_p"))
    if not isinstance(temperature, torch.Tensor) and temperature == 0:
        return True, False, False
    any_k, any_p, any_heat = (isinstance(v, torch.Tensor) for v in (top_k, top_p, temperature))
    grouped = any_k or 0 < top_k <= MOST_K
    cut = any_k or any_p or top_k > 0 or top_p < 1
    return any_k or any_heat or not grouped, grouped, cut


def plan(inputs, config, target):
    logits = inputs["logits"]
    n_rows, vocab = logits.shape
    raced, grouped, cut = _which(inputs)
    group_size = max(min(pow2(vocab // 256), 256), 1)
    n_groups = triton.cdiv(vocab, group_size)
    tokens = config.meta["PARTS"] * 1024
    n_blocks, n_parts = triton.cdiv(vocab, tokens), triton.cdiv(vocab, 1024)
    alone = raced and not grouped and not cut and target.kind != "hip"  # the race decides, in one launch
    pdl = target.capability >= 90

    def space(*shape, when, dtype=torch.float32):
        return torch.empty(n_rows, *shape, dtype=dtype, device=logits.device) if when else None

    ids = torch.empty(n_rows, dtype=torch.int64, device=logits.device)
    known = {
        "logits_ptr": logits,
        "stride_lm": logits.stride(0),
        "stride_lv": logits.stride(1),
        "vocab": vocab,
        "n_blocks": n_blocks,
        "n_parts": n_parts,
        "part_max_ptr": space(n_parts, when=raced),
        "part_value_ptr": space(n_parts, when=raced),
        "part_token_ptr": space(n_parts, when=raced and not alone, dtype=torch.int32),
        "group_ptr": space(n_groups, when=grouped),
        "n_groups": n_groups,
        "bounds_ptr": space(2, when=grouped),
        "picked_ptr": space(LIST, when=grouped, dtype=torch.int32),
        "count_ptr": space(2, when=grouped, dtype=torch.int32),
        "list_ptr": space(2, LIST, when=grouped, dtype=torch.int32),
        "arrived_ptr": torch.zeros(n_rows, dtype=torch.int32, device=logits.device) if alone else None,
        "out_ptr": ids,
        **_option_args(inputs),
        "RACED": raced,
        "GROUPED": grouped,
        "CUT": cut,
        "PTX": target.kind == "cuda",
        "PDL": pdl,
        "MOST_K": MOST_K,
        "LIST": LIST,
        "GROUP": group_size,
        "BLOCK_PARTS": pow2(n_parts),
        "BLOCK_GROUPS": max(pow2(n_groups), MOST_K),
    }
    launches = []
    if raced:
        launches.append(_launch(race_kernel, n_rows * n_blocks, known, config, pdl))
    if grouped:
        first = Config({"BLOCK": tokens}, config.num_warps)
        launches.append(_launch(maxima_kernel, n_rows * n_blocks, known, first, pdl))
        launches.append(_launch(threshold_kernel, n_rows, known, Config({}, 1), pdl))
        pick = _pick_config(n_rows, target)
        launches.append(_launch(pick_kernel, n_rows * LIST // pick.meta["PICK"], known, pick, pdl))
    if not alone:
        last = Config({"BLOCK": 4096}, 4) if grouped else Config({"BLOCK": 8192}, 32)  # a list, or all tokens to read
        last = Config({"BLOCK": 1024}, 1) if target.kind == "cpu" else last
        launches.append(_launch(choose_kernel, n_rows, known, last, pdl))
    return Plan(tuple(launches), {"ids": ids})


def _pick_config(n_rows, target):
    """One row must be spread over the whole GPU; many rows fill it anyway."""
    if target.kind == "cpu":
        return Config({"PICK": 32}, 1)
    return Config({"PICK": 1 if n_rows < 8 else 2}, 2)


def _launch(kernel, programs, known, config, pdl):
    """A launch with those of the known arguments that the kernel has."""
    names = [name for name in kernel.arg_names if name not in config.meta]
    return Launch(kernel, (programs,), {name: known[name] for name in names}, config, pdl=pdl)


def configs(inputs, target):
    rows, vocab = inputs["logits"].shape
    if target.kind == "cpu":
        default, others = (4, 1), ((8, 1), (16, 1))
    else:
        _, grouped, _ = _which(inputs)
        many, few = ((2, 8), (1, 2)) if grouped else ((4, 4), (1, 4))  # maxima, and weights to be summed
        default = many if rows * vocab >= 2**21 else few
        others = (1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (4, 4), (4, 8), (8, 8)
    for parts, num_warps in dict.fromkeys((default, *others)):
        yield Config({"PARTS": parts}, num_warps)


def cost(inputs):
    """The logits read once, an id written for each row; a difference, an exponential and a product for each token."""
    logits = inputs["logits"]
    return Cost(nbytes(logits), 8 * logits.shape[0], 3 * logits.numel())


def _argmax(inputs):
    return {**inputs, "temperature": 0.0}


def _integers(inputs):
    inputs["logits"].copy_((inputs["logits"] * 0.7).round())  # dozens of tokens tie for the k-th place
    return inputs


def _padded_vocabulary(inputs):
    logits = inputs["logits"]
    wide = torch.nn.functional.pad(logits, (0, 11), value=1e4)
    return {**inputs, "logits": wide[:, : logits.shape[1]]}


def _masked(inputs):
    inputs["logits"][:, 3:] = float("-inf")
    inputs["logits"][:, 1] = float("nan")
    return inputs


def _nan_beside_the_best(inputs):
    # 256 apart: one lane of the race has both.
    inputs["logits"][:, 1] = float("nan")
    inputs["logits"][:, 257] = 100.0
    return inputs


def _two_infinities(inputs):
    inputs["logits"][:, 5::895] = float("inf")
    return {**inputs, "top_p": 0.4}


def _least_numbers(inputs):
    # What a mask often writes in the place of -inf, here to every token.
    return {**inputs, "logits": torch.full_like(inputs["logits"], torch.finfo(inputs["logits"].dtype).min)}


def _one_certain(inputs):
    inputs["logits"][:, 777] = 100.0
    return inputs


def _all_equal(inputs):
    return {**inputs, "logits": torch.zeros_like(inputs["logits"])}


def _on_device(inputs):
    def each(*values, dtype):
        rows = inputs["logits"].shape[0]
        column = [values[i % len(values)] for i in range(rows)]
        return torch.tensor(column, dtype=dtype, device=inputs["logits"].device)

    return {
        **inputs,
        "temperature": each(0.7, 0.0, 1.3, dtype=torch.float32),
        "top_k": each(5, 0, 0, 200, dtype=torch.int32),
        "top_p": each(0.9, 1.0, 0.8, dtype=torch.float32),
        "seed": each(1, 2**40, 3, dtype=torch.int64),
        "step": each(0, 9, dtype=torch.int64),
    }


_SMALL = {"rows": 5, "vocab": 3001, "top_k": 20}

SPEC = KernelSpec(
    name="sample",
    title="Sampling",
    doc="Temperature, top-k, top-p and the draw in one to four launches, without sorting the vocabulary. Look at how "
    "few tokens the last kernel works on, and at the race that needs no probabilities.",
    function=sample,
    reference=reference,
    eager=eager,
    dims=(
        Dim("rows", "sequences"),
        Dim("vocab", "tokens of the vocabulary", high=2**24),
        Dim("top_k", "tokens kept, with top-p 0.9; 0: all, by temperature alone", low=0, high=2**24),
    ),
    presets={
        "decode": {"rows": 1, "vocab": 128_256, "top_k": 50},
        "prefill": {"rows": 64, "vocab": 128_256, "top_k": 50},
        "odd": {"rows": 3, "vocab": 50_257, "top_k": 7},
        "largest": {"rows": 256, "vocab": 151_936, "top_k": 50},
        "temperature": {"rows": 64, "vocab": 128_256, "top_k": 0},
    },
    default={"rows": 4, "vocab": 49_152, "top_k": 50},
    dtypes=("float32", "bfloat16", "float16"),
    outputs=(Output("ids", "bits"),),
    make_inputs=make_inputs,
    plan=plan,
    check=check,
    configs=configs,
    cost=cost,
    sweep_dim="rows",
    shrinks="rows",
    edges=(
        Edge("Temperature 0", "argmax, no noise", _SMALL, _argmax),
        Edge("Temperature alone", "top_k 0: the race over all tokens", {**_SMALL, "top_k": 0}),
        Edge("Many kept", "top_k 500: more than the short list holds", {**_SMALL, "top_k": 500}),
        Edge("Ties", "dozens of equal logits at the k-th place", _SMALL, _integers),
        Edge("All equal", "uniform logits: ids are carried, not values", _SMALL, _all_equal),
        Edge("Padded vocabulary", "a slice of wider rows: strides, not widths", _SMALL, _padded_vocabulary),
        Edge("Masked", "all but a few are -inf, one is NaN", _SMALL, _masked),
        Edge("NaN beside the best", "in one lane of the race", {**_SMALL, "top_k": 0}, _nan_beside_the_best),
        Edge("Infinities", "several of them, cut to the top 0.4", {**_SMALL, "top_k": 0}, _two_infinities),
        Edge("Least numbers", "a mask of the dtype's least number", {**_SMALL, "top_k": 500}, _least_numbers),
        Edge("One certain", "one token has all the probability", _SMALL, _one_certain),
        Edge("Each row its own", "every option a tensor on the device", {**_SMALL, "rows": 9}, _on_device),
        Edge("One token", "vocab=1", {"rows": 2, "vocab": 1, "top_k": 5}),
        Edge("No rows", "rows=0: nothing to do", {**_SMALL, "rows": 0}),
    ),
    bugs=(
        Bug(
            "Everyone the same noise",
            find='"stride_lm": logits.stride(0),',
            replace='"stride_lm": 0,',
            hint="Whose logits does row 1 read?",
            symptom="all rows draw from the first row's distribution",
            dims={"rows": 64, "vocab": 3001, "top_k": 20},
        ),
        Bug(
            "Groups cut off",
            find="n_groups = triton.cdiv(vocab, group_size)",
            replace="n_groups = vocab // group_size // 2",
            hint="How many groups are there, and how many are looked at?",
            symptom="tokens of the second half are never drawn",
            dims={"rows": 64, "vocab": 3001, "top_k": 20},
        ),
    ),
)
