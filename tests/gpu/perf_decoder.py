"""Times the decoder on the device at hand: decode, prefill, a full batch, the panel's cost, and transformers beside it.

    python -m tests.gpu.perf_decoder [--shape smollm2-135m | llama-1b | all] [--only decode,prefill,batch,panel,peers]
                                     [--model FOLDER] [--out FOLDER] [--seconds 540]

Every line is one JSON object with what was measured; --out also adds them to <FOLDER>/<device>/decoder.jsonl, which
the Chat tab shows on hosts without that GPU. Weights are
random unless --model gives a checkpoint: a step reads and multiplies the same bytes whatever they hold. A part that
fails or finds no time left says so in its line, and the next goes on. No test; nothing is judged here.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TextIO

import torch

from playground.decoder import profile, recorded, stats
from playground.decoder.batch import Batch
from playground.decoder.cache import KVStore, PagePool
from playground.decoder.config import DecoderConfig, read_config
from playground.decoder.conversation import Limits
from playground.decoder.generate import CACHE_DTYPES, DTYPES, backend_table
from playground.decoder.looks import ProfileRequest
from playground.decoder.model import Model
from playground.decoder.runner import Runner
from playground.decoder.weights import LayerWeights, Weights, load_weights
from playground.engine import host, recordings
from playground.engine.messages import Source

SHAPES = {
    "smollm2-135m": DecoderConfig("smollm2-135m", 49_152, 576, 30, 9, 3, 64, 1536, 8192, 1e-5, 100_000.0),
    "llama-1b": DecoderConfig("llama-1b", 128_256, 2048, 16, 32, 8, 64, 8192, 8192, 1e-5, 500_000.0),
}
PARTS = ("decode", "prefill", "batch", "panel", "peers")


class Report:
    """Where the lines go."""

    def __init__(self, file: TextIO | None, **common: object):
        self._file, self._common = file, common

    def __call__(self, what: str, **values: object) -> None:
        line = json.dumps({"what": what, **self._common, **values})
        print(line, flush=True)
        if self._file:
            print(line, file=self._file, flush=True)


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


def make_batch(arguments: argparse.Namespace, config: DecoderConfig, meter: stats.Meter) -> Batch:
    device, dtype = torch.device(arguments.device), DTYPES[arguments.dtype]
    torch.manual_seed(0)
    given = arguments.model
    weights = load_weights(given, config, dtype, device) if given else random_weights(config, dtype, device)
    pages = arguments.context * 65 // arguments.page_size
    store = KVStore(config, pages, arguments.page_size, CACHE_DTYPES[arguments.cache_dtype or arguments.dtype], device)
    model = Model(config, weights, store, arguments.context)
    runner = Runner(model, arguments.page_size, 64, arguments.chunk)
    runner.swap(backend_table(arguments.backend))
    return Batch(runner, PagePool(pages, arguments.page_size), (), meter)


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def prompt(config: DecoderConfig, seed: int, length: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, min(40_000, config.vocab_size), (length,), generator=generator).tolist()


def started(batch: Batch, count: int, length: int) -> None:
    """`count` conversations of `length` tokens each, all decoding."""
    for i in range(count):
        batch.submit(prompt(batch.runner.model.config, i, length), limits=Limits())
    while batch.waiting or batch.prefilling:
        batch.step()
    for _ in range(5):  # captures, compiles
        batch.step()


def ended(batch: Batch) -> None:
    for conversation in [*batch.active, *batch.waiting]:
        batch.cancel(conversation)
    while not batch.idle:
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


def decode(batch: Batch, arguments: argparse.Namespace, say: Report) -> None:
    started(batch, 1, 512 - 64)
    times = [steps(batch, arguments.steps) for _ in range(3)]
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
    for count in (1, 16):
        found = profile.profile(batch, ProfileRequest(batch=count, context=512), here)
        boxes = {box.box: round(1e6 * box.seconds, 1) for box in found.boxes}
        say("profile", batch=count, how=found.how, step_ms=1e3 * found.step_seconds, us=boxes)
    ended(batch)


def prefill(batch: Batch, arguments: argparse.Namespace, say: Report) -> None:
    times = []
    for i in range(6):
        batch.submit(prompt(batch.runner.model.config, 99 + i, 512), limits=Limits(max_tokens=1))
        wait()
        began = time.perf_counter()
        while not batch.idle:
            batch.step()
        wait()
        times.append(time.perf_counter() - began)
    say("prefill", tokens=512, ms=1e3 * median(times[1:]))
    ended(batch)


def full(batch: Batch, arguments: argparse.Namespace, say: Report) -> None:
    length = 256 if arguments.device != "cpu" else 32
    for count in (8, 20, 64):
        started(batch, count, length)
        seconds = steps(batch, max(8, arguments.steps // 2))
        say("batch", batch=count, context=length, tokens_per_second=count / seconds, ms=1e3 * seconds)
        ended(batch)


def panel(batch: Batch, arguments: argparse.Namespace, say: Report, meter: stats.Meter) -> None:
    """On and off in turn, so that a clock that drifts meets both."""
    for count in (1, 20) if arguments.device == "cpu" else (1, 20, 64):
        started(batch, count, 256 if arguments.device != "cpu" else 32)
        off, on = [], []
        for _ in range(5):
            off.append(steps(batch, arguments.steps))
            on.append(steps(batch, arguments.steps, 0.1, meter))
        say("panel", batch=count, cost=median(on) / median(off) - 1, off_ms=1e3 * median(off), on_ms=1e3 * median(on))
        ended(batch)


def peers(arguments: argparse.Namespace, c: DecoderConfig, say: Report) -> None:
    """transformers on the same shape: eager, and with a static cache and torch.compile."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=c.vocab_size, hidden_size=c.hidden, intermediate_size=c.ffn, num_hidden_layers=c.layers,
        num_attention_heads=c.heads, num_key_value_heads=c.kv_heads, head_dim=c.head_dim, tie_word_embeddings=True,
        max_position_embeddings=c.max_context, rms_norm_eps=c.rms_eps,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).to(arguments.device, DTYPES[arguments.dtype]).eval()
    ids = torch.tensor([prompt(c, 0, 448)], device=arguments.device)

    def generate(count: int, options: dict[str, object]) -> float:
        """Seconds of an answer of exactly `count` tokens."""
        wait()
        began = time.perf_counter()
        model.generate(ids, max_new_tokens=count, min_new_tokens=count, do_sample=False, eos_token_id=None, **options)
        wait()
        return time.perf_counter() - began

    ways = {"eager": {}} | ({} if arguments.device == "cpu" else {"static cache": {"cache_implementation": "static"}})
    for name, options in ways.items():
        first = generate(8, options)  # compiles
        times = [generate(64, options) - generate(1, options) for _ in range(3)]
        say("transformers", how=name, tokens_per_second=63 / median(times), first_seconds=first)


def measure(arguments: argparse.Namespace, config: DecoderConfig, say: Report, deadline: float) -> None:
    """Each part by itself; a failure of one is its line, and the next is tried."""
    meter = stats.Meter()
    batch = make_batch(arguments, config, meter)
    parts: dict[str, Callable[[], None]] = {
        "decode": lambda: decode(batch, arguments, say),
        "prefill": lambda: prefill(batch, arguments, say),
        "batch": lambda: full(batch, arguments, say),
        "panel": lambda: panel(batch, arguments, say, meter),
        "peers": lambda: peers(arguments, config, say),
    }
    for name in arguments.only.split(","):
        if time.monotonic() > deadline:
            say("left out", part=name, why=f"--seconds {arguments.seconds} are over")
            continue
        began = time.monotonic()
        try:
            parts[name]()
        except Exception as error:  # noqa: BLE001 - one part's failure is a result, and the others' time is dear
            say("failed", part=name, why=f"{type(error).__name__}: {error}"[:400])
            ended(batch)
        say("part", part=name, seconds=round(time.monotonic() - began, 1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=(*SHAPES, "all"), default="all")
    parser.add_argument("--model", type=Path, help="a checkpoint, in place of random weights; --shape names it")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, help="a folder of recordings: DEVICE/decoder.jsonl is written on")
    parser.add_argument("--seconds", type=float, default=540.0, help="no part begins after so many")
    parser.add_argument("--steps", type=int, help="of each measurement; 128, on a CPU 16")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--dtype", choices=DTYPES, help="bfloat16, on a CPU float32")
    parser.add_argument("--cache-dtype", choices=CACHE_DTYPES)
    parser.add_argument("--backend", choices=("triton", "torch"), default="triton")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--page-size", type=int, default=16)
    parser.add_argument("--chunk", type=int, default=512)
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.only.split(",") if name not in PARTS]:
        parser.error(f"--only has no {', '.join(unknown)}; there are {', '.join(PARTS)}")
    on_cpu = arguments.device == "cpu"
    arguments.steps = arguments.steps or (16 if on_cpu else 128)
    arguments.dtype = arguments.dtype or ("float32" if on_cpu else "bfloat16")
    return arguments


def main() -> None:
    arguments = _arguments()
    deadline = time.monotonic() + arguments.seconds
    if arguments.device == "cpu" and arguments.backend == "triton":
        from playground import native

        native.enable()
    configs = {name: c for name, c in SHAPES.items() if arguments.shape in (name, "all")}
    if arguments.model:
        name = arguments.model.name if arguments.shape == "all" else arguments.shape
        configs = {name: read_config(arguments.model)}
    device = torch.cuda.get_device_name() if arguments.device.startswith("cuda") else arguments.device
    file = None
    if arguments.out:
        path = arguments.out / recordings.slug(device) / "decoder.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
    with torch.no_grad():
        for shape, config in configs.items():
            weights = "a checkpoint's" if arguments.model else "random"
            say = Report(file, shape=shape, device=device, dtype=arguments.dtype, cache_dtype=arguments.cache_dtype)
            say(
                "setup", weights=weights, backend=arguments.backend, steps=arguments.steps, versions=host.versions(),
                date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                source_hash=recorded.source_hash(),
            )  # fmt: skip
            measure(arguments, config, say, deadline)
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
