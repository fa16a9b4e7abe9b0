"""Compiles what a recording will run, side by side on the host's cores, before anything is timed.

Triton's and Inductor's caches on disk then answer the recording at once, and the GPU's time goes into measuring.
Run by `warm` in processes of its own: `python -m playground.engine.record_warm I/N KERNEL ...` does every N-th step
of each kernel's first dtype, with which a recording begins; with --sweeps every N-th config of each sweep.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterable

import torch

import kernels
from kernels.spec import KernelSpec, Target
from playground.engine import record
from playground.engine.baselines import COMPILED, TRITON, implementations
from playground.engine.execute import arithmetic
from playground.engine.record import Step
from playground.engine.record_sweeps import shapes


def warm(
    names: Iterable[str],
    processes: int,
    seconds: float,
    report: Callable[[str], None] = print,
    sweeps: bool = False,
) -> None:
    """Start the processes and wait for them, `seconds` at the most; what they cannot compile the recording tells."""
    began = time.monotonic()
    words = [sys.executable, "-m", "playground.engine.record_warm"]
    names = [*["--sweeps"] * sweeps, *names]
    started = [
        subprocess.Popen([*words, f"{i}/{processes}", *names], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for i in range(processes)
    ]
    for process in started:
        try:
            process.wait(max(0.1, began + seconds - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    report(f"compiled beforehand in {time.monotonic() - began:.0f} s, in {processes} processes")


def compile_step(step: Step, device: torch.device) -> None:
    """Call each implementation once on the step's shape."""
    inputs = step.spec.inputs(step.dims, step.dtype, device)
    target = Target.of(device)
    step.spec.plan(inputs, step.spec.default_config(inputs, target), target).run()
    for name, load in implementations(step.spec, None, device):
        if name in (TRITON, "eager") or (name != COMPILED and not step.preset):
            continue
        with contextlib.suppress(Exception):  # missing, or failing: the recording says so
            load()(**inputs)
    torch.cuda.synchronize(device)


def compile_configs(specs: Iterable[KernelSpec], part: int, parts: int, device: torch.device) -> None:
    """Compile every parts-th config of the shapes that are swept, from tensors without values."""
    target = Target.of(device)
    for spec, dims in [(each, dims) for each in specs for dims in shapes(each)]:
        inputs = spec.inputs(dims, spec.dtypes[0], "meta")
        for config in [*spec.configs(inputs, target)][part::parts]:
            with contextlib.suppress(Exception):  # the sweep says why
                for launch in spec.plan(inputs, config, target).launches:
                    launch.kernel.warmup(**launch.args, **launch.config.meta, **launch.options, grid=launch.grid)


def main() -> None:
    share, *names = sys.argv[1:]
    part, parts = map(int, share.split("/"))
    device = torch.device("cuda:0")
    specs = [kernels.get(name) for name in names if name != "--sweeps"]
    if "--sweeps" in names:
        compile_configs(specs, part, parts, device)
        return
    first = [step for step in record.steps(specs) if step.dtype == step.spec.dtypes[0]]
    for step in first[part::parts]:
        with contextlib.suppress(Exception), arithmetic(step.dtype), torch.no_grad():
            compile_step(step, device)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
