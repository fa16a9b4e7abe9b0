"""The three kernels of kernels/sample.py, which explains them; no kernel of its own.

Scores are compared as times of a race: E * handicap, where handicap = (largest weight) / weight. That is 1 for the
best token and infinite for a masked one, so nothing overflows, whatever the logits, and at temperature 0 all but the
largest logits are infinitely slow.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.dependent import let_next_begin, wait_for_last
from kernels.noise import exponential_of, four_exponentials


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
    """What a difference of logits is multiplied with to give powers of two: infinite for argmax."""
    hot = temperature > 0.0
    return tl.where(hot, 1.4426950408889634 / tl.where(hot, temperature, 1.0), float("inf"))


@triton.jit
def load_logits(ptr, token, stride, mask):
    """Logits in float32; NaN and what is beyond the vocabulary as -inf; -0.0 as 0.0, so that they tie."""
    x = tl.load(ptr + token.to(tl.int64) * stride, mask=mask, other=float("-inf")).to(tl.float32)
    return tl.where(x == x, x, float("-inf")) + 0.0


@triton.jit
def handicap(x, top, factor):
    slow = tl.where(x == top, 1.0, tl.exp2((top - x) * factor))
    return tl.where(x > float("-inf"), slow, float("inf"))


@triton.jit
def weight(x, top, factor):
    heavy = tl.where(x == top, 1.0, tl.exp2((x - top) * factor))
    return tl.where(x > float("-inf"), heavy, 0.0)


@triton.jit
def join_parts(part_max_ptr, part_time_ptr, part_token_ptr, row, n_blocks, factor, BLOCK_PARTS: tl.constexpr):
    """The row's largest logit, and its winner; read from L2, where other multiprocessors have left their parts."""
    part = tl.arange(0, BLOCK_PARTS)
    at = row * n_blocks + part
    tops = tl.load(part_max_ptr + at, mask=part < n_blocks, other=float("-inf"), cache_modifier=".cg")
    top = tl.max(tops)
    time = tl.load(part_time_ptr + at, mask=part < n_blocks, other=float("inf"), cache_modifier=".cg")
    time = time * tl.where(tops == top, 1.0, tl.exp2((top - tops) * factor))
    token = tl.load(part_token_ptr + at, mask=part < n_blocks, other=0x7FFFFFFF, cache_modifier=".cg")
    return top, tl.min(tl.where(time == tl.min(time), token, 0x7FFFFFFF))


@triton.jit(do_not_specialize=["top_k", "seed", "step"])
def race_kernel(
    logits_ptr, stride_lm, stride_lv, vocab, n_blocks, part_max_ptr, part_time_ptr, part_token_ptr,
    arrived_ptr, out_ptr, temperature_ptr, temperature, top_k_ptr, top_k, seed_ptr, seed, step_ptr, step,
    GROUPED: tl.constexpr, MOST_K: tl.constexpr, PTX: tl.constexpr, PDL: tl.constexpr, BLOCK_PARTS: tl.constexpr,
    THOUSANDS: tl.constexpr,
):  # fmt: skip
    """Program (row, block): the winner among THOUSANDS * 1024 tokens, its time, and the block's largest logit.

    arrived_ptr: int32 [rows], or None. With it the last program of a row to arrive joins the row's parts, and no other
    kernel is needed; it grows by n_blocks with every launch, so that a launch can be repeated without clearing it.
    """
    let_next_begin(PDL)
    wait_for_last(PDL)
    row = (tl.program_id(0) // n_blocks).to(tl.int64)
    block = tl.program_id(0) % n_blocks
    temperature = float_option(temperature_ptr, temperature, row)
    if GROUPED:
        k = option(top_k_ptr, top_k, row)
        if (k > 0) & (k <= MOST_K) & (temperature > 0):
            return
    factor = factor_of(temperature)
    thousand = block * THOUSANDS + tl.arange(0, THOUSANDS)[:, None]
    lane = tl.arange(0, 256)[None, :]
    first = thousand * 1024 + lane  # [THOUSANDS, 256]; each lane has four tokens, 256 apart
    logits_ptr += row * stride_lm
    a = load_logits(logits_ptr, first, stride_lv, first < vocab)
    b = load_logits(logits_ptr, first + 256, stride_lv, first + 256 < vocab)
    c = load_logits(logits_ptr, first + 512, stride_lv, first + 512 < vocab)
    d = load_logits(logits_ptr, first + 768, stride_lv, first + 768 < vocab)
    top = tl.max(tl.maximum(tl.maximum(a, b), tl.maximum(c, d)))
    a, b = handicap(a, top, factor), handicap(b, top, factor)
    c, d = handicap(c, top, factor), handicap(d, top, factor)
    if temperature > 0:
        # With a number as seed the rows must differ; with a tensor a row is itself wherever it stands.
        who = tl.program_id(0) // n_blocks if seed_ptr is None else tl.program_id(0) * 0
        noise = four_exponentials(
            option(seed_ptr, seed, row), thousand * 256 + lane, who, option(step_ptr, step, row), PTX
        )
        a, b, c, d = a * noise[0], b * noise[1], c * noise[2], d * noise[3]
    best = first
    time = a
    best, time = tl.where(b < time, first + 256, best), tl.minimum(time, b)
    best, time = tl.where(c < time, first + 512, best), tl.minimum(time, c)
    best, time = tl.where(d < time, first + 768, best), tl.minimum(time, d)
    least = tl.min(time)
    tl.store(part_max_ptr + tl.program_id(0), top)
    tl.store(part_time_ptr + tl.program_id(0), least)
    tl.store(part_token_ptr + tl.program_id(0), tl.min(tl.where(time == least, best, 0x7FFFFFFF)))
    if arrived_ptr is not None:
        tl.debug_barrier()
        ticket = tl.atomic_add(arrived_ptr + row, 1, sem="acq_rel")
        if ticket % n_blocks == n_blocks - 1:
            _, winner = join_parts(part_max_ptr, part_time_ptr, part_token_ptr, row, n_blocks, factor, BLOCK_PARTS)
            tl.store(out_ptr + row, winner.to(tl.int64))


@triton.jit(do_not_specialize=["top_k"])
def maxima_kernel(
    logits_ptr, stride_lm, stride_lv, vocab, n_blocks, group_ptr, super_ptr, n_groups, n_supers,
    temperature_ptr, temperature, top_k_ptr, top_k, RACED: tl.constexpr, MOST_K: tl.constexpr, PDL: tl.constexpr,
    SUPER: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (row, block): the largest logit of every GROUP and of every SUPER neighbours."""
    let_next_begin(PDL)
    wait_for_last(PDL)
    row = (tl.program_id(0) // n_blocks).to(tl.int64)
    block = tl.program_id(0) % n_blocks
    if RACED:
        k = option(top_k_ptr, top_k, row)
        if (k <= 0) | (k > MOST_K) | (float_option(temperature_ptr, temperature, row) <= 0):
            return
    upper = block * (BLOCK // SUPER) + tl.arange(0, BLOCK // SUPER)
    group = upper[:, None] * (SUPER // GROUP) + tl.arange(0, SUPER // GROUP)[None, :]
    token = group[:, :, None] * GROUP + tl.arange(0, GROUP)[None, None, :]
    largest = tl.max(load_logits(logits_ptr + row * stride_lm, token, stride_lv, token < vocab), axis=2)
    tl.store(group_ptr + row * n_groups + group, largest, mask=group < n_groups)
    tl.store(super_ptr + row * n_supers + upper, tl.max(largest, axis=1), mask=upper < n_supers)


@triton.jit
def short_list(
    logits_ptr, stride_lv, vocab, group_ptr, super_ptr, list_ptr, n_groups, n_supers, k, p, factor, seed, who, step,
    PTX: tl.constexpr, MOST_K: tl.constexpr, GROUP: tl.constexpr, LIST: tl.constexpr,
    BLOCK_SUPERS: tl.constexpr, BLOCK_GROUPS: tl.constexpr,
):  # fmt: skip
    """(top, winner, found) of one row with k <= MOST_K; found is 0 where more than LIST tokens reach the threshold."""
    i = tl.arange(0, BLOCK_SUPERS)
    supers = tl.load(super_ptr + i, mask=i < n_supers, other=float("-inf"))
    top = tl.max(supers)
    # MOST_K disjoint sets of supers: each holds a token that reaches the least of their maxima. Bisection raises it.
    low = tl.min(tl.max(tl.reshape(supers, [BLOCK_SUPERS // MOST_K, MOST_K]), axis=0))
    high = top
    for _ in tl.static_range(5):
        middle = 0.5 * low + 0.5 * high
        enough = tl.sum((supers >= middle).to(tl.int32)) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    # The groups that reach the threshold, written one after another.
    group = tl.arange(0, BLOCK_GROUPS)
    largest = tl.load(group_ptr + group, mask=group < n_groups, other=float("-inf"))
    some = (largest >= low) & (largest > float("-inf"))
    place = tl.cumsum(some.to(tl.int32), axis=0)
    groups = tl.sum(some.to(tl.int32))
    tl.store(list_ptr + place - 1, group, mask=some & (place <= LIST))
    tl.debug_barrier()
    # Their tokens that reach it, likewise, with their logits.
    n = tl.arange(0, LIST)
    group = tl.load(list_ptr + n, mask=n < groups, other=0)
    token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = load_logits(logits_ptr, token, stride_lv, (n < groups)[:, None] & (token < vocab))
    token = tl.reshape(token, [LIST * GROUP])
    x = tl.reshape(x, [LIST * GROUP])
    some = (x >= low) & (x > float("-inf"))
    place = tl.cumsum(some.to(tl.int32), axis=0)
    tokens = tl.sum(some.to(tl.int32))
    tl.store(list_ptr + LIST + place - 1, token, mask=some & (place <= LIST))
    tl.store(list_ptr + 2 * LIST + place - 1, x.to(tl.int32, bitcast=True), mask=some & (place <= LIST))
    tl.debug_barrier()
    live = n < tokens
    token = tl.load(list_ptr + LIST + n, mask=live, other=0x7FFFFFFF)
    x = tl.load(list_ptr + 2 * LIST + n, mask=live, other=0).to(tl.float32, bitcast=True)
    x = tl.where(live, x, float("-inf"))
    # All with all: how many stand above each token, and with how much weight.
    above = (x[:, None] > x[None, :]) | ((x[:, None] == x[None, :]) & (token[:, None] < token[None, :]))
    heavy = weight(x, top, factor)
    rank = tl.sum(above.to(tl.int32), axis=0)
    before = tl.sum(tl.where(above, heavy[:, None], 0.0), axis=0)
    inside = live & (rank < k)
    total = tl.sum(tl.where(inside, heavy, 0.0))
    kept = inside & ((rank == 0) | (before < p * total))
    time = tl.where(kept, handicap(x, top, factor) * exponential_of(seed, token, who, step, PTX), float("inf"))
    winner = tl.min(tl.where(time == tl.min(time), token, 0x7FFFFFFF))
    return top, tl.where(tokens > 0, winner, 0), ((groups <= LIST) & (tokens <= LIST)).to(tl.int32)


@triton.jit
def count_above(logits_ptr, stride_lv, vocab, x, token, top, factor, BLOCK: tl.constexpr):
    """How many tokens stand above (x, token), and with how much weight."""
    count = tl.zeros([BLOCK], tl.int32)
    mass = tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocab, BLOCK):
        other = start + tl.arange(0, BLOCK)
        y = load_logits(logits_ptr, other, stride_lv, other < vocab)
        above = (y > x) | ((y == x) & (other < token))
        count += above.to(tl.int32)
        mass += tl.where(above, weight(y, top, factor), 0.0)
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
            time = handicap(y, top, factor) * exponential_of(seed, other, who, step, PTX)
            time = tl.where(above, time, float("inf"))
            first = tl.min(time)
            if first < least:
                winner = tl.min(tl.where(time == first, other, 0x7FFFFFFF))
                least = first
    return winner


@triton.jit
def mass_of_best(logits_ptr, stride_lv, vocab, k, top, factor, BLOCK: tl.constexpr):
    """The weight of the k best tokens: the k-th largest logit by bisection over the bits of a float, then a sum."""
    low = tl.full([], -0x80000000, tl.int64)
    high = tl.full([], 0x7FFFFFFF, tl.int64)
    while low < high:
        middle = low + (high - low + 1) // 2
        count = tl.zeros([BLOCK], tl.int32)
        for start in range(0, vocab, BLOCK):
            other = start + tl.arange(0, BLOCK)
            bits = load_logits(logits_ptr, other, stride_lv, other < vocab).to(tl.int32, bitcast=True)
            count += ((bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64) >= middle).to(tl.int32)
        enough = tl.sum(count) >= k
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle - 1)
    bits = low.to(tl.int32)
    kth = (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    count, mass = count_above(logits_ptr, stride_lv, vocab, kth, -1, top, factor, BLOCK)
    return mass + (k - count) * weight(kth, top, factor)


@triton.jit(do_not_specialize=["top_k", "seed", "step"])
def choose_kernel(
    logits_ptr, stride_lm, stride_lv, vocab, n_blocks, part_max_ptr, part_time_ptr, part_token_ptr,
    group_ptr, super_ptr, n_groups, n_supers, list_ptr, out_ptr,
    temperature_ptr, temperature, top_k_ptr, top_k, top_p_ptr, top_p, seed_ptr, seed, step_ptr, step,
    RACED: tl.constexpr, GROUPED: tl.constexpr, CUT: tl.constexpr, PTX: tl.constexpr, MOST_K: tl.constexpr,
    GROUP: tl.constexpr, LIST: tl.constexpr, BLOCK_PARTS: tl.constexpr, BLOCK_SUPERS: tl.constexpr,
    BLOCK_GROUPS: tl.constexpr, PDL: tl.constexpr, BLOCK: tl.constexpr,
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
    listed = (k > 0) & (k <= MOST_K) & (temperature > 0)
    if GROUPED:  # noqa: SIM102 - likewise below
        if listed:
            top, winner, found = short_list(
                logits_ptr, stride_lv, vocab, group_ptr + row * n_groups, super_ptr + row * n_supers,
                list_ptr + row * 3 * LIST, n_groups, n_supers, k, p, factor, seed_of_row, who, step_of_row,
                PTX, MOST_K, GROUP, LIST, BLOCK_SUPERS, BLOCK_GROUPS,
            )  # fmt: skip
            if found == 0:
                winner = race_above(
                    logits_ptr, stride_lv, vocab, float("-inf"), 0, top, factor, seed_of_row, who, step_of_row,
                    PTX, BLOCK,
                )  # fmt: skip
    if RACED:  # noqa: SIM102
        if (found == 0) & (winner < 0):
            top, winner = join_parts(part_max_ptr, part_time_ptr, part_token_ptr, row, n_blocks, factor, BLOCK_PARTS)
            whole = ((k <= 0) | (k >= vocab)) & (p == float("inf"))
            found = (whole | (temperature <= 0) | (top == float("-inf"))).to(tl.int32)
    if CUT:  # noqa: SIM102 - a constexpr: joined with a tensor by `and`, it would be compiled all the same
        if found == 0:
            limit = p
            if p < 1.0:
                if (k > 0) & (k < vocab):
                    limit = p * mass_of_best(logits_ptr, stride_lv, vocab, k, top, factor, BLOCK)
                else:
                    _, total = count_above(logits_ptr, stride_lv, vocab, float("-inf"), -1, top, factor, BLOCK)
                    limit = p * total
            while found == 0:
                x = tl.load(logits_ptr + winner.to(tl.int64) * stride_lv).to(tl.float32) + 0.0
                count, mass = count_above(logits_ptr, stride_lv, vocab, x, winner, top, factor, BLOCK)
                kept = ((k <= 0) | (count < k)) & (mass < limit) | (count == 0)
                if kept:
                    found = found + 1
                else:
                    winner = race_above(
                        logits_ptr, stride_lv, vocab, x, winner, top, factor, seed_of_row, who, step_of_row,
                        PTX, BLOCK,
                    )  # fmt: skip
    tl.store(out_ptr + row, winner.to(tl.int64))
