"""The kernels on a real GPU: every spec, edge and dtype, and what only a GPU can show.

More elements than an int32 can count, more rows than grid axes y and z allow, programs that wait for each other, a
second GPU, TF32. What does not fit this GPU's memory is skipped and says so.
"""

import pytest
import torch

import kernels
from kernels.spec import InputError, Target
from tests.kernels import conformance
from tests.kernels.conformance import SPECS, each_dtype, each_edge, run, why

pytestmark = pytest.mark.gpu


def need_memory(gib: float) -> None:
    free = torch.cuda.mem_get_info()[0] / 2**30
    if free < gib:
        pytest.skip(f"needs {gib} GiB of GPU memory; {free:.0f} are free")


@pytest.fixture(autouse=True)
def give_memory_back():
    yield
    torch.cuda.empty_cache()


@pytest.mark.parametrize("spec, dtype", each_dtype())
def test_default_shape_is_right(spec, dtype):
    result = run(spec, dtype)
    assert result.ok, why(result)


@pytest.mark.parametrize("spec, edge, dtype", each_edge(every=True))
def test_edge_is_right(spec, edge, dtype):
    result = run(spec, dtype, edge)
    assert result.ok, why(result)


@pytest.mark.parametrize("preset", ("decode", "prefill", "odd"))
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_preset_is_right(spec, preset):
    result = run(spec, spec.dtypes[0], dims=dict(spec.presets[preset]))
    assert result.ok, why(result)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_configs_are_right(spec):
    """A sample of the configs of the prefill preset, whose tiles are those that a GPU is tuned by."""
    dims, dtype = dict(spec.presets["prefill"]), spec.dtypes[0]
    found = spec.configs(spec.inputs(dims, dtype, "meta"), conformance.target())
    for config in conformance.spread(found, 4):
        result = run(spec, dtype, dims=dims, config=conformance.choice(config))
        assert result.ok, why(result)


def test_case_01_softmax_past_2_31_elements():
    need_memory(20)
    n = 65_536
    x = torch.zeros(2**31 // n + 3, n, dtype=torch.bfloat16, device="cuda")
    x[-1] = torch.randn(n, device="cuda")
    out = kernels.softmax(x)
    assert torch.allclose(out[-1].double(), torch.softmax(x[-1].double(), -1), rtol=2**-7, atol=0)
    assert out[0, 0].item() == 2.0**-16


@pytest.mark.parametrize("name", ("vector_add", "silu_mul"))
def test_case_01_elementwise_past_2_31_elements(name):
    need_memory(20)
    x = torch.ones(2**31 + 1000, dtype=torch.bfloat16, device="cuda")
    x[-1] = 3.0
    out = getattr(kernels, name)(x, x)
    expected = 6.0 if name == "vector_add" else torch.nn.functional.silu(torch.tensor(3.0)).item() * 3
    assert out[-1].item() == pytest.approx(expected, rel=2**-8)
    assert not out.isnan().any()


@pytest.mark.parametrize("name", ("rms_norm", "layer_norm", "add_rms_norm"))
def test_case_01_norms_past_2_31_elements(name):
    need_memory(30)
    n = 8192
    x = torch.zeros(2**31 // n + 3, n, dtype=torch.bfloat16, device="cuda")
    x[-1] = torch.randn(n, device="cuda")
    ones, zeros = torch.ones(n, dtype=x.dtype, device="cuda"), torch.zeros(n, dtype=x.dtype, device="cuda")
    args = {"rms_norm": (x, ones), "layer_norm": (x, ones, zeros), "add_rms_norm": (x, x, ones)}[name]
    out = getattr(kernels, name)(*args)
    out = out[0] if name == "add_rms_norm" else out
    reference = kernels.get(name).reference(*(t[-1:].double() if t.ndim == 2 else t.double() for t in args))
    reference = reference[0] if name == "add_rms_norm" else reference
    assert torch.allclose(out[-1:].double(), reference, rtol=2**-6, atol=2**-8)


def test_case_01_matmul_of_a_transposed_tensor_with_far_columns():
    need_memory(12)
    wide = torch.zeros(4096, 600_000, dtype=torch.bfloat16, device="cuda")
    wide[:, -1] = 1.0
    a = wide.t()[-1:]  # its K elements lie 600,000 apart, the last one past 2^31
    b = torch.ones(4096, 16, dtype=torch.bfloat16, device="cuda")
    assert (kernels.matmul(a, b) == 4096).all()


@pytest.mark.parametrize("rows", (65_536, 1_000_001))
@pytest.mark.parametrize("name", ("softmax", "rms_norm", "layer_norm", "silu_mul"))
def test_case_02_more_rows_than_grid_axis_y_allows(name, rows):
    result = run(kernels.get(name), "bfloat16", dims={"rows": rows, "n": 33})
    assert result.ok, why(result)


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
@pytest.mark.parametrize("n", (16_385, 70_001, 150_000))
def test_softmax_split_over_programs_that_wait_for_each_other(n, dtype):
    """Every split config, launched again on the same plan: its counters are never cleared."""
    spec = kernels.get("softmax")
    for rows in (1, 7, 300):
        inputs = spec.inputs({"rows": rows, "n": n}, dtype, "cuda")
        inputs["x"][0, : n // 2] = float("-inf")
        expected = torch.softmax(inputs["x"].double(), -1)
        for config in spec.configs(inputs, conformance.target()):
            if "BLOCKS" in config.meta:
                plan = spec.plan(inputs, config, conformance.target())
                for _ in range(3):
                    plan.outputs["out"].fill_(float("nan"))
                    out = plan.run()["out"]
                    error = (out.double() - expected).norm() / expected.norm()
                    assert error < 4 * torch.finfo(out.dtype).eps, config.label


def test_softmax_all_masked_row_is_nan_when_split():
    x = torch.zeros(1, 150_000, device="cuda")
    x[0] = float("-inf")
    assert kernels.softmax(x).isnan().all()


@pytest.mark.parametrize("layout", ("NN", "NT", "TN", "TT"))
def test_matmul_descriptors_take_every_layout(layout):
    spec = kernels.get("matmul")
    if conformance.target().capability < 90:
        pytest.skip("descriptors are for Hopper and later")
    a = torch.randn(520, 264, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(264, 392, device="cuda", dtype=torch.bfloat16)
    a = a.t().contiguous().t() if layout[0] == "T" else a
    b = b.t().contiguous().t() if layout[1] == "T" else b
    inputs = {"a": a, "b": b, "precision": "ieee"}
    expected = a.double() @ b.double()
    found = [c for c in spec.configs(spec.inputs(spec.presets["prefill"], "bfloat16", "meta"), Target.named("sm_90"))]
    for config in (c for c in found if "FLATTEN" in c.meta):
        plan = spec.plan(inputs, config, conformance.target())
        assert "a_desc" in plan.launches[-1].args
        plan.outputs["out"].fill_(float("nan"))
        out = plan.run()["out"].double()
        assert (out - expected).norm() / expected.norm() < 2**-8, config.label


def test_case_22_tf32_is_chosen_on_purpose():
    a, b = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    exact = a.double() @ b.double()

    def error(precision):
        return ((kernels.matmul(a, b, precision).double() - exact).norm() / exact.norm()).item()

    before = torch.backends.cuda.matmul.fp32_precision
    try:
        for setting in ("ieee", "tf32"):
            torch.backends.cuda.matmul.fp32_precision = setting
            assert error("ieee") < 1e-6
            assert 1e-5 < error("tf32") < 2e-3
            assert error(None) == error(setting)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_case_23_every_kernel_on_the_second_gpu(spec):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU here")
    conformance.need_device(spec)
    inputs = spec.inputs(spec.default, spec.dtypes[0], "cuda:1")
    expected = spec.reference(**{n: v.clone() if n in spec.in_place else v for n, v in inputs.items()})
    found = spec.function(**inputs)
    assert torch.cuda.current_device() == 0
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        assert a.device == torch.device("cuda:1")
        same = a.float() - b.float() if a.is_floating_point() else (a != b).float()
        assert same.abs().mean() < 0.02


def test_case_19_a_cache_past_2_31_elements():
    """Keys are written into the last pages of a cache of more than 2^31 elements, and read back by both attentions."""
    need_memory(20)
    heads, page_size, d = 8, 16, 128
    pages = 2**31 // (heads * page_size * d) + 8
    k_cache, v_cache = (torch.zeros(pages, heads, page_size, d, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    k, v = (torch.randn(32, heads, d, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    slots = torch.arange(32, device="cuda") + (pages - 2) * page_size
    kernels.kv_cache_write(k, v, k_cache, v_cache, slots)
    assert torch.equal(k_cache[-2:].transpose(1, 2).flatten(0, 1), k)
    table = torch.tensor([[pages - 2, pages - 1]], dtype=torch.int32, device="cuda")
    lengths = torch.tensor([32], dtype=torch.int32, device="cuda")
    q = torch.randn(1, heads, d, dtype=torch.bfloat16, device="cuda")
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(x.double() for x in (q[:, :, None], k.transpose(0, 1)[None], v.transpose(0, 1)[None]))
    )[:, :, 0]
    starts = torch.tensor([0, 1], dtype=torch.int32, device="cuda")
    for found in (
        kernels.decode_attention(q, k_cache, v_cache, table, lengths),
        kernels.prefill_attention(q, k_cache, v_cache, table, starts, lengths),
    ):
        assert torch.allclose(found.double(), expected, rtol=2**-6, atol=2**-7)


def test_case_01_attention_past_2_31_elements():
    """The last batch of 2^31 elements and more, by the copy engine where this GPU has one."""
    need_memory(30)
    batch = 2**31 // (8 * 256 * 128) + 2
    q = torch.randn(batch, 8, 256, 128, dtype=torch.bfloat16, device="cuda")
    kv = q[:, :1]
    found = kernels.attention(q, kv, kv)
    expected = kernels.get("attention").reference(*(x[-1:].double() for x in (q, kv, kv)))
    assert torch.allclose(found[-1:].double(), expected, rtol=2**-6, atol=2**-6)


def test_case_23_tensors_on_the_second_gpu():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU here")
    x = torch.randn(5, 1000, device="cuda:1")
    assert torch.cuda.current_device() == 0
    out = kernels.softmax(x)
    assert out.device == x.device
    assert torch.allclose(out, torch.softmax(x, -1), atol=1e-6)
    with pytest.raises(InputError, match="move y"):
        kernels.vector_add(x, x.to("cuda:0"))
