"""`doctor`: what works on this host and what does not, and why. What can be tried is tried, with a small kernel."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playground.cli.answers import Check, DoctorAnswer
from playground.engine.engine import Engine
from playground.engine.messages import EngineError, ResourcesRequest, RunRequest

KERNEL, DIMS = "vector_add", {"n": 1000}
RANGES = {"torch": ((2, 11), (2, 14)), "triton": ((3, 6), (3, 8))}  # from, and below; as in requirements.txt
ROOM = 2 * 2**30  # bytes on disk: compiled kernels and the chat's default model


def doctor(engine: Engine) -> DoctorAnswer:
    with ThreadPoolExecutor(3) as pool:
        tried = [pool.submit(check, engine) for check in (_native, _interpreter, _compiler)]
        checks = [_python(), _package("torch"), _package("triton"), *_gpu(engine)]
        checks += [check.result() for check in tried]
        checks += [*_c_compilers(), *_baselines(), *_disk(engine), _recordings(engine), _gradio()]
    return DoctorAnswer(ok=all(check.ok for check in checks if check.required), checks=tuple(checks))


def _python() -> Check:
    ok = sys.version_info >= (3, 11) and sys.platform == "linux"
    why = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    remedy = "" if ok else "; Triton has wheels for Python 3.11 and newer on Linux: use Docker or WSL"
    return Check(name="python", ok=ok, why=why + remedy, required=True)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(name: str) -> Check:
    version = _version(name)
    low, high = RANGES[name]
    wanted = f"{low[0]}.{low[1]} or newer, below {high[0]}.{high[1]}"
    if version is None:
        why = f"not installed; it needs {wanted}: pip install -r requirements.txt"
        return Check(name=name, ok=False, why=why, required=True)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    ok = low <= numbers < high
    return Check(name=name, ok=ok, why=version if ok else f"{version}; it needs {wanted}", required=True)


def _gpu(engine: Engine) -> Iterator[Check]:
    from playground.engine import host

    names, why = engine.gpus()
    without = "; kernels run on the CPU, and GPU figures come from recordings"
    yield Check(name="gpu", ok=bool(names), why=", ".join(names) or why + without)
    driver = host.driver()
    yield Check(name="driver", ok=bool(driver), why=f"NVIDIA {driver}" if driver else "no NVIDIA driver is loaded")


def _native(engine: Engine) -> Check:
    return _run(engine, "native CPU path", "cpu", "measured")


def _interpreter(engine: Engine) -> Check:
    return _run(engine, "interpreter", "interpreter", "interpreted")


def _run(engine: Engine, name: str, device: str, kind: str) -> Check:
    """Really runs a kernel, since a library may be there and not work."""
    try:
        result = engine.run(RunRequest(kernel=KERNEL, dims=DIMS, dtype="float32", device=device, baselines=()))
    except EngineError as e:
        return Check(name=name, ok=False, why=e.failure.message)
    if result.source.kind != kind:
        return Check(name=name, ok=False, why=result.note or f"the answer was {result.source.kind}")
    own = result.providers["triton"]
    why = (
        f"{KERNEL} is right, on {result.source.device}" if result.ok else own.failure or f"{KERNEL} gave a wrong answer"
    )
    return Check(name=name, ok=result.ok, why=why)


def _compiler(engine: Engine) -> Check:
    name = "offline compiler"
    try:
        result = engine.run(ResourcesRequest(kernel=KERNEL, dims=DIMS, target="sm_90"))
    except EngineError as e:
        return Check(name=name, ok=False, why=e.failure.message)
    registers = result.launches[0].registers
    return Check(name=name, ok=True, why=f"{KERNEL} for {result.launches[0].target} uses {registers} registers")


def _c_compilers() -> Iterator[Check]:
    """Triton builds its launcher with C on a GPU host; torch.compile builds C++ on a CPU."""
    for name, variable, programs, used in (
        ("C compiler", "CC", ("gcc", "clang", "cc"), "Triton needs one to launch on a GPU"),
        ("C++ compiler", "CXX", ("g++", "clang++", "c++"), "torch.compile needs one on a CPU"),
    ):
        asked = os.environ.get(variable)
        path = next(filter(None, map(shutil.which, filter(None, (asked, *programs)))), None)
        why = path or f"{used}: apt-get install {'gcc' if name == 'C compiler' else 'g++'}"
        yield Check(name=name, ok=path is not None, why=why)


def _baselines() -> Iterator[Check]:
    """Whether it is installed. Not imported: some of them make a CUDA context."""
    import kernels

    known = {b.name: b.install for spec in kernels.all_kernels().values() for b in spec.baselines}
    for name, install in sorted(known.items()):
        package = re.match(r"pip install (\S+)", install)
        version = _version(package[1] if package else "torch")
        why = f"not installed: {install}" if version is None else version if package else f"{install}; torch {version}"
        yield Check(name=f"baseline {name}", ok=version is not None, why=why)


def _disk(engine: Engine) -> Iterator[Check]:
    cache = engine.settings.cache
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            free = shutil.disk_usage(cache).free
    except OSError as e:
        yield Check(name="cache", ok=False, why=f"{cache} cannot be written ({e.strerror}); set PLAYGROUND_CACHE")
        return
    yield Check(name="cache", ok=True, why=f"{cache} can be written")
    why = f"{free / 2**30:,.1f} GiB free"
    yield Check(name="disk space", ok=free >= ROOM, why=why + ("" if free >= ROOM else "; 2 GiB are wanted"))


def stale_recordings(directory: Path) -> tuple[str, ...]:
    """A line for each recording of an older kernel: of single kernels, beside peers, and of the decoder."""
    from playground.decoder import recorded
    from playground.engine import recordings

    return (*recordings.check(directory), *recorded.check(directory))


def _recordings(engine: Engine) -> Check:
    directory = engine.settings.recordings
    count = len(list(directory.glob("*/*.json")))
    if not count:
        return Check(name="recordings", ok=False, why=f"none in {directory}; `record` makes them on a GPU")
    lines = stale_recordings(directory)
    return Check(name="recordings", ok=not lines, why="; ".join(lines[:3]) or f"{count} files, all of today's kernels")


def _gradio() -> Check:
    version = _version("gradio")
    return Check(name="gradio", ok=version is not None, why=version or "not installed: pip install -r requirements.txt")
