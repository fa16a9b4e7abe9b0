"""Compiled kernels on disk.

A file holds a digest of the rest, a line of JSON about the kernel, and machine
code. A file that is cut short or damaged is as good as none; a disk that is
full or read-only costs a compilation, never a launch. Files are written under a
name of their own and moved into place, so that two processes cannot meet.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from functools import lru_cache
from pathlib import Path

DIGEST_BYTES = 32


def folder() -> Path:
    """`PLAYGROUND_NATIVE_CACHE`, or a folder in the playground's own cache."""
    if chosen := os.environ.get("PLAYGROUND_NATIVE_CACHE"):
        return Path(chosen)
    if cache := os.environ.get("PLAYGROUND_CACHE"):
        return Path(cache) / "native"
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "triton-playground" / "native"


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Changes with this package: its old files are then never met again."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read(key: str) -> tuple[dict, bytes] | None:
    try:
        data = (folder() / key).read_bytes()
    except OSError:
        return None
    if hashlib.sha256(data[DIGEST_BYTES:]).digest() != data[:DIGEST_BYTES]:
        return None
    about, _, code = data[DIGEST_BYTES:].partition(b"\n")
    return json.loads(about), code


def write(key: str, about: dict, code: bytes) -> None:
    rest = json.dumps(about).encode() + b"\n" + code
    name = None
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder(), delete=False) as file:
            name = file.name
            file.write(hashlib.sha256(rest).digest() + rest)
        os.replace(name, folder() / key)
    except OSError:
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(name)
