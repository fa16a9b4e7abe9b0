"""The implementations that a kernel is held beside: eager PyTorch, torch.compile, and its spec's own baselines.

A loader either gives a function of the spec's inputs or raises Unavailable with a line for a person. Nothing is run
here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernels.spec import Baseline, KernelSpec
from playground.engine import host

TRITON, EAGER, COMPILED = "triton", "eager", "torch.compile"
KINDS = {"cuda": "a GPU", "cpu": "a CPU"}  # what a person calls a device of PyTorch's
NOT_ASKED = "not run on a CPU unless asked for: its first compilation takes 10 to 20 s"

Loader = Callable[[], Callable[..., Any]]


class Unavailable(Exception):
    """An implementation that cannot run here; the text says why, and how to get it where that helps."""


def eager_of(spec: KernelSpec) -> Callable[..., Any]:
    """What people write in PyTorch."""
    return spec.eager or spec.reference


def implementations(spec: KernelSpec, asked: Sequence[str] | None, device: torch.device) -> list[tuple[str, Loader]]:
    """Every implementation by name, Triton first; `asked` None means all, as a request's `baselines` has it."""
    found: list[tuple[str, Loader]] = [(TRITON, lambda: spec.function), (EAGER, lambda: eager_of(spec))]
    if asked is None or COMPILED in asked:
        found.append((COMPILED, lambda: _compiled(spec, device, asked is not None)))
    for baseline in spec.baselines:
        if asked is None or baseline.name in asked:
            found.append((baseline.name, functools.partial(_installed, baseline, device)))
    return found


def _compiled(spec: KernelSpec, device: torch.device, asked: bool) -> Callable[..., Any]:
    if device.type == "cpu":
        if not asked:
            raise Unavailable(NOT_ASKED)
        if not host.cpp_compiler():
            raise Unavailable("torch.compile needs a C++ compiler on a CPU: install g++")
    torch._dynamo.reset()  # it falls back to eager on a function that it has met in a few other shapes
    return torch.compile(eager_of(spec), dynamic=False)


def _installed(baseline: Baseline, device: torch.device) -> Callable[..., Any]:
    if device.type not in baseline.devices:
        wanted = " or ".join(KINDS.get(kind, kind) for kind in baseline.devices)
        raise Unavailable(f"needs {wanted}, and this is {KINDS.get(device.type, device.type)}")
    try:
        return baseline.load()
    except ImportError:
        raise Unavailable(f"not installed: {baseline.install}") from None


def named(results: Any, names: Sequence[str]) -> dict[str, Any]:
    """An implementation's results by output name. Raises ValueError where there are too few."""
    results = (results,) if isinstance(results, torch.Tensor) else tuple(results)
    if len(results) < len(names):
        raise ValueError(f"gave {len(results)} results; {len(names)} are needed: {', '.join(names)}")
    return dict(zip(names, results, strict=False))
