"""Which bytes a kernel asks for: its loads and stores, run in the interpreter and counted exactly.

Runs in the interpreter's worker. Values do not matter here, addresses do, so the real dtype is kept even where
the interpreter's arithmetic is wrong in it. A grid too large for the time allowed is sampled evenly, the first and
the last program always among the sample, and the sums are scaled and said to be so. Where a launch writes whole numbers
for a later one, such as counts and indices, the values do matter: what is missing there steers the later one elsewhere,
so such a plan is given longer.
"""

from __future__ import annotations

import linecache
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from triton.runtime.errors import InterpreterError
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.spec import InputError, Launch, Plan, Target
from playground.engine import chain, choose, edits, execute, host
from playground.engine.arena import Arena, Region
from playground.engine.choose import Chosen
from playground.engine.errors import describe
from playground.engine.job import Job
from playground.engine.messages import EngineError, Failure, OutOfBounds
from playground.engine.probe import SECTOR, ChosenPrograms, Probe, ProgramsWait, Site, tensors_of, watching
from playground.engine.trace_messages import (
    Access,
    ChainStep,
    ProgramAccess,
    TracedLaunch,
    TracedTensor,
    TraceRequest,
    TraceResult,
)

Program = tuple[int, ...]

ASSEMBLY = "inline PTX is not interpreted: its first operand stands in for its result"
WAITS = "a GPU's programs wait for each other in this config; traced in one that runs them one by one"
GLUON = (
    "cannot be traced: it is written in Gluon, which Triton's interpreter does not run; trace the Triton kernel of the "
    "same operation, and read this one in Code"
)
MOST_MISSES = 20  # accesses out of bounds that are told of a launch
STEERED = (
    "numbers that steer a later launch were written by the programs traced alone, so it may ask for other bytes than "
    "it would"
)
PATIENCE = 8  # times as long, where such numbers would be missing
KEPT = 12  # programs whose accesses are kept one by one
COPIES = 4  # of a launch's tensors: themselves, the arena, and what is marked for each element
MOST_BYTES = 2**32  # that a trace takes, however much is free


@dataclass(frozen=True)
class Traced:
    """A whole plan's trace: its launches, what lay outside, whether every program was run, and with stand-ins.

    steered: programs were left out of a plan in which one launch writes whole numbers for a later one.
    """

    launches: tuple[TracedLaunch, ...]
    out_of_bounds: tuple[OutOfBounds, ...]
    exact: bool
    assembly: bool = False
    steered: bool = False


def trace(request: TraceRequest, job: Job) -> TraceResult:
    """The handler of `trace`. Raises InputError for what cannot be run."""
    began = time.perf_counter()
    chosen = choose.validate(request)
    target = Target.named("sm_90")  # the plan that a GPU would run, not the CPU's
    asked, chosen = chosen, _with_room(chosen, target, host.available_bytes(job.device))
    with edits.edited(chosen.spec, chosen.bug, request.source) as spec:
        inputs = spec.inputs(chosen.dims, chosen.dtype, "cpu", request.seed)
        if chosen.edge and chosen.edge.change:
            inputs = chosen.edge.change(inputs)
        config, origin = choose.choose_config(spec, request, inputs, target, chosen.dims, chosen.dtype)
        job.progress("tracing")
        how = (request.programs, request.seconds, job.progress)
        waits = False
        try:
            plan, config = choose.planned(spec, inputs, config, target)
            traced = trace_plan(plan, *how)
            if traced.steered and request.programs is None:
                how = (None, PATIENCE * request.seconds, job.progress)
                traced = trace_plan(spec.plan(inputs, config, target), *how)
        except ProgramsWait:
            waits, target, origin = True, Target.named("cpu"), "spec"
            plan, config = choose.planned(spec, inputs, spec.default_config(inputs, target), target)
            traced = trace_plan(plan, *how)
        cost = spec.cost(inputs)
        steps = chain.eager_chain(spec, inputs)
    sites = [access for launch in traced.launches for access in launch.accesses]
    lanes = sum(a.lanes for a in sites)
    return TraceResult(
        choice=choose.as_choice(request, chosen, config, origin),
        exact=traced.exact,
        steered=traced.steered,
        bytes_loaded=sum(a.bytes for a in sites if a.kind == "load"),
        bytes_stored=sum(a.bytes for a in sites if a.kind == "store"),
        unique_bytes=sum(t.unique_loaded + t.unique_stored for launch in traced.launches for t in launch.tensors),
        compulsory_bytes=cost.bytes_moved,
        flops=cost.flops,
        sectors=sum(a.sectors for a in sites),
        masked_share=1 - sum(a.active for a in sites) / lanes if lanes else 0.0,
        out_of_bounds=traced.out_of_bounds,
        accesses=tuple(sites),
        launches=traced.launches,
        chain=tuple(ChainStep(kernel=step.kernel, reads=step.reads, writes=step.writes) for step in steps),
        source=execute.source(job, f"addresses as planned for {target.arch}"),
        note="; ".join(
            filter(
                None,
                (
                    _smaller(asked, chosen),
                    _sampled(traced),
                    STEERED * traced.steered,
                    ASSEMBLY * traced.assembly,
                    WAITS * waits,
                ),
            )
        ),
        seconds=time.perf_counter() - began,
    )


def _with_room(chosen: Chosen, target: Target, available: int) -> Chosen:
    """The choice, or the nearest smaller shape whose tensors, their copies and marks have room here."""

    def fits(dims: Mapping[str, int]) -> bool:
        inputs = chosen.spec.inputs(dims, chosen.dtype, "meta")
        plan = chosen.spec.plan(inputs, chosen.spec.default_config(inputs, target), target)
        storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in choose.launch_tensors(plan.launches)}
        return COPIES * sum(storage.nbytes() for storage in storages.values()) <= min(available, MOST_BYTES)

    if chosen.edge or chosen.bug or fits(chosen.dims):
        return chosen
    nearest = choose.nearest_fitting(chosen.spec, chosen.dims, fits)
    if nearest is None:
        shape = ", ".join(f"{name}={value:,}" for name, value in chosen.dims.items())
        raise InputError(f"{shape} is too large to be traced here; choose a smaller shape", chosen.spec.shrinks)
    return chosen._replace(dims=nearest)


def _smaller(asked: Chosen, chosen: Chosen) -> str:
    changed = [f"{name}={value:,}" for name, value in chosen.dims.items() if value != asked.dims[name]]
    had = [f"{name}={asked.dims[name]:,}" for name, value in chosen.dims.items() if value != asked.dims[name]]
    return f"traced at {', '.join(changed)}: {', '.join(had)} has no room here" if changed else ""


def _sampled(traced: Traced) -> str:
    if traced.exact:
        return ""
    ran = sum(launch.programs_traced for launch in traced.launches)
    total = sum(launch.programs_total for launch in traced.launches)
    return (
        f"{ran:,} of {total:,} programs were traced, spread evenly, and the sums scaled; "
        "distinct bytes are those of the programs traced"
    )


def trace_plan(
    plan: Plan,
    programs: Iterable[int] | None = None,
    seconds: float = 2.0,
    progress: Callable[[str, int, int, str], None] = lambda what, done, total, unit: None,
) -> Traced:
    """Run each launch of the plan in the interpreter under watch. programs, seconds: see TraceRequest.

    Raises InputError for a program that no launch has.
    """
    _need_programs(plan, programs or ())
    launches, misses, assembly, steers = [], [], False, False
    until = time.monotonic() + seconds
    for i, launch in enumerate(plan.launches):
        if math.prod(launch.grid) == 0:
            continue
        share = (until - time.monotonic()) / (len(plan.launches) - i)  # what one leaves over the next ones have
        traced, probe = _trace_launch(launch, programs, share, progress)
        launches.append(traced)
        steers = steers or _steers(traced, launch, plan.launches[i + 1 :])
        misses += [_outside(miss, probe.source_file) for miss in probe.misses[:MOST_MISSES]]
        assembly = assembly or probe.assembly
    exact = all(t.programs_traced == t.programs_total for t in launches)
    return Traced(tuple(launches), tuple(misses), exact, assembly, steers and not exact)


def _need_programs(plan: Plan, programs: Iterable[int]) -> None:
    total = max((math.prod(launch.grid) for launch in plan.launches), default=0)
    for program in programs:
        if program >= total:
            known = f"the programs are 0 to {total - 1}; choose from these" if total else "none is launched; give none"
            raise InputError(f"there is no program {program}: {known}", "programs")


def _steers(traced: TracedLaunch, launch: Launch, later: Iterable[Launch]) -> bool:
    """Whether the launch has stored whole numbers into a tensor that a later one is given."""
    given = {t.untyped_storage().data_ptr() for other in later for t in tensors_of(other).values()}
    own = tensors_of(launch)
    stored = (own[tensor.name] for tensor in traced.tensors if tensor.bytes_stored)
    return any(not t.is_floating_point() and t.untyped_storage().data_ptr() in given for t in stored)


def _trace_launch(launch: Launch, programs: Iterable[int] | None, seconds: float, progress: Callable):
    if not hasattr(launch.kernel, "rewrite"):
        raise EngineError(Failure(kind="unavailable", message=f"{launch.kernel.fn.__name__} {GLUON}"))
    total = math.prod(launch.grid)
    keep = sorted({p for p in (_spread(total) if programs is None else programs) if 0 <= p < total})
    arena = Arena(tensors_of(launch))
    source_file = launch.kernel.fn.__code__.co_filename
    probe = Probe(arena, source_file, frozenset(_index(p, launch.grid) for p in keep))
    edge: dict[tuple[str, int, str], Site] = {}  # of the last program alone, whose block is often not full
    order = _even_order(total, keep)
    ran = _Counted(
        launch.grid, order, time.monotonic() + seconds, progress, 3 if programs is None else len(keep) + 1,
        lambda: edge.update({key: replace(site) for key, site in probe.sites.items()}),
    )  # fmt: skip
    try:
        with watching(probe):
            ChosenPrograms(launch, iter(ran))(**_moved(launch, arena), **launch.config.meta)
    except (InterpreterError, ProgramsWait) as error:
        if probe.waits:
            raise ProgramsWait from None
        raise _refused(launch, error) from error
    probe.read_back()
    arena.copy_back(tensors_of(launch))
    scale = (total - 1) / (ran.count - 1) if ran.count > 1 else 1.0
    accesses = tuple(
        _access(site, edge.get(key), source_file, scale) for key, site in probe.sites.items() if site.tensor
    )
    traced = TracedLaunch(
        kernel=launch.kernel.fn.__name__,
        grid=launch.grid,
        programs_traced=ran.count,
        programs_total=total,
        accesses=accesses,
        tensors=tuple(_tensor(region, accesses) for region in arena.regions),
        programs={
            p: tuple(
                ProgramAccess(
                    kind=t.kind,
                    line=t.line,
                    tensor=t.tensor,
                    lanes=t.lanes,
                    active=t.active,
                    runs=t.runs,
                    samples=t.samples,
                )
                for t in probe.touches[_index(p, launch.grid)]
            )
            for p in sorted(set(keep) & set(order[: ran.count]))
        },
    )
    return traced, probe


def _refused(launch: Launch, error: BaseException) -> EngineError:
    """In one line what the interpreter could not do: it wraps an error once for each call of a jit function."""
    root: BaseException = error
    while isinstance(root, InterpreterError) and (root.__cause__ or root.__context__):
        root = root.__cause__ or root.__context__ or root
    message = f"{launch.kernel.fn.__name__} cannot be traced, for Triton's interpreter stops in it: {describe(root)}"
    kind: Literal["unavailable", "failed"] = "unavailable" if isinstance(root, NotImplementedError) else "failed"
    return EngineError(Failure(kind=kind, message=message))


def _spread(total: int) -> tuple[int, ...]:
    """Up to a dozen program ids: the first two, which are neighbours, the last, and some evenly between."""
    return (0, 1, *(total * i // (KEPT - 2) for i in range(1, KEPT - 2)), total - 1)


class _Counted:
    """The programs to run until the deadline, `least` at least. first_done: called once the first has run."""

    def __init__(
        self, grid: tuple[int, ...], order: list[int], deadline: float, progress: Callable, least: int,
        first_done: Callable,
    ):  # fmt: skip
        self.count = 0
        self._grid, self._order, self._deadline, self._progress = grid, order, deadline, progress
        self._least, self._first_done = least, first_done

    def __iter__(self) -> Iterator[Program]:
        for linear in self._order:
            if self.count >= self._least and time.monotonic() > self._deadline:
                return
            if self.count % 16 == 0:
                self._progress("tracing", self.count, len(self._order), "programs")
            self.count += 1
            yield _index(linear, self._grid)
            if self.count == 1:
                self._first_done()


def _even_order(total: int, first: list[int]) -> list[int]:
    """Program ids such that any prefix is spread evenly: the last one, those of `first`, then by halving the gaps."""
    seen, order = set(), []
    for linear in (total - 1, *first, 0):
        if linear not in seen:
            seen.add(linear)
            order.append(linear)
    step = 1 << max(total - 1, 1).bit_length()
    while step and len(order) < min(total, 100_000):
        fresh = [p for p in range(0, total, step) if p not in seen]
        seen.update(fresh)
        order += fresh
        step //= 2
    return order


def _index(linear: int, grid: tuple[int, ...]) -> Program:
    """Linear program id to (x, y, z); x runs fastest, as on a GPU."""
    x, y = grid[0], grid[1] if len(grid) > 1 else 1
    return linear % x, linear // x % y, linear // (x * y)


def _moved(launch: Launch, arena: Arena) -> dict:
    """The launch's arguments with each tensor replaced by its copy in the arena."""
    moved = dict(launch.args)
    for name in tensors_of(launch):
        copy = arena.copy_of(name)
        value = moved[name]
        moved[name] = replace(value, base=copy) if isinstance(value, TensorDescriptor) else copy
    return moved


def _access(site: Site, edge: Site | None, source_file: str, scale: float) -> Access:
    """A site's sums over the whole grid: the last program's as they are, the others' scaled."""

    def whole(name: str) -> int:
        known = getattr(edge, name) if edge else 0
        return round(known + (getattr(site, name) - known) * scale)

    return Access(
        kind=site.kind,
        line=site.line,
        code=linecache.getline(source_file, site.line).strip(),
        tensor=site.tensor,
        itemsize=site.itemsize,
        calls=whole("calls"),
        lanes=whole("lanes"),
        active=whole("active"),
        bytes=whole("bytes"),
        sectors=whole("sectors"),
        efficiency=site.distinct * site.itemsize / (site.sectors * SECTOR) if site.sectors else 0.0,
    )


def _tensor(region: Region, accesses: tuple[Access, ...]) -> TracedTensor:
    def asked(kind: str) -> int:
        return sum(a.bytes for a in accesses if a.tensor == region.name and a.kind == kind)

    return TracedTensor(
        name=region.name,
        itemsize=region.itemsize,
        bytes_total=int(region.valid.sum()) * region.itemsize,
        bytes_loaded=asked("load"),
        bytes_stored=asked("store"),
        unique_loaded=int(region.loaded.sum()) * region.itemsize,
        unique_stored=int(region.stored.sum()) * region.itemsize,
    )


def _outside(miss, source_file: str) -> OutOfBounds:
    way = "before the start" if miss.index < 0 else "outside"
    return OutOfBounds(
        kind=miss.kind,
        tensor=miss.tensor,
        index=miss.index,
        program=miss.program,
        lane=miss.lane,
        line=miss.line,
        message=f"{miss.kind} {way} of {miss.tensor}: element {miss.index}, program {miss.program}, lane {miss.lane}, "
        f"line {miss.line}: {linecache.getline(source_file, miss.line).strip()}",
    )
