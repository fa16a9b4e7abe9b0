"""Every planted bug that leaves its tensors is caught in checked mode, at a line where it really does.

The interpreter's trace, which checks each access by itself and shares no code with checked mode, says which bugs leave
their tensors, and where.
"""

import json
import os
import subprocess
import sys

import pytest
import torch

import kernels
from kernels.targets import Target

SECONDS = 4.0  # of tracing for each bug


def bugs():
    """(spec, bug, dims) of all that a CPU can run."""
    for spec in kernels.all_kernels().values():
        for bug in spec.bugs:
            if spec.unsupported(bug.dtype, Target.named("cpu")) is None:
                yield spec, bug, {**spec.default, **bug.dims}


def traced() -> None:
    """In a child, under the interpreter: the lines of each bug's accesses out of bounds, as JSON."""
    from playground.engine import trace
    from playground.engine.job import Job
    from playground.engine.trace_messages import TraceRequest

    found = {}
    for spec, bug, dims in bugs():
        request = TraceRequest(kernel=spec.name, dtype=bug.dtype, bug=bug.name, dims=dims, seconds=SECONDS)
        try:
            result = trace.trace(request, Job(torch.device("cpu")))
        except RuntimeError:  # a bug whose plan hands on one element as many cannot be traced
            continue
        found[f"{spec.name}: {bug.name}"] = [(o.line, o.tensor, o.kind) for o in result.out_of_bounds]
    print(json.dumps(found))


@pytest.mark.slow
def test_checked_mode_catches_what_the_trace_sees():
    from playground.engine import execute
    from playground.engine.job import Job
    from playground.engine.messages import RunRequest

    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.native.test_planted_bugs"],
        env={**os.environ, "TRITON_INTERPRET": "1"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    caught = {}
    for spec, bug, dims in bugs():
        request = RunRequest(
            kernel=spec.name, dtype=bug.dtype, bug=bug.name, dims=dims, baselines=(), checked=True
        )  # fmt: skip
        outside = execute.run(request, Job(torch.device("cpu"))).out_of_bounds
        if outside:
            caught[f"{spec.name}: {bug.name}"] = [outside.line, outside.tensor, outside.kind]
    wanted = json.loads(child.communicate(timeout=900)[0].splitlines()[-1])
    leaving = {name: lines for name, lines in wanted.items() if lines}
    assert len(leaving) >= 8  # several kernels have such a bug
    assert {name for name in caught if name in wanted} == leaving.keys()
    for name, lines in leaving.items():
        assert caught[name] in lines, name


if __name__ == "__main__":
    traced()
