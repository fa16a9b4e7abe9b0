"""What `kernel[grid](...)` does on CPU tensors.

`run` stands in for `JITFunction.run`. A small decode kernel computes for a few
microseconds, so this path is short: it reads types and addresses once, looks the
kernel up, packs a job and calls. Everything rarer is in functions of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from . import arguments, checking, jit, pool, report

PARALLEL_WORK = 60_000  # elements below which waking another thread costs more than it saves
CHUNKS_PER_THREAD = 8
_FLAGS = {"num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion", "debug",
          "launch_cooperative_grid", "launch_pdl", "instrumentation_mode"}  # fmt: skip

_MISSING = object()
original_run = None  # Triton's own, set by enable()
gpu_is_active = False


class _Plan:
    """What is the same for every launch of one `@triton.jit` function."""

    def __init__(self, fn):
        self.names = tuple(p.name for p in fn.params)
        self.is_constexpr = tuple(p.is_constexpr for p in fn.params)
        self.defaults = tuple((p.name, p.default if p.has_default else _MISSING) for p in fn.params)
        self.plain_int = tuple(not (p.do_not_specialize or p.annotation_type) for p in fn.params)
        self.annotations = tuple(p.annotation_type for p in fn.params)
        self.traits = tuple(zip(self.is_constexpr, self.plain_int, strict=True))
        self.known = frozenset(self.names) | _FLAGS
        self.kernels: dict = {}

    def bind(self, args: tuple, kwargs: dict) -> list:
        """Positional and named arguments and defaults, in order."""
        bound = list(args)
        for name, default in self.defaults[len(args) :]:
            if name in kwargs:
                bound.append(kwargs[name])
            elif default is not _MISSING:
                bound.append(default)
            else:
                raise TypeError(f"missing argument: {name}")
        if len(args) > len(self.names):
            raise TypeError(f"takes {len(self.names)} arguments, {len(args)} were given")
        if not kwargs.keys() <= self.known:
            raise TypeError(f"unknown argument: {min(kwargs.keys() - self.known)}")
        return bound

    def rare(self, i: int, value, values: list):
        """Of an argument that is no tensor and no ordinary integer: what the code depends on."""
        annotated = self.annotations[i]
        if annotated and isinstance(value, int | float) and not annotated.startswith("*"):
            values.append(value)
            return annotated
        if not self.plain_int[i] and type(value) is int and value == 1:
            values.append(1)
            return "i32"
        return arguments.key_of(value, values)

    def keys(self, bound) -> list:
        """What the code depends on, argument by argument, for the compiler."""
        return [
            value if fixed else self.rare(i, value, [])
            for i, (value, fixed) in enumerate(zip(bound, self.is_constexpr, strict=True))
        ]


def run(self, *args, grid, warmup=False, **kwargs):
    """Launch on CPU tensors; anything else goes to Triton's own `run`."""
    plan = self.__dict__.get("_native_plan") or _plan_of(self)
    bound = args
    if kwargs or len(args) != len(plan.names):
        bound = plan.bind(args, kwargs)
    found = _look_up(self, plan, bound, kwargs.get("debug", self.debug) if kwargs else self.debug)
    if found is None:
        return original_run(self, *args, grid=grid, warmup=warmup, **kwargs)
    for hook in self.pre_run_hooks:
        hook(*args, **kwargs)
    kernel, values = found
    if warmup:
        return kernel
    if callable(grid):
        grid = grid(dict(zip(plan.names, bound, strict=True)))
    x, y, z = (*grid, 1, 1)[:3]
    total = x * y * z
    if total > 0 and kernel.is_watched:
        _launch_watched(kernel, plan, bound, values, (x, y, total), kwargs)
    elif total > 0:
        _launch(kernel, values, x, y, total, 0, kwargs)
    return kernel


def _plan_of(fn) -> _Plan:
    fn._native_plan = _Plan(fn)
    return fn._native_plan


def resolve(fn, args: tuple) -> tuple[jit.Kernel, list] | None:
    """The compiled kernel for these arguments, and their run-time values. None where one is not on a CPU."""
    return _look_up(fn, fn.__dict__.get("_native_plan") or _plan_of(fn), args, fn.debug)


def _look_up(fn, plan: _Plan, bound, debug) -> tuple[jit.Kernel, list] | None:
    key, values, are_tensors = [checking.is_on(), debug], [], False
    for i, a in enumerate(bound):
        fixed, plain = plan.traits[i]
        if fixed:
            key.append(type(a))  # 1, True and 1.0 are equal, and different constants
            key.append(a)
        elif isinstance(a, torch.Tensor):
            if not a.is_cpu:
                return None
            are_tensors = True
            key.append(a.dtype)
            values.append(a.data_ptr())
        elif type(a) is int and plain and a != 1 and -0x80000000 <= a < 0x80000000:
            key.append("i32")
            values.append(a)
        else:
            key.append(plan.rare(i, a, values))
    if gpu_is_active and not are_tensors:
        return None
    known = tuple(key)
    kernel = plan.kernels.get(known)
    if kernel is None:
        keys = plan.keys(bound)
        kernel = plan.kernels[known] = jit.compiled(
            fn, plan.names, keys, plan.is_constexpr, checked=known[0], debug=bool(debug)
        )
    return kernel, values


def _threads_for(kernel: jit.Kernel, total: int) -> int:
    """How many threads a launch of `total` programs is worth."""
    count = pool.threads()
    return min(count, total) if total > 1 and count > 1 and kernel.work * total > PARALLEL_WORK else 1


def _chunk(total: int, count: int) -> int:
    return max(1, total // (count * CHUNKS_PER_THREAD)) if count > 1 else total


def _launch(kernel, values, x: int, y: int, total: int, report_address: int, kwargs: dict) -> None:
    # The job is written to by the threads. It is a fresh object that nothing else sees.
    if kwargs and kwargs.get("launch_cooperative_grid"):
        # Programs that wait for each other must all be running.
        job = kernel.pack(0, total, 1, x, y, report_address, *values)
        pool.parallel()(kernel.address, job, total)
        return
    count = _threads_for(kernel, total)
    job = kernel.pack(0, total, _chunk(total, count), x, y, report_address, *values)
    if count > 1:
        pool.parallel()(kernel.address, job, count)
    else:
        kernel.call(job)


class Bound(NamedTuple):
    """A launch whose arguments are settled, for a Sequence. `keep` holds what the job has the addresses of."""

    kernel: jit.Kernel
    job: bytes
    is_parallel: bool
    keep: tuple

    @staticmethod
    def of(kernel: jit.Kernel, values: list, grid: tuple, keep: tuple) -> Bound:
        x, y, z = (*grid, 1, 1)[:3]
        total = x * y * z
        count = _threads_for(kernel, total)
        job = kernel.pack(0, total, _chunk(total, count), x, y, 0, *values)
        return Bound(kernel, job, count > 1, keep)


def _launch_watched(kernel, plan: _Plan, bound, values, sizes, kwargs: dict) -> None:
    """A launch that may report a fault, print, or take descriptors."""
    x, y, total = sizes
    values = arguments.expand_descriptors(values, kernel.letters)
    watch = report.Report(kernel, plan.names, bound, (x, y))
    if kernel.about["checked"]:
        values = [*values, *report.extents(plan.names, bound)]
    _launch(kernel, values, x, y, total, watch.address, kwargs)
    watch.finish()
