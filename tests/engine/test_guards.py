"""Guard zones: what is written beside an output is seen, what lies in it and how it lies is not changed."""

from __future__ import annotations

import pytest
import torch

import kernels
from kernels.spec import Config, Launch, Plan, Target
from playground.engine import execute, guards
from playground.engine.job import Job
from playground.engine.messages import RunRequest

CPU = torch.device("cpu")


def plan_of(**tensors: torch.Tensor) -> Plan:
    return Plan((Launch(None, (1,), {**tensors, "n": 3}, Config()),), {"out": tensors["out_ptr"]})


def behind(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """The element at this distance from the tensor's first, inside it or not."""
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + index)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int8, torch.int64, torch.float8_e4m3fn], ids=str
)
@pytest.mark.parametrize(
    "index,side", [(-1, "before its first"), (10, "past its last of 10"), (37, "past its last of 10")]
)
def test_a_store_beside_the_output_is_seen_with_its_element(dtype, index, side):
    found = guards.guarded(plan_of(out_ptr=torch.zeros(10, dtype=dtype)), {})
    found.need_intact()
    behind(found.outputs["out"], index).view(torch.uint8).fill_(1)
    with pytest.raises(guards.Overwritten, match=f"wrote outside out_ptr: element {index}, {side}"):
        found.need_intact()


def test_contents_strides_and_alignment_are_kept():
    scratch = torch.zeros(7)
    out = torch.arange(24.0).reshape(4, 6)[:, ::2]
    found = guards.guarded(plan_of(scratch_ptr=scratch, out_ptr=out), {})
    own = found.launches[0].args["out_ptr"]
    assert own.equal(out) and own.stride() == out.stride() and found.outputs["out"].data_ptr() == own.data_ptr()
    assert found.launches[0].args["scratch_ptr"].equal(scratch) and found.launches[0].args["n"] == 3
    assert own.data_ptr() % 16 == out.data_ptr() % 16 and own.data_ptr() != out.data_ptr()
    own[0, 0] = 100.0
    assert out[0, 0] == 0.0


def test_views_of_one_buffer_stay_views_of_one_buffer():
    whole = torch.zeros(20)
    found = guards.guarded(plan_of(low_ptr=whole[:10], out_ptr=whole[10:]), {})
    args = found.launches[0].args
    assert len(found.zones) == 1 and args["out_ptr"].data_ptr() - args["low_ptr"].data_ptr() == 40


def test_inputs_empty_and_huge_buffers_are_left_where_they_are(monkeypatch):
    monkeypatch.setattr(guards, "MOST_BYTES", 100)
    x, huge, empty = torch.zeros(5), torch.zeros(26), torch.zeros(0)
    found = guards.guarded(plan_of(x_ptr=x, huge_ptr=huge, out_ptr=empty), {"x": x})
    assert found.zones == () and found.launches[0].args["x_ptr"] is x


def test_a_descriptor_made_on_the_host_points_into_the_guarded_buffer():
    from triton.tools.tensor_descriptor import TensorDescriptor

    out = torch.zeros(16, 16)
    plan = Plan((Launch(None, (1,), {"desc": TensorDescriptor.from_tensor(out, [16, 16])}, Config()),), {"out": out})
    found = guards.guarded(plan, {})
    assert found.launches[0].args["desc"].base.data_ptr() == found.outputs["out"].data_ptr() != out.data_ptr()


def test_unchecked_a_store_past_the_end_fails_though_the_answer_is_right():
    """The forgotten mask of vector_add writes every right value, and 1,023 more behind them."""
    request = RunRequest(kernel="vector_add", bug="Forgotten mask", baselines=(), checked=False)
    result = execute.run(request, Job(CPU))
    own = result.providers["triton"]
    assert not result.ok and own.outputs["out"].ok
    assert own.failure == "wrote outside out_ptr: element 1,025, past its last of 1,025"


@pytest.mark.parametrize("spec", list(kernels.all_kernels().values()), ids=lambda s: s.name)
def test_no_kernel_writes_beside_its_outputs(spec):
    reason = spec.unsupported(spec.dtypes[0], Target.named("cpu"))
    if reason:
        pytest.skip(reason)
    result = execute.run(RunRequest(kernel=spec.name, baselines=(), checked=False), Job(CPU))
    assert result.ok, result.providers["triton"]
    inputs = spec.inputs(spec.default, spec.dtypes[0], CPU)
    plan = spec.plan(inputs, spec.default_config(inputs, Target.named("cpu")), Target.named("cpu"))
    fresh = {t.untyped_storage().data_ptr() for t in plan.outputs.values()}
    given = {t.untyped_storage().data_ptr() for t in inputs.values() if isinstance(t, torch.Tensor)}
    assert len(guards.guarded(plan, inputs).zones) >= len(fresh - given)
