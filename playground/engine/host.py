"""What a device and this host are: names, units, caches, memory, versions. Nothing is measured here."""

from __future__ import annotations

import functools
import os
import platform
import shutil
from pathlib import Path

import torch

from playground.engine.devices import GROUP, cpu_cores


@functools.cache
def name(device: torch.device) -> str:
    """As a person knows it: "NVIDIA H200", "Intel(R) Xeon(R) Processor"."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    for line in _lines("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def detail(device: torch.device) -> str:
    if device.type == "cuda":
        props = torch.cuda.get_device_properties(device)
        return (
            f"{props.multi_processor_count} SMs, {props.total_memory / 2**30:,.0f} GiB, driver {driver() or 'unknown'}"
        )
    cores = cpu_cores()
    return f"{cores} core{'s' * (cores != 1)}, no GPU"


def units(device: torch.device) -> int:
    """SMs of a GPU, cores of a CPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else cpu_cores()


def caches(device: torch.device) -> dict[str, int]:
    """Bytes of each data cache by its name, as the device says them: a GPU's L2, a core's L1, L2 and L3."""
    if device.type == "cuda":
        return {"L2": torch.cuda.get_device_properties(device).L2_cache_size}
    found = {}
    for i in range(8):
        folder = f"/sys/devices/system/cpu/cpu0/cache/index{i}"
        kind, level, size = (_lines(f"{folder}/{name}") for name in ("type", "level", "size"))
        if kind and level and size and kind[0] != "Instruction":
            found[f"L{level[0].strip()}"] = _size(size[0])
    return dict(sorted(found.items()))


BUSY = "the host was busy"


def busy() -> str:
    """Says so where other work keeps the cores from a CPU benchmark, else ""."""
    load, cores = os.getloadavg()[0], cpu_cores()
    return f"{BUSY} (load {load:.1f} on {cores} cores): these times are noisy" if load > 1.5 * cores else ""


@functools.cache
def versions() -> dict[str, str]:
    import triton

    found = {"torch": torch.__version__, "triton": triton.__version__, "python": platform.python_version()}
    if torch.version.cuda and torch.cuda.is_available():
        found |= {"cuda": torch.version.cuda, "driver": driver()}
    if torch.version.hip:
        found["hip"] = torch.version.hip
    return {key: value for key, value in found.items() if value}


@functools.cache
def driver() -> str:
    """The NVIDIA kernel driver's version, or ""."""
    for line in _lines("/proc/driver/nvidia/version"):
        for word in line.split():
            if word.count(".") in (1, 2) and word.replace(".", "").isdigit():
                return word
    return ""


def available_bytes(device: torch.device) -> int:
    """Memory that a run may take now, a tenth kept back."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int((free + held) * 0.9)
    free = total_bytes(device)
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = int(line.split()[1]) * 1024
    limit, used = _group("memory.max"), _group("memory.current")
    if limit and used is not None:
        # Files that were read count as used until someone needs the room: a model's weights, compiled kernels.
        cached = [int(line.split()[1]) for line in _lines(f"{GROUP}/memory.stat") if line.startswith("inactive_file ")]
        free = min(free, max(0, limit - used + sum(cached)))
    return int(free * 0.9)


def total_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(whole, _group("memory.max") or whole)


def _group(file: str) -> int | None:
    """A figure of this process's control group (a container's limit), or None where there is none."""
    for line in _lines(f"{GROUP}/{file}"):
        return int(line) if line.strip().isdigit() else None
    return None


def last_level_cache(device: torch.device) -> int:
    """Bytes of L2 on a GPU, of the last level that a core reaches on a CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).L2_cache_size
    sizes = [_size(line) for i in range(8) for line in _lines(f"/sys/devices/system/cpu/cpu0/cache/index{i}/size")]
    return max(sizes, default=32 * 2**20)


def _size(text: str) -> int:
    """ "480K" or "32M" in bytes."""
    text = text.strip()
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)
    return int(text.rstrip("KMG") or 0) * unit


def cpp_compiler() -> str | None:
    """The C++ compiler that torch.compile would use, or None."""
    return shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
