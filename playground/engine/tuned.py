"""The winners of sweeps, kept on disk for the device they won on, and used by every run there afterwards, and by the
decoder.

One JSON file in the cache. A winner holds for its kernel (by the hash of its source), dtype, device and Triton
version, and for shapes of its class: every dim within the same power of two. A file that cannot be read counts as
empty: it is a cache, and a sweep fills it again.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import triton
from pydantic import TypeAdapter, ValidationError

from kernels.spec import Inputs, KernelSpec, next_power_of_2
from playground.engine import fingerprint
from playground.engine.messages import ConfigChoice, Message
from playground.settings import Settings


class Winner(Message):
    """A kept config: what it won for, its time and the default's (microseconds, median), and when."""

    kernel: str
    source_hash: str
    dtype: str
    dims: dict[str, int]
    device: str
    triton: str
    config: ConfigChoice
    us: float
    default_us: float | None = None
    date: str

    @property
    def key(self) -> tuple:
        return _key(self.kernel, self.dtype, self.dims, self.device)


_FILE = TypeAdapter(list[Winner])
_CHANGING = threading.Lock()  # between reading the file and writing it: several people keep what they found


def _key(kernel: str, dtype: str, dims: Mapping[str, int], device: str) -> tuple:
    return kernel, dtype, tuple(sorted((name, next_power_of_2(size)) for name, size in dims.items())), device


def path(cache: Path | None = None) -> Path:
    """cache: the folder, where it is not the one that this process's environment names. So everywhere below."""
    return (cache or Settings.from_env().cache) / "tuned.json"


def winners(cache: Path | None = None) -> list[Winner]:
    """Those that still hold: of today's kernels and this Triton."""
    return [w for w in _read(cache) if w.triton == triton.__version__ and w.source_hash == _hash(w.kernel)]


def lookup(kernel: str, dtype: str, dims: Mapping[str, int], device: str) -> ConfigChoice | None:
    """The config that won for this shape's class on this device."""
    wanted = _key(kernel, dtype, dims, device)
    return next((w.config for w in winners() if w.key == wanted), None)


def for_inputs(spec: KernelSpec, inputs: Inputs, device: str) -> ConfigChoice | None:
    """The config that won for inputs of this class, for who has tensors and no dims, such as the decoder."""
    if not path().exists():
        return None
    mine = _shapes(inputs)
    for w in winners():
        if (w.kernel, w.device) != (spec.name, device):
            continue
        its = _shapes(spec.inputs(w.dims, w.dtype, "meta"))
        if all(its.get(name) == shape for name, shape in mine.items()):  # what is optional may be left out
            return w.config
    return None


def _shapes(inputs: Inputs) -> dict[str, tuple]:
    """Each tensor's dtype, and its sizes as powers of two."""
    return {
        name: (value.dtype, tuple(next_power_of_2(size) for size in value.shape))
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor)
    }


def keep(
    kernel: str, dtype: str, dims: Mapping[str, int], device: str, config: ConfigChoice, us: float,
    default_us: float | None = None, cache: Path | None = None,
) -> Winner:  # fmt: skip
    """Write a winner down, in place of an earlier one of its class. Raises OSError where the cache is not writable."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    winner = Winner(
        kernel=kernel, source_hash=_hash(kernel), dtype=dtype, dims=dict(dims), device=device,
        triton=triton.__version__, config=config, us=us, default_us=default_us, date=now,
    )  # fmt: skip
    with _CHANGING:
        _write([w for w in _read(cache) if w.key != winner.key] + [winner], cache)
    return winner


def forget(kernel: str | None = None, cache: Path | None = None) -> int:
    """Take a kernel's winners out, or all; returns how many those were."""
    with _CHANGING:
        before = _read(cache)
        after = [w for w in before if kernel is not None and w.kernel != kernel]
        if len(after) != len(before):
            _write(after, cache)
    return len(before) - len(after)


def _hash(kernel: str) -> str:
    try:
        return fingerprint.current_hash(kernel)
    except ValueError:  # a kernel that there is no more
        return ""


def _read(cache: Path | None = None) -> list[Winner]:
    try:
        return _FILE.validate_json(path(cache).read_bytes())
    except (OSError, ValidationError):
        return []


def _write(entries: list[Winner], cache: Path | None) -> None:
    """In one step, so that a reader in another process never meets half a file."""
    target = path(cache)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _beside(target) as fresh:
        fresh.write_bytes(_FILE.dump_json(entries, indent=1))
        fresh.replace(target)


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.stem)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
