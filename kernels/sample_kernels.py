"""The five kernels of kernels/sample.py, which explains them; no kernel of its own.

Scores are compared as times of a race: E * handicap, where handicap = (largest weight) / weight. That is 1 for the
best token and infinite for a masked one, so nothing overflows, whatever the logits; at temperature 0 all but the
largest logits are infinitely slow.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.codes import INTERPRETED
from kernels.dependent import let_next_begin, wait_for_last
from kernels.noise import exponential_of, four_exponentials, power_of_two


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
    """What a difference of logits is multiplied with to give powers of two; finite, so that 0 times it is 0."""
    hot = temperature > 0.0
    return tl.minimum(1.4426950408889634 / tl.where(hot, temperature, 1e-38), 3e38)


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
def weight(x, top, factor):
    return tl.exp2((x - tl.maximum(top, -3.4028234663852886e38)) * factor)


@triton.jit
def join_parts(part_max_ptr, part_time_ptr, part_token_ptr, row, n_blocks, factor, BLOCK_PARTS: tl.constexpr):
    """The row's largest logit, and its winner; read from L2, where other multiprocessors have left their parts."""
    part = tl.arange(0, BLOCK_PARTS)
    at = row * n_blocks + part
    tops = tl.load(part_max_ptr + at, mask=part < n_blocks, other=float("-inf"), cache_modifier=".cg")
    top = tl.max(tops)
    time = tl.load(part_time_ptr + at, mask=part < n_blocks, other=float("inf"), cache_modifier=".cg")
    time = time * handicap(tops, top, factor, False)
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
    if GROUPED:  # noqa: SIM102 - a constexpr: joined with a tensor by `and`, it would be compiled all the same
        if listed(temperature_ptr, temperature, top_k_ptr, top_k, row, MOST_K):
            return
    factor = factor_of(temperature)
    counter = block * THOUSANDS * 256 + tl.arange(0, THOUSANDS * 256)
    # Each lane has four tokens, 256 apart. Read one by one, as the noise is made: with vectors of neighbours the noise
    # would change its layout, through shared memory.
    first = tl.max_contiguous(counter // 256 * 1024 + counter % 256, 1)
    logits_ptr += row * stride_lm
    at = first.to(tl.int64)  # one address for four loads
    a = load_logits(logits_ptr, at, stride_lv, first < vocab)
    b = load_logits(logits_ptr, at + 256, stride_lv, first + 256 < vocab)
    c = load_logits(logits_ptr, at + 512, stride_lv, first + 512 < vocab)
    d = load_logits(logits_ptr, at + 768, stride_lv, first + 768 < vocab)
    top = tl.max(tl.maximum(tl.maximum(a, b), tl.maximum(c, d)))
    if temperature > 0:
        # With a number as seed the rows must differ; with a tensor a row is itself wherever it stands.
        who = tl.program_id(0) // n_blocks if seed_ptr is None else tl.program_id(0) * 0
        noise = four_exponentials(option(seed_ptr, seed, row), counter, who, option(step_ptr, step, row), PTX)
        a, b = handicap(a, top, factor, PTX) * noise[0], handicap(b, top, factor, PTX) * noise[1]
        c, d = handicap(c, top, factor, PTX) * noise[2], handicap(d, top, factor, PTX) * noise[3]
    else:  # the first of the largest, exactly
        a, b = tl.where(a == top, 1.0, float("inf")), tl.where(b == top, 1.0, float("inf"))
        c, d = tl.where(c == top, 1.0, float("inf")), tl.where(d == top, 1.0, float("inf"))
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


@triton.jit
def listed(temperature_ptr, temperature, top_k_ptr, top_k, row, MOST_K: tl.constexpr):
    """Whether a row's token is drawn from a short list."""
    k = option(top_k_ptr, top_k, row)
    return (k > 0) & (k <= MOST_K) & (float_option(temperature_ptr, temperature, row) > 0)


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
    groups = tl.load(count_ptr + 2 * row + 1)
    if first < groups:
        i = first + tl.arange(0, PICK)
        group = tl.load(picked_ptr + row * LIST + i, mask=i < groups, other=0)
        token = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
        inside = (i < groups)[:, None] & (token < vocab)
        x = load_logits(logits_ptr + row * stride_lm, token, stride_lv, inside)
        x, token = tl.reshape(x, [PICK * GROUP]), tl.reshape(token, [PICK * GROUP])
        some = (x >= tl.load(bounds_ptr + 2 * row)) & (x > float("-inf"))
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
    token = tl.load(list_ptr + n, mask=live, other=0x7FFFFFFF)
    x = tl.load(list_ptr + LIST + n, mask=live, other=0).to(tl.float32, bitcast=True)
    x = tl.where(live, x, float("-inf"))
    # All with all: how many stand above each token, and with how much weight. The list is in any order, and sums of
    # integers do not mind: 23 bits of the largest weight, so that LIST of them fit.
    above = (x[:, None] > x[None, :]) | ((x[:, None] == x[None, :]) & (token[:, None] < token[None, :]))
    heavy = (weight(x, top, factor) * 8388608.0 + 0.5).to(tl.int32)
    rank = tl.sum(above.to(tl.int32), axis=0)
    before = tl.sum(tl.where(above, heavy[:, None], 0), axis=0)
    inside = live & (rank < k)
    total = tl.sum(tl.where(inside, heavy, 0))
    kept = inside & ((rank == 0) | (before.to(tl.float32) < p * total.to(tl.float32)))
    time = tl.where(kept, handicap(x, top, factor, PTX) * exponential_of(seed, token, who, step, PTX), float("inf"))
    winner = tl.min(tl.where(time == tl.min(time), token, 0x7FFFFFFF))
    return tl.where(tokens > 0, winner, 0)


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
            time = handicap(y, top, factor, PTX) * exponential_of(seed, other, who, step, PTX)
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
            x = load_logits(logits_ptr, other, stride_lv, other < vocab) + 0.0  # -0.0 and 0.0 tie
            bits = x.to(tl.int32, bitcast=True)
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
                x = load_logits(logits_ptr, winner, stride_lv, True)
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
