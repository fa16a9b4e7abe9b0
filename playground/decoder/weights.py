"""A checkpoint's tensors, joined as the kernels want them: q, k, v in one matrix, gate and up in another.

Reads safetensors, in one file or several. On a CPU the weights come to lie in huge pages where there are any: a step
reads them all, and is half as long for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from playground.decoder.config import DecoderConfig, ModelError, read_json
from playground.native.pages import HugePages

READERS = 2  # threads that copy weights into place


@dataclass(frozen=True)
class LayerWeights:
    """One block. Matrices are [out, in]; biases and the q and k norms are None where the model has none."""

    attn_norm: torch.Tensor  # [hidden]
    qkv: torch.Tensor  # [qkv_rows, hidden]
    o: torch.Tensor  # [hidden, heads * head_dim]
    ffn_norm: torch.Tensor  # [hidden]
    gate_up: torch.Tensor  # [2 * ffn, hidden]
    down: torch.Tensor  # [hidden, ffn]
    qkv_bias: torch.Tensor | None = None
    o_bias: torch.Tensor | None = None
    q_norm: torch.Tensor | None = None  # [head_dim]
    k_norm: torch.Tensor | None = None


@dataclass(frozen=True)
class Weights:
    """embedding and head [vocab, hidden] are one tensor where they are tied."""

    embedding: torch.Tensor
    layers: tuple[LayerWeights, ...]
    norm: torch.Tensor
    head: torch.Tensor

    def tensors(self) -> Iterator[torch.Tensor]:
        yield self.embedding
        if self.head is not self.embedding:
            yield self.head
        yield self.norm
        for layer in self.layers:
            yield from (t for f in fields(layer) if (t := getattr(layer, f.name)) is not None)

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.tensors())


class _Checkpoint:
    """The tensors of a folder's safetensors files by name."""

    def __init__(self, folder: Path, stack: ExitStack):
        from safetensors import SafetensorError, safe_open

        self._folder = folder
        self._files: dict[str, Any] = {}
        for path in self._paths(folder):
            try:
                file = stack.enter_context(safe_open(path, framework="pt", device="cpu"))
            except FileNotFoundError:
                raise ModelError(f"{path} is missing; the checkpoint is not complete: download it again") from None
            except (SafetensorError, OSError) as error:
                raise ModelError(f"{path} is damaged ({error}); delete {folder} and get the model again") from None
            self._files.update(dict.fromkeys(file.keys(), file))

    @staticmethod
    def _paths(folder: Path) -> list[Path]:
        files = read_json(folder / "model.safetensors.index.json").get("weight_map", {}).values()
        return [folder / name for name in sorted(set(files) or {"model.safetensors"})]

    def __contains__(self, name: str) -> bool:
        return name in self._files

    def __call__(self, name: str, *shape: int) -> torch.Tensor:
        if name not in self._files:
            raise ModelError(f"{self._folder} has no tensor {name}; the checkpoint is of another kind or not complete")
        tensor = self._files[name].get_tensor(name)
        if tuple(tensor.shape) != shape:
            raise ModelError(f"{name} has shape {list(tensor.shape)}; config.json asks for {list(shape)}")
        return tensor


@contextmanager
def _one_thread() -> Iterator[None]:
    """PyTorch copies a matrix by all of its threads and waits for the last; beside other work that takes far longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def load_weights(folder: Path, config: DecoderConfig, dtype: torch.dtype, device: torch.device) -> Weights:
    """Every tensor of the model in `dtype` on `device`. Raises ModelError that names what is missing or misshapen."""
    with ExitStack() as stack, _one_thread():
        get = _Checkpoint(folder, stack)
        own = threading.local()

        def begin() -> None:
            torch.set_num_threads(1)
            own.pages = HugePages()

        def put(*parts: torch.Tensor) -> torch.Tensor:
            return own.pages.place(*(part.to(device) for part in parts), dtype=dtype)

        tied = config.tied or "lm_head.weight" not in get
        # Side by side, as most of the time is the system's, which hands out the memory page by page.
        pool = ThreadPoolExecutor(READERS, "weights", begin)
        stack.callback(pool.shutdown, cancel_futures=True)  # after a tensor that is missing none is read any more
        matrix = (config.vocab_size, config.hidden)
        embedding = pool.submit(lambda: put(get("model.embed_tokens.weight", *matrix)))
        head = embedding if tied else pool.submit(lambda: put(get("lm_head.weight", *matrix)))
        norm = pool.submit(lambda: put(get("model.norm.weight", config.hidden)))
        layers = pool.map(lambda i: _layer(get, f"model.layers.{i}.", config, put), range(config.layers))
        return Weights(embedding.result(), tuple(layers), norm.result(), head.result())


def _layer(get: _Checkpoint, prefix: str, config: DecoderConfig, put: Any) -> LayerWeights:
    q_rows, kv_rows = config.heads * config.head_dim, config.kv_heads * config.head_dim
    hidden, ffn = config.hidden, config.ffn
    rows = {"q": q_rows, "k": kv_rows, "v": kv_rows}
    attn, mlp = prefix + "self_attn.", prefix + "mlp."
    return LayerWeights(
        attn_norm=put(get(prefix + "input_layernorm.weight", hidden)),
        qkv=put(*(get(f"{attn}{x}_proj.weight", n, hidden) for x, n in rows.items())),
        o=put(get(attn + "o_proj.weight", hidden, q_rows)),
        ffn_norm=put(get(prefix + "post_attention_layernorm.weight", hidden)),
        gate_up=put(*(get(f"{mlp}{x}_proj.weight", ffn, hidden) for x in ("gate", "up"))),
        down=put(get(mlp + "down_proj.weight", hidden, ffn)),
        qkv_bias=put(*(get(f"{attn}{x}_proj.bias", n) for x, n in rows.items())) if config.qkv_bias else None,
        o_bias=put(get(attn + "o_proj.bias", hidden)) if config.o_bias else None,
        q_norm=put(get(attn + "q_norm.weight", config.head_dim)) if config.qk_norm else None,
        k_norm=put(get(attn + "k_norm.weight", config.head_dim)) if config.qk_norm else None,
    )
