"""A sweep over configs: each compiled for a target, judged and timed here, and what is recorded of it beside that.

It runs in the page's process and asks the engine config by config, so that one that crashes or hangs costs its
worker and not the sweep, others may have the device in between, and whatever was found is kept when it is stopped.
Every config is compiled before the first is timed: compilers work side by side, and a timing wants the CPU alone.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol

from kernels.spec import Config, InputError, Target
from playground.engine import choose, occupancy
from playground.engine.choose import Chosen
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    Choice,
    ConfigChoice,
    EngineError,
    Failure,
    Progress,
    ResourcesRequest,
    ResourcesResult,
    Source,
)
from playground.engine.sweep_messages import ConfigResult, SweepRequest, SweepResult

STOPS = ("cancelled",)  # failures that end the sweep; any other ends its config alone
ONE_PROGRAM = "configs that differ in nothing that is used are one program, timed once: a CPU has no warps or stages"
POLL_SECONDS = 0.05  # how soon a stop is seen while every compiler is at work


class Door(Protocol):
    """What a sweep needs of the engine. compilers: how many requests it compiles at once."""

    @property
    def compilers(self) -> int: ...
    def run(self, request: BenchRequest | ResourcesRequest, cancel: threading.Event | None = None): ...
    def recorded_sweeps(self, request: SweepRequest) -> tuple[SweepResult, ...]: ...


@dataclass
class _State:
    """The sweep so far."""

    choice: Choice
    configs: list[ConfigResult]
    programs: list[str]  # of each config; timing one program again would crown its luckiest time
    target: str | None
    default: int | None
    began: float = field(default_factory=time.monotonic)
    source: Source | None = None
    compiled: Source | None = None
    recorded: Source | None = None
    recorded_note: str = ""
    note: str = ""  # on the times, such as that the host was busy


def sweep(
    door: Door, request: SweepRequest, chosen: Chosen, here: Target, cancel: threading.Event | None = None
) -> Iterator[Progress | SweepResult]:
    """Yields the sweep as it grows, and it whole at the end. Raises InputError, and EngineError when stopped.

    here: the device that times; where nothing is timed it says nothing.
    """
    configs = listed(request, chosen, here)
    state = _started(request, chosen, configs, here)
    _beside(door, request, chosen, state)
    if request.target is not None:
        yield from _compile_all(door, request, state, cancel)
    if request.timed:
        yield from _time_all(door, request, state, cancel)
    yield _result(state, done=True)


def listed(request: SweepRequest, chosen: Chosen, here: Target) -> list[ConfigChoice]:
    """The configs to try: those given, else the spec's for the target, then those that only this host's has.

    The spec's are listed as they are launched. Raises InputError where all of those given are bad input.
    """
    if request.configs is not None and not request.configs:
        raise InputError("configs is empty; give at least one", "configs")
    targets = [here] if request.timed else []
    if request.target is not None:
        targets.insert(0, choose.target_named(request.target))
    if request.configs is not None:
        given = _unique(request.configs)
        _need_one(request, chosen, given, targets)
        return given
    inputs = choose.meta_inputs(chosen.spec, chosen)
    found = [(as_choice(config), target) for target in targets for config in chosen.spec.configs(inputs, target)]
    return _unique(launched(request, chosen, config, target) for config, target in found)


def _need_one(request: SweepRequest, chosen: Chosen, given: list[ConfigChoice], targets: list[Target]) -> None:
    """Raises InputError where no target takes any of the configs; one that is refused beside others is a row."""
    refused = []
    for config, target in itertools.product(given, targets):
        found = _planned(request, chosen, config, target)
        if not isinstance(found, InputError):
            return
        refused.append(found)
    if refused:
        raise refused[0]


def launched(request: SweepRequest, chosen: Chosen, config: ConfigChoice, target: Target) -> ConfigChoice:
    """The part of the config that the target's plan launches; all of it where the plan refuses it."""
    found = _planned(request, chosen, config, target)
    return config if isinstance(found, InputError) else found


def _planned(request: SweepRequest, chosen: Chosen, config: ConfigChoice, target: Target) -> ConfigChoice | InputError:
    """What is launched, or why nothing is; the config itself where a worker alone can tell."""
    spec, ask = chosen.spec, request.model_copy(update={"config": config})
    if request.source is not None or request.bug is not None or spec.unsupported(chosen.dtype, target):
        return config
    inputs = choose.meta_inputs(spec, chosen)
    try:
        taken, _ = choose.choose_config(spec, ask, inputs, target, chosen.dims, chosen.dtype)
        return as_choice(choose.planned(spec, inputs, taken, target)[1])
    except InputError as error:
        return error
    except Exception:  # noqa: BLE001 - a plan that breaks: its row says how
        return config


def _unique(configs: Iterable[ConfigChoice]) -> list[ConfigChoice]:
    """Each once, where it first stood; they hold dicts, so a set will not do."""
    return list({config.model_dump_json(): config for config in configs}.values())


def as_choice(config: Config) -> ConfigChoice:
    return ConfigChoice(meta=dict(config.meta), num_warps=config.num_warps, num_stages=config.num_stages)


def _started(request: SweepRequest, chosen: Chosen, configs: list[ConfigChoice], here: Target) -> _State:
    target = here if request.timed else choose.target_named(request.target or "sm_90")
    own = as_choice(chosen.spec.default_config(choose.meta_inputs(chosen.spec, chosen), target))
    own = launched(request, chosen, own, target)
    programs = [launched(request, chosen, config, target) for config in configs]
    choice = choose.as_choice(request, chosen, Config(own.meta, own.num_warps, own.num_stages), "spec")
    return _State(
        choice=choice,
        configs=[ConfigResult(config=c, tried=False) for c in configs],
        target=request.target,
        default=programs.index(own) if own in programs else None,
        programs=[_program(program, here) for program in programs],
    )


def _beside(door: Door, request: SweepRequest, chosen: Chosen, state: _State) -> None:
    """Recorded times of the nearest shape, config by config."""
    found = door.recorded_sweeps(request)
    if not found:
        return
    recorded = found[0]
    target, shape = choose.target_named(recorded.target or "sm_90"), chosen._replace(dims=recorded.choice.dims)
    times = [(launched(request, shape, r.config, target), r.us) for r in recorded.configs if r.ok]
    state.configs = [
        c.model_copy(update={"recorded_us": next((us for config, us in times if config == c.config), None)})
        for c in state.configs
    ]
    state.recorded = recorded.source
    state.recorded_note = recorded.recorded_note


def _compile_all(
    door: Door, request: SweepRequest, state: _State, cancel: threading.Event | None
) -> Iterator[Progress | SweepResult]:
    """Compile every config for the target, as many at once as there are compilers; who is done first comes first."""
    assert request.target is not None
    over = threading.Event()  # besides `cancel`, which is the caller's: closing this generator ends what runs, too
    pool = ThreadPoolExecutor(door.compilers, thread_name_prefix="sweep")
    try:
        waiting: dict[Future, int] = {}
        for i, known in enumerate(state.configs):
            ask = ResourcesRequest(**_base(request), config=known.config, target=request.target)
            waiting[pool.submit(_asked, door, ask, over)] = i
        while waiting:
            done = len(state.configs) - len(waiting)
            yield Progress(what=f"Compiling for {request.target}", done=done, total=len(state.configs), unit="configs")
            for future in _next(waiting, over, cancel):
                i = waiting.pop(future)
                found = _resources(future.result(), request.target, state)
                state.configs[i] = state.configs[i].model_copy(update={"tried": not request.timed, **found})
            yield _result(state, done=False)
    finally:
        over.set()
        pool.shutdown(cancel_futures=True)


def _next(waiting: Iterable[Future], over: threading.Event, cancel: threading.Event | None) -> set[Future]:
    """Those that are done, once one is; a stop is passed on meanwhile, and makes them fail."""
    while True:
        if cancel is not None and cancel.is_set():
            over.set()
        if done := wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED).done:
            return done


def _time_all(
    door: Door, request: SweepRequest, state: _State, cancel: threading.Event | None
) -> Iterator[Progress | SweepResult]:
    """Judge and time every config here, one after another. Those that are one program share its time."""
    timed: dict[str, dict] = {}
    for i, known in enumerate(state.configs):
        program = state.programs[i]
        if program in timed:
            state.configs[i] = known.model_copy(update={"tried": True, **timed[program]})
            continue
        yield Progress(what=f"Trying {known.config.label}", done=i, total=len(state.configs), unit="configs")
        ask = BenchRequest(**_base(request), config=known.config, baselines=(), quick=True, alone=True)
        timed[program] = _times(_asked(door, ask, cancel), state)
        state.configs[i] = known.model_copy(update={"tried": True, **timed[program]})
        yield _result(state, done=False)
    if len(timed) < len(state.configs):
        state.note = "; ".join(filter(None, (ONE_PROGRAM, state.note)))


def _program(config: ConfigChoice, here: Target) -> str:
    """What tells the program of a config, as launched, from others."""
    if here.kind == "cpu":
        return json.dumps(config.meta, sort_keys=True)
    return config.model_dump_json()


def _base(request: SweepRequest) -> dict:
    """What every config's request takes over."""
    return request.model_dump(exclude={"verb", "configs", "target", "timed", "config", "baselines"})


def _asked(door: Door, request: BenchRequest | ResourcesRequest, cancel: threading.Event | None):
    """The result, or the failure of this config. Raises EngineError for a stop."""
    try:
        return door.run(request, cancel)
    except EngineError as error:
        if error.failure.kind in STOPS:
            raise
        return error.failure


def _resources(answer: ResourcesResult | Failure, target: str, state: _State) -> dict:
    if isinstance(answer, Failure):
        return {"refusal": answer.message, "failure_kind": answer.kind}
    state.compiled = answer.source
    if not answer.launches:
        return {}
    # Of several launches, the one that uses most is the one to look at.
    most = max(answer.launches, key=lambda used: (used.spills, used.registers))
    held = occupancy.occupancy(target, most.num_warps, most.registers, most.shared_bytes)
    return {
        "registers": most.registers, "spills": most.spills, "shared_bytes": most.shared_bytes,
        "occupancy": held.occupancy, "limit": held.limit,
    }  # fmt: skip


def _times(answer: BenchResult | Failure, state: _State) -> dict:
    if isinstance(answer, Failure):
        return {"failure": answer.message, "failure_kind": answer.kind}
    state.source = answer.source
    state.note = answer.note or state.note
    own = answer.providers["triton"]
    if not own.ok:
        ok = False if own.ulps is not None else None
        return {"ok": ok, "failure": own.failure, "failure_kind": None, "ulps": own.ulps}
    return {
        "ok": True, "failure_kind": None, "us": own.us, "method": own.method, "cold_us": own.cold_us,
        "warm_us": own.warm_us, "ulps": own.ulps, "first_seconds": own.first_seconds,
    }  # fmt: skip


def _tied(state: _State, best: int | None) -> bool:
    """Whether noise alone may part the default from the best: then nothing was won that could repay."""
    if best is None or state.default is None:
        return False
    own, first = state.configs[state.default].us, state.configs[best].us
    return own is not None and first is not None and own.overlaps(first)


def _result(state: _State, done: bool) -> SweepResult:
    timed = {i: c.us.p50 for i, c in enumerate(state.configs) if c.ok and c.us}
    best = min(timed, key=lambda i: (timed[i], i != state.default)) if timed else None
    seconds = time.monotonic() - state.began
    gain = timed[state.default] - timed[best] if best is not None and state.default in timed else 0.0
    gain = 0.0 if _tied(state, best) else gain
    return SweepResult(
        choice=state.choice, configs=tuple(state.configs), done=done, best=best, default=state.default,
        speedup=timed[state.default] / timed[best] if best is not None and state.default in timed else None,
        seconds=seconds, calls_to_repay=round(seconds * 1e6 / gain) if gain > 0 else None, target=state.target,
        source=state.source, compiled=state.compiled, recorded=state.recorded, recorded_note=state.recorded_note,
        note=state.note,
    )  # fmt: skip
