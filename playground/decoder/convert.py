"""A GGUF file of a Llama model turned into a Hugging Face folder: safetensors, config.json, tokenizer.json.

It is done once, in float32, so that nothing is rounded a second time; the reading of the quantised blocks is the
`gguf` package's. It covers the "llama" architecture with a byte-level BPE tokenizer, which is what the default
model's file holds; it is no general converter.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from playground.decoder.config import ModelError

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CONTROL = 3  # GGUF's token type of <|im_end|> and its like


def convert(gguf_file: Path, folder: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Write `gguf_file` into `folder`, which exists. progress: (tensors done, tensors in all). Raises ModelError."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(gguf_file)
    except (OSError, ValueError) as error:
        raise ModelError(f"{gguf_file.name} is no readable GGUF file: {error}") from None
    fields = _Fields(reader)
    arch = fields["general.architecture"]
    if arch != "llama":
        raise ModelError(f"{gguf_file.name} is of architecture {arch!r}; only llama files are converted")
    weights: dict[str, torch.Tensor] = {}
    for done, tensor in enumerate(reader.tensors):
        name, weight = _tensor(tensor, fields)
        weights[name] = weight
        progress(done + 1, len(reader.tensors))
    config = _config(fields, tied="lm_head.weight" not in weights, vocab=weights["model.embed_tokens.weight"].shape[0])
    _save(weights, folder)
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    _tokenizer(fields).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(_tokenizer_config(fields), indent=2))


def _save(weights: dict[str, torch.Tensor], folder: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:  # what the library makes of a disk that is full by now
        raise ModelError(f"the weights cannot be written to {folder}: {error}; free some space and try again") from None


class _Fields:
    """The header's values by key."""

    def __init__(self, reader: Any):
        self._fields = reader.fields

    def __getitem__(self, key: str) -> Any:
        try:
            return self._fields[key].contents()
        except KeyError:
            raise ModelError(f"the GGUF header has no {key}; the file is of another kind or damaged") from None

    def get(self, key: str, default: Any = None) -> Any:
        return self._fields[key].contents() if key in self._fields else default


def _tensor(tensor: Any, fields: _Fields) -> tuple[str, torch.Tensor]:
    from gguf.quants import dequantize

    shape = tuple(int(n) for n in reversed(tensor.shape))  # GGUF names the fastest dimension first
    values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False).reshape(shape)
    parts = tensor.name.split(".")
    if parts[0] != "blk":
        return f"{_TOP_NAMES[parts[0]]}.weight", _own(values)
    if parts[2] in ("attn_q", "attn_k"):
        heads = fields["llama.attention.head_count" + ("_kv" if parts[2] == "attn_k" else "")]
        values = _half_split(values, heads)
    name = f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.{parts[3]}"
    return name, _own(values)


def _own(values: np.ndarray) -> torch.Tensor:
    """A tensor of its own memory where the values are still the mapped file's."""
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))


def _half_split(values: np.ndarray, heads: int) -> np.ndarray:
    """GGUF stores rotary pairs side by side in each head; Hugging Face has the first halves, then the second."""
    half = values.shape[0] // heads // 2
    return values.reshape(heads, half, 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _config(fields: _Fields, tied: bool, vocab: int) -> dict[str, Any]:
    hidden, heads = fields["llama.embedding_length"], fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": fields.get("llama.attention.key_length", hidden // heads),
        "max_position_embeddings": fields["llama.context_length"],
        # The header holds the float32 next to 1e-5; the model was made with 1e-5 itself.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": fields["llama.rope.freq_base"],
        "tie_word_embeddings": tied,
        "vocab_size": vocab,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "float32",
    }


def _tokenizer(fields: _Fields) -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pre = fields["tokenizer.ggml.pre"]
    if fields["tokenizer.ggml.model"] != "gpt2" or pre != "smollm":
        raise ModelError(f"the GGUF's tokenizer is of kind {pre!r}; only SmolLM's byte-level BPE is converted")
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    # SmolLM cuts numbers into single digits, then splits as GPT-2 does.
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control])
    return tokenizer


def _tokenizer_config(fields: _Fields) -> dict[str, Any]:
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": fields["tokenizer.chat_template"],
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
    }
