"""What kernels/sample.py draws, in PyTorch: the reference in float64, and what people write; no kernel of its own.

Both draw with the kernel's random numbers, so that their ids can be compared with its own.
"""

from __future__ import annotations

import torch

from kernels.noise import exponential_reference, winning_part_reference


def _column(value, logits):
    """An option as [rows, 1], or [1, 1] for a number."""
    if not isinstance(value, torch.Tensor):  # filled on the device: a copy from the host could not be captured
        value = torch.full((1,), value, device=logits.device)
    return value.to(torch.int64 if not value.is_floating_point() else torch.float64)[:, None]


def kept_tokens(logits, temperature=1.0, top_k=0, top_p=1.0):
    """(ids, ratios): ids best first [rows, vocab]; ratios weight / largest weight in float64, 0 where not kept."""
    values = torch.where(logits.isnan(), float("-inf"), logits.double())
    values, ids = torch.sort(values, dim=-1, descending=True, stable=True)
    k, p = _column(top_k, logits), _column(top_p, logits).double()
    return ids, _cut(_weights(values, values[:, :1], _column(temperature, logits).double()), k, p)


def _weights(values, top, heat):
    """Weight / largest weight, of values best first where heat may be 0: then the first is all that is left."""
    gap = torch.where(values == top, 0.0, values - top)
    first = torch.arange(values.shape[1], device=values.device) == 0
    weights = torch.where(heat > 0, torch.exp(gap / torch.where(heat > 0, heat, 1.0)), first.to(values.dtype))
    return torch.where(values > float("-inf"), weights, 0.0)


def _cut(ratios, k, p):
    """Ratios of tokens best first, 0 beyond the k best and their top p."""
    rank = torch.arange(ratios.shape[1], device=ratios.device)
    ratios = torch.where((k <= 0) | (rank < k), ratios, 0.0)
    share = ratios / ratios.sum(-1, keepdim=True)
    before = share.cumsum(-1) - share
    return torch.where((before < p) | (p >= 1) | (rank == 0), ratios, 0.0)


def _winner(ids, ratios, names):
    """The token that wins the race of those with a ratio above 0; 0 where there is none."""
    times = exponential_reference(names[0], ids, *names[1:]) / ratios
    winner = ids.gather(1, times.argmin(-1, keepdim=True))[:, 0]
    return torch.where((ratios > 0).any(-1), winner, 0)


def _winner_in_parts(values, heat, names):
    """The same of all tokens, in two rounds: the part of 1024 tokens, then the token. values: in the tokens' order."""
    rows, vocab = values.shape
    ids = torch.arange(vocab, device=values.device).expand(rows, -1)
    top = values.max(-1, keepdim=True).values
    weights = _weights(values, top, heat)  # at temperature 0 they mean nothing, and `first` below is the answer
    ids = winning_part_reference(ids, weights, *names) * 1024 + torch.arange(min(vocab, 1024), device=values.device)
    ratios = torch.where(ids < vocab, weights.gather(1, ids.clamp(max=vocab - 1)), 0.0)
    first = torch.where(values == top, torch.arange(vocab, device=values.device), vocab).min(-1).values
    return torch.where(heat[:, 0] > 0, _winner(ids, ratios, names), first)


def _sample(logits, temperature, top_k, top_p, seed, step, wide, best):
    """best(values, k): (values, ids) of the k best tokens or of all, best first, in the dtype `wide`."""
    vocab = logits.shape[1]
    rows = torch.arange(logits.shape[0], device=logits.device)[:, None]
    names = _column(seed, logits), rows * 0 if isinstance(seed, torch.Tensor) else rows, _column(step, logits)
    k, p, heat = (_column(option, logits) for option in (top_k, top_p, temperature))
    heat = heat.to(wide)
    values = torch.where(logits.isnan(), float("-inf"), logits.to(wide))
    # What numbers decide for all rows alike is not computed: noise is dear in PyTorch, and so is a sort.
    numbers = isinstance(top_k, int) and isinstance(top_p, int | float)
    cut_by_k = isinstance(top_k, int) and 0 < top_k < vocab
    cut_by_p = isinstance(top_p, int | float) and top_p < 1 - 2**-25  # what is larger rounds to 1 in float32
    if numbers and not cut_by_k and not cut_by_p:
        return _winner_in_parts(values, heat, names)
    sorted_values, ids = best(values, top_k if cut_by_k else vocab)
    winner = _winner(ids, _cut(_weights(sorted_values, sorted_values[:, :1], heat), k, p.to(wide)), names)
    if cut_by_k or cut_by_p:
        return winner
    whole = ((k <= 0) | (k >= vocab)) & (p >= 1)
    return torch.where(whole[:, 0], _winner_in_parts(values, heat, names), winner)


def reference(logits, temperature=1.0, top_k=0, top_p=1.0, seed=0, step=0):
    def best(values, k):  # of equal ones the lowest ids, which topk does not promise
        values, ids = torch.sort(values, dim=-1, descending=True, stable=True)
        return values[:, :k], ids[:, :k]

    return _sample(logits, temperature, top_k, top_p, seed, step, torch.float64, best)


def eager(logits, temperature=1.0, top_k=0, top_p=1.0, seed=0, step=0):
    """As PyTorch code samples, in float32: topk where top_k is a number, a sort for top-p alone, else neither."""

    def best(values, k):
        if k < values.shape[1]:
            return torch.topk(values, k)
        return torch.sort(values, dim=-1, descending=True, stable=True)

    return _sample(logits, temperature, top_k, top_p, seed, step, torch.float32, best)
