"""A small random model of any supported kind, saved as Hugging Face saves them, and transformers' own answer to it."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

from playground.decoder.batch import Batch
from playground.decoder.cache import KVStore, PagePool
from playground.decoder.config import DecoderConfig, read_config
from playground.decoder.model import Model
from playground.decoder.runner import Runner
from playground.decoder.weights import load_weights

CPU = torch.device("cpu")
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16, "rope_theta": 10_000.0,
}  # fmt: skip
KINDS = {
    "llama": (transformers.LlamaConfig, {"tie_word_embeddings": True}),
    "llama-untied": (transformers.LlamaConfig, {"tie_word_embeddings": False, "rope_theta": 500_000.0}),
    "llama3-scaling": (transformers.LlamaConfig, {"rope_parameters": LLAMA3}),
    "llama-head-dim-apart": (transformers.LlamaConfig, {"head_dim": 32}),
    "llama-biases": (transformers.LlamaConfig, {"attention_bias": True}),
    "qwen2": (transformers.Qwen2Config, {}),
    "qwen3": (transformers.Qwen3Config, {"head_dim": 32}),
}


@functools.cache
def folder(kind: str = "llama") -> Path:
    """2 layers, hidden 64, 4 heads over 2 key-value heads, 101 tokens. Weights are large, so that texts vary."""
    torch.manual_seed(7)
    make, extra = KINDS[kind]
    config = make(
        vocab_size=101, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3, rms_norm_eps=1e-5,
        bos_token_id=1, eos_token_id=100, pad_token_id=0, **extra,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            parameter.data.normal_(1.0 if "norm" in name else 0.0, 0.3)
    path = Path(tempfile.mkdtemp(prefix="tiny-llama-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)  # kept for the process, whose tests share it
    model.save_pretrained(path)
    # Token 7 is the word "t7"; what is no such word is "t1".
    tokenizer = Tokenizer(models.WordLevel({f"t{i}": i for i in range(101)}, unk_token="t1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@functools.cache
def reference(kind: str = "llama", dtype: torch.dtype = torch.float32):
    """transformers' model of the same folder."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder(kind), dtype=dtype).eval()


@torch.no_grad()
def expected_logits(tokens: list[int], kind: str = "llama") -> torch.Tensor:
    """float64 [tokens, vocab] from transformers."""
    return reference(kind, torch.float64)(torch.tensor([tokens])).logits[0]


@torch.no_grad()
def expected_answer(tokens: list[int], count: int, kind: str = "llama", eos: bool = False) -> list[int]:
    """Greedy, from transformers; it goes on past the end token unless `eos`."""
    ids = reference(kind).generate(
        torch.tensor([tokens]), max_new_tokens=count, do_sample=False, eos_token_id=100 if eos else 1000
    )
    return ids[0, len(tokens) :].tolist()


def config(kind: str = "llama") -> DecoderConfig:
    return read_config(folder(kind), kind)


def make_model(
    kind: str = "llama",
    pages: int = 64,
    page_size: int = 8,
    max_context: int = 256,
    cache: torch.dtype | None = None,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float32,
) -> Model:
    shape = config(kind)
    weights = load_weights(folder(kind), shape, dtype, device)
    return Model(shape, weights, KVStore(shape, pages, page_size, cache or dtype, device), max_context)


def make_batch(
    kind: str = "llama",
    max_batch: int = 4,
    chunk: int = 16,
    backend: str = "torch",
    eos: tuple[int, ...] = (),
    graphs: bool | None = None,
    fuse: bool | None = None,
    ahead: bool = False,
    **model,
) -> Batch:
    """`model`: as make_model takes them. ahead: each step is launched before the last one is looked at, as on a GPU."""
    made = make_model(kind, **model)
    page_size = made.store.keys.shape[3]
    runner = Runner(made, page_size, max_batch, chunk, graphs, fuse)
    runner.swap(dict.fromkeys(runner.table, backend))
    batch = Batch(runner, PagePool(made.store.keys.shape[1], page_size), eos)
    if ahead:
        batch._ahead = True
        batch._reader = _copied
    return batch


def _copied(ids: torch.Tensor) -> Callable[[], list[int]]:
    values = ids.tolist()
    return lambda: values


def finish(batch: Batch, most: int = 3000) -> None:
    """Run until nothing is left to do."""
    for _ in range(most):
        if batch.idle:
            return
        batch.step()
        batch.pool.check()
    raise AssertionError("the batch does not come to an end")
