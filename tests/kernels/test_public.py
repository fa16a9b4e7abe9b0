"""`import kernels` as a person uses it: shapes, dtypes, and one clear line for what a kernel cannot take."""

import subprocess
import sys

import pytest
import torch

import kernels
from kernels import InputError
from kernels.operands import copy_to_aligned, describe
from kernels.spec import Config, Draw, Plan, Target, nbytes, next_power_of_2
from tests.kernels import conformance

DEVICE = conformance.job().device


def randn(*shape, dtype=torch.float32):
    return torch.randn(shape, device=DEVICE).to(dtype)


def test_kernels_are_listed_and_found():
    assert "softmax" in kernels.__all__ and kernels.softmax is kernels.get("softmax").function
    with pytest.raises(InputError, match=r"no kernel is named 'softmex'; there are .*softmax"):
        kernels.get("softmex")


@pytest.mark.parametrize("shape", ((), (1,), (7,), (2, 3, 5)))
def test_vector_add_takes_any_shape(shape):
    x, y = randn(*shape), randn(*shape)
    assert torch.equal(kernels.vector_add(x, y), x + y)


@pytest.mark.parametrize("shape", ((7,), (2, 3, 5), (2, 1, 3, 4)))
def test_row_kernels_take_any_rank(shape):
    x, weight = randn(*shape), randn(shape[-1])
    torch.testing.assert_close(kernels.softmax(x), torch.softmax(x, -1))
    torch.testing.assert_close(
        kernels.layer_norm(x, weight, weight), torch.nn.functional.layer_norm(x, shape[-1:], weight, weight)
    )
    torch.testing.assert_close(
        kernels.rms_norm(x, weight), torch.nn.functional.rms_norm(x, shape[-1:], weight, 1e-6), rtol=1e-5, atol=1e-6
    )
    out, total = kernels.add_rms_norm(x, x, weight)
    assert out.shape == total.shape == shape and torch.equal(total, x + x)
    torch.testing.assert_close(kernels.silu_mul(x, x), torch.nn.functional.silu(x) * x)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.bfloat16))
def test_results_are_contiguous_and_of_the_inputs_dtype(dtype):
    if conformance.job().interpreted and dtype == torch.bfloat16:
        pytest.skip("the interpreter gets bfloat16 wrong")
    x, weight = randn(8, 6, dtype=dtype).t(), randn(8)
    for out in (
        kernels.softmax(x), kernels.rms_norm(x, weight), kernels.layer_norm(x, weight, weight),
        *kernels.add_rms_norm(x, x, weight), kernels.silu_mul(x, x), kernels.vector_add(x, x), kernels.matmul(x, x.t()),
    ):  # fmt: skip
        assert out.dtype == dtype and out.is_contiguous() and out.device == x.device


def test_parameters_matter():
    x, ones = torch.full((1, 16), 1e-3, device=DEVICE), torch.ones(16, device=DEVICE)
    assert kernels.rms_norm(x, ones, eps=1.0).max() < 2e-3 < 0.9 < kernels.rms_norm(x, ones, eps=0.0).min()
    assert kernels.add_rms_norm(x, x, ones, eps=1.0)[0].max() < 3e-3
    ramp = torch.arange(16.0, device=DEVICE)[None] * 1e-3
    assert (
        kernels.layer_norm(ramp, ones, ones * 0, eps=1.0).max() < 1e-2 < kernels.layer_norm(ramp, ones, ones * 0).max()
    )
    assert torch.allclose(kernels.rms_norm(x, ones, eps=0.0, offset=1.0), 2 * ones)


def test_gradients_are_refused_only_where_they_would_be_lost():
    x = randn(2, 4).requires_grad_()
    with pytest.raises(InputError, match=r"x requires a gradient .* torch.no_grad"):
        kernels.softmax(x)
    with torch.no_grad():
        assert kernels.softmax(x).shape == (2, 4)
    with torch.inference_mode():
        assert kernels.softmax(randn(2, 4)).shape == (2, 4)


REFUSED = {
    "x is a list; pass a torch.Tensor": lambda: kernels.softmax([1.0, 2.0]),
    "x is a NoneType; pass a torch.Tensor": lambda: kernels.softmax(None),
    "x has shape []; it needs 1 or more dimensions": lambda: kernels.softmax(randn()),
    "x is int64; this kernel takes float32, float16, bfloat16: convert it with .to()": lambda: kernels.softmax(
        torch.ones(3, dtype=torch.int64)
    ),
    "y has shape [4]; x asks for [3]": lambda: kernels.vector_add(randn(3), randn(4)),
    "y is torch.float16 and x is torch.float32; convert y with .to(torch.float32)": lambda: kernels.vector_add(
        randn(3), randn(3, dtype=torch.float16)
    ),
    "weight has shape [4]; the last dimension of x asks for [3]": lambda: kernels.rms_norm(randn(2, 3), randn(4)),
    "bias has shape [1, 3]; the last dimension of x asks for [3]": lambda: kernels.layer_norm(
        randn(2, 3), randn(3), randn(1, 3)
    ),
    "residual has shape [3]; x asks for [2, 3]": lambda: kernels.add_rms_norm(randn(2, 3), randn(3), randn(3)),
    "up has shape [3, 2]; gate asks for [2, 3]": lambda: kernels.silu_mul(randn(2, 3), randn(3, 2)),
    "a has shape [3]; it needs 2 dimensions: reshape it": lambda: kernels.matmul(randn(3), randn(3, 2)),
    "b has shape [4, 2]; a's second dimension asks for [3, 2]": lambda: kernels.matmul(randn(2, 3), randn(4, 2)),
    "precision is 'high'; choose \"ieee\", \"tf32\", or None for PyTorch's setting": lambda: kernels.matmul(
        randn(2, 3), randn(3, 2), "high"
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_refused_in_one_line_that_names_the_remedy(line):
    with pytest.raises(InputError) as refused:
        REFUSED[line]()
    assert str(refused.value) == line
    assert refused.value.argument == line.split()[0]


def test_another_device_is_named():
    with pytest.raises(InputError, match=r"y is on meta and x on .*; move y with .to"):
        kernels.vector_add(randn(3), torch.empty(3, device="meta"))


def test_draw_is_the_same_for_the_same_seed():
    def draw(seed):
        made = Draw(torch.float16, torch.device("cpu"), seed)
        return made.normal(5), made.uniform(5), made.integers(5, low=0, high=9), made.permutation(5)

    assert all(torch.equal(a, b) for a, b in zip(draw(3), draw(3), strict=True))
    assert not torch.equal(draw(3)[0], draw(4)[0])
    meta = Draw(torch.float16, torch.device("meta"))
    assert [t.shape[0] for t in (meta.normal(5), meta.uniform(5), meta.permutation(5))] == [5, 5, 5]


def test_nbytes_counts_an_expanded_dimension_once():
    assert nbytes(torch.empty(6, 4)) == 96
    assert nbytes(torch.empty(1, 4).expand(6, 4)) == 16
    assert nbytes(torch.empty(0, 4), torch.empty(3, dtype=torch.int8)) == 3


def test_config_label_and_power_of_2():
    assert Config({"BLOCK_N": 4096}, 8).label == "BLOCK_N 4096, 8 warps"
    assert Config({}, 1, 1).label == "1 warp, 1 stage"
    assert [next_power_of_2(n) for n in (0, 1, 2, 3, 1000, 1024, 1025)] == [1, 1, 2, 4, 1024, 1024, 2048]


def test_plan_shows_the_config_it_was_given_or_what_it_narrowed_it_to():
    softmax, matmul, target = kernels.get("softmax"), kernels.get("matmul"), Target.named("sm_90")
    one_block = Config({"BLOCK_M": 1, "BLOCK_N": 1024}, 8)
    for n, shown in ((1000, one_block), (5000, Config({"BLOCK_N": 1024}, 8))):
        assert (
            softmax.plan(softmax.inputs({"rows": 3, "n": n}, "float32", "meta"), one_block, target).config(one_block)
            == shown
        )
    odd = matmul.inputs(matmul.presets["odd"], "bfloat16", "meta")
    tile = matmul.default_config(odd, target)
    plan = matmul.plan(odd, tile, target)
    assert len(plan.launches) == 3 and plan.config(tile) == tile


@pytest.mark.parametrize("name", kernels.all_kernels())
@pytest.mark.parametrize("target", ["cpu", "sm_90", "gfx942"])
def test_a_config_that_is_shown_makes_the_same_plan_again(name, target):
    """A benchmark plans with it again, for inputs that must not lie in the cache."""
    spec, target = kernels.get(name), Target.named(target)
    if spec.unsupported(spec.dtypes[0], target):
        pytest.skip("written for other targets")
    for dims in (spec.default, *spec.presets.values()):
        inputs = spec.inputs(dims, spec.dtypes[0], "meta")
        for config in spec.configs(inputs, target):
            plan = spec.plan(inputs, config, target)
            again = spec.plan(inputs, plan.config(config), target)
            assert [launch.config for launch in again.launches] == [launch.config for launch in plan.launches]


def test_matmul_copies_what_descriptors_cannot_reach():
    x = torch.arange(1001 * 35, dtype=torch.float32, device=DEVICE).view(35, 1001)
    for matrix in (x, x.t(), x[:, ::2]):
        launch, copy = copy_to_aligned(matrix)
        copy.fill_(float("nan"))
        Plan((launch,), {"copy": copy}).run()
        assert torch.equal(copy, matrix)
        assert describe(matrix, (16, 16)) is None and describe(copy, (16, 16)) is not None


@pytest.mark.skipif(DEVICE.type != "cpu", reason="tests/gpu has it on the copy engine itself")
@pytest.mark.parametrize("layout", ("NN", "NT", "TN", "TT"))
@pytest.mark.parametrize("m, n, k", ((70, 80, 96), (65, 77, 93)))
def test_what_hopper_runs_is_right_in_every_layout(m, n, k, layout, monkeypatch):
    """The plan for an H200, descriptors and copies included, run here."""
    monkeypatch.setattr(sys.modules[kernels.get("matmul").plan.__module__], "WORTH_A_COPY", 1)
    a, b = randn(m, k), randn(k, n)
    a = a.t().contiguous().t() if layout[0] == "T" else a
    b = b.t().contiguous().t() if layout[1] == "T" else b
    tile = Config({"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8, "FLATTEN": 0})
    plan = kernels.get("matmul").plan({"a": a, "b": b, "precision": "tf32"}, tile, Target.named("sm_90"))
    # TF32 needs the K elements side by side: a's by rows, b's by columns.
    aligned = k % 4 == 0
    assert len(plan.launches) == 1 + (not (aligned and layout[0] == "N")) + (not (aligned and layout[1] == "T"))
    torch.testing.assert_close(plan.run()["out"].double(), a.double() @ b.double(), rtol=2e-3, atol=2e-3)


def test_inputs_without_values_do_not_import_pytorchs_compiler():
    """The page makes such inputs at every choice; one call that decomposes on "meta" costs its process seconds."""
    code = (
        "import sys, kernels\n"
        "for spec in kernels.all_kernels().values(): spec.inputs(spec.default, spec.dtypes[0], 'meta')\n"
        "print([name for name in ('torch._dynamo', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
