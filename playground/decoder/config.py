"""The shape of a decoder, read from a checkpoint's config.json.

Covers the Llama family: grouped-query attention of any group, tied or untied embeddings, a head_dim of its own,
biases on q, k, v (Qwen2) and o, RMSNorm on q and k (Qwen3), plain, linear and llama3 rotary scaling. Anything else
(experts, sliding windows, other activations, layers without rotation) is refused by name: a decoder that ran it
anyway would talk nonsense.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


class ModelError(ValueError):
    """A model that cannot be loaded or run here: one line with what is wrong and how to mend it."""


SUPPORTED = ("llama", "qwen2", "qwen3", "mistral")


@dataclass(frozen=True)
class RopeScaling:
    """kind "linear" divides every frequency by `factor`; "llama3" divides the low ones, and blends in between.

    The llama3 rule: wavelengths beyond original / low are divided, those below original / high are kept.
    """

    kind: str
    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192


@dataclass(frozen=True)
class DecoderConfig:
    """max_context is how many tokens the model was made for; eos_ids end an answer."""

    name: str
    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    max_context: int
    rms_eps: float = 1e-6
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    tied: bool = True
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ModelError(f"{self.name}: {self.heads} heads cannot share {self.kv_heads} key-value heads evenly")
        if self.head_dim % 2:
            raise ModelError(f"{self.name}: head_dim {self.head_dim} is odd; rotary embeddings turn pairs")

    @property
    def group(self) -> int:
        """How many query heads read one key-value head."""
        return self.heads // self.kv_heads

    @property
    def qkv_rows(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    def kv_bytes_per_token(self, element_size: int) -> int:
        """2 (keys and values) x layers x kv_heads x head_dim x bytes; in 8 bits with a float32 scale for each head."""
        return 2 * self.layers * self.kv_heads * (self.head_dim * element_size + scale_bytes(element_size))


def scale_bytes(element_size: int) -> int:
    """Of the scale that stands beside each token's key, and value, of a head: a float32 in an 8-bit cache."""
    return 4 if element_size == 1 else 0


def from_json(raw: Mapping[str, Any], name: str = "model", eos_ids: tuple[int, ...] = ()) -> DecoderConfig:
    """A config.json as Hugging Face writes it. Raises ModelError for what this decoder does not cover."""
    kind = raw.get("model_type", "?")
    _refuse_unsupported(raw, name, kind)
    try:
        heads, hidden = int(raw["num_attention_heads"]), int(raw["hidden_size"])
        rope = raw.get("rope_parameters") or {}
        return DecoderConfig(
            name=name,
            vocab_size=int(raw["vocab_size"]),
            hidden=hidden,
            layers=int(raw["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or hidden // heads),
            ffn=int(raw["intermediate_size"]),
            max_context=int(raw["max_position_embeddings"]),
            rms_eps=float(raw.get("rms_norm_eps", 1e-6)),
            rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10_000.0),
            rope_scaling=_scaling(raw.get("rope_scaling") or rope, name),
            tied=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=bool(raw.get("attention_bias", kind == "qwen2")),
            o_bias=bool(raw.get("attention_bias", False)) and kind in ("llama", "qwen3"),
            qk_norm=kind == "qwen3",
            eos_ids=eos_ids or _ids(raw.get("eos_token_id")),
        )
    except KeyError as missing:
        raise ModelError(f"{name}: config.json has no {missing}; this is not a complete {kind} config") from None


def _refuse_unsupported(raw: Mapping[str, Any], name: str, kind: str) -> None:
    if kind not in SUPPORTED:
        raise ModelError(f"{name} is of type {kind!r}; this decoder runs {', '.join(SUPPORTED)}: choose one of those")
    act = raw.get("hidden_act", "silu")
    if act != "silu":
        raise ModelError(f"{name} uses the activation {act!r}; this decoder has silu only")
    if raw.get("mlp_bias"):
        raise ModelError(f"{name} has biases in its feed-forward layers, which this decoder does not add")
    slides = raw.get("use_sliding_window", kind == "mistral") and raw.get("sliding_window")
    if slides or "sliding_attention" in (raw.get("layer_types") or ()):
        raise ModelError(f"{name} attends within a sliding window; this decoder attends to the whole context")
    if raw.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"{name} rotates part of each head only, which this decoder does not do")


def _scaling(raw: Mapping[str, Any], name: str) -> RopeScaling | None:
    kind = raw.get("rope_type", raw.get("type", "default"))
    if kind == "default":
        return None
    if kind not in ("linear", "llama3"):
        raise ModelError(f"{name} scales its rotary embeddings by {kind!r}; this decoder knows linear and llama3")
    return RopeScaling(
        kind,
        float(raw["factor"]),
        float(raw.get("low_freq_factor", 1.0)),
        float(raw.get("high_freq_factor", 4.0)),
        int(raw.get("original_max_position_embeddings", 8192)),
    )


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(v) for v in value) if isinstance(value, (list, tuple)) else (int(value),)


def read_config(folder: Path, name: str | None = None) -> DecoderConfig:
    """config.json of a checkpoint's folder; generation_config.json names the ends of an answer where it is there."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} has no config.json; give the folder of a Hugging Face checkpoint")
    ids = _ids(read_json(folder / "generation_config.json").get("eos_token_id"))
    return from_json(read_json(path), name or folder.name, ids)


def read_json(path: Path) -> dict[str, Any]:
    """One of a checkpoint's files of settings; {} where it is not there."""
    try:
        raw = json.loads(path.read_text())
        if isinstance(raw, dict):
            return raw
        why = f"it holds a {type(raw).__name__} instead of an object"
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        why = str(error)
    raise ModelError(f"{path} cannot be read: {why}; get the checkpoint again")


def inverse_frequencies(config: DecoderConfig) -> torch.Tensor:
    """float64 [head_dim / 2]: the angle of each pair per position, scaled as the config says."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    plain = config.rope_theta**-exponents
    scaling = config.rope_scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    wavelength = 2 * math.pi / plain
    # 1 keeps a frequency, 0 divides it by the factor.
    keep = (scaling.original / wavelength - scaling.low) / (scaling.high - scaling.low)
    keep = keep.clamp(0.0, 1.0)
    return keep * plain + (1 - keep) * plain / scaling.factor


def rope_tables(config: DecoderConfig, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, float32 [length, head_dim / 2], computed in float64."""
    angles = torch.arange(length, dtype=torch.float64)[:, None] * inverse_frequencies(config)
    return angles.cos().float().to(device), angles.sin().float().to(device)
