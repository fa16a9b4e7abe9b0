"""What an exported script does with a kernel. `script` copies these functions into it, so they need torch alone.

The check is the playground's in short: each float output may be off from float64 by four times what PyTorch eager is
off by, or by four eps of its dtype where that is more; other outputs must be equal bit for bit, and a code may be off
by one only where the unrounded value lies on a rounding border.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from triton import knobs

from kernels.interpreted import as_compiled
from kernels.spec import Draw, Target, torch_dtype


@dataclass(frozen=True)
class Plan:
    """Launches in order, and the outputs they fill. Stands for kernels.spec.Plan in a script."""

    launches: tuple[Any, ...]
    outputs: Mapping[str, torch.Tensor]

    def run(self) -> Mapping[str, torch.Tensor]:
        for tensor in self.outputs.values():
            if tensor.is_floating_point():
                tensor.fill_(float("nan"))  # an element that is never written is then wrong
        for launch in self.launches:
            launch.run()
        return self.outputs


def off(got: torch.Tensor, ref: torch.Tensor) -> torch.Tensor:
    """Each element's error, relative to the reference and its rms; infinite where NaN or infinity differ."""
    got, finite = got.double(), ref.isfinite()
    rms = ref[finite].square().mean().sqrt() if finite.any() else ref.new_tensor(0.0)
    error = (got - ref).abs() / (ref.abs() + rms).clamp_min(torch.finfo(torch.float64).tiny)
    same = torch.where(ref.isnan(), got.isnan(), got == ref)
    return torch.where(finite & got.isfinite(), error, torch.where(same, 0.0, float("inf")).to(error.dtype))


def differs(kind: str, got: torch.Tensor, ref: torch.Tensor) -> torch.Tensor:
    """Where an output that must be exact is not."""
    if kind == "codes" and ref.is_floating_point():
        slack = 4 * torch.finfo(torch.float32).eps * ref.abs().clamp_min(1.0)
        return ~((got.double() - ref).abs() <= 0.5 + slack)
    ref = ref.to(got.dtype)
    if not got.is_floating_point():
        return got != ref
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[got.element_size()]
    return (got.view(bits) != ref.view(bits)) & ~(got.isnan() & ref.isnan())


def judge(name: str, kind: str, got: torch.Tensor, ref: torch.Tensor, eager: torch.Tensor) -> bool:
    """Print one output's verdict."""
    if got.shape != ref.shape:
        print(f"{name}: WRONG, shape {tuple(got.shape)} where {tuple(ref.shape)} is expected")
        return False
    if kind == "float":
        error, bar = off(got, ref), 4 * torch.finfo(got.dtype).eps
        eager_error = off(eager, ref)
        reached = eager_error[eager_error.isfinite()]
        bar = max(bar, 4 * reached.max().item()) if reached.numel() else bar
        wrong = (error > bar).nonzero()
        worst = error.max().item() if error.numel() else 0.0
        said = f"worst error {worst:.3g}, the bar is {bar:.3g}"
    else:
        wrong = differs(kind, got, ref).nonzero()
        said = "codes compared one by one" if kind == "codes" else "compared bit for bit"
    print(f"{name}: {'WRONG' if len(wrong) else 'right'}, {said}")
    if len(wrong):
        at = tuple(wrong[0].tolist())
        print(f"  first at {list(at)}: got {got[at].item():.7g}, expected {ref[at].item():.7g}; {len(wrong):,} in all")
    return not len(wrong)


def as_tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def reproduce(
    make_inputs: Callable[..., dict[str, Any]], change: Callable[..., Any] | None, plan: Callable[..., Any],
    reference: Callable[..., Any], eager: Callable[..., Any], outputs: Sequence[tuple[str, str]],
    dims: Mapping[str, int], dtype: str, more: Mapping[str, Any], seed: int, config: Any,
) -> bool:  # fmt: skip
    """Run the kernel and judge it. Returns whether it is right."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if knobs.runtime.interpret:
        as_compiled()
        if dtype == "bfloat16":
            print("No GPU here: the interpreter stands in, in float32, because it gets bfloat16 wrong.")
            dtype = "float32"
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")

    def inputs() -> dict[str, Any]:
        made = {**make_inputs(dims, Draw(torch_dtype(dtype), device, seed)), **more}
        return change(made) if change else made

    def in_float64() -> dict[str, Any]:
        floats = {k: v.double() for k, v in inputs().items() if isinstance(v, torch.Tensor) and v.is_floating_point()}
        return {**inputs(), **floats}

    made = plan(inputs(), config, Target.of(device))
    got = made.run()
    refs, eagers = as_tuple(reference(**in_float64())), as_tuple(eager(**inputs()))
    right = [judge(name, kind, got[name], refs[i], eagers[i]) for i, (name, kind) in enumerate(outputs)]
    if device.type == "cuda" and all(right):
        import triton.testing

        ms = triton.testing.do_bench(made.run)
        print(f"{1000 * ms:.1f} µs on {torch.cuda.get_device_name()}, L2 flushed before each call")
    return all(right)
