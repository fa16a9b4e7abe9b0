"""The race of kernels/sample.py, and what its other kernels share with it; no kernel of its own.

Scores are compared as times of a race: E * handicap, where handicap = (largest weight) / weight. That is 1 for the
best token and infinite for a masked one, so nothing overflows, whatever the logits; at temperature 0 all but the
largest logits are infinitely slow.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.codes import INTERPRETED
from kernels.dependent import let_next_begin, wait_for_last
from kernels.noise import exponential_of_part, four_exponentials, power_of_two


@triton.jit
def option(ptr, number, row):
    """A row's setting: from the tensor where there is one, else the number."""
    if ptr is not None:
        return tl.load(ptr + row)
    else:
        return number


@triton.jit
def float_option(ptr, number, row):
    """The same in float32; the interpreter hands over a Python float, which tl.full makes a scalar of."""
    if ptr is not None:
        return tl.load(ptr + row).to(tl.float32)
    else:
        return tl.full([], number, tl.float32)


@triton.jit
def factor_of(temperature):
    """What a difference of logits is multiplied with to give powers of two.

    Above 0 and finite, so that infinity times it is infinity, and 0 times it is 0, whatever the temperature.
    """
    hot = temperature > 0.0
    return tl.maximum(tl.minimum(1.4426950408889634 / tl.where(hot, temperature, 1e-38), 3e38), 1.2e-38)


@triton.jit
def load_logits(ptr, token, stride, mask):
    """Logits in float32, infinity as the largest number; NaN and what is beyond the vocabulary as -inf."""
    x = tl.load(ptr + token.to(tl.int64) * stride, mask=mask, other=float("-inf")).to(tl.float32)
    if INTERPRETED:  # its maximum keeps NaN, where a GPU's of NaN and -inf is -inf
        x = tl.where(x == x, x, float("-inf"))
    return tl.minimum(tl.maximum(x, float("-inf")), 3.4028234663852886e38)


@triton.jit
def handicap(x, top, factor, PTX: tl.constexpr):
    """1 for the best token; infinite for a masked one, also where all are."""
    return power_of_two((tl.maximum(top, -3.4028234663852886e38) - x) * factor, PTX)


@triton.jit
def weight(x, top, factor, PTX: tl.constexpr):
    return power_of_two((x - tl.maximum(top, -3.4028234663852886e38)) * factor, PTX)


@triton.jit
def first_of_least(time, index, axis: tl.constexpr):
    """The least time and its index, the lowest of several, in one reduction: a time's bits sort as times do."""
    least = tl.min((time.to(tl.int32, bitcast=True).to(tl.int64) << 32) | index.to(tl.int64), axis=axis)
    return (least >> 32).to(tl.int32).to(tl.float32, bitcast=True), (least & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def load_four(logits_ptr, counter, stride_lv, vocab):
    """Four tokens' logits for each lane, 256 apart, as the noise is made.

    One by one: with vectors of neighbours the noise would change its layout, through shared memory.
    """
    first = counter // 256 * 1024 + counter % 256
    at = first.to(tl.int64)  # one address for four loads
    a = load_logits(logits_ptr, at, stride_lv, first < vocab)
    b = load_logits(logits_ptr, at + 256, stride_lv, first + 256 < vocab)
    c = load_logits(logits_ptr, at + 512, stride_lv, first + 512 < vocab)
    d = load_logits(logits_ptr, at + 768, stride_lv, first + 768 < vocab)
    return a, b, c, d


@triton.jit
def race_of_four(a, b, c, d, counter, top, temperature, factor, seed, who, step, PTX: tl.constexpr):
    """The time and the token of the winner of each lane's four, against a best token with the logit `top`."""
    if temperature > 0:
        noise = four_exponentials(seed, counter, who, step, PTX)
        a, b = handicap(a, top, factor, PTX) * noise[0], handicap(b, top, factor, PTX) * noise[1]
        c, d = handicap(c, top, factor, PTX) * noise[2], handicap(d, top, factor, PTX) * noise[3]
    else:  # the first of the largest, exactly
        a, b = tl.where(a == top, 1.0, float("inf")), tl.where(b == top, 1.0, float("inf"))
        c, d = tl.where(c == top, 1.0, float("inf")), tl.where(d == top, 1.0, float("inf"))
    first = counter // 256 * 1024 + counter % 256
    best, time = tl.where(b < a, first + 256, first), tl.minimum(a, b)
    best, time = tl.where(c < time, first + 512, best), tl.minimum(time, c)
    best, time = tl.where(d < time, first + 768, best), tl.minimum(time, d)
    return time, best


@triton.jit
def whole_winner(
    logits_ptr, stride_lv, vocab, part_max_ptr, part_value_ptr, n_parts, temperature, factor, seed, who, step,
    PTX: tl.constexpr, BLOCK_PARTS: tl.constexpr,
):  # fmt: skip
    """The winner of a row that nothing is cut from: the parts race, then the tokens of the part that won."""
    part = tl.arange(0, BLOCK_PARTS)
    # From L2, where other multiprocessors have left them.
    tops = tl.load(part_max_ptr + part, mask=part < n_parts, other=float("-inf"), cache_modifier=".cg")
    weights = tl.load(part_value_ptr + part, mask=part < n_parts, other=1.0, cache_modifier=".cg")
    top = tl.max(tops)
    if temperature > 0:
        time = handicap(tops, top, factor, PTX) * exponential_of_part(seed, part, who, step, PTX) / weights
    else:
        time = tl.where(tops == top, 1.0, float("inf"))
    _, first = first_of_least(time, part, 0)
    counter = first * 256 + tl.arange(0, 256)
    a, b, c, d = load_four(logits_ptr, counter, stride_lv, vocab)
    time, best = race_of_four(a, b, c, d, counter, top, temperature, factor, seed, who, step, PTX)
    _, winner = first_of_least(time, best, 0)
    return winner


@triton.jit
def weigh_parts(logits_ptr, stride_lv, vocab, part, n_parts, part_max_ptr, part_value_ptr, factor, PTX: tl.constexpr):
    """The largest logit of each part, and its tokens' weights beside that one, summed."""
    token = part[:, None] * 1024 + tl.arange(0, 1024)[None, :]
    x = load_logits(logits_ptr, token, stride_lv, token < vocab)
    top = tl.max(x, axis=1)
    tl.store(part_max_ptr + part, top, mask=part < n_parts)
    tl.store(part_value_ptr + part, tl.sum(weight(x, top[:, None], factor, PTX), axis=1), mask=part < n_parts)


@triton.jit
def race_parts(
    logits_ptr, stride_lv, vocab, part, n_parts, part_max_ptr, part_value_ptr, part_token_ptr, temperature, factor,
    seed, who, step, PTX: tl.constexpr,
):  # fmt: skip
    """The largest logit of each part, the winner of its race, and its time beside that logit."""
    counter = part[:, None] * 256 + tl.arange(0, 256)[None, :]
    a, b, c, d = load_four(logits_ptr, counter, stride_lv, vocab)
    top = tl.max(tl.maximum(tl.maximum(a, b), tl.maximum(c, d)), axis=1)
    time, best = race_of_four(a, b, c, d, counter, top[:, None], temperature, factor, seed, who, step, PTX)
    least, winner = first_of_least(time, best, 1)
    tl.store(part_max_ptr + part, top, mask=part < n_parts)
    tl.store(part_value_ptr + part, least, mask=part < n_parts)
    tl.store(part_token_ptr + part, winner, mask=part < n_parts)


@triton.jit
def join_parts(part_max_ptr, part_value_ptr, part_token_ptr, n_parts, factor, PTX: tl.constexpr,
               BLOCK_PARTS: tl.constexpr):  # fmt: skip
    """The row's largest logit, and the winner among the winners of its parts."""
    part = tl.arange(0, BLOCK_PARTS)
    tops = tl.load(part_max_ptr + part, mask=part < n_parts, other=float("-inf"))
    time = tl.load(part_value_ptr + part, mask=part < n_parts, other=float("inf"))
    token = tl.load(part_token_ptr + part, mask=part < n_parts, other=0x7FFFFFFF)
    top = tl.max(tops)
    _, winner = first_of_least(time * handicap(tops, top, factor, PTX), token, 0)
    return top, winner


@triton.jit
def uncut(top_k_ptr, top_k, top_p_ptr, top_p, row, vocab):
    """Whether nothing is cut from a row."""
    k = option(top_k_ptr, top_k, row)
    return ((k <= 0) | (k >= vocab)) & (float_option(top_p_ptr, top_p, row) >= 1.0)


@triton.jit(do_not_specialize=["top_k", "seed", "step"])
def race_kernel(
    logits_ptr, stride_lm, stride_lv, vocab, n_blocks, n_parts, part_max_ptr, part_value_ptr, part_token_ptr,
    arrived_ptr, out_ptr, temperature_ptr, temperature, top_k_ptr, top_k, top_p_ptr, top_p, seed_ptr, seed,
    step_ptr, step, GROUPED: tl.constexpr, CUT: tl.constexpr, MOST_K: tl.constexpr, PTX: tl.constexpr,
    PDL: tl.constexpr, BLOCK_PARTS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Program (row, block of PARTS parts): the largest logit of each part of 1024 tokens, and what it races with.

    Of a row that nothing is cut from that is the sum of the weights, against the part's largest; else it is the time
    of the part's winner, whose id stands in part_token_ptr. arrived_ptr: int32 [rows], or None. With it the last
    program of a row to arrive ends the race, and no other kernel is needed; it grows by n_blocks with every launch, so
    that a launch can be repeated without clearing it.
    """
    let_next_begin(PDL)
    wait_for_last(PDL)
    row = (tl.program_id(0) // n_blocks).to(tl.int64)
    block = tl.program_id(0) % n_blocks
    temperature = float_option(temperature_ptr, temperature, row)
    if GROUPED:  # noqa: SIM102 - a constexpr: joined with a tensor by `and`, it would be compiled all the same
        if listed(temperature_ptr, temperature, top_k_ptr, top_k, row, MOST_K):
            return
    factor = factor_of(temperature)
    logits_ptr += row * stride_lm
    part_max_ptr += row * n_parts
    part_value_ptr += row * n_parts
    if CUT:
        part_token_ptr += row * n_parts
    part = block * PARTS + tl.arange(0, PARTS)
    # With a number as seed the rows must differ; with a tensor a row is itself wherever it stands.
    who = tl.program_id(0) // n_blocks if seed_ptr is None else tl.program_id(0) * 0
    seed, step = option(seed_ptr, seed, row), option(step_ptr, step, row)
    if CUT:
        if (temperature <= 0) | uncut(top_k_ptr, top_k, top_p_ptr, top_p, row, vocab):
            weigh_parts(logits_ptr, stride_lv, vocab, part, n_parts, part_max_ptr, part_value_ptr, factor, PTX)
        else:
            race_parts(
                logits_ptr, stride_lv, vocab, part, n_parts, part_max_ptr, part_value_ptr, part_token_ptr, temperature,
                factor, seed, who, step, PTX,
            )  # fmt: skip
    else:
        weigh_parts(logits_ptr, stride_lv, vocab, part, n_parts, part_max_ptr, part_value_ptr, factor, PTX)
    if arrived_ptr is not None:
        tl.debug_barrier()
        ticket = tl.atomic_add(arrived_ptr + row, 1, sem="acq_rel")
        if ticket % n_blocks == n_blocks - 1:
            winner = whole_winner(
                logits_ptr, stride_lv, vocab, part_max_ptr, part_value_ptr, n_parts, temperature, factor, seed, who,
                step, PTX, BLOCK_PARTS,
            )  # fmt: skip
            tl.store(out_ptr + row, winner.to(tl.int64))


@triton.jit
def listed(temperature_ptr, temperature, top_k_ptr, top_k, row, MOST_K: tl.constexpr):
    """Whether a row's token is drawn from a short list."""
    k = option(top_k_ptr, top_k, row)
    return (k > 0) & (k <= MOST_K) & (float_option(temperature_ptr, temperature, row) > 0)
