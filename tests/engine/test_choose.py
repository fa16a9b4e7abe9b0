"""Requests: defaults, refusals in one line that names the argument and the remedy, and shapes that have no room."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels
from kernels.spec import Config, Target
from playground.engine import choose
from playground.engine.messages import ConfigChoice, EngineError, RunRequest

CPU, H200 = Target.named("cpu"), Target.named("sm_90")
SPECS = tuple(kernels.all_kernels().values())


def refused(**asked) -> kernels.InputError:
    asked.setdefault("kernel", "add_rms_norm")
    with pytest.raises(kernels.InputError) as caught:
        choose.validate(RunRequest(**asked))
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
def test_nothing_given_means_the_default_shape_here_and_prefill_on_a_gpu(spec):
    here, gpu = choose.validate(RunRequest(kernel=spec.name)), choose.validate(RunRequest(kernel=spec.name), gpu=True)
    assert here.dims == dict(spec.default) and gpu.dims == dict(spec.presets["prefill"])
    assert here.dtype == gpu.dtype == spec.dtypes[0] and here.edge is here.bug is None


def test_each_refusal_names_the_argument_and_the_remedy():
    assert str(refused(dims={"rows": -1, "n": 5})) == "rows must be 1 or more, and it is -1; set rows to 1 or more"
    assert str(refused(dims={"rows": 0, "n": 5})).endswith("; set rows to 1 or more, or take the case No rows")
    for asked, argument, part in (
        ({"dims": {"rows": 0}}, "rows", "set rows to 1 or more"),
        ({"dims": {"n": 2**40}}, "n", "set n to 1,048,576 or less"),
        ({"dims": {"rows": 2**31, "n": 2**20}}, "rows", "make rows smaller"),
        ({"dims": {"width": 3}}, "width", "its dims are rows, n"),
        ({"dtype": "int8"}, "dtype", "choose bfloat16, float16 or float32"),
        ({"kernel": "soft_max"}, "kernel", "softmax"),
        ({"edge": "Nothing"}, "edge", "choose One row"),
        ({"bug": "Nothing"}, "bug", "choose Forgotten mask"),
        ({"baselines": ("cudnn",)}, "baselines", "choose eager, torch.compile, Liger or quack"),
        ({"seed": -1}, "seed", "set seed to 0"),
        ({"seed": 2**64}, "seed", "set seed to 0"),
    ):
        error = refused(**asked)
        assert error.argument == argument and part in str(error), str(error)


def test_an_edge_case_goes_where_a_person_may_not_and_overrides_what_is_given():
    chosen = choose.validate(RunRequest(kernel="add_rms_norm", edge="No rows", dims={"rows": 7, "n": 9}))
    assert chosen.dims == {"rows": 0, "n": 64}


@pytest.mark.parametrize("spec,bug", [(s, b) for s in SPECS for b in s.bugs], ids=lambda v: v.name)
def test_a_bug_brings_the_shape_at_which_it_bites_unless_another_is_given(spec, bug):
    chosen = choose.validate(RunRequest(kernel=spec.name, bug=bug.name))
    assert {**chosen.dims, **bug.dims} == chosen.dims and chosen.dtype == bug.dtype and chosen.bug is bug
    name = spec.shrinks
    assert choose.validate(RunRequest(kernel=spec.name, bug=bug.name, dims={name: 16})).dims[name] == 16


@given(rows=st.integers(-(2**70), 2**70), n=st.integers(-(2**70), 2**70))
@settings(max_examples=200, deadline=None)
def test_any_two_integers_are_taken_or_refused_in_one_line(rows, n):
    try:
        chosen = choose.validate(RunRequest(kernel="add_rms_norm", dims={"rows": rows, "n": n}))
    except kernels.InputError as error:
        assert error.argument in ("rows", "n") and "\n" not in str(error)
    else:
        assert chosen.dims == {"rows": rows, "n": n} and 2 * 2 * rows * n <= choose.MAX_BYTES


# Configs


def pick(config: ConfigChoice | None, kernel: str = "add_rms_norm"):
    chosen = choose.validate(RunRequest(kernel=kernel))
    inputs = chosen.spec.inputs(chosen.dims, chosen.dtype, "meta")
    request = RunRequest(kernel=kernel, config=config)
    return choose.choose_config(chosen.spec, request, inputs, H200, chosen.dims, chosen.dtype)


def test_config_is_the_one_given_else_the_specs_own():
    config, origin = pick(None)
    assert origin == "spec" and config.meta == {"BLOCK_M": 1, "BLOCK_N": 4096}
    config, origin = pick(ConfigChoice(meta={"BLOCK_M": 2, "BLOCK_N": 4096}, num_warps=16, num_stages=2))
    assert origin == "given" and (config.meta["BLOCK_M"], config.num_warps, config.num_stages) == (2, 16, 2)


@pytest.mark.parametrize(
    "config,part",
    [
        (ConfigChoice(meta={"BLOCK": 64}), "no 'BLOCK' for add_rms_norm; its names are BLOCK_M, BLOCK_N"),
        (ConfigChoice(meta={"BLOCK_M": 1, "BLOCK_N": 0}), "BLOCK_N must be 1 or more, and it is 0"),
        (ConfigChoice(meta={"BLOCK_M": 1, "BLOCK_N": 64}, num_warps=3), "num_warps must be a power of two"),
    ],
)
def test_a_config_that_cannot_be_is_refused(config, part):
    with pytest.raises(kernels.InputError, match=part) as caught:
        pick(config)
    assert caught.value.argument == "config"


def test_another_targets_config_is_left_to_the_plan_which_says_why_it_cannot_be():
    spec, config = kernels.get("softmax"), ConfigChoice(meta={"BLOCK_N": 4096, "BLOCKS": 1})
    chosen = choose.validate(RunRequest(kernel="softmax", dims={"rows": 37, "n": 5003}, config=config))
    inputs = spec.inputs(chosen.dims, chosen.dtype, "meta")
    taken, _ = choose.choose_config(
        spec, RunRequest(kernel="softmax", config=config), inputs, CPU, chosen.dims, chosen.dtype
    )
    with pytest.raises(kernels.InputError, match="wait for each other; choose one without BLOCKS"):
        spec.plan(inputs, taken, CPU)


# Room


def test_need_is_what_the_shape_really_holds():
    """vector_add in float32, counted by hand: x, y, out; x, y and their sum in float64, as peak."""
    n = 2**24
    need = choose.need(kernels.get("vector_add"), {"n": n}, "float32", CPU)
    held, reference = 3 * 4 * n, 3 * 8 * n
    assert need.bytes == held + reference


def test_peak_counts_what_is_alive_at_once():
    x = torch.empty(1000, dtype=torch.float64, device="meta")
    assert choose.peak_bytes(lambda: ((x + 1) + 2) + 3) == 2 * 8000  # one operand and one result at a time
    assert choose.peak_bytes(lambda: (x + 1, x + 2, x + 3)) == 3 * 8000
    assert choose.peak_bytes(lambda: x.view(10, 100).t()) == 0


def test_a_shape_without_room_is_refused_with_need_and_have_and_the_nearest():
    spec, have = kernels.get("add_rms_norm"), 2**30
    dims = {"rows": 16384, "n": 8192}
    with pytest.raises(kernels.InputError) as caught:
        choose.fit(spec, dims, "bfloat16", CPU, have)
    text = str(caught.value)
    assert "rows=16,384, n=8,192 needs 6.0 GiB, and 1.0 GiB are free; set rows to 2,048" in text
    choose.fit(spec, {**dims, "rows": 2048}, "bfloat16", CPU, have)  # what it offers does fit
    with pytest.raises(kernels.InputError):
        choose.fit(spec, {**dims, "rows": 4096}, "bfloat16", CPU, have)  # and twice that does not


def test_a_shape_that_would_take_minutes_on_a_cpu_is_refused_there_alone():
    spec, dims = kernels.get("matmul"), {"m": 16384, "n": 16384, "k": 16384}
    with pytest.raises(kernels.InputError, match=r"would take about .* s here"):
        choose.fit(spec, dims, "float32", CPU, 2**40)
    choose.fit(spec, dims, "float32", H200, 2**40)


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
def test_every_preset_or_a_smaller_one_fits_a_large_gpu(spec):
    def fits(dims):
        return choose.need(spec, dims, spec.dtypes[0], H200).bytes <= 120 * 2**30

    for name, dims in spec.presets.items():
        found = choose.nearest_fitting(spec, dims, fits)
        assert found is not None
        assert name == "largest" or found == dims


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
@pytest.mark.parametrize("preset", ["decode", "prefill", "odd", "largest"])
def test_the_quick_bound_is_never_below_the_real_need(spec, preset):
    inputs = spec.inputs(spec.presets[preset], spec.dtypes[0], "meta")
    need = choose.need(spec, spec.presets[preset], spec.dtypes[0], H200).bytes
    assert not choose._surely_fits(spec, inputs, H200, need - 1)


def test_nearest_gives_up_where_even_the_lowest_has_no_room():
    assert choose.nearest_fitting(kernels.get("vector_add"), {"n": 64}, lambda dims: False) is None


def planned(kernel, meta, target=H200, **dims):
    spec = kernels.get(kernel)
    inputs = spec.inputs({**spec.default, **dims}, spec.dtypes[0], "meta")
    return choose.planned(spec, inputs, Config(meta), target)


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: s.name)
def test_a_config_without_a_name_that_the_plan_or_the_kernel_needs_is_bad_input(spec):
    """Not one of the spec's own lacks a name; without any it lacks the first."""
    inputs = spec.inputs(spec.default, spec.dtypes[0], "meta")
    for target in (CPU, H200):
        if spec.unsupported(spec.dtypes[0], target):
            continue
        for config in spec.configs(inputs, target):
            plan, used = choose.planned(spec, inputs, config, target)
            assert used.meta.items() <= config.meta.items() and used == plan.config(config)
    with pytest.raises(kernels.InputError, match=r"^config lacks '(\w+)'; give '\1' a value$") as raised:
        choose.planned(spec, inputs, Config(), H200)
    assert raised.value.argument == "config"


def test_what_only_the_kernel_needs_is_missed_before_it_is_launched():
    with pytest.raises(kernels.InputError, match="config lacks 'GROUP_M'"):
        planned("matmul", {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32})


def test_a_plans_own_mistake_is_not_blamed_on_the_config(monkeypatch):
    spec = kernels.get("vector_add")
    broken = replace(spec, plan=lambda inputs, config, target: {}["z"])
    with pytest.raises(KeyError, match="z"):
        choose.planned(broken, spec.inputs({"n": 8}, "float32", "meta"), Config({"BLOCK": 64}), CPU)


def test_the_dtype_is_named_only_where_another_would_do():
    for kernel, dtype, target, argument in (
        ("gluon_attention", "bfloat16", CPU, ""), ("matmul", "tf32", Target.named("sm_75"), "dtype"),
    ):  # fmt: skip
        with pytest.raises(EngineError) as raised:
            choose.need_support(kernels.get(kernel), dtype, target)
        assert (raised.value.failure.kind, raised.value.failure.argument) == ("unavailable", argument)
