"""Generated code as the page gets it: stages of the target, rows that lead back to the kernel's own lines."""

import pytest
import torch

import kernels
from kernels.spec import InputError
from playground.engine.code import code
from playground.engine.code_messages import CodeRequest
from playground.engine.compile import resources
from playground.engine.job import Job
from playground.engine.messages import ConfigChoice, EngineError, ResourcesRequest

JOB = Job(torch.device("cpu"))


def of(kernel="vector_add", **request):
    return code(CodeRequest(kernel=kernel, **request), JOB)


def test_python_shown_begins_at_the_kernel_and_rows_point_into_it():
    (launch,) = of("add_rms_norm").launches
    assert any("def add_rms_norm_kernel" in line for line in launch.python)
    last = launch.first_line + len(launch.python)
    for stage, rows in launch.stages.items():
        pointed = {line for row in rows for line in row.lines}
        assert pointed, stage
        assert all(launch.first_line <= line < last for line in pointed), stage


def test_the_load_of_the_weight_is_found_from_the_machine_code():
    (launch,) = of("add_rms_norm").launches
    weight = next(i for i, line in enumerate(launch.python, launch.first_line) if "weight = tl.load(" in line)
    loads = [row for row in launch.stages["sass"] if "LDG" in row.text and weight in row.lines]
    assert loads


def test_helpers_of_the_same_file_are_shown():
    (launch,) = of("matmul", target="sm_80").launches
    assert any(line.startswith("def _tile") for line in launch.python)


def test_stages_are_those_of_the_target():
    assert set(of(target="gfx942").launches[0].stages) == {"ttir", "ttgir", "llir", "amdgcn"}
    assert set(of(target="sm_80", stages=("ptx",)).launches[0].stages) == {"ptx"}
    with pytest.raises(InputError, match="sm_90 has no stage 'amdgcn'; choose ttir"):
        of(stages=("amdgcn",))


def test_a_config_changes_the_code():
    small, large = (
        of(config=ConfigChoice(meta={"BLOCK": block}, num_warps=4), stages=("ptx",)).launches[0]
        for block in (512, 4096)
    )
    assert len(small.stages["ptx"]) < len(large.stages["ptx"])


def test_an_edit_that_does_not_compile_names_the_line():
    source = kernels.get("vector_add")
    with open(source.plan.__code__.co_filename) as file:
        text = file.read()
    broken = text.replace("mask = offsets < n_elements", "mask = offsets < unknown_name")
    with pytest.raises(EngineError, match="unknown_name") as failed:
        of(source=broken)
    assert failed.value.failure.kind == "input"


def test_resources_and_occupancy_come_along():
    (launch,) = of().launches
    assert launch.resources.registers > 0 and launch.resources.spills == 0
    assert launch.occupancy == 1.0 and launch.limit == "warps"


def test_a_stage_that_gluon_lacks_is_said_in_its_place_and_refused_by_name():
    (launch,) = of("gluon_attention").launches
    assert launch.stages["ttir"][0].text.startswith("// no ttir")
    with pytest.raises(EngineError, match="has no ttir: it is written in Gluon") as raised:
        of("gluon_attention", stages=("ttir",))
    assert raised.value.failure.kind == "unavailable"


@pytest.mark.parametrize(
    "kernel, dims, given, launched",
    [
        ("softmax", {"rows": 2, "n": 9000}, {"BLOCK_M": 1, "BLOCK_N": 4096}, {"BLOCK_N": 4096}),
        (
            "matmul", {"m": 200, "n": 300, "k": 251},
            {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8, "FLATTEN": 0},
            {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8},
        ),
    ],
)  # fmt: skip
def test_the_config_shown_is_the_one_launched(kernel, dims, given, launched):
    asked = {"kernel": kernel, "dims": dims, "config": ConfigChoice(meta=given), "target": "sm_90"}
    assert code(CodeRequest(**asked, stages=("ptx",)), JOB).choice.config.meta == launched
    assert resources(ResourcesRequest(**asked), JOB).choice.config.meta == launched


def test_a_config_that_lacks_a_name_is_bad_input():
    asked = {"kernel": "softmax", "config": ConfigChoice(), "target": "sm_90"}
    for handler, request in ((code, CodeRequest(**asked)), (resources, ResourcesRequest(**asked))):
        with pytest.raises(InputError, match="config lacks 'BLOCK_N'; give 'BLOCK_N' a value"):
            handler(request, JOB)
