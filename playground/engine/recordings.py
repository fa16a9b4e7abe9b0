"""What was once measured on a GPU, for hosts that have none: files, lookup, and whether the kernel has changed since.

A recording is <directory>/<gpu>/<kernel>.json. It holds results as they were given, marked as recorded, with the
hash of the jit functions, plan and configs that ran. Nothing is measured here; `record` does that.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from kernels.spec import InputError
from playground.engine import fingerprint
from playground.engine.choose import Chosen
from playground.engine.messages import BenchResult, Message, ResourcesResult, Roofs, RunResult
from playground.engine.sweep_messages import SweepResult

DIGITS = 6  # significant ones, of every figure in a file


class Recording(Message):
    """All that is recorded of one kernel on one GPU.

    source_hash: of what ran, see fingerprint.py; but a bench or sweep that is stale is of an older kernel, and waits
    to be measured anew. skipped: shapes that gave no result, each with the reason.
    """

    gpu: str
    arch: str
    kernel: str
    date: str
    versions: dict[str, str]
    source_hash: str
    roofs: Roofs
    benches: tuple[BenchResult, ...] = ()
    runs: tuple[RunResult, ...] = ()
    resources: tuple[ResourcesResult, ...] = ()
    sweeps: tuple[SweepResult, ...] = ()
    skipped: dict[str, str] = Field(default_factory=dict)


def slug(gpu: str) -> str:
    """ "NVIDIA H200" as a folder's name, "nvidia-h200"."""
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")


def path_of(directory: Path, gpu: str, kernel: str) -> Path:
    return directory / slug(gpu) / f"{kernel}.json"


def save(directory: Path, recording: Recording) -> Path:
    """Written beside and moved into place, so that a reader never meets half a file."""
    path = path_of(directory, recording.gpu, recording.kernel)
    path.parent.mkdir(parents=True, exist_ok=True)
    slim = _rounded(recording.model_dump(mode="json", exclude_defaults=True))
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(slim, indent=0, allow_nan=False) + "\n")
    fresh.replace(path)
    return path


def _rounded(value: Any) -> Any:
    if isinstance(value, float) and value and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def load(path: Path) -> Recording:
    """Raises ValueError that names the file where it is no recording of this version."""
    return _load(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _load(path: Path, changed: int) -> Recording:
    try:
        return Recording.model_validate_json(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path.name} in {path.parent.name} cannot be read as a recording: {error}") from error


def all_of(directory: Path, kernel: str) -> list[Recording]:
    """Every GPU's recording of the kernel; files that cannot be read count as not there, and `check` names them."""
    found = []
    for path in sorted(directory.glob(f"*/{kernel}.json")):
        try:
            found.append(load(path))
        except ValueError as error:
            print(error, file=sys.stderr)
    return found


def find(directory: Path, chosen: Chosen) -> tuple[BenchResult, ...]:
    """Every recorded benchmark of the kernel in this dtype, the exact shape first, else the nearest.

    Where the first is of another shape, its note says which one was asked for. `stale` is set where the kernel has
    changed since. An edge case's or edited kernel's time is never that of ours: such a choice finds nothing.
    """
    if chosen.edge is not None or chosen.bug is not None:
        return ()
    found = []
    for recording in all_of(directory, chosen.spec.name):
        stale = recording.source_hash != fingerprint.current_hash(chosen.spec.name)
        found += [(distance(b.choice.dims, chosen.dims), b, stale) for b in recording.benches]
    found = [item for item in found if item[1].choice.dtype == chosen.dtype]
    found.sort(key=lambda item: item[0])
    results = [bench.model_copy(update={"stale": stale or bench.stale}) for _, bench, stale in found]
    if results and found[0][0] > 0:
        asked = ", ".join(f"{name}={value:,}" for name, value in chosen.dims.items())
        had = ", ".join(f"{name}={value:,}" for name, value in results[0].choice.dims.items())
        note = f"recorded for {had}, the nearest to {asked}"
        results[0] = results[0].model_copy(update={"note": "; ".join(filter(None, (results[0].note, note)))})
    return tuple(results)


def find_sweeps(directory: Path, chosen: Chosen) -> tuple[SweepResult, ...]:
    """Every recorded sweep over configs of the kernel in this dtype, the nearest shape first.

    `stale` is set where the kernel has changed since; `recorded_note` says so, names the shape, and says where it is
    not the one asked for.
    """
    if chosen.edge is not None or chosen.bug is not None:
        return ()
    found = []
    for recording in all_of(directory, chosen.spec.name):
        stale = recording.source_hash != fingerprint.current_hash(chosen.spec.name)
        mine = (sweep for sweep in recording.sweeps if sweep.choice.dtype == chosen.dtype)
        found += [sweep.model_copy(update={"stale": stale or sweep.stale}) for sweep in mine]
    found.sort(key=lambda sweep: distance(sweep.choice.dims, chosen.dims))
    return tuple(sweep.model_copy(update={"recorded_note": _sweep_note(sweep, chosen.dims)}) for sweep in found)


def _sweep_note(sweep: SweepResult, asked: Mapping[str, int]) -> str:
    older = " with an older kernel" if sweep.stale else ""
    shape = ", ".join(f"{name}={value:,}" for name, value in sweep.choice.dims.items())
    return f"recorded{older} for {shape}" + (", the nearest shape" if distance(sweep.choice.dims, asked) else "")


def distance(a: Mapping[str, int], b: Mapping[str, int]) -> float:
    """How far two shapes lie apart: factors of two, summed over the dims. 0 for the same shape."""
    if set(a) != set(b):
        return math.inf
    return sum(abs(math.log2((a[name] + 1) / (b[name] + 1))) for name in a)


def check(directory: Path) -> list[str]:
    """A line for each recording that cannot be read, or whose kernel is gone or has changed since."""
    lines = []
    for path in sorted(directory.glob("*/*.json")):
        name = f"{path.parent.name}/{path.stem}"
        try:
            recording = load(path)
            stale = recording.source_hash != fingerprint.current_hash(recording.kernel)
        except (ValueError, InputError) as error:
            lines.append(f"{name}: {str(error).splitlines()[0]}")
            continue
        if stale:
            lines.append(f"{name}: recorded with an older kernel on {recording.date[:10]}; record it again")
        for kind, kept in () if stale else (("shapes", recording.benches), ("sweeps", recording.sweeps)):
            if older := sum(one.stale for one in kept):
                lines.append(f"{name}: {older} of {len(kept)} {kind} recorded with an older kernel; record it again")
    return lines + _older_peers(directory)


def _older_peers(directory: Path) -> list[str]:
    """The same of peers.jsonl: kernels beside their peers, a line for each measurement (tests/gpu/perf.py)."""
    rows = [
        (f"{path.parent.name}/peers, {row['kernel']}", row)
        for path in sorted(directory.glob("*/peers.jsonl"))
        for row in map(json.loads, path.read_text().splitlines())
    ]
    current = fingerprint.current_hash
    older = {name: row["date"][:10] for name, row in rows if row["source_hash"] != current(row["kernel"])}
    return [f"{name}: measured with an older kernel on {date}; measure it again" for name, date in older.items()]
