"""tools/install.py: which PyTorch it takes, what it says where Triton cannot run, and a way back from interrupts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.source import ROOT
from tools import browser
from tools import install as tool


@pytest.mark.parametrize(("system", "machine"), [("Linux", "x86_64"), ("Linux", "aarch64")])
def test_linux_is_fine(system, machine):
    assert tool.unsupported(system, machine) is None


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "riscv64")])
def test_elsewhere_one_line_points_to_docker_and_wsl(system, machine):
    why = tool.unsupported(system, machine)
    assert system in why and "Docker" in why and "WSL" in why and "\n" not in why


def test_an_old_python_can_read_the_installer():
    """It has to say itself that it is too old, so its syntax is that of Python 3.7."""
    import ast

    ast.parse((ROOT / "tools/install.py").read_text(), feature_version=(3, 7))


@pytest.fixture
def asked(monkeypatch):
    """What install_torch asks pip and uv for, with nothing installed."""
    calls: list[list[str]] = []
    monkeypatch.setattr(tool, "pip", lambda python, arguments: calls.append(arguments))
    monkeypatch.setattr(tool, "install_named_build", lambda python, name, need: calls.append([name]) or True)
    return calls


@pytest.mark.parametrize(
    ("choice", "gpu", "index", "expected"),
    [
        (("2.13.0", True), False, None, [["cpu"]]),  # a laptop whose pip would take the CUDA build
        (("2.13.0+cpu", False), False, None, []),  # a CPU build is already to be had
        (("2.13.0", True), True, None, []),  # a GPU: pip's own choice, with what follows
        (None, False, None, []),  # PyTorch is there already
        (("2.13.0", True), False, "", []),  # cleared: pip's own choice
        (("2.13.0", True), True, "cpu", [["cpu"]]),  # asked for by name, GPU or not
    ],
)
def test_which_torch(monkeypatch, asked, choice, gpu, index, expected):
    monkeypatch.setattr(tool, "pip_choice", lambda python, requirement: choice)
    tool.install_torch("python", index, gpu)
    assert asked == expected


def test_where_a_named_build_cannot_be_had_pips_choice_is_announced(monkeypatch, capsys):
    monkeypatch.setattr(tool, "pip_choice", lambda python, requirement: ("2.13.0", True))
    monkeypatch.setattr(tool, "install_named_build", lambda python, name, need: False)
    tool.install_torch("python", None, False)
    said = capsys.readouterr().out
    assert "cannot be had" in said and "several GB" in said


def test_uv_knows_the_name_of_the_cpu_build(monkeypatch):
    """And a host that cannot reach PyTorch's index is told so in time, rather than left to hang."""
    calls = []
    monkeypatch.setattr(tool, "pip", lambda python, arguments: calls.append(arguments))
    monkeypatch.setattr(tool.subprocess, "run", lambda command, **more: calls.append((command, more)) or Failed)
    assert tool.install_named_build("python", "cpu", "torch>=2.11") is False
    (uv, (command, more)) = calls
    assert uv[0].startswith("uv>=")
    assert command[command.index("--torch-backend") + 1] == "cpu"
    assert more["timeout"] and more["env"]["UV_HTTP_TIMEOUT"]


class Failed:
    returncode = 1


def test_an_index_by_address_is_taken_as_it_is(asked):
    tool.install_torch("python", "https://wheels.example/torch", False)
    assert asked == [["--index-url", "https://wheels.example/torch", tool.torch_requirement(ROOT / "requirements.txt")]]


def test_a_package_cut_short_is_installed_again(tmp_path):
    whole, half = tmp_path / "whole-1.0.dist-info", tmp_path / "half-1.0.dist-info"
    whole.mkdir()
    (whole / "INSTALLER").write_text("pip")
    half.mkdir()
    (half / "METADATA").write_text("Name: half")
    tool.forget_half_installed(tmp_path)
    assert whole.exists() and not half.exists()


def test_pip_is_asked_what_it_would_take():
    """The interpreter that runs this has its torch, so pip has nothing to add."""
    assert tool.pip_choice(sys.executable, "pytest") is None


def test_make_lists_its_targets():
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    named = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("  make ")}
    assert {"install", "run", "test", "lint", "gpu", "record", "record-check", "fuzz", "test-all"} <= named


def test_gpu_tests_run_with_the_python_that_is_given():
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", "gpu", "PYTHON=some-python"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "some-python -m pytest -m gpu"


def test_ci_runs_the_tests_of_the_readme():
    run = ROOT / ".ci/run"
    assert run.stat().st_mode & 0o111
    assert "make --no-print-directory test" in run.read_text()
    assert "make test" in (ROOT / "README.md").read_text()


def test_chromium_is_looked_for_on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    assert browser.find() is None
    fake = Path(tmp_path / "chromium")
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    assert browser.find() == str(fake)
