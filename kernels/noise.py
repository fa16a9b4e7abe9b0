"""Random numbers of the sampler: one exponential variate for each token, the same on every device.

Of tokens with weights w, the one with the least E / w, for E exponentially distributed and independent, is token i
with probability w[i] / sum(w): a race, the same as adding Gumbel noise to the logits. So a draw needs no
normalised probabilities and no prefix sums, and leaving tokens out beforehand draws from those that remain. A unit
that all E share changes no winner: here they are in multiples of ln 2, which saves each token a product.

E comes from Philox 4x32-10, a counter-based generator: (seed, token, row, step) name the number, so nothing is
stored, and it does not matter which program draws it. One call gives four words, for tokens 256 apart: token i takes
word (i // 256) % 4 of counter (i // 1024) * 256 + i % 256.

Such a race can be run in two rounds: first the parts of 1024 tokens race, the weight of each being the sum of its
tokens', then the tokens of the part that won. Each token's chance is the same, (sum / total) * (w / sum), and numbers
are made for the tokens of one part alone. So a part has a variate of its own, of the counter with 1 as its last word.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _log2(x, PTX: tl.constexpr):
    """log2 by the GPU's own instruction where PTX, as libraries compute it elsewhere."""
    if PTX:
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.log2(x)


@triton.jit
def power_of_two(x, PTX: tl.constexpr):
    """2^x, by the GPU's own instruction where PTX: it takes results below 1e-38 for 0, which is right for a weight."""
    if PTX:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return tl.exp2(x)


@triton.jit
def exponential(word, PTX: tl.constexpr):
    """A Philox word as an exponential variate over ln 2, never 0: -log2(1 - v) for v in (0, 1)."""
    v = tl.minimum(word.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10, 0.99999994)
    # The small variates win, and 1 - v would round them away: a series serves them.
    return tl.where(v < 0.015625, v * (1.442695 + v * (0.7213475 + v * 0.48089835)), -_log2(1.0 - v, PTX))


@triton.jit
def four_exponentials(seed, counter, row, step, PTX: tl.constexpr):
    """The variates of four tokens, 256 apart; counter as in the module's docstring."""
    counter = counter.to(tl.uint32)
    zero = counter * 0
    a, b, c, d = tl.philox(seed, counter, zero + row.to(tl.uint32), zero + step.to(tl.uint32), zero)
    return exponential(a, PTX), exponential(b, PTX), exponential(c, PTX), exponential(d, PTX)


@triton.jit
def exponential_of(seed, token, row, step, PTX: tl.constexpr):
    """The variate of each token, for tokens in any order."""
    counter = ((token >> 10) * 256 + (token & 255)).to(tl.uint32)
    zero = counter * 0
    a, b, c, d = tl.philox(seed, counter, zero + row.to(tl.uint32), zero + step.to(tl.uint32), zero)
    which = (token >> 8) & 3
    return exponential(tl.where(which == 0, a, tl.where(which == 1, b, tl.where(which == 2, c, d))), PTX)


@triton.jit
def exponential_of_part(seed, part, row, step, PTX: tl.constexpr):
    """The variate of each part of 1024 tokens."""
    counter = part.to(tl.uint32)
    zero = counter * 0
    words = tl.philox(seed, counter, zero + row.to(tl.uint32), zero + step.to(tl.uint32), zero + 1)
    return exponential(words[0], PTX)


_MASK = 0xFFFFFFFF


def _multiply(a: torch.Tensor, m: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The high and low words of a 32 x 32 bit product: int64 wraps, and keeps its 64 bits."""
    product = a * m
    return (product >> 32) & _MASK, product & _MASK


def exponential_reference(seed: torch.Tensor, token: torch.Tensor, row: torch.Tensor, step: torch.Tensor):
    """exponential_of times ln 2, in PyTorch and float64; all int64, broadcast against each other."""
    words = _philox_reference(seed, (token >> 10) * 256 + (token & 255), row, step, 0)
    which = (token >> 8) & 3
    word = torch.where(which == 0, words[0], words[1])
    return _exponential_of_word(torch.where(which == 2, words[2], torch.where(which == 3, words[3], word)))


def winning_part_reference(ids: torch.Tensor, weights: torch.Tensor, seed, row, step) -> torch.Tensor:
    """The part of 1024 tokens that wins the race of the sums of the weights [rows, n] of tokens `ids`: [rows, 1]."""
    parts = torch.arange(triton.cdiv(ids.shape[1], 1024), device=ids.device)
    sums = torch.zeros(ids.shape[0], parts.numel(), dtype=weights.dtype, device=ids.device)
    sums.scatter_add_(1, ids // 1024, weights)
    times = _exponential_of_word(_philox_reference(seed, parts[None], row, step, 1)[0])
    return (times / sums).argmin(-1, keepdim=True)


def _exponential_of_word(word: torch.Tensor) -> torch.Tensor:
    return -torch.log1p(-(word.double() + 0.5) / 2**32)


def _philox_reference(seed, counter, row, step, last: int) -> list[torch.Tensor]:
    """The four words of Philox 4x32-10."""
    words = [counter, row & _MASK, step & _MASK, torch.full_like(counter, last)]
    low, high = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(10):
        high0, low0 = _multiply(words[0], 0xD2511F53)
        high1, low1 = _multiply(words[2], 0xCD9E8D57)
        words = [high1 ^ words[1] ^ low, low1, high0 ^ words[3] ^ high, low0]
        low, high = (low + 0x9E3779B9) & _MASK, (high + 0xBB67AE85) & _MASK
    return words
