"""How the next token is drawn: the options a person sets, the draw in PyTorch, and how likely each token was."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

import kernels
from playground.decoder.config import ModelError

TOP = 5  # alternatives told for a token, on request


class Chance(NamedTuple):
    """A token, the model's own probability of it, and the one it was drawn with."""

    token: int
    own: float
    drawn: float


@dataclass(frozen=True)
class Sampling:
    """temperature 0 takes the likeliest token; top_k 0 and top_p 1 keep all of them.

    The same seed gives the same text: the draw depends on the seed and on how many tokens the answer has so far.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and 0 <= self.temperature <= 100):
            raise ModelError(f"temperature is {self.temperature}; give a number from 0 (the likeliest) to 100")
        if self.top_k < 0:
            raise ModelError(f"top_k is {self.top_k}; give 0 for all tokens, or how many to keep")
        if not 0 < self.top_p <= 1:
            raise ModelError(f"top_p is {self.top_p}; give a share above 0 and up to 1")
        if not 0 <= self.seed < 2**31:
            raise ModelError(f"seed is {self.seed}; give a whole number from 0 to {2**31 - 1}")


@dataclass(frozen=True)
class Chances:
    """How likely each token of the vocabulary was, for one row of logits; it stays on the device until it is asked.

    own: the softmax of the logits; drawn: after temperature, top-k and top-p; best: the likeliest tokens, in order.
    """

    own: torch.Tensor  # float32 [vocab]
    drawn: torch.Tensor  # float64 [vocab]
    best: torch.Tensor  # int64 [TOP]

    @staticmethod
    def of(logits: torch.Tensor, sampling: Sampling) -> Chances:
        """logits [vocab]. Nothing of them is kept."""
        from kernels.sample_reference import kept_tokens

        own = logits.float().softmax(-1)
        ids, ratios = kept_tokens(logits[None], sampling.temperature, sampling.top_k, sampling.top_p)
        drawn = torch.zeros_like(ratios[0]).scatter_(0, ids[0], (ratios / ratios.sum(-1, keepdim=True))[0])
        return Chances(own, drawn, own.topk(TOP).indices)

    def __call__(self, token: int) -> tuple[Chance, tuple[Chance, ...]]:
        """Of `token`, and of the likeliest."""
        tokens = [token, *self.best.tolist()]
        own, drawn = (values[tokens].tolist() for values in (self.own, self.drawn))
        first, *others = (Chance(*values) for values in zip(tokens, own, drawn, strict=True))
        return first, tuple(others)


def sample(logits: torch.Tensor, **options: torch.Tensor) -> torch.Tensor:
    """ids int64 [rows] for logits [rows, vocab]; temperature, top_k, top_p, seed, step: tensors [rows].

    The kernel's own reference: it draws the same tokens from the same seeds. Where every row takes its likeliest
    token nothing needs to be sorted.
    """
    if not options["temperature"].any():
        return logits.nan_to_num(nan=-math.inf).argmax(-1)
    return kernels.get("sample").reference(logits, **options)
