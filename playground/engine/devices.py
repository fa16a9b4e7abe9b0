"""Which GPUs torch can use here, found out in a child process: asking makes a CUDA context in some versions."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

# Without one of these no driver is loaded: NVIDIA's, AMD's, and Windows' for WSL.
DRIVER_NODES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
PROBE_SECONDS = 90

_PROBE = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps([torch.cuda.get_device_name(i) for i in range(count)]))
"""


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
