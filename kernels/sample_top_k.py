"""The other kernels of kernels/sample.py, which explains them; no kernel of its own.

They make the short list for top-k and draw from it; for what no list serves, the last one draws and rejects.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.dependent import let_next_begin, wait_for_last
from kernels.noise import exponential_of
from kernels.sample_race import (
    factor_of,
    first_of_least,
    float_option,
    handicap,
    join_parts,
    listed,
    load_logits,
    option,
    uncut,
    weight,
    whole_winner,
)


@triton.jit(do_not_specialize=["top_k"])
def maxima_kernel(
    logits_ptr, stride_lm, stride_lv, vocab, n_blocks, group_ptr, n_groups,
    temperature_ptr, temperature, top_k_ptr, top_k, RACED: tl.constexpr, MOST_K: tl.constexpr, PDL: tl.constexpr,
    GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (row, block): the largest logit of every GROUP neighbours."""
    let_next_begin(PDL)
    wait_for_last(PDL)
    row = (tl.program_id(0) // n_blocks).to(tl.int64)
    if RACED:  # noqa: SIM102 - a constexpr: joined with a tensor by `and`, it would be compiled all the same
        if not listed(temperature_ptr, temperature, top_k_ptr, top_k, row, MOST_K):
            return
    group = (tl.program_id(0) % n_blocks) * (BLOCK // GROUP) + tl.arange(0, BLOCK // GROUP)
    token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    largest = tl.max(load_logits(logits_ptr + row * stride_lm, token, stride_lv, token < vocab), axis=1)
    tl.store(group_ptr + row * n_groups + group, largest, mask=group < n_groups)


@triton.jit(do_not_specialize=["top_k"])
def threshold_kernel(
    group_ptr, n_groups, bounds_ptr, picked_ptr, count_ptr, temperature_ptr, temperature, top_k_ptr, top_k,
    RACED: tl.constexpr, MOST_K: tl.constexpr, LIST: tl.constexpr, PDL: tl.constexpr, BLOCK_GROUPS: tl.constexpr,
):  # fmt: skip
    """Program (row): a logit that at least k tokens reach, the largest logit, and the groups where tokens reach it.

    bounds_ptr: float32 [rows, 2]; picked_ptr: int32 [rows, LIST], the groups; count_ptr: int32 [rows, 2], tokens listed
    so far, none, and groups picked. More groups than LIST count as too many tokens.
    """
    let_next_begin(PDL)
    wait_for_last(PDL)
    row = tl.program_id(0).to(tl.int64)
    if RACED:  # noqa: SIM102
        if not listed(temperature_ptr, temperature, top_k_ptr, top_k, row, MOST_K):
            return
    k = option(top_k_ptr, top_k, row)
    i = tl.arange(0, BLOCK_GROUPS)
    groups = tl.load(group_ptr + row * n_groups + i, mask=i < n_groups, other=float("-inf"))
    top = tl.max(groups)
    # MOST_K disjoint sets of groups: each holds a token that reaches the least of their maxima. Bisection raises it.
    low = tl.min(tl.max(tl.reshape(groups, [BLOCK_GROUPS // MOST_K, MOST_K]), axis=0))
    high = top
    for _ in tl.static_range(5):
        middle = 0.5 * low + 0.5 * high
        enough = tl.sum((groups >= middle).to(tl.int32)) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    some = (groups >= low) & (groups > float("-inf"))
    place = tl.cumsum(some.to(tl.int32), axis=0) - 1
    tl.store(picked_ptr + row * LIST + place, i, mask=some & (place < LIST))
    found = tl.sum(some.to(tl.int32))
    tl.store(bounds_ptr + 2 * row, low)
    tl.store(bounds_ptr + 2 * row + 1, top)
    tl.store(count_ptr + 2 * row, tl.where(found <= LIST, 0, LIST + 1))
    tl.store(count_ptr + 2 * row + 1, tl.where(found <= LIST, found, 0))


@triton.jit(do_not_specialize=["top_k"])
def pick_kernel(
    logits_ptr, stride_lm, stride_lv, vocab, bounds_ptr, picked_ptr, count_ptr, list_ptr,
    temperature_ptr, temperature, top_k_ptr, top_k, RACED: tl.constexpr, MOST_K: tl.constexpr, PDL: tl.constexpr,
    GROUP: tl.constexpr, LIST: tl.constexpr, PICK: tl.constexpr,
):  # fmt: skip
    """Program (row, PICK picked groups): adds those of their tokens that reach the threshold to the row's list.

    list_ptr: int32 [rows, 2, LIST], tokens and the bits of their logits, in any order.
    """
    let_next_begin(PDL)
    wait_for_last(PDL)
    row = (tl.program_id(0) // (LIST // PICK)).to(tl.int64)
    first = tl.program_id(0) % (LIST // PICK) * PICK
    if RACED:  # noqa: SIM102
        if not listed(temperature_ptr, temperature, top_k_ptr, top_k, row, MOST_K):
            return
    i = first + tl.arange(0, PICK)
    # Read side by side, also the places that hold no group: one after the other each would cost its way from L2.
    groups = tl.load(count_ptr + 2 * row + 1)
    group = tl.load(picked_ptr + row * LIST + i)
    low = tl.load(bounds_ptr + 2 * row)
    if first < groups:
        group = tl.where(i < groups, group, 0)
        token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        inside = (i < groups)[:, None] & (token < vocab)
        x = load_logits(logits_ptr + row * stride_lm, token, stride_lv, inside)
        x, token = tl.reshape(x, [PICK * GROUP]), tl.reshape(token, [PICK * GROUP])
        some = (x >= low) & (x > float("-inf"))
        before = tl.atomic_add(count_ptr + 2 * row, tl.sum(some.to(tl.int32)), sem="relaxed")
        place = before + tl.cumsum(some.to(tl.int32), axis=0) - 1
        at = list_ptr + row * 2 * LIST + place
        tl.store(at, token, mask=some & (place < LIST))
        tl.store(at + LIST, x.to(tl.int32, bitcast=True), mask=some & (place < LIST))


@triton.jit
def draw_from_list(list_ptr, tokens, top, k, p, factor, seed, who, step, PTX: tl.constexpr, LIST: tl.constexpr):
    """The winner among the k best of the listed tokens, cut to their top p; 0 where there is none."""
    n = tl.arange(0, LIST)
    live = (n < tokens) & (tokens <= LIST)  # of a list that overflowed not every place was written
    # Read whole, whatever the count, which is on its way too.
    token = tl.where(live, tl.load(list_ptr + n), 0x7FFFFFFF)
    x = tl.where(live, tl.load(list_ptr + LIST + n).to(tl.float32, bitcast=True), float("-inf"))
    # All with all: how many stand above each token, and with how much weight. The list is in any order, and sums of
    # integers do not mind: 23 bits of the largest weight, so that LIST of them fit.
    above = (x[:, None] > x[None, :]) | ((x[:, None] == x[None, :]) & (token[:, None] < token[None, :]))
    heavy = (weight(x, top, factor, PTX) * 8388608.0 + 0.5).to(tl.int32)
    rank = tl.sum(above.to(tl.int32), axis=0)
    before = tl.sum(tl.where(above, heavy[:, None], 0), axis=0)
    inside = live & (rank < k)
    total = tl.sum(tl.where(inside, heavy, 0))
    kept = inside & ((rank == 0) | (before.to(tl.float32) < p * total.to(tl.float32)))
    time = tl.where(kept, handicap(x, top, factor, PTX) * exponential_of(seed, token, who, step, PTX), float("inf"))
    _, winner = first_of_least(time, token, 0)
    return tl.where(tokens > 0, winner, 0)


@triton.jit
def count_above(logits_ptr, stride_lv, vocab, x, token, top, factor, PTX: tl.constexpr, BLOCK: tl.constexpr):
    """How many tokens stand above (x, token), and with how much weight."""
    count = tl.zeros([BLOCK], tl.int32)
    mass = tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocab, BLOCK):
        other = start + tl.arange(0, BLOCK)
        y = load_logits(logits_ptr, other, stride_lv, other < vocab)
        above = (y > x) | ((y == x) & (other < token))
        count += above.to(tl.int32)
        mass += tl.where(above, weight(y, top, factor, PTX), 0.0)
    return tl.sum(count), tl.sum(mass)


@triton.jit
def race_above(logits_ptr, stride_lv, vocab, x, token, top, factor, seed, who, step, PTX: tl.constexpr,
               BLOCK: tl.constexpr):  # fmt: skip
    """The winner among the tokens that stand above (x, token); x = -inf for all."""
    least = tl.full([], float("inf"), tl.float32)
    winner = tl.full([], 0x7FFFFFFF, tl.int32)
    for start in range(0, vocab, BLOCK):
        other = start + tl.arange(0, BLOCK)
        y = load_logits(logits_ptr, other, stride_lv, other < vocab)
        above = (y > x) | ((y == x) & (other < token))
        if tl.max(above.to(tl.int32)) > 0:
            time = handicap(y, top, factor, PTX) * exponential_of(seed, other, who, step, PTX)
            first, best = first_of_least(tl.where(above, time, float("inf")), other, 0)
            if first < least:
                winner = best
                least = first
    return winner


@triton.jit
def mass_of_best(logits_ptr, stride_lv, vocab, k, top, factor, PTX: tl.constexpr, BLOCK: tl.constexpr):
    """The weight of the k best tokens: the k-th largest logit by bisection over the bits of a float, then a sum."""
    low = tl.full([], -0x80000000, tl.int64)
    high = tl.full([], 0x7FFFFFFF, tl.int64)
    while low < high:
        middle = low + (high - low + 1) // 2
        count = tl.zeros([BLOCK], tl.int32)
        for start in range(0, vocab, BLOCK):
            other = start + tl.arange(0, BLOCK)
            x = load_logits(logits_ptr, other, stride_lv, other < vocab) + 0.0  # -0.0 and 0.0 tie
            bits = x.to(tl.int32, bitcast=True)
            count += ((bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) >= middle).to(tl.int32)
        enough = tl.sum(count) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    bits = low.to(tl.int32)
    kth = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    count, mass = count_above(logits_ptr, stride_lv, vocab, kth, -1, top, factor, PTX, BLOCK)
    return mass + (k - count) * weight(kth, top, factor, PTX)


@triton.jit(do_not_specialize=["top_k", "seed", "step"])
def choose_kernel(
    logits_ptr, stride_lm, stride_lv, vocab, n_parts, part_max_ptr, part_value_ptr, part_token_ptr,
    bounds_ptr, count_ptr, list_ptr, out_ptr,
    temperature_ptr, temperature, top_k_ptr, top_k, top_p_ptr, top_p, seed_ptr, seed, step_ptr, step,
    RACED: tl.constexpr, GROUPED: tl.constexpr, CUT: tl.constexpr, PTX: tl.constexpr, MOST_K: tl.constexpr,
    LIST: tl.constexpr, BLOCK_PARTS: tl.constexpr, PDL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (row): its token."""
    let_next_begin(PDL)
    wait_for_last(PDL)
    row = tl.program_id(0).to(tl.int64)
    temperature = float_option(temperature_ptr, temperature, row)
    factor = factor_of(temperature)
    k = option(top_k_ptr, top_k, row)
    p = float_option(top_p_ptr, top_p, row)
    p = tl.where(p >= 1.0, float("inf"), p)  # a sum that rounds above 1 must not cut anything off
    seed_of_row = option(seed_ptr, seed, row)
    step_of_row = option(step_ptr, step, row)
    who = tl.program_id(0) if seed_ptr is None else tl.program_id(0) * 0
    logits_ptr += row * stride_lm
    top = tl.full([], float("-inf"), tl.float32)
    winner = tl.full([], -1, tl.int32)
    found = tl.full([], 0, tl.int32)
    if GROUPED:  # noqa: SIM102 - likewise below
        if listed(temperature_ptr, temperature, top_k_ptr, top_k, row, MOST_K):
            top = tl.load(bounds_ptr + 2 * row + 1)
            tokens = tl.load(count_ptr + 2 * row)
            winner = draw_from_list(
                list_ptr + row * 2 * LIST, tokens, top, k, p, factor, seed_of_row, who, step_of_row, PTX, LIST
            )
            found = (tokens <= LIST).to(tl.int32)
            if found == 0:
                winner = race_above(
                    logits_ptr, stride_lv, vocab, float("-inf"), 0, top, factor, seed_of_row, who, step_of_row,
                    PTX, BLOCK,
                )  # fmt: skip
    if RACED:  # noqa: SIM102
        if (found == 0) & (winner < 0):
            part_max_ptr += row * n_parts
            part_value_ptr += row * n_parts
            if (temperature <= 0) | uncut(top_k_ptr, top_k, top_p_ptr, top_p, row, vocab):
                winner = whole_winner(
                    logits_ptr, stride_lv, vocab, part_max_ptr, part_value_ptr, n_parts, temperature, factor,
                    seed_of_row, who, step_of_row, PTX, BLOCK_PARTS,
                )  # fmt: skip
                found = found + 1
            else:
                top, winner = join_parts(
                    part_max_ptr, part_value_ptr, part_token_ptr + row * n_parts, n_parts, factor, PTX, BLOCK_PARTS
                )
                found = (top == float("-inf")).to(tl.int32)
    if CUT:  # noqa: SIM102 - a constexpr: joined with a tensor by `and`, it would be compiled all the same
        if found == 0:
            limit = p
            if p < 1.0:
                if (k > 0) & (k < vocab):
                    limit = p * mass_of_best(logits_ptr, stride_lv, vocab, k, top, factor, PTX, BLOCK)
                else:
                    _, total = count_above(logits_ptr, stride_lv, vocab, float("-inf"), -1, top, factor, PTX, BLOCK)
                    limit = p * total
            while found == 0:
                x = load_logits(logits_ptr, winner, stride_lv, True)
                count, mass = count_above(logits_ptr, stride_lv, vocab, x, winner, top, factor, PTX, BLOCK)
                kept = ((k <= 0) | (count < k)) & (mass < limit) | (count == 0)
                if kept:
                    found = found + 1
                else:
                    winner = race_above(
                        logits_ptr, stride_lv, vocab, x, winner, top, factor, seed_of_row, who, step_of_row,
                        PTX, BLOCK,
                    )  # fmt: skip
    tl.store(out_ptr + row, winner.to(tl.int64))
