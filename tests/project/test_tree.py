"""What must not stand in the project: a machine's own paths, addresses of package registries, unfinished work."""

from __future__ import annotations

import re

import pytest

from tests.project.source import ROOT, files

KINDS = (".py", ".md", ".txt", ".toml", ".css", ".js", ".svg", ".json", "Makefile", "Dockerfile", ".ci/run")
TEXT = tuple(f for f in files() if f.endswith(KINDS))
# Folders that a person's or a machine's own work lies in; the container's user is no person.
MACHINE_PATH = re.compile(r"(?<![\w.:/])/(?:root|work|opt/(?!nvidia/)\w+|mnt|srv|Users|home/(?!user/)\w+)/\w")
ADDRESS = re.compile(r"\b(?:https?|file)://(?P<host>[^\s/\"'`)>,:]*)")
INSTALLING = ("Makefile", "Dockerfile", ".ci/run", "requirements.txt", "requirements-dev.txt", "tools/install.py")
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|raise Not" + r"ImplementedError|coming" + r" soon)\b")


def matches(pattern: re.Pattern, names=TEXT) -> list[str]:
    found = []
    for name in names:
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
            found += [f"{name}:{number}: {m.group(0)}" for m in pattern.finditer(line)]
    return found


def test_no_paths_of_a_machine():
    assert not matches(MACHINE_PATH)


@pytest.mark.parametrize("folder", ["root", "home/ann", "opt", "Users/ann"])
def test_a_path_of_a_machine_would_be_seen(folder):
    assert MACHINE_PATH.search(f"open('/{folder}/wheels/one')")
    assert not MACHINE_PATH.search(f"see docs/{folder}/wheels/one")


def test_installing_names_no_address_but_this_host():
    """pip, uv and apt know where packages are, and a mirror's user has told them already."""
    assert {m["host"] for name in INSTALLING for m in ADDRESS.finditer((ROOT / name).read_text())} <= {"", "127.0.0.1"}


def test_no_unfinished_work():
    code = [f for f in TEXT if f.endswith((".py", ".md", ".css", ".js"))]
    assert not matches(UNFINISHED, code)


def test_files_fit_in_a_head():
    """Kernels' files included: a file over 400 lines holds more than one idea."""
    sizes = {f: len((ROOT / f).read_text(encoding="utf-8").splitlines()) for f in files() if f.endswith(".py")}
    assert not {f: n for f, n in sizes.items() if n > 400}


def test_no_large_file_by_accident():
    assert not {f: (ROOT / f).stat().st_size for f in files() if (ROOT / f).stat().st_size > 2_000_000}
