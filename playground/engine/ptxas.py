"""What ptxas, NVIDIA's assembler, says of a kernel: registers and spills, from the run that made its cubin.

Triton runs ptxas with -v and throws its words away. While `listening`, they are kept in the compiled kernel's
metadata, in Triton's own cache too, so that no second run is needed; without them ptxas runs once more.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import triton
from triton import knobs

_SAID = "ptxas_log"  # in a compiled kernel's metadata


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """What triton.compile makes meanwhile has what ptxas said in its metadata. Not for several threads at once."""
    if knobs.runtime.add_stages_inspection_hook is not None:  # someone else's, such as a profiler's
        yield
        return
    knobs.runtime.add_stages_inspection_hook = _listen
    try:
        yield
    finally:
        knobs.runtime.add_stages_inspection_hook = None


def _listen(backend: Any = None, stages: Any = None, *rest: Any) -> tuple[str, str] | None:
    """Called bare for what it adds to the cache's key, which is nothing: the code stays Triton's own."""
    if stages is None:
        return "", ""
    if "cubin" in stages:
        stages["cubin"] = functools.partial(_assembled, stages["cubin"])
    return None


def _assembled(stage: Callable[[str, dict[str, Any]], bytes], ptx: str, metadata: dict[str, Any]) -> bytes:
    said = io.StringIO()
    with knobs.nvidia.scope(), contextlib.redirect_stdout(said):
        knobs.nvidia.dump_ptxas_log = True
        cubin = stage(ptx, metadata)
    metadata[_SAID] = said.getvalue()
    return cubin


def figures(built: Any) -> tuple[int, int]:
    """(registers a thread, bytes spilled a thread) of a kernel that Triton has compiled."""
    said = getattr(built.metadata, _SAID, None)
    return _figures(said) if said else _figures_of(built.asm["ptx"], bool(built.metadata.enable_fp_fusion))


@functools.lru_cache(maxsize=256)
def _figures_of(ptx: str, fuses: bool) -> tuple[int, int]:
    return _figures(assemble(ptx, fuses)[1])


def _figures(log: str) -> tuple[int, int]:
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if not registers:
        raise RuntimeError(f"ptxas: {log.strip().splitlines()[0] if log.strip() else 'no figures'}")
    return int(registers[1]), int(spills[1]) if spills else 0


def assemble(ptx: str, fuses: bool) -> tuple[bytes, str]:
    """(cubin, what ptxas -v said), by the ptxas that Triton brings, with the flags of Triton's own call."""
    found = re.search(r"\.target\s+sm_(\d+)(\w?)", ptx)
    assert found, "PTX names its target"
    tool = knobs.nvidia.ptxas_blackwell if int(found[1]) >= 100 else knobs.nvidia.ptxas
    flags = ["-v", "-lineinfo", f"--gpu-name=sm_{found[1]}{found[2]}"]
    if not fuses:
        flags.append("--fmad=false")
    if tuple(map(int, triton.__version__.split(".")[:2])) >= (3, 7):
        flags.append("--regAllocOptLevel=2")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        cubin = path.with_suffix(".cubin")
        done = subprocess.run(
            [tool.path, *flags, str(path), "-o", str(cubin)], capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise RuntimeError(f"ptxas: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else 'it failed'}")
        return cubin.read_bytes(), done.stderr
