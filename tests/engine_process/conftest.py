"""An engine whose workers misbehave as asked; one for all tests here, since each has to leave it working."""

from __future__ import annotations

import time

import pytest

from playground.engine.engine import Engine
from playground.settings import Settings

FAULTS = "tests.engine_process.faults"


class FaultyEngine(Engine):
    """Its requests name faults instead of kernels, so they are not checked against the kernels."""

    def __init__(self, settings=None, gpus=(), grace=1.0):
        settings = settings or Settings(run_seconds=4, bench_seconds=6)  # what a busy host does in time, and no hang
        super().__init__(settings, handlers=FAULTS, gpus=gpus, grace=grace)

    def validate(self, request):
        return None


@pytest.fixture(scope="session")
def engine():
    with FaultyEngine() as engine:
        yield engine


def gone(process, seconds=20.0):
    """Whether the process ends within `seconds` (one that waits to be reaped has ended)."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with open(f"/proc/{process}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


def ready(engine, seconds=30.0):
    """Returns once the CPU's worker has said that it is ready; a busy host takes long to start Python."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        lane = engine._lanes.get("cpu")
        if lane and lane._worker and not lane._worker.events.empty():
            return
        time.sleep(0.02)
    raise AssertionError(f"no worker is ready after {seconds:g} s")
