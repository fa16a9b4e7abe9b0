"""What the decoder reached on a GPU, for hosts that have none: the lines that tests/gpu/perf_decoder.py wrote there.

One file for each GPU, <recordings>/<gpu>/decoder.jsonl: a "setup" line, then the figures of that run. Nothing is
measured here.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from playground.decoder import fused, launches
from playground.engine import fingerprint
from playground.engine.fingerprint import bare
from playground.engine.messages import Message, Source

KERNELS = (
    "embedding", "rms_norm", "add_rms_norm", "silu_mul", "rope", "kv_cache_write", "decode_attention",
    "prefill_attention", "linear", "matmul", "sample",
)  # fmt: skip


class DecoderRun(Message):
    """The figures of one run of a model's shape on a GPU; None where the run left one out.

    shape: as SmolLM2-135M. weights: "random" or "a checkpoint's". tokens_per_second: one conversation at `context`
    tokens. batches: tokens per second of all conversations together, by their number. prefill_ms: of 512 tokens.
    peers: tokens per second of transformers in the same run, by how it ran. stale: the kernels have changed since.
    """

    shape: str
    weights: str
    dtype: str
    source: Source
    tokens_per_second: float | None = None
    context: int = 512
    prefill_ms: float | None = None
    batches: dict[int, float] = Field(default_factory=dict)
    peers: dict[str, float] = Field(default_factory=dict)
    stale: bool = False


@lru_cache(maxsize=1)
def source_hash() -> str:
    """Of every kernel of a step, and of how a step launches them."""
    parts = [fingerprint.current_hash(name) for name in KERNELS]
    parts += [bare(Path(str(module.__file__)).read_text()) for module in (fused, launches)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def runs(directory: Path) -> list[DecoderRun]:
    """Every recorded run, GPU by GPU; a file that cannot be read counts as not there, and stderr hears of it."""
    found: list[DecoderRun] = []
    for path in sorted(directory.glob("*/decoder.jsonl")):
        try:
            found += _read(path, path.stat().st_mtime_ns)
        except (ValueError, KeyError, OSError) as error:
            print(f"{path} cannot be read as the decoder's recording: {error!r}", file=sys.stderr)
    return found


def check(directory: Path) -> list[str]:
    """A line for each recorded run whose kernels have changed since."""
    return [
        f"{run.source.device}, the decoder as {run.shape}: recorded with older kernels on {run.source.date[:10]}; "
        "record it again"
        for run in runs(directory)
        if run.stale
    ]


@lru_cache(maxsize=16)
def _read(path: Path, changed: int) -> tuple[DecoderRun, ...]:
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return tuple(_run(group) for group in _by_setup(lines))


def _by_setup(lines: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    for line in lines:
        if line["what"] == "setup" and group:
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _run(lines: list[dict[str, Any]]) -> DecoderRun:
    setup = lines[0]
    of: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        of.setdefault(line["what"], []).append(line)
    decode, prefill = of.get("decode", [{}])[0], of.get("prefill", [{}])[0]
    return DecoderRun(
        shape=setup["shape"],
        weights=setup["weights"],
        dtype=setup["dtype"],
        source=Source(
            kind="recorded", device=setup["device"], date=setup["date"], versions=setup["versions"],
            note=setup.get("note", ""),
        ),
        tokens_per_second=decode.get("tokens_per_second"),
        context=decode.get("context", 512),
        prefill_ms=prefill.get("ms"),
        batches={line["batch"]: line["tokens_per_second"] for line in of.get("batch", [])},
        peers={line["how"]: line["tokens_per_second"] for line in of.get("transformers", [])},
        stale=setup["source_hash"] != source_hash(),
    )  # fmt: skip
