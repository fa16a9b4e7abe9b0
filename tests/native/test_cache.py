"""Compiled kernels on disk: cold, warm, damaged, unwritable, shared by processes."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch
import triton
import triton.language as tl

from playground import native
from playground.native import cache
from playground.settings import Settings


@triton.jit
def double_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) * 2)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_NATIVE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_playgrounds_cache_holds_it(tmp_path, monkeypatch):
    """Whoever moves the playground's cache moves all that it writes."""
    monkeypatch.setenv("PLAYGROUND_NATIVE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    for given in (str(tmp_path / "own"), ""):
        monkeypatch.setenv("PLAYGROUND_CACHE", given)
        assert cache.folder() == Settings.from_env().cache / "native"


def run_again() -> dict:
    """Launch as a new process would: nothing compiled is in memory."""
    double_kernel.__dict__.pop("_native_plan", None)
    before = native.stats()
    x, out = torch.randn(64), torch.zeros(64)
    double_kernel[(1,)](x, out, 64)
    assert torch.equal(out, x * 2)
    after = native.stats()
    return {how: after[how] - before[how] for how in ("cold", "cached")}


def test_cold_then_warm(folder):
    assert run_again() == {"cold": 1, "cached": 0}
    assert run_again() == {"cold": 0, "cached": 1}
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:100], lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_a_damaged_file_is_compiled_again_and_replaced(folder, damage):
    run_again()
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert run_again() == {"cold": 1, "cached": 0}
    assert run_again() == {"cold": 0, "cached": 1}


def test_a_disk_that_cannot_be_written_costs_a_compilation_alone(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert run_again() == {"cold": 1, "cached": 0}
    assert run_again() == {"cold": 1, "cached": 0}
    assert not list(folder.iterdir())  # no half-written file stays behind
    monkeypatch.setenv("PLAYGROUND_NATIVE_CACHE", os.devnull)
    assert run_again() == {"cold": 1, "cached": 0}


def test_another_source_cpu_or_package_is_another_file(folder, monkeypatch):
    run_again()
    monkeypatch.setattr(cache, "source_digest", lambda: "another version of the package")
    assert run_again() == {"cold": 1, "cached": 0}
    assert len(list(folder.iterdir())) == 2


def test_two_processes_at_once(folder, tmp_path):
    script = tmp_path / "both.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch, triton, triton.language as tl
            from playground import native
            native.enable()

            @triton.jit
            def kernel(x_ptr, N: tl.constexpr):
                i = tl.arange(0, 64)
                tl.store(x_ptr + i, tl.load(x_ptr + i) + N)

            for n in range(12):
                x = torch.zeros(64)
                kernel[(1,)](x, n)
                assert (x == n).all()
            """
        )
    )
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    children = [subprocess.Popen([sys.executable, str(script)], env=environment) for _ in range(2)]
    assert [child.wait(100) for child in children] == [0, 0]
    assert len([f for f in folder.iterdir() if not f.name.startswith("tmp")]) == 12
