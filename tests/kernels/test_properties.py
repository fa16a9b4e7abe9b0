"""Any shape, stride and dtype: every spec against PyTorch in float64, with examples that hypothesis makes up.

What a kernel cannot take it may refuse with an InputError; a wrong answer, a crash or an access out of bounds is a
failure. On a CPU every load and store is checked.
"""

import contextlib

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kernels.spec import InputError, KernelSpec, torch_dtype
from playground.engine import choose, judge
from playground.engine.baselines import eager_of, named
from playground.engine.job import is_fatal
from playground.engine.messages import RunRequest
from tests.kernels import conformance
from tests.kernels.conformance import SPECS

# Every dim of these is free; of the others only the two that the spec itself varies.
FREE = ("vector_add", "softmax", "rms_norm", "layer_norm", "add_rms_norm", "silu_mul", "matmul")
SMALL_SIZES = st.one_of(st.integers(0, 40), st.sampled_from((63, 64, 65, 127, 128, 129, 255, 257, 1000)))


@st.composite
def cases(draw, spec: KernelSpec, only: str | None = None):
    """(inputs, dtype name), in memory laid out anyhow."""
    dims = dict(spec.default)
    for dim in spec.dims:
        if spec.name in FREE or dim.name in (spec.sweep_dim, spec.shrinks):
            dims[dim.name] = draw(SMALL_SIZES, label=dim.name)
    dtype = only or draw(st.sampled_from([d for d in spec.dtypes if not spec.unsupported(d, conformance.target())]))
    if conformance.job().interpreted and dtype == "bfloat16":
        dtype = "float32"
    for dim in spec.dims:
        assume(dim.low <= dims[dim.name] <= dim.high or dims[dim.name] == 0)
    if 0 not in dims.values():
        with contextlib.suppress(InputError):
            choose.validate(RunRequest(kernel=spec.name, dims=dims, dtype=dtype))
    try:
        inputs = spec.inputs(dims, dtype, conformance.job().device, draw(st.integers(0, 5), label="seed"))
    except (InputError, ValueError, RuntimeError, ZeroDivisionError) as error:
        assert not is_fatal(error), "an earlier example broke the device"
        assume(False)
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.ndim and name not in spec.in_place:
            inputs[name] = lay_out(value, draw(st.sampled_from(LAYOUTS), label=f"{name}'s layout"))
    return inputs, dtype


LAYOUTS = ("contiguous", "offset", "padded", "every second", "transposed", "expanded", "reversed dims")


def lay_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values otherwise in memory; what is around them is NaN, or the largest integer."""
    filler = float("nan") if tensor.is_floating_point() else torch.iinfo(tensor.dtype).max
    if layout == "offset":
        flat = torch.full((tensor.numel() + 1,), filler).to(tensor)
        flat[1:] = tensor.flatten()
        return flat[1:].view(tensor.shape)
    if layout == "padded":
        wide = torch.full((*tensor.shape[:-1], tensor.shape[-1] + 3), filler).to(tensor)
        wide[..., 1:-2] = tensor
        return wide[..., 1:-2]
    if layout == "every second":
        wide = torch.full((*tensor.shape[:-1], 2 * tensor.shape[-1]), filler).to(tensor)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if layout == "transposed" and tensor.ndim > 1:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "reversed dims":
        order = tuple(reversed(range(tensor.ndim)))
        return tensor.permute(order).contiguous().permute(order)
    if layout == "expanded" and tensor.is_floating_point() and tensor.shape[0] > 1:
        return tensor[:1].expand_as(tensor)
    return tensor


def checked():
    """Out-of-bounds accesses are found where the tests run natively on a CPU."""
    if conformance.job().device.type != "cpu" or conformance.job().interpreted:
        return contextlib.nullcontext()
    from playground import native

    return native.checked()


def plain(inputs):
    """The same values side by side: PyTorch 2.11's cuDNN attention breaks the device by a query off by an element."""
    return {
        name: value.clone(memory_format=torch.contiguous_format) if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }


def finished(inputs) -> None:
    if any(isinstance(value, torch.Tensor) and value.is_cuda for value in inputs.values()):
        torch.cuda.synchronize()


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_right_or_refused(spec):
    conformance.need_device(spec)
    right_or_refused(spec, 5)


def right_or_refused(spec: KernelSpec, examples: int, dtype: str | None = None) -> None:
    """As many examples as are asked for, in one dtype or in any; tests/gpu asks for more of them in each."""

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None,
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large),
    )  # fmt: skip
    @given(cases(spec, dtype))
    def check(case):
        inputs, dtype = case
        names = [output.name for output in spec.outputs]

        def fresh():
            return {name: v.clone() if name in spec.in_place else v for name, v in inputs.items()}

        expected = named(spec.reference(**choose.in_float64(inputs)), names)
        eager = named(eager_of(spec)(**plain(inputs)), names)
        finished(inputs)  # so that an error on a GPU names whose it is
        try:
            with checked():
                found = named(spec.function(**fresh()), names)
            finished(inputs)
        except InputError as refused:
            assert str(refused) and "\n" not in str(refused)
            return
        for output in spec.outputs:
            got, ref = found[output.name], expected[output.name]
            kind = output.kind
            bar = judge.Bars(0, 0, 0)
            if kind == "float":
                bar = judge.bars(eager[output.name], ref, got.dtype, tf32=dtype == "tf32")
            verdict = judge.judge(got, ref, bar, kind, eager[output.name].dtype)
            assert verdict.ok, f"{output.name} in {dtype} ({torch_dtype(dtype)}): {verdict}"

    check()
