"""What `tests.native.speed` times: each case is our launch and PyTorch's call on the same tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

import kernels
from kernels.spec import Config, Launch
from kernels.targets import Target
from playground.decoder.launches import joined

CPU = Target.named("cpu")
DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class Case:
    """turn: seconds that each side has in a round."""

    name: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    turn: float = 0.06


def cpu_name() -> str:
    with open("/proc/cpuinfo") as file:
        return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))


def _launches(kernel: str, inputs: dict[str, Any], config: Config | None = None) -> Callable[[], None]:
    """The plan of a kernel as the decoder runs it: put together once."""
    spec = kernels.get(kernel)
    plan = spec.plan(inputs, config or spec.default_config(inputs, CPU), CPU)
    return _joined(*plan.launches)


def _joined(*launches: Launch) -> Callable[[], Any]:
    (run,) = joined([(launch.run, launch) for launch in launches])
    return run


def _case(kernel: str, name: str, dtype: str, dims: dict[str, int], **changes: Any) -> Case:
    spec = kernels.get(kernel)
    inputs = {**spec.inputs(dims, dtype, "cpu"), **changes}
    theirs = {k: v.clone() if k in spec.in_place else v for k, v in inputs.items()}
    return Case(f"{name}, {dtype}", _launches(kernel, inputs), _peer(kernel, theirs))


def _peer(kernel: str, i: dict[str, Any]) -> Callable[[], object]:
    """PyTorch's own operation, into memory at hand where it can write there: fresh memory costs the first touch."""
    if kernel == "softmax":
        out = torch.empty_like(i["x"])
        return lambda: torch.softmax(i["x"], -1, out=out)
    if kernel == "matmul":
        out = i["a"].new_empty(i["a"].shape[0], i["b"].shape[1])
        return lambda: torch.mm(i["a"], i["b"], out=out)
    if kernel == "layer_norm" and i["x"].shape[0] > 1:  # of one row the plain call is quicker
        x, made = i["x"], [torch.empty_like(i["x"]), *torch.empty(2, i["x"].shape[0], 1, dtype=i["x"].dtype)]
        call = torch.ops.aten.native_layer_norm.out
        shape = x.shape[-1:]
        return lambda: call(x, shape, i["weight"], i["bias"], i["eps"], out0=made[0], out1=made[1], out2=made[2])
    if kernel == "sample":
        return lambda: torch.multinomial((i["logits"] / 0.8).softmax(-1), 1)
    spec = kernels.get(kernel)
    eager = spec.eager or spec.reference
    return lambda: eager(**i)


class _Turns:
    """One weight after the other, as the layers of a model take turns: none is in a cache when its turn comes."""

    def __init__(self, calls: list[Callable[[], object]]):
        self.calls, self.at = calls, 0

    def __call__(self) -> None:
        self.at = (self.at + 1) % len(self.calls)
        self.calls[self.at]()


def _linear(name: str, dtype: str, m: int, n: int, k: int, bias: bool = False) -> Case:
    spec = kernels.get("linear")
    copies = max(1, min(30, (96 << 20) // (n * k * 4)))
    ours: list[Callable[[], object]] = []
    theirs: list[Callable[[], object]] = []
    for seed in range(copies):
        inputs = spec.inputs({"m": m, "n": n, "k": k}, dtype, "cpu", seed)
        inputs["bias"] = inputs["bias"] if bias else None
        ours.append(_launches("linear", inputs))
        theirs.append(lambda i=inputs: F.linear(**{"input": i["x"], "weight": i["weight"], "bias": i["bias"]}))
    return Case(f"linear {name}, {dtype}", _Turns(ours), _Turns(theirs))


LINEAR = {"qkv": (960, 576), "o": (576, 576), "gate and up": (3072, 576), "down": (576, 1536), "head": (49_152, 576)}


def decode(only: str) -> Iterator[Case]:
    """The kernels of a decode step of SmolLM2-135M: one row, 480 tokens in the cache."""
    plain: list[tuple[str, dict[str, int]]] = [
        ("embedding", {"tokens": 1, "vocab": 49_152, "n": 576}),
        ("rms_norm", {"rows": 1, "n": 576}),
        ("add_rms_norm", {"rows": 1, "n": 576}),
        ("layer_norm", {"rows": 1, "n": 576}),
        ("rope", {"tokens": 1, "heads": 9, "kv_heads": 3, "head_dim": 64}),
        ("kv_cache_write", {"tokens": 1, "kv_heads": 3, "head_dim": 64, "page_size": 16}),
        ("decode_attention", {"seqs": 1, "context": 480, "kv_heads": 3, "group": 3, "head_dim": 64, "page_size": 16}),
        ("silu_mul", {"rows": 1, "n": 1536}),
        ("sample", {"rows": 1, "vocab": 49_152, "top_k": 0}),
    ]
    for dtype in DTYPES:
        for kernel, dims in plain:
            if only in f"{kernel}, {dtype}" and (kernel != "sample" or dtype == "float32"):
                yield _case(kernel, kernel, dtype, dims)
        for name, (n, k) in LINEAR.items():
            if only in f"linear {name}, {dtype}":
                yield _linear(name, dtype, 1, n, k)


def large(only: str) -> Iterator[Case]:
    square, one_row = {"rows": 4096, "n": 4096}, {"rows": 1, "n": 4096}
    heads = {"batch": 1, "kv_heads": 3, "group": 3, "q_len": 512, "kv_len": 512, "head_dim": 64}
    cases: list[tuple[str, str, dict[str, int]]] = [
        ("softmax", "softmax 4096 x 4096", square),
        ("softmax", "softmax 512 x 32768, looping", {"rows": 512, "n": 32_768}),
        ("rms_norm", "rms_norm 4096 x 4096", square),
        ("add_rms_norm", "add_rms_norm 4096 x 4096", square),
        ("layer_norm", "layer_norm 4096 x 4096", square),
        ("layer_norm", "layer_norm 1 x 4096", one_row),
        ("matmul", "matmul 512 x 512 x 512", {"m": 512, "n": 512, "k": 512}),
        ("matmul", "matmul 1000 x 999 x 1001", {"m": 1000, "n": 999, "k": 1001}),
        ("attention", "attention 9 x 512 x 64, causal", heads),
    ]
    for kernel, name, dims in cases:
        for dtype in DTYPES:
            if only in f"{name}, {dtype}":
                yield _case(kernel, name, dtype, dims)
    for dtype in DTYPES:
        if only in f"linear 3 x 1003 x 577, {dtype}":
            yield _linear("3 x 1003 x 577", dtype, 3, 1003, 577, bias=True)
    if only in "dot of one row, 4096 x 1024":
        yield _one_row_dot()
    if only in "vector add, 1024":
        yield _small_launch()


@triton.jit
def _row_dot_kernel(x_ptr, w_ptr, out_ptr, k_size, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros([1, BLOCK_N], tl.float32)
    for start in range(0, k_size, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + k)[None, :]
        w = tl.load(w_ptr + cols[:, None] * k_size + k[None, :])
        acc = tl.dot(x, tl.trans(w), acc, input_precision="ieee")
    tl.store(out_ptr + cols[None, :], acc)


def _one_row_dot() -> Case:
    x, weight, out = torch.randn(1, 1024), torch.randn(4096, 1024), torch.empty(1, 4096)
    args = {"x_ptr": x, "w_ptr": weight, "out_ptr": out, "k_size": 1024}
    ours = _joined(Launch(_row_dot_kernel, (128,), args, Config({"BLOCK_N": 32, "BLOCK_K": 64}, 4)))
    return Case("dot of one row, 4096 x 1024, float32", ours, lambda: torch.mm(x, weight.t(), out=out))


@triton.jit
def _add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n), mask=i < n)


def _small_launch() -> Case:
    x, y, out = (torch.randn(1024) for _ in range(3))
    start = _add_kernel[(1,)]
    return Case("vector add, 1024, float32", lambda: start(x, y, out, 1024, 1024), lambda: torch.add(x, y, out=out))


def step(only: str) -> Iterator[Case]:
    """A whole decode step of SmolLM2-135M (random weights of its shape), every kernel ours or every one PyTorch's."""
    from . import speed_step

    for dtype in DTYPES:
        for context in (64, 512):
            name = f"decode step, {context} tokens, {dtype}"
            if only in name:
                ours, theirs = speed_step.steps(dtype, context)
                yield Case(name, ours, theirs, turn=0.25)


GROUPS: dict[str, Callable[[str], Iterator[Case]]] = {"decode": decode, "large": large, "step": step}
