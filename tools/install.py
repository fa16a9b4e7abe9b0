"""Makes .venv with all that running and testing need. `make install` calls it; the standard library is enough.

It is no package manager: pip does the work. What it adds is the choice of PyTorch's build (a laptop without a GPU
does not want the CUDA build of several GB), a line about each step and its cost, and a way back from an install
that was interrupted. It keeps to syntax of old Pythons, so that an old one can say what is needed instead.

TORCH_INDEX decides where PyTorch comes from:
    unset    on a host without a GPU the CPU build, wherever pip or PyTorch's own index has one; else pip's choice
    cpu, cu130, ...  that build, by the name that PyTorch gives it
    a URL    that index
    empty    what pip chooses
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
PLATFORM_HELP = (
    "Triton has wheels for Linux on x86-64 and aarch64 alone, and this is {}: "
    "use Docker (see README.md) or, on Windows, WSL."
)


class Stop(Exception):
    """The install cannot go on; the message says why and what to do."""


def say(text):
    print("install: " + text, flush=True)


def unsupported(system, machine):
    """Why Triton cannot be installed on this platform, or None."""
    if system == "Linux" and machine in ("x86_64", "aarch64"):
        return None
    return PLATFORM_HELP.format(system + " on " + machine)


def newer_python():
    """A Python on the path that is new enough, or None."""
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for name in ("python3.12", "python3.13", "python3.11", "python3.14"):
        path = shutil.which(name)
        if path and subprocess.run([path, "-c", check], stderr=subprocess.DEVNULL).returncode == 0:
            return path
    return None


def has_gpu():
    """Whether an NVIDIA GPU's driver answers. It asks the driver, since torch is not there yet."""
    if not shutil.which("nvidia-smi"):
        return False
    return subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def make_venv(venv):
    """A virtual environment with pip, kept where one already works."""
    python = venv / "bin" / "python"
    works = python.exists() and subprocess.run([str(python), "-m", "pip", "--version"], capture_output=True)
    if works and works.returncode == 0:
        return python
    say("making " + venv.name + " with Python " + platform.python_version())
    done = subprocess.run([sys.executable, "-m", "venv", "--clear", str(venv)], capture_output=True, text=True)
    if done.returncode:
        raise Stop(
            "this Python cannot make virtual environments (on Debian and Ubuntu: apt install python3-venv): "
            + (done.stderr or done.stdout).strip().splitlines()[-1]
        )
    return python


def forget_half_installed(site_packages):
    """Makes pip install again what an interrupt cut short: pip writes INSTALLER after a package's last file."""
    broken = [info for info in site_packages.glob("*.dist-info") if not (info / "INSTALLER").exists()]
    for info in broken:
        say("the last install was cut short at " + info.name.split("-")[0] + ": installing it again")
        shutil.rmtree(info)
    return broken


def pip_choice(python, requirement):
    """(version, is it a CUDA build) of what pip would install; None where one is there, or none is found in time."""
    command = [python, "-m", "pip", "install", "--dry-run", "--no-deps", "-q", "--report", "-"]
    try:
        done = subprocess.run(command + [requirement], capture_output=True, text=True, timeout=120)
        found = json.loads(done.stdout)["install"][0]["metadata"]
    except (subprocess.TimeoutExpired, ValueError, LookupError):
        return None
    needs = [line for line in found.get("requires_dist", []) if "extra ==" not in line]
    return found["version"], any(line.startswith(("nvidia-", "cuda-")) for line in needs)


def torch_requirement(requirements):
    """The line of requirements.txt that asks for torch, without its comment."""
    lines = (line.split("#")[0].strip() for line in requirements.read_text().splitlines())
    return next(line for line in lines if line.startswith("torch"))


def install_torch(python, index, gpu):
    """Installs torch by itself where its build is a choice; what follows then finds it satisfied."""
    requirement = torch_requirement(ROOT / "requirements.txt")
    if index and "://" in index:
        say("PyTorch from " + index)
        pip(python, ["--index-url", index, requirement])
        return
    choice = None if index else pip_choice(python, requirement)
    if index is None and choice and choice[1] and not gpu:
        index = "cpu"
    if index:
        if install_named_build(python, index, requirement):
            return
        choice = pip_choice(python, requirement)
        say("that build cannot be had from PyTorch's own index: taking what pip chooses")
    if choice:
        size = "with CUDA, several GB (5 to 20 minutes)" if choice[1] else "a CPU build of about 200 MB"
        say("PyTorch " + choice[0] + ", " + size)


def install_named_build(python, name, requirement):
    """A build such as "cpu" from PyTorch's own index; uv knows where that is. False where it cannot be had."""
    say("PyTorch, its " + name + " build (a CPU build is about 200 MB: 1 to 3 minutes)")
    pip(python, ["uv>=0.9,<1"])
    env = dict(os.environ, UV_HTTP_TIMEOUT="20", UV_HTTP_RETRIES="1")
    command = [python, "-m", "uv", "pip", "install", "--python", python, "--torch-backend", name, requirement]
    try:
        return subprocess.run(command, env=env, timeout=1800).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def pip(python, arguments):
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    command = [python, "-m", "pip", "install", "--disable-pip-version-check"] + quiet + arguments
    if subprocess.run(command).returncode:
        raise Stop("pip could not install " + " ".join(arguments) + " (its reason is above); run it again to go on")


def install(venv, requirements):
    start = time.time()
    python = make_venv(venv)
    for site_packages in venv.glob("lib/python3*/site-packages"):
        forget_half_installed(site_packages)
    install_torch(str(python), os.environ.get("TORCH_INDEX"), has_gpu())
    say("gradio, triton and the rest, about 500 MB on disk (1 to 3 minutes; an interrupt does no harm)")
    pip(str(python), ["-r", str(ROOT / requirements)])
    say("done in " + str(round(time.time() - start)) + " s")


def main():
    reason = unsupported(platform.system(), platform.machine())
    if reason:
        raise Stop(reason)
    if sys.version_info < OLDEST:
        newer = newer_python()
        if newer is None:
            raise Stop("Python 3.11 or newer is needed, and this is " + platform.python_version() + ": make PYTHON=...")
        os.execv(newer, [newer, __file__] + sys.argv[1:])
    install(ROOT / ".venv", sys.argv[1] if len(sys.argv) > 1 else "requirements-dev.txt")


if __name__ == "__main__":
    try:
        main()
    except Stop as stop:
        sys.exit("install: " + str(stop))
    except KeyboardInterrupt:
        sys.exit("\ninstall: interrupted; run it again to go on")
