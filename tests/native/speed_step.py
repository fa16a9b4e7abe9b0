"""A decode step for `tests.native.speed`: one model of SmolLM2-135M's shape, run by our kernels and by PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

import torch

from playground.decoder.cache import KVStore
from playground.decoder.config import DecoderConfig
from playground.decoder.generate import backend_table
from playground.decoder.model import Model
from playground.decoder.runner import Row, Runner
from playground.decoder.sampler import Sampling
from playground.decoder.weights import Weights
from playground.native.pages import HugePages
from tests.gpu.perf_decoder import SHAPES, random_weights

PAGE = 16


def _model(config: DecoderConfig, dtype: torch.dtype) -> Model:
    """Weights as `load_weights` lays them down."""
    weights, pages = random_weights(config, dtype, torch.device("cpu")), HugePages()
    layers = tuple(
        replace(layer, **{f.name: pages.place(t) for f in fields(layer) if (t := getattr(layer, f.name)) is not None})
        for layer in weights.layers
    )
    embedding = pages.place(weights.embedding)
    store = KVStore(config, 64, PAGE, dtype, torch.device("cpu"))
    return Model(config, Weights(embedding, layers, weights.norm, embedding), store, 1024)


def steps(dtype: str, context: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """One step of ours, one of PyTorch's: the same weights, cache and row; the row stays at `context` tokens."""
    model = _model(SHAPES["smollm2-135m"], getattr(torch, dtype))
    pages = list(range(-(-(context + 1) // PAGE)))
    row = Row(17, context - 1, pages, Sampling(temperature=0.0), 0)
    made = []
    for backend in ("triton", "torch"):
        runner = Runner(model, PAGE, 1, 64)
        runner.swap(backend_table(backend))
        runner.prepare(1)

        def step(runner: Runner = runner) -> None:
            runner.rows.positions.fill_(context - 1)
            runner.rows.lengths.fill_(context)
            runner.decode(1)

        runner.rows.load([row])
        made.append(step)
    return made[0], made[1]
