"""How long kernels take to compile: every kernel of the project at its default shape, in a process of its own.

The first process starts with an empty cache on disk, the second finds all that the first one made.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from statistics import median

import kernels
from kernels.targets import Target
from playground import native
from playground.native import jit


def main() -> None:
    """In a child: print the milliseconds of CPU of each compilation (front end, LLVM, cache, linking), and its kernel.

    A compilation is one thread's work, so on a host that does nothing else that is the time it takes.
    """
    native.enable()
    made = jit.compiled

    def timed(fn, *args, **kwargs):
        began = time.process_time()
        kernel = made(fn, *args, **kwargs)
        print(f"{1e3 * (time.process_time() - began):.2f} {fn.__name__}")
        return kernel

    jit.compiled = timed
    for spec in kernels.all_kernels().values():
        if spec.unsupported(spec.dtypes[0], Target.named("cpu")) is None:
            spec.run(**spec.inputs(spec.default, spec.dtypes[0], "cpu"))


def report() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for how in ("cold", "from the cache"):
            environment = {**os.environ, "PLAYGROUND_NATIVE_CACHE": folder}
            command = [sys.executable, "-W", "ignore", "-m", "tests.native.speed_start"]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
            lines = [line.split() for line in done.stdout.splitlines()]
            times = [float(took) for took, _ in lines]
            slowest = lines[times.index(max(times))][1]
            print(
                f"{how}: {len(times)} kernels, median {median(times):.1f} ms, "
                f"slowest {max(times):.1f} ms ({slowest}), first {times[0]:.1f} ms"
            )


if __name__ == "__main__":
    main()
