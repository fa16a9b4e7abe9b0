"""What there is to run on, told without torch: cores of the CPU, and GPUs.

Which GPUs torch can use is found out in a child process: asking makes a CUDA context in some versions.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

# Without one of these no driver is loaded: NVIDIA's, AMD's, and Windows' for WSL.
DRIVER_NODES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
PROBE_SECONDS = 90
GROUP = Path("/sys/fs/cgroup")  # this process's control group, as in a container

_PROBE = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps([torch.cuda.get_device_name(i) for i in range(count)]))
"""


def cpu_share() -> int | None:
    """Cores' worth of time that a container may take, however many it sees; None where that is not limited."""
    try:
        quota, period = (GROUP / "cpu.max").read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no control group of this kind; or its quota is "max"
        return None


def cpu_cores() -> int:
    """Cores that this process may use."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(bound, cpu_share() or bound)


def gpus(nodes: tuple[str, ...] = DRIVER_NODES) -> tuple[tuple[str, ...], str]:
    """Names of the GPUs, in torch's order, and where there is none the reason."""
    if not any(Path(node).exists() for node in nodes):
        return (), "no GPU driver is loaded on this host"
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS, check=True
        )
        names = tuple(json.loads(probe.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return (), f"torch did not answer in {PROBE_SECONDS} s when asked for GPUs"
    except (subprocess.CalledProcessError, OSError, ValueError, IndexError) as e:
        detail = (getattr(e, "stderr", None) or str(e)).strip().splitlines()
        return (), f"torch could not be asked for GPUs: {detail[-1] if detail else type(e).__name__}"
    return names, "" if names else "a GPU driver is loaded, but this build of torch sees no GPU"
