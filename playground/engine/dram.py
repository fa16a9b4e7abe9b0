"""What DRAM saw of a kernel: counters of ncu, recorded on a GPU where they may be read, looked up everywhere else.

A recording is <directory>/<gpu>/dram/<kernel>.json. Nothing is counted here: tests/gpu/ncu_bytes.py does that.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

from playground.engine import fingerprint, recordings
from playground.engine.choose import Chosen
from playground.engine.messages import Message, Source


class DramBytes(Message):
    """One shape: bytes that DRAM read and wrote, and that L2 was asked for, over all launches of the plan."""

    dims: dict[str, int]
    dtype: str
    read: int
    written: int
    l2_bytes: int | None = None

    @property
    def moved(self) -> int:
        return self.read + self.written


class DramRecording(Message):
    """All counted shapes of one kernel on one GPU. source_hash as in a recording of times."""

    kernel: str
    source_hash: str
    shapes: tuple[DramBytes, ...]
    source: Source


def path_of(directory: Path, gpu: str, kernel: str) -> Path:
    return directory / recordings.slug(gpu) / "dram" / f"{kernel}.json"


def save(directory: Path, gpu: str, recording: DramRecording) -> Path:
    path = path_of(directory, gpu, recording.kernel)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(recording.model_dump_json(indent=1, exclude_defaults=True) + "\n")
    return path


@lru_cache(maxsize=64)
def _load(path: Path, changed: int) -> DramRecording | None:
    try:
        return DramRecording.model_validate_json(path.read_text())
    except ValueError as error:
        print(f"{path} cannot be read as a recording: {error}", file=sys.stderr)
        return None


def find(directory: Path, chosen: Chosen) -> tuple[DramRecording, DramBytes, bool] | None:
    """What DRAM saw of this kernel and dtype: the recording, the shape nearest to the one chosen, and whether the
    kernel has changed since. None where nothing was counted, and for edge cases and planted bugs."""
    if chosen.edge or chosen.bug:
        return None
    found = []
    for path in sorted(directory.glob(f"*/dram/{chosen.spec.name}.json")):
        recording = _load(path, path.stat().st_mtime_ns)
        if recording is None:
            continue
        for shape in recording.shapes:
            if shape.dtype == chosen.dtype:
                found.append((recordings.distance(shape.dims, chosen.dims), recording, shape))
    if not found:
        return None
    _, recording, shape = min(found, key=lambda item: item[0])
    return recording, shape, recording.source_hash != fingerprint.current_hash(chosen.spec.name)
