"""What one press of Run brings, piece by piece: the verdict first, then times here, compiled resources, recordings.

This module asks the engine and knows no Gradio: it yields an `Answer` each time there is more to show.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from kernels import get
from playground.decoder.client import Host
from playground.engine import shares
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    Failure,
    HostRequest,
    HostResult,
    Message,
    Progress,
    Request,
    ResourcesRequest,
    ResourcesResult,
    RunRequest,
    RunResult,
)

RECORDED_ARCH = "sm_90"  # what code is compiled for where there is no GPU: the recordings' H200


class Engine(Host, Protocol):
    """What the page needs of playground.engine.Engine."""

    def stream(self, request: Any, cancel: threading.Event) -> Iterator[Any]: ...
    def run(self, request: Any, cancel: threading.Event | None = None) -> Any: ...
    def sweep(self, request: Any, cancel: threading.Event) -> Iterator[Any]: ...
    def host(self) -> HostResult: ...
    def recorded(self, request: Any) -> Sequence[BenchResult]: ...
    def recorded_sweeps(self, request: Any) -> Sequence[Any]: ...
    def warm(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Answer:
    """All that is known of one run so far.

    progress: what is still being done; None once nothing more comes. failure: why there is no verdict. untimed: why
    there are no times of this device. recorded: the recording nearest to the shape, if there is one; unrecorded: what
    is recorded instead, where there is none.
    """

    request: Request
    progress: Progress | None = None
    failure: Failure | None = None
    run: RunResult | None = None
    bench: BenchResult | None = None
    untimed: str = ""
    resources: ResourcesResult | None = None
    recorded: BenchResult | None = None
    unrecorded: str = ""

    @property
    def right(self) -> bool:
        """Right at the verdict, and at the one that is made again after the benchmark."""
        return bool(self.run and self.run.ok and (self.bench is None or self.bench.ok))

    @property
    def timed(self) -> BenchResult | None:
        """The times of this device, if they stand beside a right answer."""
        return self.bench if self.right else None


def ask(verb: type[Message], request: Request, **more: Any) -> Any:
    """The same choice as a request with a verb."""
    return verb.model_validate({**request.model_dump(exclude={"verb"}), **more})


_compiling = ThreadPoolExecutor(4, thread_name_prefix="resources")


def answers(engine: Engine, request: Request, host: HostResult, cancel: threading.Event) -> Iterator[Answer]:
    """The answer as it grows. Ends early where the verdict is not right, or there is none."""
    now = Answer(request, Progress(what="Starting"))
    yield now
    compiled = _compiling.submit(_resources, engine, request, host)
    try:
        for event in engine.stream(ask(RunRequest, request, baselines=_beside(request, host)), cancel):
            now = replace(now, **_took(event, "run"))
            yield now
    except EngineError as error:
        yield replace(now, progress=None, failure=error.failure)
        return
    if not now.run or not now.run.ok or request.edge or request.bug:
        yield replace(now, progress=None)
        return
    known = nearest(engine, request, host)
    other = "" if known or host.kind == "gpu" else others_recorded(engine, request)
    waiting = Progress(what="Timing every implementation")
    now = replace(now, recorded=known, unrecorded=other, progress=waiting)
    yield now
    for grown in _timed(engine, now, host, cancel):
        yield (now := grown)
    yield replace(now, progress=None, resources=_done(compiled, cancel))


def _beside(request: Request, host: HostResult) -> tuple[str, ...] | None:
    """Baselines of the verdict: none where the benchmark judges them anyway, so that the verdict comes at once."""
    return request.baselines if host.kind == "interpreter" else ()


def _took(event: Any, name: str) -> dict[str, Any]:
    return {"progress": event} if isinstance(event, Progress) else {name: event}


def _timed(engine: Engine, now: Answer, host: HostResult, cancel: threading.Event) -> Iterator[Answer]:
    """The times, and where the device's roofs are not measured yet, their shares of these some seconds later."""
    try:
        for event in engine.stream(ask(BenchRequest, now.request, roofs=host.kind == "gpu"), cancel):
            if isinstance(event, BenchResult) and event.source.kind == "recorded":
                # A host that cannot time answers with a recording: those stand in their own place.
                now = replace(now, untimed=event.note or "This host cannot time kernels.")
            else:
                now = replace(now, **_took(event, "bench"))
            yield now
    except EngineError as error:
        line = "Stopped before it was timed." if error.failure.kind == "cancelled" else error.failure.message
        yield replace(now, untimed=line)
        return
    if now.timed and now.timed.roofs is None:
        yield from _placed(engine, now, now.timed, cancel)


def _placed(engine: Engine, now: Answer, bench: BenchResult, cancel: threading.Event) -> Iterator[Answer]:
    """The times with their shares of the roofs. Without these they stand alone."""
    with contextlib.suppress(EngineError):
        for event in engine.stream(HostRequest(roofs=True), cancel):
            if isinstance(event, HostResult) and event.roofs:
                now = replace(now, bench=shares.against(bench, event.roofs, max(event.caches.values(), default=0)))
            elif isinstance(event, Progress):
                now = replace(now, progress=event)
            yield now


def _resources(engine: Engine, request: Request, host: HostResult) -> ResourcesResult | None:
    target = host.arch if host.kind == "gpu" else RECORDED_ARCH
    # A config chosen for this CPU means nothing on the GPU that the code is compiled for.
    own = request if host.kind == "gpu" else request.model_copy(update={"config": None})
    try:
        return engine.run(ask(ResourcesRequest, own, target=target, chain=True))
    except EngineError:
        return None  # the rest of the answer stands without it


def _done(compiled: Future[ResourcesResult | None], cancel: threading.Event) -> ResourcesResult | None:
    for _ in range(300):  # half a minute; compiling is a second or two
        if cancel.is_set():
            break
        with contextlib.suppress(TimeoutError):
            return compiled.result(timeout=0.1)
    return None


def nearest(engine: Engine, request: Request, host: HostResult) -> BenchResult | None:
    """The recording of the shape nearest to the request's, where this host has no GPU of its own."""
    if host.kind == "gpu":
        return None
    return next(iter(engine.recorded(ask(BenchRequest, request, config=None))), None)


def others_recorded(engine: Engine, request: Request) -> str:
    """A line that says in which other dtypes this kernel is recorded, "" where it is in none."""
    asked = ask(BenchRequest, request, config=None)
    others = [d for d in get(request.kernel).dtypes if d != request.dtype]
    found = [d for d in others if engine.recorded(asked.model_copy(update={"dtype": d}))]
    return f"Nothing is recorded in {request.dtype}; {' and '.join(found)} is. Choose it as dtype." if found else ""


def exact(result: BenchResult, request: Request) -> bool:
    return result.choice.dims == request.dims
