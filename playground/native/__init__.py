"""Triton kernels at native speed on a CPU.

After `enable()`, unmodified `@triton.jit` kernels called with CPU tensors run as
machine code on this host's threads: Triton's front end makes TTIR, this package
lowers it to LLVM IR, llvmlite compiles it. `docs/native.md` explains how.

It is not a model of a GPU: no warps, shared memory or timing are imitated, and
a time measured here says nothing of a GPU's.
"""

from __future__ import annotations

from triton.runtime import driver as _triton_driver
from triton.runtime.jit import JITFunction

from . import launch
from .checking import checked
from .driver import StandIn, gpu_is_active
from .errors import DeviceAssertError, OutOfBounds, Unsupported
from .jit import stats
from .pool import set_threads, threads

__all__ = [
    "DeviceAssertError", "OutOfBounds", "Unsupported", "checked", "disable", "enable",
    "is_enabled", "set_threads", "stats", "threads",
]  # fmt: skip

_before = None  # JITFunction.run and the active driver, while enabled


def enable() -> None:
    """From now on CPU tensors run natively; GPU tensors as before."""
    global _before
    if _before is not None:
        return
    _before = (JITFunction.run, _triton_driver._active)
    launch.original_run = JITFunction.run
    launch.gpu_is_active = gpu_is_active()
    if not launch.gpu_is_active:
        _triton_driver.set_active(StandIn())
    JITFunction.run = launch.run


def disable() -> None:
    """Give Triton back its own launches."""
    global _before
    if _before is None:
        return
    JITFunction.run, active = _before
    _triton_driver._active = active
    _before = None


def is_enabled() -> bool:
    return _before is not None
