"""Times every config of our kernels beside what else there is, on the GPU at hand, to tune by. No test.

    python -m tests.gpu.perf [KERNEL ...] [--configs 6] [--seconds 500] [--compile] [--out FILE.jsonl]

Each candidate is checked against PyTorch in float64 on a part of its rows, then replayed in a CUDA graph, median of
7: a large shape over as many sets of inputs as make L2 cold, a small one in warm L2. A product of matrices is timed in
short bursts after a rest, since sustained load throttles. Shares are of the copy measured in the same run, and of
cuBLAS for products. A shape that --out holds already is left out, so the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

import kernels
from kernels.spec import KernelSpec, Plan, Target
from playground.engine import fingerprint

NORMS = ((16_384, 4096), (8192, 8192), (64, 4096), (1, 4096))
SHAPES: dict[str, list[tuple[dict[str, int], str]]] = {
    "vector_add": [({"n": 2**28}, "float32"), ({"n": 2**18}, "bfloat16"), ({"n": 4096}, "bfloat16")],
    "silu_mul": [({"rows": r, "n": 14_336}, "bfloat16") for r in (8192, 64, 1)],
    **{
        name: [({"rows": rows, "n": n}, "bfloat16") for rows, n in NORMS]
        for name in ("add_rms_norm", "rms_norm", "layer_norm")
    },
    "softmax": [
        ({"rows": r, "n": n}, "bfloat16")
        for r, n in ((16_384, 4096), (8192, 8192), (4096, 32_768), (1024, 131_072), (64, 4096), (1, 4096), (1, 128_256))
    ] + [({"rows": 16_384, "n": 1024}, "float32"), ({"rows": 1024, "n": 131_072}, "float32")],
    "matmul": [
        ({"m": 4096, "n": 4096, "k": 4096}, "bfloat16"),
        ({"m": 8192, "n": 8192, "k": 8192}, "bfloat16"),
        ({"m": 4096, "n": 4096, "k": 4096}, "tf32"),
        ({"m": 4096, "n": 4096, "k": 4096}, "float32"),
        ({"m": 1000, "n": 999, "k": 1001}, "bfloat16"),
        ({"m": 1, "n": 4096, "k": 4096}, "bfloat16"),
    ],
}  # fmt: skip
COLD_BYTES = 2**28  # several times an H200's L2
WARM_BYTES = 2**24
WARM_SECONDS = 0.05  # of replays before one counts: what is timed first would else be timed on a GPU that has rested
CHECKED_ROWS = 64


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


def replay_us(calls: list[Callable[[], Any]], repeats: int = 7) -> float:
    """Microseconds of one call, in a graph that makes them in turn, a short one many times.

    The first replay says how often: a replay has microseconds of its own, so it should take half a millisecond.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    first = _graph(calls, len(calls))
    taken = _events(first.replay, 1)
    rounds = max(1, min(64, math.ceil(500 / max(taken, 1.0))))
    count = rounds * len(calls)
    graph = first if rounds == 1 else _graph(calls, count)
    until = time.monotonic() + WARM_SECONDS
    while time.monotonic() < until:
        graph.replay()
        torch.cuda.synchronize()
    return statistics.median(_events(graph.replay, count) for _ in range(repeats))


def _graph(calls: list[Callable[[], Any]], count: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            calls[i % len(calls)]()
    graph.replay()
    return graph


def burst_us(calls: list[Callable[[], Any]], count: int = 6, repeats: int = 5) -> float:
    """Microseconds of one call in short bursts after a rest."""
    taken = []
    for _ in range(repeats):
        time.sleep(0.25)
        calls[0]()
        torch.cuda.synchronize()
        taken.append(_events(lambda: [calls[0]() for _ in range(count)], count))
    return statistics.median(taken)


def _events(work: Callable[[], Any], count: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / count


def copy_gbps() -> float:
    """The best copy of 1 GiB: PyTorch's or a Triton kernel's."""
    x = torch.empty(2**29, dtype=torch.bfloat16, device="cuda").normal_()
    y = torch.empty_like(x)
    calls = [lambda: y.copy_(x)]
    for block, num_warps in ((1024, 4), (2048, 8), (4096, 8), (8192, 16)):
        grid = (triton.cdiv(x.numel(), block),)
        calls.append(lambda g=grid, b=block, w=num_warps: copy_kernel[g](x, y, x.numel(), b, num_warps=w))
    return max(4 * x.numel() / replay_us([call]) / 1e3 for call in calls)


def surroundings(copy: float) -> dict[str, Any]:
    """What every line of a recording says of the run."""
    return {
        "device": torch.cuda.get_device_name(),
        "copy_gbps": copy,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


class Bench:
    """One shape of one kernel: inputs, the answer in float64 of its first and last rows, and a way to time."""

    def __init__(self, spec: KernelSpec, dims: dict[str, int], dtype: str):
        self.spec, self.dims, self.dtype = spec, dims, dtype
        self.target = Target.of(torch.device("cuda:0"))
        first = spec.inputs(dims, dtype, "cuda")
        self.cost = spec.cost(first)
        self.product = spec.name == "matmul" and dims["m"] > 256
        # What fits into L2 several times over is timed there: peers write to one buffer again and again, as we do then.
        warm = self.product or self.cost.bytes_moved < WARM_BYTES
        count = 1 if warm else math.ceil(COLD_BYTES / self.cost.bytes_moved)
        self.sets = [first] + [spec.inputs(dims, dtype, "cuda", seed) for seed in range(1, count)]
        self.expected = self._expected(first)

    def _expected(self, inputs: dict[str, Any]) -> list[torch.Tensor]:
        row_inputs = {"x", "residual", "gate", "up", "a"}
        part = {
            name: self._part(value) if name in row_inputs and value.ndim > 1 else value
            for name, value in inputs.items()
        }
        wide = {n: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for n, v in part.items()}
        found = self.spec.reference(**wide)
        return list(found) if isinstance(found, tuple) else [found]

    @staticmethod
    def _part(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.ndim < 2 or tensor.shape[0] <= 2 * CHECKED_ROWS:
            return tensor
        return torch.cat([tensor[:CHECKED_ROWS], tensor[-CHECKED_ROWS:]])

    def error(self, outputs: Any) -> float:
        """Relative rms error of the worst output."""
        outputs = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
        pairs = zip(outputs, self.expected, strict=False)
        return max(((self._part(got).double() - ref).norm() / ref.norm()).item() for got, ref in pairs)

    def us(self, calls: list[Callable[[], Any]]) -> float:
        return burst_us(calls) if self.product else replay_us(calls)

    def ours(self, count: int):
        """(label, us, error) of the first `count` configs, the default first."""
        for config in itertools.islice(self.spec.configs(self.sets[0], self.target), count):
            plans: list[Plan] = [self.spec.plan(inputs, config, self.target) for inputs in self.sets]
            for tensor in plans[0].outputs.values():
                tensor.fill_(float("nan"))
            error = self.error(tuple(plans[0].run().values()))
            yield config.label, self.us([plan.run for plan in plans]), error

    def others(self, compiled: bool):
        eager = self.spec.eager or self.spec.reference
        yield from self._other("eager", lambda: eager)
        for mode in ("default", "max-autotune-no-cudagraphs") if compiled else ():
            yield from self._other(f"torch.compile {mode}", lambda m=mode: torch.compile(eager, dynamic=False, mode=m))
        for baseline in self.spec.baselines:
            yield from self._other(baseline.name, baseline.load)

    def _other(self, name: str, load: Callable[[], Callable[..., Any]]):
        try:
            function = load()
            error = self.error(function(**self.sets[0]))
            yield f"[{name}]", self.us([lambda i=inputs: function(**i) for inputs in self.sets]), error
        except Exception as failure:  # noqa: BLE001 - a peer that is missing or fails is a line of its own
            print(f"      {name}: {type(failure).__name__} {str(failure).splitlines()[:1]}", flush=True)


def warm(names: list[str], count: int, first: int, step: int) -> None:
    """Fill Triton's cache on disk with every step-th launch, from tensors without values."""
    target = Target.of(torch.device("cuda:0"))
    launches = []
    for name in names:
        for dims, dtype in SHAPES[name]:
            inputs = kernels.get(name).inputs(dims, dtype, "meta")
            for config in itertools.islice(kernels.get(name).configs(inputs, target), count):
                launches += kernels.get(name).plan(inputs, config, target).launches
    for launch in launches[first::step]:
        launch.kernel.warmup(**launch.args, **launch.config.meta, **launch.options, grid=launch.grid)


def compile_side_by_side(names: list[str], count: int) -> None:
    began = time.monotonic()
    step = max(1, min(14, (os.cpu_count() or 2) - 2))
    command = [sys.executable, "-m", "tests.gpu.perf", *names, "--configs", str(count), "--warm"]
    children = [subprocess.Popen([*command, f"{i}/{step}"]) for i in range(step)]
    failed = sum(child.wait() != 0 for child in children)
    print(f"compiled in {time.monotonic() - began:.0f} s, {failed} of {step} compilers failed", flush=True)


def finished(path: str | None) -> set[str]:
    """The shapes that a file of JSON lines holds; none where there is no file."""
    if not path or not os.path.exists(path):
        return set()
    with open(path) as lines:
        return {json.dumps([row["kernel"], row["dims"], row["dtype"]]) for row in map(json.loads, lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=500.0, help="no new shape is begun after this long")
    parser.add_argument("--configs", type=int, default=99, help="time only the first so many of each shape's configs")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--out", help="one JSON object per candidate")
    parser.add_argument("--warm", help="I/N: only compile every N-th config; how the others do it side by side")
    given = parser.parse_args()
    names = given.kernels or list(SHAPES)
    if given.warm:
        return warm(names, given.configs, *map(int, given.warm.split("/")))
    began = time.monotonic()
    done = finished(given.out)
    compile_side_by_side(names, given.configs)
    copy = copy_gbps()
    print(f"{torch.cuda.get_device_name()} torch {torch.__version__} triton {triton.__version__} copy {copy:.0f} GB/s")
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    with open(given.out, "a") if given.out else open("/dev/null", "w") as out, torch.no_grad():
        for name in names:
            for dims, dtype in SHAPES[name]:
                if json.dumps([name, dims, dtype]) in done:
                    continue
                if time.monotonic() - began > given.seconds:
                    print("out of time before", name, dims, dtype)
                    continue
                _one(kernels.get(name), dims, dtype, copy, given, out)
    print(f"{time.monotonic() - began:.0f} s")


def _one(spec: KernelSpec, dims: dict[str, int], dtype: str, copy: float, given: argparse.Namespace, out: Any) -> None:
    bench = Bench(spec, dims, dtype)
    shape = " ".join(f"{name}={value}" for name, value in dims.items())
    print(f"{spec.name} {shape} {dtype} ({len(bench.sets)} sets)", flush=True)
    found = []
    try:
        others = list(bench.others(given.compile))
        eager = others[0][1] if others else math.nan
        for i, (label, us, error) in enumerate(bench.ours(given.configs)):
            found.append((us, "default " * (i == 0) + label, error))
    except Exception as failure:  # noqa: BLE001 - the other shapes are still worth their time
        print(f"      FAILED {type(failure).__name__}: {str(failure)[:300]}", flush=True)
    for us, label, error in sorted(found + [(us, label, error) for label, us, error in others]):
        share = eager / us if bench.product else bench.cost.bytes_moved / us / 1e3 / copy
        unit = "of eager" if bench.product else "of copy"
        wrong = "" if error < 2e-2 else "  *** WRONG"
        print(f"  {us:10.2f} us {100 * share:6.1f} % {unit}  {error:.1e}  {label}{wrong}", flush=True)
        row = {
            "kernel": spec.name,
            "dims": dims,
            "dtype": dtype,
            "label": label,
            "us": us,
            "share_of_eager" if bench.product else "share_of_copy": share,
            "error": error,
            "source_hash": fingerprint.current_hash(spec.name),
            **surroundings(copy),
        }
        out.write(json.dumps(row) + "\n")
    out.flush()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
