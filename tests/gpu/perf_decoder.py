"""Times the decoder on the GPU at hand: decode, prefill, a full batch, the panel's cost, and transformers beside it.

    python -m tests.gpu.perf_decoder [--shape smollm2-135m | llama-1b] [--only decode,prefill,batch,panel,peers]

Weights are random: a step reads and multiplies the same bytes whatever they hold. Every line is one JSON object with
what was measured. No test; nothing is judged here.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median

import torch

from playground import native
from playground.decoder import profile, stats
from playground.decoder.batch import Batch
from playground.decoder.cache import KVStore, PagePool
from playground.decoder.config import DecoderConfig
from playground.decoder.conversation import Limits
from playground.decoder.generate import CACHE_DTYPES, DTYPES, backend_table
from playground.decoder.looks import ProfileRequest
from playground.decoder.model import Model
from playground.decoder.runner import Runner
from playground.decoder.weights import LayerWeights, Weights
from playground.engine.messages import Source

SHAPES = {
    "smollm2-135m": DecoderConfig("smollm2-135m", 49_152, 576, 30, 9, 3, 64, 1536, 8192, 1e-5, 100_000.0),
    "llama-1b": DecoderConfig("llama-1b", 128_256, 2048, 16, 32, 8, 64, 8192, 8192, 1e-5, 500_000.0),
}


def random_weights(config: DecoderConfig, dtype: torch.dtype, device: torch.device) -> Weights:
    def matrix(rows: int, cols: int) -> torch.Tensor:
        return torch.randn(rows, cols, dtype=torch.float32, device=device).mul_(0.02).to(dtype)

    def norm() -> torch.Tensor:
        return torch.ones(config.hidden, dtype=dtype, device=device)

    def layer() -> LayerWeights:
        return LayerWeights(
            norm(),
            matrix(config.qkv_rows, config.hidden),
            matrix(config.hidden, config.heads * config.head_dim),
            norm(),
            matrix(2 * config.ffn, config.hidden),
            matrix(config.hidden, config.ffn),
        )

    embedding = matrix(config.vocab_size, config.hidden)
    return Weights(embedding, tuple(layer() for _ in range(config.layers)), norm(), embedding)


def make_batch(arguments: argparse.Namespace, meter: stats.Meter) -> Batch:
    config, device = SHAPES[arguments.shape], torch.device(arguments.device)
    dtype = DTYPES[arguments.dtype]
    torch.manual_seed(0)
    weights = random_weights(config, dtype, device)
    pages = arguments.context * 65 // arguments.page_size
    store = KVStore(config, pages, arguments.page_size, CACHE_DTYPES[arguments.cache_dtype or arguments.dtype], device)
    model = Model(config, weights, store, arguments.context)
    runner = Runner(model, arguments.page_size, 64, arguments.chunk)
    runner.swap(backend_table(arguments.backend))
    return Batch(runner, PagePool(pages, arguments.page_size), (), meter)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def say(what: str, **values: object) -> None:
    print(json.dumps({"what": what, **values}), flush=True)


def started(batch: Batch, count: int, length: int) -> None:
    """`count` conversations of `length` tokens each, all decoding."""
    for i in range(count):
        tokens = torch.randint(0, 40_000, (length,), generator=torch.Generator().manual_seed(i)).tolist()
        batch.submit(tokens, limits=Limits())
    while batch.waiting or batch.prefilling:
        batch.step()
    for _ in range(5):  # captures, compiles
        batch.step()


def ended(batch: Batch) -> None:
    for conversation in [*batch.active, *batch.waiting]:
        batch.cancel(conversation)
    batch.step()
    batch.pool.drop_cached()


def steps(batch: Batch, count: int, every: float = 0.0, meter: stats.Meter | None = None) -> float:
    """Seconds for each of `count` steps; with the panel's figures made every `every` seconds."""
    wait()
    began = shown = time.perf_counter()
    for _ in range(count):
        batch.step()
        if meter and every and time.perf_counter() - shown >= every:
            shown = time.perf_counter()
            stats.chat_stats(batch, meter).model_dump_json()
    batch.drain()
    wait()
    return (time.perf_counter() - began) / count


def decode(batch: Batch, arguments: argparse.Namespace) -> None:
    started(batch, 1, 512 - 64)
    times = [steps(batch, 128 if arguments.device != "cpu" else 16) for _ in range(3)]
    size = batch.runner.decode_size(1)
    say("decode", batch=1, context=512, tokens_per_second=1 / median(times), ms=1e3 * median(times))
    ready = batch.runner._get("decode", size)[0]
    wait()
    began = time.perf_counter()
    for _ in range(50):
        ready.run()
    wait()
    say("replay", batch=1, ms=1e3 * (time.perf_counter() - began) / 50, calls=len(ready.program.calls))
    batch.reload()
    batch.step()
    batch.drain()
    here = Source(kind="measured", device=arguments.device, date="", versions={})
    found = profile.profile(batch, ProfileRequest(batch=1, context=512), here)
    say("profile", how=found.how, us={name: round(1e6 * spent, 1) for name, spent in found.kernels.items()})
    ended(batch)


def prefill(batch: Batch, arguments: argparse.Namespace) -> None:
    times = []
    for i in range(6):
        tokens = torch.randint(0, 40_000, (512,), generator=torch.Generator().manual_seed(99 + i)).tolist()
        batch.submit(tokens, limits=Limits(max_tokens=1))
        wait()
        began = time.perf_counter()
        while not batch.idle:
            batch.step()
        wait()
        times.append(time.perf_counter() - began)
    say("prefill", tokens=512, ms=1e3 * median(times[1:]))
    ended(batch)


def full(batch: Batch, arguments: argparse.Namespace) -> None:
    for count in (8, 64):
        started(batch, count, 256)
        seconds = steps(batch, 64 if arguments.device != "cpu" else 8)
        say("batch", batch=count, context=256, tokens_per_second=count / seconds, ms=1e3 * seconds)
        ended(batch)


def panel(batch: Batch, arguments: argparse.Namespace, meter: stats.Meter) -> None:
    for count in (1, 64):
        started(batch, count, 256)
        off, on = [], []
        for _ in range(3):
            off.append(steps(batch, 100))
            on.append(steps(batch, 100, 0.1, meter))
        say("panel", batch=count, cost=median(on) / median(off) - 1)
        ended(batch)


def peers(arguments: argparse.Namespace) -> None:
    """transformers on the same shape: eager, and with a static cache and torch.compile."""
    import transformers

    c = SHAPES[arguments.shape]
    config = transformers.LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.hidden, intermediate_size=c.ffn, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, head_dim=c.head_dim, tie_word_embeddings=True,
        max_position_embeddings=c.max_context, rms_norm_eps=c.rms_eps,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).to(arguments.device, DTYPES[arguments.dtype]).eval()
    ids = torch.randint(0, 40_000, (1, 448), device=arguments.device)
    for name, options in (("eager", {}), ("static cache, torch.compile", {"cache_implementation": "static"})):
        for count in (8, 64):
            wait()
            began = time.perf_counter()
            model.generate(
                ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, eos_token_id=None, **options
            )
            wait()
            seconds = time.perf_counter() - began
            if count == 8:
                first = seconds  # compiles
        began = time.perf_counter()
        model.generate(ids, max_new_tokens=1, do_sample=False, **options)
        wait()
        once = time.perf_counter() - began
        say("transformers", how=name, tokens_per_second=63 / (seconds - once), first_seconds=first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="smollm2-135m")
    parser.add_argument("--only", default="decode,prefill,batch,panel")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument("--cache-dtype", choices=CACHE_DTYPES)
    parser.add_argument("--backend", choices=("triton", "torch"), default="triton")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--chunk", type=int, default=512)
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if arguments.device == "cpu" and arguments.backend == "triton":
        native.enable()
    say("setup", **vars(arguments), torch=torch.__version__)
    with torch.no_grad():
        meter = stats.Meter()
        batch = make_batch(arguments, meter)
        if "decode" in chosen:
            decode(batch, arguments)
        if "prefill" in chosen:
            prefill(batch, arguments)
        if "batch" in chosen:
            full(batch, arguments)
        if "panel" in chosen:
            panel(batch, arguments, meter)
        if "peers" in chosen:
            peers(arguments)


if __name__ == "__main__":
    main()
