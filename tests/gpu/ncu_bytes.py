"""What DRAM saw: ncu's counters of some kernels, and what this GPU's levels reach, written beside the recordings.

    python -m tests.gpu.ncu_bytes --out assets/recordings [--kernels add_rms_norm,softmax,matmul]

For each shape ncu runs this module again with --child, which launches the plan once between two marks of the CUDA
profiler. Clocks are left alone. ncu flushes the caches before each pass, so the bytes are those of a cold start; what
L2 has not written back when the kernel ends is not among them. Needs ncu and the right to read the counters; without
either the device is measured all the same, and the exit code is 3 with the reason.
"""

from __future__ import annotations

import argparse
import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

METRICS = {"read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum", "l2_bytes": "lts__t_bytes.sum"}
PRESETS = ("prefill", "odd", "default")
NCU = ("ncu", "/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")


def parse(text: str) -> dict[str, int]:
    """The sums of the metrics over all launches in ncu's CSV (--csv --page raw --print-units base).

    Raises ValueError with ncu's own line where it has no figures.
    """
    table = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(table))))
    found = {}
    for name, metric in METRICS.items():
        values = [row[metric] for row in rows if _number(row.get(metric)) is not None]
        if not values:
            said = [line for line in text.splitlines() if line.startswith("==ERROR==")]
            raise ValueError(said[0] if said else f"ncu gave no {metric}: {text[-300:]!r}")
        found[name] = round(sum(float(value.replace(",", "")) for value in values))
    return found


def _number(text: str | None) -> float | None:
    """None for what is no figure, such as the row of units."""
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def count(ncu: str, kernel: str, dims: dict[str, int], dtype: str) -> dict[str, int]:
    """Bytes of one launch of the plan. Raises ValueError, and OSError where ncu cannot be started."""
    words = [
        ncu, "--clock-control", "none", "--profile-from-start", "off", "--csv", "--page", "raw", "--print-units",
        "base", "--metrics", ",".join(METRICS.values()), sys.executable, "-m", "tests.gpu.ncu_bytes", "--child",
        kernel, ",".join(f"{name}={size}" for name, size in dims.items()), dtype,
    ]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=180, check=False)
    return parse(done.stdout + "\n" + done.stderr)


def child(kernel: str, dims: str, dtype: str) -> None:
    """Launch the plan once to compile it, and once for the counters."""
    import torch

    import kernels
    from kernels.spec import Target

    spec = kernels.get(kernel)
    sizes = {name: int(size) for name, size in (part.split("=") for part in dims.split(","))}
    inputs = spec.inputs(sizes, dtype, "cuda")
    target = Target.of(torch.device("cuda", 0))
    plan = spec.plan(inputs, spec.default_config(inputs, target), target)
    plan.run()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    plan.run()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def measure_device(out: Path) -> Path:
    """Roofs of each level and a copy over sizes, as `host` gives them."""
    import torch

    from playground.engine import device, recordings
    from playground.engine.job import Job
    from playground.engine.messages import HostRequest

    found = device.device(HostRequest(roofs=True, curve=True), Job(torch.device("cuda", 0)))
    path = out / recordings.slug(found.device) / "dram" / "device.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(found.model_dump_json(indent=1) + "\n")
    levels = found.roofs.levels_gbps if found.roofs else {}
    print(f"{found.device}: copy {found.roofs.copy_gbps if found.roofs else 0:,.0f} GB/s, {levels}", flush=True)
    return path


def record(ncu: str, names: list[str], out: Path) -> int:
    """Every kernel's shapes; a file after each kernel. Returns how many shapes were counted."""
    import torch

    import kernels
    from playground.engine import dram, execute, fingerprint, host
    from playground.engine.job import Job

    job = Job(torch.device("cuda", 0))
    source = execute.source(job, "ncu, caches flushed").model_copy(update={"kind": "recorded"})
    counted = 0
    for name in names:
        spec = kernels.get(name)
        shapes = []
        for preset in PRESETS:
            dims = dict(spec.default if preset == "default" else spec.presets[preset])
            try:
                found = count(ncu, name, dims, spec.dtypes[0])
            except (ValueError, OSError, subprocess.TimeoutExpired) as error:
                print(f"{name} {dims}: {error}", flush=True)
                continue
            least = spec.cost(spec.inputs(dims, spec.dtypes[0], "meta")).bytes_moved
            print(f"{name} {dims} {spec.dtypes[0]}: {found}, the least is {least}", flush=True)
            shapes.append(dram.DramBytes(dims=dims, dtype=spec.dtypes[0], **found))
        if shapes:
            own = fingerprint.source_hash(spec)
            kept = dram.DramRecording(kernel=name, source_hash=own, shapes=tuple(shapes), source=source)
            print(f"wrote {dram.save(out, host.name(job.device), kept)}", flush=True)
        counted += len(shapes)
    return counted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("assets/recordings"))
    parser.add_argument("--kernels", default="add_rms_norm,softmax,matmul")
    parser.add_argument("--child", nargs=3, metavar=("KERNEL", "DIMS", "DTYPE"))
    given = parser.parse_args()
    if given.child:
        child(*given.child)
        return 0
    print(f"wrote {measure_device(given.out)}", flush=True)
    ncu = next((path for path in map(shutil.which, NCU) if path), None)
    if ncu is None:
        print("ncu is not installed: no counters; it comes with CUDA's toolkit (nsight-compute)")
        return 3
    return 0 if record(ncu, given.kernels.split(","), given.out) else 3


if __name__ == "__main__":
    sys.exit(main())
