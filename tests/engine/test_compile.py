"""Offline compilation: figures against the binaries' own tools, specialisation, and refusals in one line."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import pytest
import torch
import triton
from triton import knobs
from triton.compiler.compiler import make_backend

import kernels
from kernels.spec import Config, Target
from playground.engine import compile as offline
from playground.engine import edits, ptxas
from playground.engine.job import Job
from playground.engine.messages import ConfigChoice, EngineError, ResourcesRequest, ResourcesResult

JOB = Job(torch.device("cpu"))


def resources(kernel: str = "add_rms_norm", **asked) -> ResourcesResult:
    return offline.resources(ResourcesRequest(kernel=kernel, **asked), JOB)


def launch_of(kernel: str, dims: dict[str, int], arch: str, dtype: str = "float32"):
    spec, target = kernels.get(kernel), Target.named(arch)
    inputs = spec.inputs(dims, dtype, "meta")
    return spec.plan(inputs, spec.default_config(inputs, target), target).launches[0], target


def dumped(binary: bytes) -> str:
    """What cuobjdump reads from the cubin itself: another tool than the one that our figures come from."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(binary)
        return subprocess.run(
            [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip


@pytest.mark.parametrize("kernel,arch", [("softmax", "sm_80"), ("add_rms_norm", "sm_90"), ("matmul", "sm_90")])
def test_registers_are_those_of_the_cubin(kernel, arch):
    launch, target = launch_of(kernel, kernels.get(kernel).presets["prefill"], arch, kernels.get(kernel).dtypes[0])
    built = offline.compile_launch(launch, target)
    found = re.search(r"REG:(\d+)", dumped(built.binary))
    assert built.registers == int(found[1])
    assert set(built.stages) >= {"ttir", "ttgir", "llir", "ptx"} and built.spills == 0


def test_spills_are_counted_where_registers_run_out():
    """A row of 8192 float32 values in one warp is 256 for each thread, and a thread has 255 registers."""
    spec, target = kernels.get("softmax"), Target.named("sm_80")
    inputs = spec.inputs({"rows": 8, "n": 8192}, "float32", "meta")
    one_warp = Config({"BLOCK_M": 1, "BLOCK_N": 8192}, num_warps=1)
    built = offline.compile_launch(spec.plan(inputs, one_warp, target).launches[0], target)
    binary = dumped(built.binary)
    assert built.registers == int(re.search(r"REG:(\d+)", binary)[1])
    # What is spilled is stored to the thread's stack at least once.
    assert built.spills >= int(re.search(r"STACK:(\d+)", binary)[1]) > 0


def said_by_ptxas(ptx: str, arch: str) -> tuple[int, int, int]:
    """(registers, spill bytes, shared bytes) of a plain `ptxas -v`, run here and read here."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        words = [
            knobs.nvidia.ptxas.path,
            "-v",
            f"--gpu-name={arch}",
            "--regAllocOptLevel=2",
            str(path),
            "-o",
            f"{path}o",
        ]
        if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 7):
            words.remove("--regAllocOptLevel=2")
        log = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    numbers = (re.search(p, log) for p in (r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes smem"))
    return tuple(int(found[1]) if found else 0 for found in numbers)


@pytest.mark.parametrize(
    "kernel, dims, arch, config",
    [
        ("add_rms_norm", {"rows": 64, "n": 3000}, "sm_90a", None),
        ("softmax", {"rows": 8, "n": 8192}, "sm_80", Config({"BLOCK_M": 1, "BLOCK_N": 8192}, num_warps=1)),  # spills
        ("matmul", {"m": 512, "n": 512, "k": 512}, "sm_80", None),
    ],
)
def test_registers_and_spills_are_those_of_ptxas(kernel, dims, arch, config):
    spec, target = kernels.get(kernel), Target.named(arch.removesuffix("a"))
    inputs = spec.inputs(dims, "float32", "meta")
    launch = spec.plan(inputs, config or spec.default_config(inputs, target), target).launches[0]
    built = offline.compile_launch(launch, target)
    registers, spills, static = said_by_ptxas(built.stages["ptx"], arch)
    assert (built.registers, built.spills) == (registers, spills)
    assert bool(spills) == (config is not None)
    assert static == 0  # Triton's shared memory is all dynamic: ptxas does not see it, the next test does


def test_ptxas_runs_once_and_makes_what_triton_would(tmp_path, monkeypatch):
    launch, target = launch_of("softmax", {"rows": 64, "n": 3000}, "sm_90")
    source, options = offline.specialised(launch, make_backend(offline.gpu_target(target)))
    ran = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *args, **named: ran.append(args[0]) or run(*args, **named))
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path / "plain"))
    own = triton.compile(source, target=offline.gpu_target(target), options=options)
    found = offline.compile_launch(launch, target)  # what a launch has left in the cache: ptxas is asked once more
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path / "fresh"))
    ran.clear()
    ptxas._figures_of.cache_clear()
    built = offline.compile_launch(launch, target)
    assert [call[0] for call in ran] == [knobs.nvidia.ptxas.path]
    assert built.binary == own.asm["cubin"] and built == found
    assert offline.compile_launch(launch, target) == built and len(ran) == 1  # its cache has the figures, too


@pytest.mark.parametrize("kernel, arch", [("add_rms_norm", "sm_90"), ("matmul", "sm_80"), ("softmax", "gfx942")])
def test_shared_memory_is_tritons_own_metadata(kernel, arch):
    launch, target = launch_of(kernel, kernels.get(kernel).presets["prefill"], arch)
    source, options = offline.specialised(launch, make_backend(offline.gpu_target(target)))
    own = triton.compile(source, target=offline.gpu_target(target), options=options)
    assert offline.compile_launch(launch, target).shared_bytes == own.metadata.shared > 0


def test_amd_figures_are_the_assemblys_metadata():
    launch, target = launch_of("softmax", {"rows": 64, "n": 3000}, "gfx942")
    built = offline.compile_launch(launch, target)
    assembly = built.stages["amdgcn"]
    assert f".vgpr_count:     {built.registers}\n" in assembly and built.registers > 8 and built.spills == 0
    assert any(name.startswith("buffer_load") for name in built.instructions)


def test_amd_spills_are_four_bytes_for_each_register_spilled():
    metadata = "    .sgpr_spill_count: 3\n    .vgpr_count:     512\n    .vgpr_spill_count: 7\n"
    assert offline.amd_figures(metadata) == (512, 28)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_every_nvidia_target_compiles(arch):
    (own,) = resources(target=arch).launches
    assert own.target == arch and 16 <= own.registers <= 255 and own.num_warps >= 1
    assert own.instructions["ld.global.v4"] >= 2  # 16 bytes a lane


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100"])
def test_every_amd_target_compiles(arch):
    (own,) = resources(target=arch).launches
    assert own.target == arch and own.registers > 0


def test_the_source_is_compiled_and_carries_versions():
    result = resources(dims={"rows": 8, "n": 100})
    assert result.source.kind == "compiled" and result.source.device == "sm_90"
    assert result.source.versions["triton"] == triton.__version__
    assert result.choice.dims == {"rows": 8, "n": 100} and result.choice.config.meta["BLOCK_N"] == 128


def test_code_is_specialised_as_a_launch_would_be():
    """n = 4096 is divisible by 16 and loads 16 bytes a lane; n = 4097 is not, and rows begin anywhere."""
    wide, _ = launch_of("softmax", {"rows": 64, "n": 4096}, "sm_90")
    odd, target = launch_of("softmax", {"rows": 64, "n": 4097}, "sm_90")
    assert "ld.global.v4" in offline.compile_launch(wide, target).instructions
    assert "ld.global.v4" not in offline.compile_launch(odd, target).instructions


def test_an_argument_of_one_becomes_a_constant():
    launch, target = launch_of("vector_add", {"n": 1}, "sm_90")
    ttir = offline.compile_launch(launch, target).stages["ttir"]
    assert "%n_elements: i32" not in ttir
    launch, _ = launch_of("vector_add", {"n": 5}, "sm_90")
    assert "%n_elements: i32" in offline.compile_launch(launch, target).stages["ttir"]


def test_a_misaligned_view_is_not_taken_for_an_aligned_one():
    spec, target = kernels.get("vector_add"), Target.named("sm_90")
    base = torch.empty(4097, device="meta")
    pair = {"x": base[1:], "y": torch.empty(4096, device="meta")}
    plan = spec.plan(pair, spec.default_config(pair, target), target)
    loads = offline.compile_launch(plan.launches[0], target).instructions
    straight, _ = launch_of("vector_add", {"n": 4096}, "sm_90")
    assert loads["ld.global.v4"] < offline.compile_launch(straight, target).instructions["ld.global.v4"]


# Refusals


def refused(**asked) -> EngineError:
    with pytest.raises(EngineError) as caught:
        resources(**asked)
    assert "\n" not in caught.value.failure.message
    return caught.value


def test_an_unknown_target_lists_those_there_are():
    for name in ("sm_12", "cpu", ""):
        with pytest.raises(kernels.InputError, match=r"choose from sm_75, .*gfx1100") as caught:
            resources(target=name)
        assert caught.value.argument == "target"


def test_more_shared_memory_than_the_target_has_is_unavailable_with_both_figures():
    config = ConfigChoice(meta={"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}, num_warps=8, num_stages=4)
    error = refused(
        kernel="matmul", dtype="float16", target="sm_86", config=config, dims={"m": 512, "n": 512, "k": 512}
    )
    assert error.failure.kind == "unavailable"
    assert re.search(r"needs [\d,]+ bytes of shared memory, and sm_86 has 101,376", error.failure.message)


def test_a_config_that_cannot_compile_is_the_compilers_message():
    error = refused(kernel="vector_add", config=ConfigChoice(meta={"BLOCK": 1000}))
    assert error.failure.kind == "unavailable" and "power of 2" in error.failure.message


def test_an_edit_that_cannot_compile_is_the_persons_input():

    source = edits.source_of(kernels.get("vector_add")).replace(
        "mask = offsets < n_elements", "mask = offsets < nothing"
    )
    error = refused(kernel="vector_add", source=source)
    assert error.failure.kind == "input" and error.failure.argument == "source"
    assert "nothing" in error.failure.message and "mask = offsets < nothing" in error.failure.message


def test_a_dtype_that_the_target_lacks_is_unavailable():
    error = refused(kernel="matmul", dtype="tf32", target="gfx1100")
    assert error.failure.kind == "unavailable" and "TF32" in error.failure.message
