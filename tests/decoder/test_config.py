"""What is read from a config, what is refused by name, and damaged checkpoints."""

import json

import pytest
import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from playground.decoder.config import ModelError, from_json, inverse_frequencies, read_config, rope_tables
from playground.decoder.weights import load_weights
from tests.decoder import tiny

SMOL = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192, "vocab_size": 49152,
    "rms_norm_eps": 1e-5, "rope_theta": 100000, "tie_word_embeddings": True, "eos_token_id": [2, 0],
}  # fmt: skip


def test_smollm2():
    config = from_json(SMOL)
    assert (config.head_dim, config.group, config.qkv_rows, config.eos_ids) == (64, 3, 960, (2, 0))
    assert config.kv_bytes_per_token(2) == 23040  # 2 x 30 x 3 x 64 x 2
    assert config.kv_bytes_per_token(1) == 12240  # 2 x 30 x 3 x (64 x 1 + 4): a scale for each key and value
    assert not config.qk_norm and not config.qkv_bias and config.rope_scaling is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mixtral"}, "'mixtral'; this decoder runs llama, qwen2, qwen3, mistral"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"mlp_bias": True}, "biases in its feed-forward layers"),
        ({"model_type": "mistral", "sliding_window": 4096}, "sliding window"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'; this decoder knows linear and llama3"),
        ({"partial_rotary_factor": 0.5}, "rotates part of each head"),
        ({"num_key_value_heads": 4}, "9 heads cannot share 4"),
        ({"hidden_size": None}, "config.json"),
    ],
)
def test_what_it_cannot_run_is_refused_by_name(change, message):
    raw = {key: value for key, value in {**SMOL, **change}.items() if value is not None}
    with pytest.raises(ModelError, match=message):
        from_json(raw, "m")


def test_llama3_scaling_follows_transformers():
    config = tiny.config("llama3-scaling")
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](tiny.reference("llama3-scaling").config, "cpu")
    torch.testing.assert_close(inverse_frequencies(config), expected.double(), rtol=1e-6, atol=0)


def test_rope_tables_start_at_no_turn():
    cos, sin = rope_tables(from_json(SMOL), 4, torch.device("cpu"))
    assert cos.shape == sin.shape == (4, 32)
    assert cos[0].eq(1).all() and sin[0].eq(0).all()
    torch.testing.assert_close(sin[1:, 0], torch.arange(1.0, 4).sin())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\x10garbage"), "damaged"),
        (lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-100]), "damaged"),
        (lambda f: (f / "config.json").write_text("{"), "config.json cannot be read"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json cannot be read: it holds a list"),
        (lambda f: (f / "config.json").unlink(), "has no config.json"),
        (lambda f: (f / "generation_config.json").write_text("{"), "generation_config.json cannot be read"),
        (lambda f: (f / "model.safetensors.index.json").write_text("{"), "index.json cannot be read"),
        (lambda f: edit(f, num_hidden_layers=3), "no tensor model.layers.2"),
        (lambda f: edit(f, intermediate_size=97), r"config.json asks for \[97, 64\]"),
    ],
)
def test_a_damaged_checkpoint_is_said_in_one_line(tmp_path, spoil, message):
    for file in tiny.folder().iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    spoil(tmp_path)
    with pytest.raises(ModelError, match=message) as error:
        load_weights(tmp_path, read_config(tmp_path), torch.float32, torch.device("cpu"))
    assert "\n" not in str(error.value)


def edit(folder, **change):
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | change))


def test_projections_are_joined_in_order():
    weights = load_weights(tiny.folder(), tiny.config(), torch.float32, torch.device("cpu"))
    layer, state = weights.layers[1], tiny.reference().state_dict()
    assert layer.gate_up[:96].equal(state["model.layers.1.mlp.gate_proj.weight"])
    assert layer.gate_up[96:].equal(state["model.layers.1.mlp.up_proj.weight"])
    assert layer.qkv[64:96].equal(state["model.layers.1.self_attn.k_proj.weight"])
    assert weights.head is weights.embedding
