"""Runs a launch's programs on several threads.

PyTorch's own OpenMP library is used where it is found, so that a kernel and a
PyTorch op share one set of threads and do not compete. Without it a small pool
of Python threads does the same; the code they call runs without Python's lock.
"""

from __future__ import annotations

import ctypes
import glob
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

_count: int | None = None


def threads() -> int:
    """How many threads a launch may use."""
    global _count
    if _count is None:
        _count = _default()
    return _count


def set_threads(count: int) -> None:
    if count < 1:
        raise ValueError(f"threads must be at least 1, not {count}")
    global _count
    _count = count


def _default() -> int:
    wanted = os.environ.get("PLAYGROUND_NATIVE_THREADS", "")
    if wanted.isdigit() and int(wanted):
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@lru_cache(maxsize=1)
def parallel() -> Callable[[int, Any, int], None]:
    """`parallel()(address, job, count)` calls a function `count` times, side by side. A job is bytes or a c_char_p."""
    return _openmp() or _pool


def _openmp() -> Callable[[int, Any, int], None] | None:
    if os.environ.get("PLAYGROUND_NATIVE_OPENMP") == "0":
        return None
    import torch

    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    for path in [*sorted(glob.glob(os.path.join(folder, "libgomp*"))), "libgomp.so.1"]:
        try:
            start = ctypes.CDLL(path).GOMP_parallel
        except (OSError, AttributeError):
            continue
        start.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint]
        start.restype = None
        return lambda address, job, count: start(address, job, count, 0)
    return None


@lru_cache(maxsize=8)
def _executor(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="native")


def _pool(address: int, job: Any, count: int) -> None:
    """One call a thread, this one included."""
    call = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
    others = [_executor(count).submit(call, job) for _ in range(count - 1)]
    call(job)
    for other in others:
        other.result()
