"""An engine whose workers misbehave as asked; one for all tests here, since each has to leave it working."""

from __future__ import annotations

import pytest

from playground.engine.engine import Engine
from playground.settings import Settings

FAULTS = "tests.engine_process.faults"


class FaultyEngine(Engine):
    """Its requests name faults instead of kernels, so they are not checked against the kernels."""

    def __init__(self, settings=None, gpus=(), grace=0.3):
        settings = settings or Settings(run_seconds=1.5, bench_seconds=3)
        super().__init__(settings, handlers=FAULTS, gpus=gpus, grace=grace)

    def validate(self, request):
        return None


@pytest.fixture(scope="session")
def engine():
    with FaultyEngine() as engine:
        yield engine
