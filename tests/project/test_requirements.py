"""requirements.txt and requirements-dev.txt: all that is imported, nothing else, each with a range and a reason."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions

import pytest

from tests.project.source import ROOT, imports, python_files

LINE = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(\[[a-z,]+\])?(?P<range>>=[\d.]+,<[\d.]+)  # (?P<reason>\S.{11,})")
OURS = {"app", "kernels", "playground", "tests", "tools"}
# Other people's kernels, compared with where they are installed: imported inside a function, and never required.
PEERS = {"liger_kernel", "flag_gems", "flash_attn", "vllm", "unsloth", "quack"}
# Tools that are run, not imported.
COMMANDS = {"ruff", "mypy", "pytest-xdist"}
# Brought by another package, and listed for its range.
PINNED = {"pandas"}
BY_WAY_OF = {
    "starlette": "gradio",
    "fastapi": "gradio",
    "uvicorn": "gradio",
    "gradio_client": "gradio",
    "mcp": "gradio",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def lines(file: str) -> list[str]:
    """Requirements, without comments, inclusions and the line that stops pip where Triton has no wheel."""
    skip = ("#", "-r", "linux-only @")
    return [line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith(skip)]


def required(*names: str) -> set[str]:
    return {normal(LINE.fullmatch(line)["name"]) for name in names for line in lines(name)}


@cache
def distributions() -> dict[str, list[str]]:
    return dict(packages_distributions())


def distribution(package: str) -> str:
    """The name under which pip knows an imported package."""
    package = BY_WAY_OF.get(package, package)
    names = [normal(name) for name in distributions().get(package, [package])]
    return normal(package) if normal(package) in names else names[0]


def third_party(*folders: str) -> dict[str, str]:
    """Imported packages that are neither ours nor Python's, each with one place that imports it."""
    found: dict[str, str] = {}
    for file in python_files(*folders):
        for i in imports(file):
            root = i.target.split(".")[0]
            if root not in OURS and root not in sys.stdlib_module_names and not (root in PEERS and i.lazy):
                found.setdefault(root, f"{file}:{i.line}")
    return found


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_each_line_has_a_range_and_a_reason(file):
    assert lines(file)
    assert not [line for line in lines(file) if not LINE.fullmatch(line)]


def test_all_that_the_product_imports_is_required():
    missing = {p: at for p, at in third_party("app.py", "kernels", "playground").items() if p != "__future__"}
    assert not {p: at for p, at in missing.items() if distribution(p) not in required("requirements.txt")}


def test_all_that_tests_and_tools_import_is_required():
    have = required("requirements.txt", "requirements-dev.txt")
    assert not {p: at for p, at in third_party("tests", "tools").items() if distribution(p) not in have}


def test_nothing_is_required_for_nothing():
    used = {distribution(p) for p in third_party("app.py", "kernels", "playground", "tests", "tools")}
    assert not required("requirements.txt", "requirements-dev.txt") - used - COMMANDS - PINNED


def test_the_pair_that_gpu_hosts_have():
    """torch 2.13 pins triton 3.7.1 on GPU hosts; the GPU machine has 3.6; a CPU host takes the same pair."""
    text = "\n".join(lines("requirements.txt"))
    assert "torch>=2.11,<2.14 " in text
    assert "triton>=3.6,<3.8 " in text


def test_gradio_brings_its_mcp_server():
    assert "gradio[mcp]" in (ROOT / "requirements.txt").read_text()


def test_pip_itself_points_elsewhere_where_triton_has_no_wheel(tmp_path):
    """As on macOS or Windows: the same line, with its condition turned round."""
    line = next(t for t in (ROOT / "requirements.txt").read_text().splitlines() if t.startswith("linux-only @"))
    turned = tmp_path / "requirements.txt"
    turned.write_text(line.replace('!= "linux"', '== "linux"'))
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index", "-r", str(turned)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode and "use-Docker-or-WSL" in done.stderr
