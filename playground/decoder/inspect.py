"""Looks into a running conversation and changes nothing: where its last token attends, and how two logits differ.

The last token whose keys are in the cache is read once more. The attention's weights are computed in PyTorch from the
queries and the cached keys; the kernels never write them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from playground.decoder.config import DecoderConfig, ModelError
from playground.decoder.conversation import Conversation
from playground.decoder.looks import AttentionRequest, AttentionResult
from playground.decoder.model import ForwardInputs, Model
from playground.decoder.ops import OPS, gather


class EagerOps:
    """A table of operations that computes at once, in PyTorch, writes nothing to the cache and keeps the queries."""

    fuse = False

    def __init__(self) -> None:
        self.queries: list[torch.Tensor] = []

    def begin_layer(self, index: int, *keep: torch.Tensor) -> None:
        """Nothing is used again here, so nothing is given back."""

    def __call__(self, name: str, box: str = "", **inputs: Any) -> Any:
        op = OPS[name]
        if op.group == "cache_write":
            return None
        if op.group == "attention":
            self.queries.append(inputs["q"])
        device = next(v.device for v in inputs.values() if isinstance(v, torch.Tensor))
        out = {key: torch.empty(shape, dtype=dt, device=device) for key, (shape, dt) in op.outputs(inputs).items()}
        assert op.torch is not None
        op.torch(out, **inputs)
        made = tuple(out.values())
        return made[0] if len(made) == 1 else made


def _last_read(conversation: Conversation) -> tuple[int, int]:
    """The last token whose keys are in the cache, and its position."""
    hold = conversation.hold
    if hold is None or hold.length == 0:
        raise LookupError(f"conversation {conversation.owner} has nothing in the cache now")
    return conversation.tokens[hold.length - 1], hold.length - 1


@torch.no_grad()
def attention_mass(model: Model, conversation: Conversation) -> torch.Tensor:
    """[layers, heads, pages]: the share of the last token's attention that falls on each page of its own, in order.

    Raises LookupError where the conversation has nothing in the cache.
    """
    token, position = _last_read(conversation)
    device, page_size = model.device, model.store.keys.shape[3]
    pages = torch.tensor([page.id for page in conversation.held.pages], device=device)[: position // page_size + 1]
    batch = ForwardInputs(
        ids=torch.tensor([token], device=device),
        positions=torch.tensor([position], device=device),
        slots=torch.tensor([-1], device=device),
        block_table=pages[None].int(),
        lengths=torch.tensor([position + 1], dtype=torch.int32, device=device),
    )
    ops = EagerOps()
    model.forward(ops, batch)  # type: ignore[arg-type]
    rows = [_mass(model, index, q[0], pages, position + 1) for index, q in enumerate(ops.queries)]
    return torch.stack(rows)


def need_layers(config: DecoderConfig, request: AttentionRequest) -> None:
    """Raises ModelError for layers and heads that the model does not have."""
    for name, asked, count in (("layer", request.layers, config.layers), ("head", request.heads, config.heads)):
        for index in asked or ():
            if not 0 <= index < count:
                raise ModelError(f"{name} is {index}; {config.name} has {name}s 0 to {count - 1}")


def attention(model: Model, conversation: Conversation, request: AttentionRequest) -> AttentionResult:
    """`attention_mass` of the layers and heads that are asked for. Raises ModelError and LookupError."""
    config = model.config
    need_layers(config, request)
    layers = request.layers if request.layers is not None else tuple(range(config.layers))
    heads = request.heads if request.heads is not None else tuple(range(config.heads))
    mass = attention_mass(model, conversation)[list(layers)][:, list(heads)]
    return AttentionResult(
        owner=request.owner,
        tokens=conversation.held.length,
        pages=tuple(page.id for page in conversation.held.pages[: mass.shape[2]]),
        mass=tuple(tuple(tuple(head) for head in layer) for layer in mass.tolist()),
        layers=layers,
        heads=heads,
        mean=tuple(mass.mean((0, 1)).tolist()),
    )


def _mass(model: Model, layer: int, q: torch.Tensor, pages: torch.Tensor, length: int) -> torch.Tensor:
    """[heads, pages] of one layer. q [heads, head_dim]."""
    cache, config = model.layer_cache(layer), model.config
    keys = gather(cache["k_cache"], cache.get("k_scale"), pages, length, torch.float32).float()
    grouped = q.float().view(config.kv_heads, config.group, config.head_dim)
    scores = (grouped @ keys.transpose(1, 2)).flatten(0, 1) * config.head_dim**-0.5  # [heads, length]
    weights = scores.softmax(-1)
    page_size = cache["k_cache"].shape[2]
    padded = torch.nn.functional.pad(weights, (0, len(pages) * page_size - length))
    return padded.view(config.heads, len(pages), page_size).sum(-1)


@dataclass(frozen=True)
class Difference:
    """largest: absolute difference of two logits; kl: of the two distributions, in nats; ids: the likeliest of each."""

    largest: float
    kl: float
    ids: tuple[int, int]


def difference(mine: torch.Tensor, other: torch.Tensor) -> Difference:
    """Of two rows of logits [vocab]."""
    mine, other = mine.double(), other.double()
    largest = float((mine - other).abs().max())
    ids = (int(mine.argmax()), int(other.argmax()))
    mine, other = mine.log_softmax(-1), other.log_softmax(-1)
    kl = float((mine.exp() * (mine - other)).sum())
    return Difference(largest, 0.0 if kl < 0 else kl, ids)  # rounding alone makes it negative
