"""What a request means: every default filled in, every value checked, before anything is allocated.

`validate` needs no device and makes no values, so the page's own process may call it. `fit` asks whether a shape
has room (inputs, plan, float64 reference, judging) and, on a CPU, whether it answers in a bearable time; a shape
that does not fit is refused with the nearest one that does.
"""

from __future__ import annotations

import bisect
import inspect
import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

import kernels
from kernels.spec import Bug, Config, Edge, InputError, Inputs, KernelSpec, Launch, Plan, Target, nbytes
from kernels.targets import TARGETS
from playground.engine import host, tuned
from playground.engine.messages import Choice, ConfigChoice, EngineError, Failure, Request

Origin = Literal["given", "tuned", "spec"]

MAX_BYTES = 2**44  # inputs beyond 16 TiB fit no host: refused without asking one
MAX_SEED = 2**63 - 1
CPU_SECONDS = 40.0  # a run on the CPU that would take longer is refused
PROVIDERS = ("eager", "torch.compile")  # that every kernel has, besides its spec's own


class Chosen(NamedTuple):
    spec: KernelSpec
    dims: dict[str, int]
    dtype: str
    edge: Edge | None
    bug: Bug | None


def validate(request: Request, gpu: bool = False) -> Chosen:
    """The request with its defaults. `gpu`: dims that are not given come from the prefill preset.

    An edge case's dims and dtype override what is given; a planted bug's stand where nothing is. Raises InputError
    that names the argument and the remedy.
    """
    spec = kernels.get(request.kernel)
    edge = _named(spec.edges, request.edge, "edge")
    bug = _named(spec.bugs, request.bug, "bug")
    dtype = (edge and edge.dtype) or request.dtype or (bug and bug.dtype) or spec.dtypes[0]
    if dtype not in spec.dtypes:
        raise InputError(f"{spec.name} has no dtype {dtype[:60]!r}; choose {_either(spec.dtypes)}", "dtype")
    dims = _dims(spec, request, edge, bug, gpu)
    if not 0 <= request.seed <= MAX_SEED:
        raise InputError(f"seed must be from 0 to {MAX_SEED}, and it is {request.seed}; set seed to 0", "seed")
    known = (*PROVIDERS, *(b.name for b in spec.baselines))
    for name in request.baselines or ():
        if name not in known:
            raise InputError(f"{spec.name} has no baseline {name[:60]!r}; choose {_either(known)}", "baselines")
    _size(spec, dims, dtype)
    return Chosen(spec, dims, dtype, edge, bug)


def _named(items, name: str | None, argument: str):
    if name is None:
        return None
    for item in items:
        if item.name == name:
            return item
    names = _either([item.name for item in items]) if items else "none: this kernel has no such case"
    raise InputError(f"no {argument} is named {name[:60]!r}; choose {names}", argument)


def _dims(spec: KernelSpec, request: Request, edge: Edge | None, bug: Bug | None, gpu: bool) -> dict[str, int]:
    names = [dim.name for dim in spec.dims]
    for name in request.dims:
        if name not in names:
            raise InputError(f"{spec.name} has no dim {name[:60]!r}; its dims are {', '.join(names)}", name)
    fixed = edge.dims if edge else {}
    start = spec.presets.get("prefill", spec.default) if gpu else spec.default
    dims = {**start, **(bug.dims if bug else {}), **request.dims, **fixed}
    for dim in spec.dims:
        value = dims[dim.name]
        if dim.name in fixed:
            continue  # an edge case may go where a person may not, such as no rows at all
        if value < dim.low:
            low = f"{dim.low:,}"
            case = next((f", or take the case {e.name}" for e in spec.edges if e.dims.get(dim.name) == value), "")
            raise InputError(
                f"{dim.name} must be {low} or more, and it is {value:,}; set {dim.name} to {low} or more{case}",
                dim.name,
            )
        if value > dim.high:
            high = f"{dim.high:,}"
            raise InputError(
                f"{dim.name} must be {high} or less, and it is {value:,}; set {dim.name} to {high} or less", dim.name
            )
    return {name: dims[name] for name in names}


def _size(spec: KernelSpec, dims: Mapping[str, int], dtype: str) -> None:
    """Refuses sizes that overflow; kernels that cannot take these inputs say so through InputError."""
    shape = ", ".join(f"{name}={value:,}" for name, value in dims.items())
    try:
        total = nbytes(*_tensors(spec.inputs(dims, dtype, "meta")))
    except RuntimeError:  # torch's own: the storage's size overflows
        total = MAX_BYTES + 1
    if total > MAX_BYTES:
        raise InputError(f"{shape} needs more than 16 TiB; make {spec.shrinks} smaller", spec.shrinks)


def need_support(spec: KernelSpec, dtype: str, target: Target) -> None:
    """Raises EngineError where the target refuses the kernel; it names the dtype where another would do."""
    reason = spec.unsupported(dtype, target)
    if reason:
        others = any(spec.unsupported(other, target) is None for other in spec.dtypes)
        raise EngineError(Failure(kind="unavailable", message=reason, argument="dtype" if others else ""))


def meta_inputs(spec: KernelSpec, chosen: Chosen) -> Inputs:
    """Inputs without values. An edge case whose change needs values keeps the shape alone."""
    inputs = spec.inputs(chosen.dims, chosen.dtype, "meta")
    if chosen.edge and chosen.edge.change:
        try:
            return chosen.edge.change(inputs)
        except (RuntimeError, NotImplementedError):
            return spec.inputs(chosen.dims, chosen.dtype, "meta")
    return inputs


def choose_config(
    spec: KernelSpec, request: Request, inputs: Inputs, target: Target, dims: Mapping[str, int], dtype: str
) -> tuple[Config, Origin]:
    """The config and where it comes from: the one given, the one tuned on this device, the spec's for this target.

    Raises InputError for a given one whose names or values cannot be.
    """
    own = spec.default_config(inputs, target)
    given = request.config
    if given is None:
        won = _tuned(spec, target, dims, dtype)
        return (own, "spec") if won is None else (Config(dict(won.meta), won.num_warps, won.num_stages), "tuned")
    least = _least(spec, inputs, target)
    for name, value in given.meta.items():
        if name not in least:
            raise InputError(f"config has no {name[:60]!r} for {spec.name}; its names are {', '.join(least)}", "config")
        low = least[name]
        if value < low:
            raise InputError(f"{name} must be {low} or more, and it is {value}; set {name} to {low} or more", "config")
    if given.num_warps & (given.num_warps - 1):
        raise InputError(f"num_warps must be a power of two, and it is {given.num_warps}; use 4 or 8", "config")
    return Config(dict(given.meta), given.num_warps, given.num_stages), "given"


def _least(spec: KernelSpec, inputs: Inputs, target: Target) -> dict[str, int]:
    """The names that a config may hold: 1, or 0 for a switch, which is off in some config of the spec.

    Those of other targets come last: such a config is the plan's to take, or to refuse with its own reason.
    """
    least: dict[str, int] = {}
    for config in (c for t in (target, *TARGETS.values()) for c in spec.configs(inputs, t)):
        for name, value in config.meta.items():
            least[name] = min(least.get(name, 1), int(value))
    return least


def planned(spec: KernelSpec, inputs: Inputs, config: Config, target: Target) -> tuple[Plan, Config]:
    """The plan, and the part of the config that it launches. Raises InputError for a config that lacks a name."""

    def need(names: Iterable[object]) -> None:
        for name in names:  # one that no config has is the plan's own mistake, such as an edited one's
            if name not in config.meta and name in _least(spec, inputs, target):
                raise InputError(f"config lacks {name!r}; give {name!r} a value", "config")

    try:
        plan = spec.plan(inputs, config, target)
    except KeyError as missing:
        need(missing.args)
        raise
    need(name for launch in plan.launches for name in _without_value(launch))
    return plan, plan.config(config)


def _without_value(launch: Launch) -> list[str]:
    """The kernel's parameters that the launch gives no value."""
    parameters = inspect.signature(launch.kernel.fn).parameters.values()
    given = {*launch.args, *launch.config.meta}
    return [p.name for p in parameters if p.default is p.empty and p.name not in given]


MANY_PROGRAMS = 100  # of a plan: more than these the interpreter takes longer for than a person waits


def for_interpreter(spec: KernelSpec, inputs: Inputs, target: Target) -> Config:
    """The spec's default, or where that means many programs the config with the fewest: the interpreter takes them
    one after another, each operation at the same price, however wide it is."""
    default = spec.default_config(inputs, target)
    if _programs(spec, inputs, default, target) <= MANY_PROGRAMS:
        return default
    return min(spec.configs(inputs, target), key=lambda config: _programs(spec, inputs, config, target))


def _programs(spec: KernelSpec, inputs: Inputs, config: Config, target: Target) -> int:
    return sum(math.prod(launch.grid) for launch in spec.plan(inputs, config, target).launches)


def _tuned(spec: KernelSpec, target: Target, dims: Mapping[str, int], dtype: str) -> ConfigChoice | None:
    """What won a sweep on the device at hand; none for a target that is not it, such as offline compilation's."""
    device = torch.device("cpu" if target.kind == "cpu" else "cuda")
    if device.type == "cuda" and (not torch.cuda.is_initialized() or Target.of(device) != target):
        return None
    return tuned.lookup(spec.name, dtype, dims, host.name(device))


def as_choice(request: Request, chosen: Chosen, config: Config, origin: Origin) -> Choice:
    return Choice(
        kernel=chosen.spec.name, dims=chosen.dims, dtype=chosen.dtype, seed=request.seed,
        config=ConfigChoice(meta=dict(config.meta), num_warps=config.num_warps, num_stages=config.num_stages),
        config_origin=origin, edge=request.edge, bug=request.bug, edited=request.source is not None,
    )  # fmt: skip


def target_named(name: str) -> Target:
    """A GPU by its architecture. Raises InputError that lists those there are."""
    gpus = [arch for arch, target in TARGETS.items() if target.kind != "cpu"]
    if name not in gpus:
        raise InputError(f"no target is named {name[:60]!r}; choose from {', '.join(gpus)}", "target")
    return TARGETS[name]


# Room and time


@dataclass(frozen=True)
class Need:
    """Bytes at the peak of a run; seconds roughly, on a CPU."""

    bytes: int
    seconds: float


def need(spec: KernelSpec, dims: Mapping[str, int], dtype: str, target: Target, interpreted: bool = False) -> Need:
    """What a run of this shape takes, from tensors without values. Raises InputError where a plan does."""
    inputs = spec.inputs(dims, dtype, "meta")
    plan = spec.plan(inputs, spec.default_config(inputs, target), target)
    touched = [*_tensors(inputs), *plan.outputs.values(), *launch_tensors(plan.launches)]
    held = sum({t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in touched}.values())
    copies = [inputs.get(name) for name in spec.in_place]  # an option that is not given is not there
    held += sum(t.untyped_storage().nbytes() for t in copies if isinstance(t, torch.Tensor))
    exact = 8 * sum(t.numel() for t in plan.outputs.values())  # the float64 reference, kept to the end
    # A reference that reads values, such as lengths, cannot be planned: two float64 copies of all stand in.
    guess = 2 * (exact + 8 * sum(t.numel() for t in _tensors(inputs)))
    wide = peak_bytes(lambda: spec.reference(**in_float64(inputs)), guess)
    eager = peak_bytes(lambda: (spec.eager or spec.reference)(**inputs), guess)
    judging = min(8 * exact, 2**27 if target.kind == "cpu" else 2**31)
    cost = spec.cost(inputs)
    programs = sum(math.prod(launch.grid) for launch in plan.launches)
    seconds = _cpu_seconds(cost.bytes_moved, cost.flops, programs, interpreted) if target.kind == "cpu" else 0.0
    return Need(held + max(wide, exact + eager, exact + judging), seconds)


def _cpu_seconds(moved: int, flops: int, programs: int, interpreted: bool) -> float:
    """Upper guess for a run with its reference: not a forecast, a fence. Rates are low ones for one laptop core."""
    alone = moved * 12 / 3e9 + flops * 4 / (8e9 * host.cpu_cores())
    return alone + (programs * 2e-3 + flops / 2e8 if interpreted else 0.0)


def fit(
    spec: KernelSpec, dims: Mapping[str, int], dtype: str, target: Target, available: int, interpreted: bool = False
) -> None:
    """Returns where the shape has room and time; else raises InputError that offers the nearest which has."""

    def wants(shape: Mapping[str, int]) -> Need:
        return need(spec, shape, dtype, target, interpreted)

    def fits(shape: Mapping[str, int]) -> bool:
        found = wants(shape)
        return found.bytes <= available and found.seconds <= CPU_SECONDS

    if _surely_fits(spec, spec.inputs(dims, dtype, "meta"), target, available) and not interpreted:
        return
    own = wants(dims)
    if own.bytes <= available and own.seconds <= CPU_SECONDS:
        return
    shape = ", ".join(f"{name}={value:,}" for name, value in dims.items())
    if own.bytes > available:
        why = f"{shape} needs {gib(own.bytes)}, and {gib(available)} are free"
    else:
        why = f"{shape} would take about {own.seconds:,.0f} s here, and {CPU_SECONDS:.0f} s are the limit"
    nearest = nearest_fitting(spec, dims, fits)
    remedy = f"set {spec.shrinks} to {nearest[spec.shrinks]:,}" if nearest else "choose a smaller shape"
    raise InputError(f"{why}; {remedy}", spec.shrinks)


def _surely_fits(spec: KernelSpec, inputs: Inputs, target: Target, available: int) -> bool:
    """A bound that no reference reaches: planning it in detail imports half of PyTorch, and takes a second or more.

    Two dozen float64 copies of all that is read and written, and four for each 16 products: an attention's scores.
    """
    cost = spec.cost(inputs)
    bound = 192 * (sum(t.numel() for t in _tensors(inputs)) + cost.bytes_written) + cost.flops // 2
    seconds = _cpu_seconds(cost.bytes_moved, cost.flops, 0, False) if target.kind == "cpu" else 0.0
    return bound <= available and seconds <= CPU_SECONDS


def nearest_fitting(
    spec: KernelSpec, dims: Mapping[str, int], fits: Callable[[Mapping[str, int]], bool]
) -> dict[str, int] | None:
    """The largest shape that fits, by halving the dim that the spec shrinks; None where even its lowest does not."""
    low = max(1, next(dim.low for dim in spec.dims if dim.name == spec.shrinks))
    shapes = [dict(dims)]
    while shapes[-1][spec.shrinks] // 2 >= low:
        shapes.append({**shapes[-1], spec.shrinks: shapes[-1][spec.shrinks] // 2})
    first = bisect.bisect_left(shapes, True, key=fits)  # what fits fits when halved
    return shapes[first] if first < len(shapes) else None


def gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**30 // 10 else f"{size / 2**20:,.1f} MiB"


def in_float64(inputs: Inputs) -> Inputs:
    """Copies of the inputs for the reference: floating tensors in float64, the others as they are, cloned."""
    return {
        name: (value.to(torch.float64) if value.is_floating_point() else value.clone())
        if isinstance(value, torch.Tensor)
        else value
        for name, value in inputs.items()
    }


def launch_tensors(launches: tuple[Launch, ...]) -> list[torch.Tensor]:
    """Every tensor that the launches are given; of a host-made descriptor, the tensor it describes."""
    values = [getattr(value, "base", value) for launch in launches for value in launch.args.values()]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _tensors(inputs: Inputs) -> list[torch.Tensor]:
    return [value for value in inputs.values() if isinstance(value, torch.Tensor)]


class _Allocations(TorchDispatchMode):
    """Counts the bytes of storages made under it: what is alive, and the most that was."""

    def __init__(self):
        super().__init__()
        self.live = self.peak = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # What comes from outside is no allocation, nor are the views of it.
        tree_map_only(torch.Tensor, lambda t: self.seen.add(t.untyped_storage()._cdata), (args, kwargs))
        out = func(*args, **(kwargs or {}))
        tree_map_only(torch.Tensor, self._count, out)
        return out

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.seen:
            return
        self.seen.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.live -= size


def peak_bytes(make: Callable[[], object], guess: int = 0) -> int:
    """The most bytes that `make` holds at once, run on meta tensors; `guess` where it cannot be run without values."""
    with _Allocations() as counted:
        try:
            make()
        except (RuntimeError, NotImplementedError):
            return guess
    return counted.peak


def _either(names) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]
