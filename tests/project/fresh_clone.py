"""Rehearses what a newcomer does, in a fresh clone with an empty .venv, and times each step.

    python -m tests.project.fresh_clone [--interrupt] [--skip-tests] [--keep]

It clones this checkout's HEAD into a temporary folder, runs `make install` (with --interrupt, once cut short first),
`make install` again (which must do nothing), `make test`, and `make run` on a free port until the page answers. It is
no test of its own: it installs for minutes and runs the whole suite.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.project.source import ROOT

INSTALL_SECONDS, TEST_SECONDS, SERVE_SECONDS, INTERRUPT_AFTER = 900, 1500, 60, 25


def environment() -> dict[str, str]:
    """This one's, without what ties a Python to this checkout's environment."""
    return {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")}


def stop(process: subprocess.Popen) -> None:
    """Ends a process we started and its children, as Ctrl-C does, and by force if that is not enough."""
    for sent in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, sent)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                continue


def step(name: str, clone: Path, *command: str, seconds: float, cut: bool = False) -> None:
    """Runs a command in the clone and prints how long it took. Exits where it fails; `cut` interrupts it instead."""
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=clone, env=environment(), start_new_session=True, stdin=subprocess.DEVNULL)
    try:
        code = process.wait(INTERRUPT_AFTER if cut else seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        stop(process)
    took = time.monotonic() - start
    outcome = "cut short" if code is None and cut else {0: "ok", None: "ran out of time"}.get(code, f"exit code {code}")
    print(f"fresh clone: {name}: {outcome}, {took:.1f} s", flush=True)
    if code != 0 and not cut:
        sys.exit(1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve(clone: Path) -> None:
    """`make run` on a free port, until the page answers."""
    port = free_port()
    env = {**environment(), "GRADIO_SERVER_PORT": str(port)}
    start = time.monotonic()
    process = subprocess.Popen(["make", "run"], cwd=clone, env=env, start_new_session=True, stdin=subprocess.DEVNULL)
    try:
        while time.monotonic() - start < SERVE_SECONDS and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5) as page:
                    print(
                        f"fresh clone: make run: answers {page.status} after {time.monotonic() - start:.1f} s",
                        flush=True,
                    )
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.2)
        sys.exit(f"fresh clone: make run: no answer within {SERVE_SECONDS} s")
    finally:
        stop(process)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interrupt", action="store_true", help="cut the first install short")
    parser.add_argument("--skip-tests", action="store_true", help="leave `make test` out")
    parser.add_argument("--keep", action="store_true", help="leave the clone for a look")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("fresh clone: stopped"))  # so that what it started stops too
    folder = Path(tempfile.mkdtemp(prefix="playground-"))
    clone = folder / "clone"
    try:
        step("git clone", folder, "git", "clone", "-q", str(ROOT), str(clone), seconds=60)
        if options.interrupt:
            step("make install", clone, "make", "install", seconds=INSTALL_SECONDS, cut=True)
        step("make install", clone, "make", "install", seconds=INSTALL_SECONDS)
        step("make install again", clone, "make", "install", seconds=5)
        if not options.skip_tests:
            step("make test", clone, "make", "test", seconds=TEST_SECONDS)
        serve(clone)
    finally:
        if not options.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
