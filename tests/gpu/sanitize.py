"""Every kernel under compute-sanitizer: accesses out of bounds (memcheck) and races in shared memory (racecheck).

    python -m tests.gpu.sanitize [KERNEL ...] [--tools memcheck,racecheck] [--seconds 500]

Each spec runs its default shape, made small, and its edge cases, in its first dtype, with the default config of this
GPU and with the last of its configs. PyTorch's caching of memory is off, so a tensor's neighbour is not its own. The
tool runs one process for many kernels; where it dies, the kernel that it was at is at fault and the next process goes
on behind it. Exit code 0: clean; 1: findings; 3: not available here, with the reason. Bounded by --seconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

NAME = "compute-sanitizer"
PLACES = (NAME, f"/usr/local/cuda/bin/{NAME}", f"/opt/nvidia/{NAME}/{NAME}")
FOUND = 77  # the tool's exit code for findings
SIGNS = ("Invalid", "Error:", "hazard", "Race", "ERROR SUMMARY")
BEGIN, END = "sanitize: begin ", "sanitize: end"


@dataclass
class Report:
    """What one tool found: lines by kernel; `left` are the kernels that time did not allow."""

    tool: str
    found: dict[str, list[str]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def where() -> str | None:
    """The tool's path, or None."""
    return next((path for path in map(shutil.which, PLACES) if path), None)


def why_not() -> str | None:
    """Why it cannot run here, or None."""
    import torch

    if not torch.cuda.is_available():
        return "no GPU here"
    return None if where() else f"{NAME} is not installed; it comes with CUDA's toolkit"


def names() -> list[str]:
    """The kernels that this GPU can run."""
    import torch

    import kernels
    from kernels.spec import Target

    target = Target.of(torch.device("cuda:0"))
    return [name for name, spec in kernels.all_kernels().items() if not spec.unsupported(spec.dtypes[0], target)]


def check(tool: str, kernels: list[str], until: float) -> Report:
    """Run the kernels under one tool until all are through, or time is."""
    report, left = Report(tool), list(kernels)
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
    while left and time.monotonic() < until:
        command = [where() or NAME, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "5",
                   sys.executable, "-m", "tests.gpu.sanitize", "--child", *left]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False,
                                  timeout=max(5.0, until - time.monotonic()))  # fmt: skip
            text, code = done.stdout + done.stderr, done.returncode
        except subprocess.TimeoutExpired as stopped:
            text, code = _text(stopped.stdout) + _text(stopped.stderr), 0
        last = _sort(text, report)
        if last is None and code:  # not one kernel was begun
            report.found["?"] = [f"{tool} ended with {code}: {text.strip()[-300:]}"]
            break
        if code == 0 or END in text:
            left = [] if END in text else left[left.index(last) :] if last else left
            break
        report.found.setdefault(last, []).append(f"the process ended with {code}")
        left = left[left.index(last) + 1 :]
    report.left = left
    return report


def _text(out: bytes | str | None) -> str:
    return out.decode(errors="replace") if isinstance(out, bytes) else out or ""


def _sort(text: str, report: Report) -> str | None:
    """Put the tool's findings to the kernel that was running; returns the last that was begun."""
    kernel = None
    for line in text.splitlines():
        if BEGIN in line:
            kernel = line.split(BEGIN)[1].split()[0]
        elif line.startswith("=========") and "SUMMARY: 0" not in line and any(word in line for word in SIGNS):
            report.found.setdefault(kernel or "?", []).append(line.removeprefix("========= "))
    return kernel


def cases(name: str) -> Iterator[tuple[str, dict, object]]:
    """(what it is, inputs on the GPU, config) of a spec; made on the CPU, so that few other kernels are watched."""
    import torch

    import kernels
    from kernels.spec import Target

    spec, target = kernels.get(name), Target.of(torch.device("cuda:0"))
    dims = {n: min(size, 96) if size > 200 else size for n, size in spec.default.items()}
    for label, size, change in [("small", dims, None), *((e.name, e.dims, e.change) for e in spec.edges)]:
        if sum(size.get(n, 0) > 5000 for n in spec.default):
            continue  # wide rows take racecheck minutes
        edge = next((e for e in spec.edges if e.name == label), None)
        inputs = spec.inputs({**dims, **size}, (edge and edge.dtype) or spec.dtypes[0], "cpu")
        inputs = change(inputs) if change else inputs
        moved = {n: _to_gpu(v) for n, v in inputs.items()}
        found = list(spec.configs(moved, target))
        for config in dict.fromkeys((0, len(found) - 1)):
            yield f"{label}: {found[config].label}", moved, found[config]


def _to_gpu(value: object) -> object:
    """The same strides on the GPU, of a storage no larger than it must be."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    whole = torch.as_strided(value, (value.untyped_storage().nbytes() // value.element_size(),), (1,), 0)
    return torch.as_strided(whole.cuda(), value.shape, value.stride(), value.storage_offset())


def child(kernels: list[str]) -> None:
    import torch

    import kernels as ours
    from kernels.spec import Target

    target = Target.of(torch.device("cuda:0"))
    for name in kernels:
        for label, inputs, config in cases(name):
            print(f"{BEGIN}{name} {label}", flush=True)
            ours.get(name).plan(inputs, config, target).run()
            torch.cuda.synchronize()
    print(END, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--tools", default="memcheck,racecheck")
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--child", action="store_true", help="run the kernels; what the tool watches")
    given = parser.parse_args()
    if given.child:
        child(given.kernels)
        return 0
    reason = why_not()
    if reason:
        print(reason)
        return 3
    tools = given.tools.split(",")
    began, bad = time.monotonic(), 0
    for i, tool in enumerate(tools):
        report = check(tool, given.kernels or names(), began + given.seconds * (i + 1) / len(tools))
        for kernel, lines in report.found.items():
            print(f"{tool} {kernel}: " + "; ".join(lines[:5]))
        print(f"{tool}: {len(report.found)} kernels with findings, {len(report.left)} not reached {report.left}")
        bad += len(report.found)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
