"""Every kernel found by all_kernels(), against PyTorch in float64, with poisoned outputs, through the engine."""

import inspect
import math
import sys

import pytest
import torch

import kernels
from kernels.spec import InputError, Target
from playground.engine import choose, edits
from playground.engine.compile import compile_launch
from tests.kernels import conformance
from tests.kernels.conformance import SPECS, choice, each_bug, each_dtype, each_edge, each_preset, name_of, run, why

OFFLINE = ("sm_90", "sm_80", "sm_100", "gfx942")

each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)


@pytest.mark.parametrize("spec, dtype", each_dtype())
def test_default_shape_is_right(spec, dtype):
    result = run(spec, dtype)
    assert result.ok, why(result)


@pytest.mark.parametrize("spec, edge, dtype", each_edge())
def test_edge_is_right(spec, edge, dtype):
    result = run(spec, dtype, edge)
    assert result.ok, why(result)


@pytest.mark.parametrize("spec, preset", each_preset(quick=("odd",)))
def test_preset_is_right_as_far_as_this_host_goes(spec, preset):
    dtype = spec.dtypes[0]
    dims = conformance.shrunk(spec, spec.presets[preset], dtype)
    if dims is None:
        pytest.skip("too large for a quick answer at any size; test_preset_can_be_planned covers its structure")
    result = run(spec, dtype, dims=dims)
    assert result.ok, why(result)


@pytest.mark.parametrize("spec, preset", each_preset())
def test_preset_can_be_planned(spec, preset):
    for target in map(Target.named, ("sm_90", "gfx942", "cpu")):
        if spec.unsupported(spec.dtypes[0], target):
            continue
        inputs = spec.inputs(spec.presets[preset], spec.dtypes[0], "meta")
        found = list(spec.configs(inputs, target))
        assert found, f"no config for {target.arch}"
        assert len({config.label for config in found}) == len(found), "a config is listed twice"
        for config in found:
            plan = spec.plan(inputs, config, target)
            for launch in plan.launches:
                assert 0 < launch.grid[0] < 2**31, f"{config.label}: grid {launch.grid}"
                assert all(0 < axis <= 65_535 for axis in launch.grid[1:]), f"{config.label}: grid {launch.grid}"
        assert set(plan.outputs) == {output.name for output in spec.outputs}


@pytest.mark.parametrize("spec, bug", each_bug())
def test_planted_bug_is_rejected(spec, bug):
    if conformance.job().interpreted or conformance.job().device.type != "cpu":
        pytest.skip("only the native path finds a wild store before it does its harm")
    dims = {**spec.default, **bug.dims}
    sound = run(spec, bug.dtype, dims=dims)
    assert sound.ok, f"the kernel itself fails where the bug should bite: {why(sound)}"
    planted = run(spec, bug.dtype, bug=bug.name, dims=dims, checked=True)
    assert not planted.ok, f"nobody would notice {bug.name!r}"


@pytest.mark.parametrize("spec, bug", each_bug())
def test_planted_bug_teaches(spec, bug):
    assert bug.hint.endswith("?"), "a hint asks; it does not tell"
    assert bug.symptom
    assert bug.find not in bug.replace or bug.replace not in bug.find
    assert edits.plant(spec, bug) != edits.source_of(spec)


@each_spec
def test_spec_is_complete(spec):
    module = sys.modules[spec.plan.__module__]
    assert len(module.__doc__ or "") > 300, "the file's docstring teaches"
    doc = inspect.getdoc(spec.function) or ""
    assert "Raises InputError" in doc and "returns" in doc.lower()
    assert set(spec.presets) >= {"decode", "prefill", "odd", "largest"}
    names = {dim.name for dim in spec.dims}
    for dims in (spec.default, *spec.presets.values(), *({**spec.default, **edge.dims} for edge in spec.edges)):
        assert set(dims) == names
    for dims in (spec.default, *spec.presets.values()):
        assert all(dim.low <= dims[dim.name] <= dim.high for dim in spec.dims)
    assert {spec.sweep_dim, spec.shrinks} <= names
    assert len(spec.bugs) >= (0 if spec.variant_of else 2)
    assert len(spec.edges) >= 3
    assert all(edge.attacks and "\n" not in edge.attacks for edge in spec.edges)
    assert len({edge.name for edge in spec.edges}) == len(spec.edges)
    assert all(baseline.install for baseline in spec.baselines)
    assert getattr(kernels, spec.name) is spec.function
    assert spec.variant_of is None or spec.variant_of in kernels.all_kernels()


@each_spec
def test_function_takes_the_inputs_by_name(spec):
    inputs = spec.inputs(spec.default, spec.dtypes[0], "meta")
    for function in (spec.function, spec.reference):
        inspect.signature(function).bind(**inputs)


@each_spec
def test_plan_reads_no_values(spec):
    """The same code and grid on tensors without values, where a read would raise, as on real ones."""
    if conformance.job().interpreted:
        pytest.skip("the interpreter's kernels cannot be compared")
    conformance.need_device(spec)
    target = conformance.target()
    real = spec.inputs(spec.default, spec.dtypes[0], conformance.job().device)
    meta = spec.inputs(spec.default, spec.dtypes[0], "meta")
    for config in spec.configs(meta, target):
        planned = conformance.shape_of_plan(spec.plan(real, config, target))
        assert conformance.shape_of_plan(spec.plan(meta, config, target)) == planned


@each_spec
def test_cost_is_what_a_person_counts(spec):
    dims, dtype, read, written, flops = conformance.hand_count(spec)
    cost = spec.cost(spec.inputs(dims, dtype, "meta"))
    assert (cost.bytes_read, cost.bytes_written, cost.flops) == (read, written, flops)


@each_spec
def test_cost_counts_an_expanded_input_once(spec):
    inputs = spec.inputs(spec.default, spec.dtypes[0], "meta")
    before = spec.cost(inputs).bytes_read
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.ndim > 1 and value.shape[0] > 1 and name not in spec.in_place:
            narrow = spec.cost({**inputs, name: value[:1].expand_as(value)}).bytes_read
            assert narrow <= before, name


@each_spec
def test_configs_are_right(spec):
    _check_configs(spec, 2)


@pytest.mark.slow
@each_spec
def test_every_config_is_right(spec):
    _check_configs(spec, 1000)


def _check_configs(spec, count):
    """Configs of an H200 too, where this device can run them: a tile's size is right or wrong anywhere."""
    conformance.need_device(spec)
    dtype = "float32" if "float32" in spec.dtypes else spec.dtypes[0]
    inputs = spec.inputs(spec.default, dtype, "meta")
    found = {}
    for target in (conformance.target(), Target.named("sm_90")):
        for config in spec.configs(inputs, target):
            try:
                spec.plan(inputs, config, conformance.target())
            except InputError as refused:
                assert refused.argument == "config"
            else:
                found.setdefault(config.label, config)
    for config in conformance.spread(found.values(), count):
        result = run(spec, dtype, config=choice(config))
        assert result.ok, why(result)


@each_spec
def test_bad_input_is_refused_before_anything_runs(spec):
    device = conformance.job().device
    inputs = spec.inputs(spec.default, spec.dtypes[0], device)
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    for name, tensor in tensors.items():
        bad = {
            "a list": tensor.flatten()[:3].tolist(),
            "complex numbers": tensor.to(torch.complex64),
            "booleans": tensor.to(torch.bool),
        }
        if name == next(iter(tensors)):
            bad["nothing"] = None
        if len(tensors) > 1:
            bad["another device"] = tensor.to("meta")
        if tensor.is_floating_point():
            bad["a gradient"] = tensor.detach().clone().requires_grad_()
        for what, value in bad.items():
            with pytest.raises(InputError) as refused:
                spec.function(**{**inputs, name: value})
            message = str(refused.value)
            assert message and "\n" not in message, f"{name} as {what}: {message}"
            assert refused.value.argument, f"{name} as {what}: no argument is named"


@each_spec
def test_shapes_that_no_device_holds_are_refused(spec):
    conformance.need_device(spec)
    dims = {**spec.default, spec.shrinks: next(dim.high for dim in spec.dims if dim.name == spec.shrinks)}
    available = 2**20
    with pytest.raises(InputError, match=r"needs|beyond|fit|free"):
        choose.fit(spec, dims, spec.dtypes[-1], conformance.target(), available, False)


def _offline(every):
    return [
        pytest.param(spec, arch, dtype, id=name_of(spec.name, arch, dtype))
        for i, spec in enumerate(SPECS)
        for j, arch in enumerate(OFFLINE)
        for k, dtype in enumerate(spec.dtypes)
        if every or (k == 0 and j == i % len(OFFLINE))
    ]


@pytest.mark.parametrize("spec, arch, dtype", _offline(every=False))
def test_compiles_offline(spec, arch, dtype):
    _check_compiles(spec, arch, dtype, 1)


@pytest.mark.slow
@pytest.mark.parametrize("spec, arch, dtype", _offline(every=True))
def test_every_config_compiles_offline(spec, arch, dtype):
    _check_compiles(spec, arch, dtype, 1000)


def _check_compiles(spec, arch, dtype, count):
    if conformance.job().interpreted:
        pytest.skip("the interpreter's kernels cannot be compiled")
    target = Target.named(arch)
    reason = spec.unsupported(dtype, target)
    if reason:
        pytest.skip(reason)
    inputs = spec.inputs(spec.presets["prefill"], dtype, "meta")
    for config in list(spec.configs(inputs, target))[:count]:
        for launch in spec.plan(inputs, config, target).launches:
            built = compile_launch(launch, target)
            assert built.shared_bytes <= target.shared_bytes, config.label
            assert math.isfinite(built.registers) and built.registers > 0
