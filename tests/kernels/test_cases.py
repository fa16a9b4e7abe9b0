"""Faults that people reported against other kernels, as small inputs with the right answer. Names carry the row.

The rows are those of the project's list of cases from the field. What only a GPU can show is in
tests/gpu/test_kernels_gpu.py; rows 10 to 20 of the inference kernels stand with those.
"""

import math
import mmap

import pytest
import torch

import kernels
from tests.kernels import conformance
from tests.kernels.conformance import SPECS, run, why

DEVICE = conformance.job().device
ROW_KERNELS = ("softmax", "rms_norm", "layer_norm", "silu_mul", "add_rms_norm")


def call(name, x):
    """The row kernel on x, with plain weights, its first output; and the same in float64."""
    n = x.shape[-1]
    ones = torch.ones(n, device=x.device, dtype=x.dtype)
    args = {
        "softmax": (x,),
        "rms_norm": (x, ones),
        "layer_norm": (x, ones, torch.zeros_like(ones)),
        "silu_mul": (x, x),
        "add_rms_norm": (x, x, ones),
    }[name]
    spec = kernels.get(name)
    found, expected = spec.function(*args), spec.reference(*(arg.double() for arg in args))
    return (found[0], expected[0]) if isinstance(found, tuple) else (found, expected)


def assert_close(found, expected, atol=1e-5):
    assert found.shape == expected.shape and found.is_contiguous()
    torch.testing.assert_close(found.double(), expected, rtol=4e-6, atol=atol, equal_nan=True)


def sparse(count):
    """float16 zeros that take no memory until they are touched."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    return torch.frombuffer(mmap.mmap(-1, 2 * count, flags=flags), dtype=torch.float16)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="tests/gpu has it on real memory")
@pytest.mark.parametrize("name", ROW_KERNELS)
@pytest.mark.parametrize("stride", ((2**30 + 16, 1), (64, 2**28 + 16)), ids=("rows", "columns"))
def test_case_01_offsets_past_2_31(name, stride):
    rows, n = (3, 8) if stride[1] == 1 else (2, 9)
    far = sparse((rows - 1) * stride[0] + (n - 1) * stride[1] + 1).as_strided((rows, n), stride)
    far[:] = torch.arange(rows * n, dtype=torch.float16).view(rows, n) / 16
    found, expected = call(name, far)
    torch.testing.assert_close(found.double(), expected, rtol=2e-3, atol=1e-6)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="tests/gpu has it on real memory")
def test_case_01_matmul_offsets_past_2_31():
    step = 2**28 + 16
    a = sparse(8 * step + 1).as_strided((1, 9), (1, step))
    b = sparse(8 * step + 2).as_strided((9, 2), (step, 1))
    a[:], b[:] = torch.arange(9.0), torch.arange(18.0).view(9, 2)
    assert torch.equal(kernels.matmul(a, b).double(), a.double() @ b.double())


@pytest.mark.skipif(conformance.job().interpreted, reason="65,537 programs take the interpreter minutes")
@pytest.mark.parametrize("name", ("softmax", "rms_norm", "layer_norm"))
def test_case_02_more_rows_than_65_535(name):
    # Of 65,537 rows of three, some have hardly any variance to divide by.
    assert_close(*call(name, torch.randn(65_537, 3, device=DEVICE)), atol=2e-3)


@pytest.mark.parametrize("n", (3, 17, 768))
def test_case_03_layer_norm_masks_before_squaring(n):
    # Mean 10: each masked lane that is not cleared adds 100 to the sum of squares.
    assert_close(*call("layer_norm", torch.randn(4, n, device=DEVICE) + 10))


def test_case_04_softmax_of_a_padded_vocabulary():
    padded = torch.full((4, 100_288), 60.0, device=DEVICE)
    logits = padded[:, :100_277].normal_()
    assert logits.stride() == (100_288, 1)
    assert_close(*call("softmax", logits))


@pytest.mark.parametrize("name", ROW_KERNELS)
def test_case_05_transposed(name):
    assert_close(*call(name, torch.randn(32, 32, device=DEVICE).t()))


def test_case_05_matmul_transposed():
    a, b = torch.randn(32, 32, device=DEVICE).t(), torch.randn(32, 32, device=DEVICE).t()
    torch.testing.assert_close(kernels.matmul(a, b).double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ROW_KERNELS)
def test_case_06_expanded_and_every_second(name):
    x = torch.randn(5, 200, device=DEVICE)
    assert_close(*call(name, x[:1].expand(5, 200)))
    assert_close(*call(name, x[..., ::2]))
    # Rows of equal values: LayerNorm divides the rounding of the mean by sqrt(eps).
    assert_close(*call(name, x[:, :1].expand(5, 200)), atol=1e-4)


def test_case_06_vector_add_expanded_and_every_second():
    x, y = torch.randn(1000, device=DEVICE), torch.randn(1, device=DEVICE)
    assert torch.equal(kernels.vector_add(x, y.expand(1000)), x + y)
    assert torch.equal(kernels.vector_add(x[::2], x[1::2]), x[::2] + x[1::2])


@pytest.mark.parametrize("name", ROW_KERNELS)
@pytest.mark.parametrize("shape", ((0, 8), (5, 0), (0, 0), (2, 0, 3)))
def test_case_07_nothing_to_do(name, shape):
    found, expected = call(name, torch.empty(shape, device=DEVICE))
    assert found.shape == expected.shape == shape


def test_case_07_vector_add_of_nothing():
    assert kernels.vector_add(torch.empty(0, device=DEVICE), torch.empty(0, device=DEVICE)).shape == (0,)


@pytest.mark.parametrize("m, n", ((3, 5), (0, 5), (3, 0)))
def test_case_07_matmul_with_an_empty_dimension(m, n):
    out = kernels.matmul(torch.empty(m, 0, device=DEVICE), torch.empty(0, n, device=DEVICE))
    assert torch.equal(out, torch.zeros(m, n, device=DEVICE))
    full = kernels.matmul(torch.randn(m, 4, device=DEVICE), torch.randn(4, n, device=DEVICE))
    assert full.shape == (m, n)


@pytest.mark.parametrize("n", (5, 1000, 20_000))
def test_case_08_softmax_of_masked_rows(n):
    x = torch.randn(4, n, device=DEVICE)
    x[0] = float("-inf")
    x[1] = -6e4
    x[2, :-1] = float("-inf")
    out = kernels.softmax(x)
    assert out[0].isnan().all(), "as PyTorch: there is no maximum to subtract"
    assert torch.allclose(out[1], torch.full_like(out[1], 1 / n))
    assert out[2, -1] == 1 and out[2, :-1].sum() == 0
    assert_close(out, torch.softmax(x.double(), -1))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_case_09_offset_is_added_in_float32(dtype):
    x = torch.ones(1, 64, device=DEVICE)
    weight = torch.full((64,), 0.00390625, device=DEVICE, dtype=dtype)
    out = kernels.rms_norm(x, weight, eps=0.0, offset=1.0)
    assert torch.equal(out, torch.full_like(out, 1.00390625))


@pytest.mark.skipif(conformance.job().interpreted, reason="the interpreter truncates bfloat16")
def test_case_10_rms_norm_multiplies_then_casts():
    """Gemma's order: rounded once. Llama's rounds the normalised row first, and lands elsewhere."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 512, generator=generator).bfloat16().to(DEVICE)
    weight = (torch.rand(512, generator=generator) + 0.5).bfloat16().to(DEVICE)
    normalised = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True) + 1e-6)
    once = (normalised * weight.double()).bfloat16()
    twice = (normalised.bfloat16().double() * weight.double()).bfloat16()
    out = kernels.rms_norm(x, weight)
    assert (out != once).float().mean() < 0.001
    assert (out != twice).float().mean() > 0.1


@pytest.mark.parametrize("name", ("rms_norm", "add_rms_norm", "layer_norm", "silu_mul"))
def test_case_11_both_kernel_and_eager_are_judged_by_float64(name):
    if conformance.job().interpreted:
        pytest.skip("the interpreter's bfloat16 is not the kernel's")
    result = run(kernels.get(name), "bfloat16")
    assert result.ok, why(result)
    eager = result.providers["eager"]
    assert eager.ok and any(verdict.error > 0 for verdict in eager.outputs.values())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_case_20_inputs_are_left_as_they_were(spec):
    conformance.need_device(spec)
    dtype = "float32" if "float32" in spec.dtypes else spec.dtypes[0]
    inputs = spec.inputs(spec.default, dtype, DEVICE)
    tensors = {n: v for n, v in inputs.items() if isinstance(v, torch.Tensor) and n not in spec.in_place}
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    spec.function(**inputs)
    for name, tensor in tensors.items():
        assert torch.equal(tensor.view(torch.uint8), before[name].view(torch.uint8)), name


@pytest.mark.parametrize("m, n, k", ((100, 99, 101), (33, 65, 1), (17, 1, 129)))
def test_case_21_k_is_masked(m, n, k):
    # What lies beyond K in memory is NaN, and times 0 would still be NaN.
    a = torch.full((m, k + 9), float("nan"), device=DEVICE)[:, :k].normal_()
    b = torch.full((k + 9, n + 9), float("nan"), device=DEVICE)[:k, :n].normal_()
    out = kernels.matmul(a, b)
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)


def test_case_21_the_reported_shape():
    result = run(kernels.get("matmul"), "float32", dims={"m": 1000, "n": 999, "k": 1001})
    assert result.ok, why(result)


def test_case_22_precision_is_chosen_on_purpose():
    spec = kernels.get("matmul")
    assert spec.inputs(spec.default, "float32", "meta")["precision"] == "ieee"
    assert spec.inputs(spec.default, "tf32", "meta")["precision"] == "tf32"
    target = kernels.spec.Target.named("sm_90")
    for dtype, arch, chosen in (
        ("float32", "sm_90", "ieee"),
        ("tf32", "sm_90", "tf32"),
        ("tf32", "sm_75", "ieee"),
        ("bfloat16", "sm_90", "ieee"),
    ):
        inputs = spec.inputs(spec.default, dtype, "meta")
        target = kernels.spec.Target.named(arch)
        plan = spec.plan(inputs, spec.default_config(inputs, target), target)
        assert plan.launches[0].args["PRECISION"] == chosen, (dtype, arch)


def test_case_22_none_follows_pytorch():
    spec, target = kernels.get("matmul"), kernels.spec.Target.named("sm_90")
    inputs = {**spec.inputs(spec.default, "float32", "meta"), "precision": None}
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        for setting in ("ieee", "tf32"):
            torch.backends.cuda.matmul.fp32_precision = setting
            plan = spec.plan(inputs, spec.default_config(inputs, target), target)
            assert plan.launches[0].args["PRECISION"] == setting
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_case_22_ieee_is_ieee():
    a, b = torch.randn(64, 512, device=DEVICE), torch.randn(512, 64, device=DEVICE)
    exact = a.double() @ b.double()
    error = (kernels.matmul(a, b, "ieee").double() - exact).norm() / exact.norm()
    assert error < 1e-6 and math.isfinite(error)
