"""The Triton that torch.compile writes for the same operation, read without a GPU.

Inductor is asked to generate Triton for CPU tensors, which it can be told to do, while a stand-in driver says that
the target is a real GPU's architecture. It is stopped once its source is written, before it would compile that.
What it writes for a GPU that is there differs in its header (device, number of SMs) and where a heuristic asks the
device; whoever shows this says so. Runs in the compiler's worker.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from kernels.spec import InputError
from playground.engine import choose, compile
from playground.engine.chain import eager_chain, steps_of
from playground.engine.errors import describe
from playground.engine.inductor_messages import InductorKernel, InductorRequest, InductorResult
from playground.engine.job import Job
from playground.engine.messages import EngineError, Failure

_KERNEL = re.compile(r"(?:^|\n)(\w+) = async_compile\.triton\('\w+', '''\n(.*?)''', device_str=", re.S)
_EXTERN = re.compile(r"extern_kernels\.(\w+)\(|torch\.ops\.aten\.(_scaled_dot\w+)[\w.]*\(")


class _Written(Exception):
    """Inductor has written its source; the rest of its work is not wanted."""


def inductor(request: InductorRequest, job: Job) -> InductorResult:
    """The handler of `inductor`. Raises InputError, and EngineError where Inductor has no Triton for it."""
    began = time.perf_counter()
    target = choose.target_named(request.target)
    if target.kind != "cuda":
        raise InputError(f"{target.arch} is no NVIDIA target, which this needs; choose sm_80 or newer", "target")
    chosen = choose.validate(request, gpu=True)
    function, arguments, eager = _subject(request, chosen)
    job.progress("asking torch.compile for its Triton")
    sources, moved, error = generated(function, arguments, target.capability)
    if not sources:
        why = describe(error) if error else "it leaves this to a library, such as cuBLAS"
        raise EngineError(Failure(kind="unavailable", message=f"torch.compile writes no Triton for this: {why}"))
    text = "\n".join(sources)
    found = tuple(InductorKernel(name=n, source=s.strip() + "\n", notes=notes(n, s)) for n, s in _KERNEL.findall(text))
    return InductorResult(
        kernel=chosen.spec.name, block=request.block, dims=chosen.dims, dtype=chosen.dtype, kernels=found,
        extern=tuple(a or b for a, b in _EXTERN.findall(text)), bytes_moved=moved, eager_kernels=len(eager),
        eager_bytes=sum(step.bytes for step in eager), source=compile.source(target),
        seconds=time.perf_counter() - began,
    )  # fmt: skip


def _subject(request: InductorRequest, chosen: choose.Chosen) -> tuple[Callable[..., Any], list[Any], tuple]:
    """What is compiled, its arguments, and the eager chain beside it."""
    spec = chosen.spec
    if request.block:
        tensors = block_inputs()
        shapes = {name: torch.empty_like(x, device="meta") for name, x in zip(_BLOCK_NAMES, tensors, strict=True)}
        return decoder_block, tensors, steps_of(decoder_block, shapes)
    inputs = spec.inputs(chosen.dims, chosen.dtype, "meta", request.seed)
    eager = spec.eager or spec.reference
    names = list(inputs)

    def function(*values: Any) -> Any:
        return eager(**dict(zip(names, values, strict=True)))

    return function, [_unwritten(value) for value in inputs.values()], eager_chain(spec, inputs)


def _unwritten(value: Any) -> Any:
    """A CPU tensor of that shape whose memory is never touched: only shapes and strides are looked at."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cpu")


def generated(
    function: Callable[..., Any], arguments: list[Any], capability: int
) -> tuple[list[str], int, Exception | None]:
    """(the sources that Inductor wrote, bytes that its kernels move, what ended it where it wrote none)."""
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    sources: list[str] = []
    moved: list[int] = []
    codegen = GraphLowering.codegen

    def watched(graph: Any) -> Any:
        made = codegen(graph)
        with contextlib.suppress(Exception):  # a count that some operation does not support is left out
            moved.append(int(graph.count_bytes()[0]))
        sources.append(_text_of(made))
        raise _Written

    settings = {"cpu_backend": "triton", "compile_threads": 1, "force_disable_caches": True}
    error: Exception | None = None
    with _standing_in(capability), config.patch(settings), torch.no_grad():
        GraphLowering.codegen = watched  # type: ignore[method-assign, assignment]
        try:
            torch._dynamo.reset()
            torch.compile(function, dynamic=False)(*arguments)
        except Exception as failed:  # noqa: BLE001 - _Written, wrapped by Inductor, or why it cannot
            error = failed
        finally:
            GraphLowering.codegen = codegen  # type: ignore[method-assign]
            torch._dynamo.reset()
    return sources, sum(moved), error


def _text_of(made: Any) -> str:
    wrapper = made[0] if isinstance(made, tuple) else made
    return wrapper if isinstance(wrapper, str) else getattr(wrapper, "value", str(wrapper))


@contextlib.contextmanager
def _standing_in(capability: int) -> Iterator[None]:
    """A driver that names a GPU's architecture and can do nothing else."""

    class StandIn:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", capability, 32)

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cpu")

        def get_current_device(self) -> int:
            return 0

        def get_device_interface(self) -> Any:
            return torch.cpu

    before = driver.__dict__.get("_active")
    driver.set_active(StandIn())
    try:
        yield
    finally:
        driver.__dict__["_active"] = before


# What to notice


def notes(name: str, source: str) -> tuple[str, ...]:
    """Plain words on one of Inductor's kernels, read from its name and source."""
    said = []
    fused = re.findall(r"_fused_(\w+?)_\d+$", name)
    if fused:
        said.append(f"fuses {fused[0].strip('_').replace('__', ', ').replace('_', ', ')}")
    if name.startswith("triton_per_"):
        said.append("a persistent reduction: the row stays in registers, as in our one-block kernels")
    elif name.startswith("triton_red_"):
        said.append("a looped reduction: the row is walked in blocks of R0_BLOCK, and read again for the second use")
    elif name.startswith("triton_poi_"):
        said.append("pointwise: every element on its own")
    if re.search(r"\b(xmask|r0_mask|rmask)\b", source):
        said.append("masks by xmask and r0_mask, as ours do by cols < n_cols")
    if "evict_last" in source:
        said.append("hints evict_last for what it reads twice")
    if re.search(r"\*(bf16|fp16)", source) and ".to(tl.float32)" in source:
        said.append("loads 16-bit values and computes in float32")
    return tuple(said)


# A small block of a decoder, for reading patterns in more than one operation


def block_inputs() -> list[torch.Tensor]:
    """x [tokens, hidden] and the weights of attention and MLP, small: their values do not matter."""
    tokens, hidden, inner = 64, 256, 512
    square, wide = (hidden, hidden), (inner, hidden)
    shapes = [(tokens, hidden), (hidden,), (hidden,), square, square, square, square, wide, wide, (hidden, inner)]
    return [torch.empty(shape) for shape in shapes]


def decoder_block(x, norm1, norm2, wq, wk, wv, wo, gate, up, down):
    """x' = x + Attention(Norm(x)); y = x' + FFN(Norm(x')), four heads, causal."""
    heads = 4
    normed = _norm(x, norm1)
    q, k, v = ((normed @ w.T).view(-1, heads, x.shape[-1] // heads).transpose(0, 1) for w in (wq, wk, wv))
    scores = q @ k.transpose(-1, -2) / (q.shape[-1] ** 0.5)
    mask = torch.ones(x.shape[0], x.shape[0], dtype=torch.bool, device=x.device).tril()
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    x = x + (weights @ v).transpose(0, 1).reshape(x.shape) @ wo.T
    normed = _norm(x, norm2)
    return x + (torch.nn.functional.silu(normed @ gate.T) * (normed @ up.T)) @ down.T


_BLOCK_NAMES = tuple(inspect.signature(decoder_block).parameters)


def _norm(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight
