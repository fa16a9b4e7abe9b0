"""What a kernel is to the rest of the project: a specification whose launches are data.

A kernel's file ends in a `SPEC`, a `KernelSpec`. Its `plan` turns inputs into a `Plan`: the launches (kernel,
grid, arguments, config) and the tensors they fill. The same value is run, interpreted, compiled for a GPU that
is not there, swept, traced and drawn, so nothing about a launch hides inside a function.

This module knows torch and triton only. It runs a plan; it does not judge, time or compile one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from triton import knobs

from kernels.checks import InputError, as_passed, need_values
from kernels.targets import Target

__all__ = [
    "Baseline", "Bug", "Config", "Cost", "Dim", "Draw", "Edge", "InputError", "KernelSpec", "Launch", "Output",
    "Plan", "Target", "nbytes", "next_power_of_2", "torch_dtype",
]  # fmt: skip

# "tf32" is float32 data whose products round to 10 bits of mantissa: an arithmetic, chosen like a dtype.
_TORCH_DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

Inputs = dict[str, Any]


def torch_dtype(name: str) -> torch.dtype:
    """The dtype that the data of `name` has; "tf32" is float32 data."""
    return _TORCH_DTYPES[name]


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is n or more; 1 for n < 1."""
    return 1 << max(0, n - 1).bit_length()


def nbytes(*tensors: torch.Tensor) -> int:
    """Bytes of the distinct elements: an expanded dimension (stride 0) is counted once."""
    return sum(
        t.element_size() * math.prod(n for n, stride in zip(t.shape, t.stride(), strict=True) if stride or n == 0)
        for t in tensors
    )


@dataclass(frozen=True)
class Config:
    """One way to compile a kernel: its block sizes and how many warps and pipeline stages."""

    meta: Mapping[str, int] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 3

    @property
    def label(self) -> str:
        """For people: "BLOCK_N 4096, 8 warps" (stages are named where they are not Triton's default)."""
        parts = [f"{name} {value}" for name, value in self.meta.items()]
        parts.append(f"{self.num_warps} warp{'s' * (self.num_warps != 1)}")
        if self.num_stages != 3:
            parts.append(f"{self.num_stages} stage{'s' * (self.num_stages != 1)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Launch:
    """One kernel launch as a value: `kernel[grid](**args, **config.meta, **options)`.

    pdl: the GPU may begin it while the launch before it still runs ("programmatic dependent launch", Hopper and
    later); the kernel itself waits, by griddepcontrol, before it touches what that one wrote.
    """

    kernel: Any  # triton.runtime.JITFunction, or the interpreter's stand-in
    grid: tuple[int, ...]
    args: Mapping[str, Any]  # by parameter name; tensors, numbers and constexprs that no config tunes
    config: Config
    pdl: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What Triton's compiler and launcher are told besides the kernel's own parameters."""
        options: dict[str, Any] = {"num_warps": self.config.num_warps, "num_stages": self.config.num_stages}
        if self.pdl:
            options["launch_pdl"] = True
        return options

    def run(self) -> None:
        if math.prod(self.grid) == 0:
            return
        self.kernel[self.grid](**self.args, **self.config.meta, **self.options)


@dataclass(frozen=True)
class Plan:
    """The launches in order, and the tensors that hold the answer afterwards, by output name."""

    launches: tuple[Launch, ...]
    outputs: Mapping[str, torch.Tensor]

    def config(self, given: Config) -> Config:
        """What the plan made of the config it was given: that, or the part of it that its kernel takes."""
        used = [launch.config for launch in self.launches]
        narrowed = (config for config in used if config.meta and config.meta.items() <= given.meta.items())
        return given if given in used else next(narrowed, given)

    def run(self) -> Mapping[str, torch.Tensor]:
        """Launch everything on the outputs' device; returns the outputs.

        CPU tensors run natively (playground.native), or in the interpreter under TRITON_INTERPRET=1.
        """
        device = next(iter(self.outputs.values())).device
        if device.type == "cpu" and not knobs.runtime.interpret:
            from playground import native

            native.enable()
        # Triton launches on the current device, which need not be the tensors' (triton#2441).
        with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
            for launch in self.launches:
                launch.run()
        return self.outputs


@dataclass(frozen=True)
class Cost:
    """What any implementation must move and compute: each input read once, each output written once."""

    bytes_read: int
    bytes_written: int
    flops: int

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class Dim:
    """A size a person may choose. `low` and `high` are inclusive."""

    name: str
    doc: str
    low: int = 1
    high: int = 2**31


@dataclass(frozen=True)
class Output:
    """A result and how it is compared with the reference.

    kind: "float" (against float64, relative to the reference's rms), "bits" (bit for bit), "codes" (integers,
    off by one only where the float64 quotient lies on a rounding border).
    """

    name: str
    kind: str = "float"


@dataclass(frozen=True)
class Edge:
    """A case that breaks careless kernels. `attacks` says what it is aimed at, in one line.

    `dims` override the shape; `change` edits the inputs (makes them strided, huge, NaN ...), in place or by
    returning another dict; `dtype` fixes the dtype where the case needs one.
    """

    name: str
    attacks: str
    dims: Mapping[str, int] = field(default_factory=dict)
    change: Callable[[Inputs], Inputs] | None = None
    dtype: str | None = None


@dataclass(frozen=True)
class Bug:
    """A planted bug: `find` occurs once in the kernel's file and is replaced by `replace`.

    hint: where to look, without giving it away. symptom: what one sees. dims (and dtype): where it bites.
    """

    name: str
    find: str
    replace: str
    hint: str
    symptom: str
    dims: Mapping[str, int]
    dtype: str = "float32"


@dataclass(frozen=True)
class Baseline:
    """Another implementation. `load` imports it and returns a function of the spec's inputs with its outputs.

    load raises ImportError where the package is missing; `install` then says how to get it. `devices` lists
    where it runs.
    """

    name: str
    load: Callable[[], Callable[..., Any]]
    install: str
    devices: Sequence[str] = ("cuda",)


@dataclass(frozen=True)
class Draw:
    """Makes input tensors: the same seed gives the same values on one kind of device.

    On the "meta" device it makes shapes without values, so a plan for any size costs nothing.
    """

    dtype: torch.dtype
    device: torch.device
    seed: int = 0
    _generator: list = field(default_factory=list, repr=False, compare=False)

    def _gen(self) -> torch.Generator | None:
        if self.device.type == "meta":
            return None
        if not self._generator:
            self._generator.append(torch.Generator(self.device).manual_seed(self.seed))
        return self._generator[0]

    def normal(self, *shape: int, mean: float = 0.0, std: float = 1.0, dtype: torch.dtype | None = None):
        """Normal values, drawn in float32 and rounded to the dtype."""
        dtype = dtype or self.dtype
        out = torch.empty(shape, dtype=dtype, device=self.device)
        if self.device.type != "meta":
            out.normal_(mean, std, generator=self._gen())
        return out

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: torch.dtype | None = None):
        out = torch.empty(shape, dtype=dtype or self.dtype, device=self.device)
        return out if self.device.type == "meta" else out.uniform_(low, high, generator=self._gen())

    def integers(self, *shape: int, low: int, high: int, dtype: torch.dtype = torch.int64):
        """Integers in [low, high)."""
        out = torch.empty(shape, dtype=dtype, device=self.device)
        return out if self.device.type == "meta" else out.random_(low, high, generator=self._gen())

    def permutation(self, n: int):
        """A random order of 0 .. n-1, int64."""
        if self.device.type == "meta":
            return torch.empty(n, dtype=torch.int64, device="meta")
        return torch.randperm(n, device=self.device, generator=self._gen())


@dataclass(frozen=True)
class KernelSpec:
    """All that the project knows of one kernel.

    function     the public function
    reference    the same in PyTorch, in any dtype, float64 included; its results come in the order of `outputs`
    make_inputs  (dims, draw) -> inputs by name, as `function` takes them
    plan         (inputs, config, target) -> Plan; reads no tensor's values; raises InputError
    configs      (inputs, target) -> configs, the first being the default for that target
    cost         inputs -> Cost; for tensors on any device, meta included
    eager        what people write in PyTorch, where that is not `reference`
    in_place     inputs that the kernel overwrites; the engine gives it copies
    shrinks      the dim that is made smaller when a shape does not fit
    default      the shape a CPU answers at once
    variant_of   the kernel that this one is a teaching variant of
    unsupported  (dtype, target) -> the reason why it cannot run there, or None
    check        inputs -> None; raises InputError. `run` calls it before `configs` and `plan` see what a person passed
    """

    name: str
    title: str
    doc: str  # one paragraph for the page: what it does, what it saves, what to look at
    function: Callable[..., Any]
    reference: Callable[..., Any]
    dims: Sequence[Dim]
    presets: Mapping[str, Mapping[str, int]]  # decode, prefill, odd, largest
    default: Mapping[str, int]
    dtypes: Sequence[str]
    outputs: Sequence[Output]
    make_inputs: Callable[[Mapping[str, int], Draw], Inputs]
    plan: Callable[[Inputs, Config, Target], Plan]
    configs: Callable[[Inputs, Target], Iterable[Config]]
    cost: Callable[[Inputs], Cost]
    sweep_dim: str  # the dim that "sweep sizes" varies
    shrinks: str
    edges: Sequence[Edge] = ()
    bugs: Sequence[Bug] = ()
    baselines: Sequence[Baseline] = ()
    eager: Callable[..., Any] | None = None
    in_place: Sequence[str] = ()
    variant_of: str | None = None
    unsupported: Callable[[str, Target], str | None] = lambda dtype, target: None
    check: Callable[[Inputs], None] = lambda inputs: None

    def default_config(self, inputs: Inputs, target: Target) -> Config:
        return next(iter(self.configs(inputs, target)))

    def inputs(self, dims: Mapping[str, int], dtype: str, device: torch.device | str, seed: int = 0) -> Inputs:
        """Fresh inputs of this shape; those of a dtype "tf32" say so to the kernel by its `precision`."""
        made = self.make_inputs(dims, Draw(torch_dtype(dtype), torch.device(device), seed))
        if "tf32" in self.dtypes:
            made["precision"] = "tf32" if dtype == "tf32" else "ieee"
        return made

    def run(self, config: Config | None = None, **inputs: Any) -> Any:
        """Plan and launch on the tensors given; one output comes bare, several as a tuple. Raises InputError."""
        devices = (v.device for v in inputs.values() if isinstance(v, torch.Tensor))
        target = Target.of(next(devices, torch.device("cpu")))  # without a tensor, `check` says what is missing
        inputs = as_passed(inputs, self.in_place)
        self.check(inputs)
        need_values(inputs)
        config = config or self.default_config(inputs, target)
        outputs = tuple(self.plan(inputs, config, target).run().values())
        return outputs[0] if len(outputs) == 1 else outputs
