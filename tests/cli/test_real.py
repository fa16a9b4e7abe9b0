"""`python -m playground` as a process of its own, with real workers: a run, a mistake, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from playground.settings import ROOT
from tests.cli.conftest import strict
from tests.engine_process.conftest import gone


def playground(*words):
    return subprocess.run(
        [sys.executable, "-m", "playground", *words],
        capture_output=True, text=True, cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip


def test_a_real_run_on_this_host():
    done = playground(
        "run", "add_rms_norm", "--dims", "rows=64,n=3000", "--dtype", "float32", "--device", "cpu", "--json"
    )
    said = strict(done.stdout)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert said["outputs"] and all(output["ok"] for output in said["outputs"].values())
    assert said["source"]["kind"] in ("measured", "interpreted")
    assert said["choice"]["dims"] == {"rows": 64, "n": 3000}
    assert done.stderr == ""


def test_real_bad_input():
    done = playground("run", "add_rms_norm", "--dims", "rows=-1,n=5")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_ctrl_c_leaves_nothing_behind():
    """A run that takes seconds in the interpreter, stopped in the middle: exit 4, JSON, and no worker."""
    words = ["run", "vector_add", "--dims", "n=5000000", "--device", "interpreter", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "playground", *words],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    workers = []
    end = time.monotonic() + 60
    while not workers and time.monotonic() < end:
        time.sleep(0.1)
        workers = _children(process.pid)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    out, said = process.communicate(timeout=30)
    assert process.returncode == 4, said
    assert strict(out)["error"]["kind"] == "cancelled"
    assert workers
    assert all(gone(pid) for pid in workers)


def _children(pid):
    """Of any of its threads: workers are not the main thread's."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as f:
            found += [int(child) for child in f.read().split()]
    return sorted(set(found))


HELD = """
import os, signal
from playground.cli import interrupt
try:
    with interrupt.listening():
        with interrupt.held():
            os.kill(os.getpid(), signal.SIGINT)
            print("imported", interrupt.stopped.is_set())
        print("never")
except KeyboardInterrupt:
    print("stopped")
"""


def test_ctrl_c_waits_until_compiled_code_is_imported():
    """An exception while C++ sets itself up is not caught there: it aborts the process."""
    done = subprocess.run([sys.executable, "-c", HELD], cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.stdout == "imported True\nstopped\n", done.stderr
