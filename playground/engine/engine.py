"""The one door to everything that runs a kernel: for the page, the command line and the API.

A request is checked, sent to the lane of its device, and answered by what its worker says. The engine itself runs
no kernel and makes no CUDA context, and may be called from any thread.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, overload

from playground.engine import devices
from playground.engine.lane import GRACE_SECONDS, POLL_SECONDS, Gate, Lane, Ticket
from playground.engine.messages import (
    BenchRequest,
    BenchResult,
    EngineError,
    Failure,
    HostRequest,
    HostResult,
    Progress,
    ResourcesRequest,
    ResourcesResult,
    RunRequest,
    RunResult,
)
from playground.engine.pool import Worker
from playground.engine.protocol import AnyRequest, AnyResult, Done, Failed
from playground.engine.sweep_messages import SweepRequest, SweepResult
from playground.engine.trace_messages import TraceRequest, TraceResult
from playground.settings import ROOT, Settings

if TYPE_CHECKING:  # brings torch along
    from playground.engine.choose import Chosen

INTERPRETER, COMPILER, CPU = "interpreter", "compiler", "cpu"
PLACES = {
    "resources": COMPILER,
    "code": COMPILER,
    "inductor": COMPILER,
    "trace": INTERPRETER,
}  # verbs that have a worker of their own on every host
TIMED = ("bench",)  # verbs that take a device alone
MOST_COMPILERS = 4  # each holds some 400 MB


class Engine:
    """Workers start when they are first needed, or with `warm`. Close it, or use it in a `with`.

    handlers: the module that tells workers what they can do. gpus: names of the GPUs, or None to look for them.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        handlers: str = "playground.engine.handlers",
        gpus: tuple[str, ...] | None = None,
        grace: float = GRACE_SECONDS,
    ):
        self.settings = settings or Settings.from_env()
        self._handlers = handlers
        self._gpus = None if gpus is None else (gpus, "none was asked for")
        self._grace = grace
        self._cpu_gate = Gate()  # the CPU, the interpreter and the compiler share the cores
        self._gates: dict[str, Gate] = {}  # of the GPUs
        self._lanes: dict[str, Lane] = {}
        self._lock = threading.Lock()
        self._choosing = threading.Lock()
        self._looking = threading.Lock()
        self._hosts: dict[bool, HostResult] = {}
        self._closed = False
        self._closers: list[Callable[[], None]] = []

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill every worker and end every request."""
        with self._lock:
            self._closed = True
            lanes, closers = list(self._lanes.values()), list(self._closers)
        for close in (*(lane.close for lane in lanes), *closers):
            close()

    def on_close(self, close: Callable[[], None]) -> None:
        """`close` ends workers that are not the engine's own, and is called once when the engine is closed."""
        with self._lock:
            if not self._closed:
                self._closers.append(close)
                return
        close()

    def warm(self, device: str = "auto") -> None:
        """Start a device's worker in the background. A device that there is not is left to the request."""
        threading.Thread(target=self._warm, args=(device,), name="warm", daemon=True).start()

    def _warm(self, device: str) -> None:
        device = self.default_device if device == "auto" else device
        if device in self.devices():
            self._lane(device).warm()

    # What there is

    def gpus(self) -> tuple[tuple[str, ...], str]:
        """Names of the GPUs here and, where there is none, why."""
        with self._looking:
            if self._gpus is None:
                self._gpus = devices.gpus()
            return self._gpus

    def devices(self) -> tuple[str, ...]:
        """What `Request.device` may be, besides "auto"; the default first."""
        names, _ = self.gpus()
        return (*(f"cuda:{i}" for i in range(len(names))), CPU, INTERPRETER)

    @property
    def default_device(self) -> str:
        return self.devices()[0]

    @property
    def compilers(self) -> int:
        """How many compiler workers there may be: one for each core, started as requests come at once."""
        return min(MOST_COMPILERS, devices.cpu_cores())

    def host(self, roofs: bool = False) -> HostResult:
        """The default device, asked once. `roofs`: with what it reaches, which takes seconds to measure."""
        if roofs not in self._hosts:
            self._hosts[roofs] = self.run(HostRequest(roofs=roofs))
        return self._hosts[roofs]

    # Requests

    def validate(self, request: AnyRequest | SweepRequest) -> Chosen | None:
        """The request with its defaults filled in, checked without allocating anything. Raises EngineError."""
        if isinstance(request, HostRequest):
            return None
        from kernels import InputError
        from playground.engine import choose

        try:
            chosen = choose.validate(request, gpu=self._device(request).startswith("cuda"))
        except InputError as e:
            raise EngineError(Failure(kind="input", message=str(e), argument=e.argument)) from None
        if request.source is not None:
            self._allow_edits()
        return chosen

    @overload
    def run(self, request: RunRequest, cancel: threading.Event | None = None) -> RunResult: ...
    @overload
    def run(self, request: BenchRequest, cancel: threading.Event | None = None) -> BenchResult: ...
    @overload
    def run(self, request: ResourcesRequest, cancel: threading.Event | None = None) -> ResourcesResult: ...
    @overload
    def run(self, request: TraceRequest, cancel: threading.Event | None = None) -> TraceResult: ...
    @overload
    def run(self, request: HostRequest, cancel: threading.Event | None = None) -> HostResult: ...

    def run(self, request: AnyRequest, cancel: threading.Event | None = None) -> AnyResult:
        """The result alone. Raises EngineError."""
        *_, result = self.stream(request, cancel)
        assert not isinstance(result, Progress)
        return result

    def stream(self, request: AnyRequest, cancel: threading.Event | None = None) -> Iterator[Progress | AnyResult]:
        """Progress as it comes, and the result last. Raises EngineError.

        While others are before it, Progress tells its place. Setting `cancel`, or closing this generator, takes a
        waiting request out of the queue and stops a running one.
        """
        device = self._device(request)
        self.validate(request)
        answer = yield from self._on(device, request, cancel)
        note = ""
        if isinstance(answer, Failed) and answer.interpret and isinstance(request, RunRequest):
            note = f"interpreted: {answer.failure.message}"
            answer = yield from self._on(INTERPRETER, request, cancel)
        if isinstance(answer, Failed):
            raise EngineError(answer.failure)
        yield _noted(answer.result, note)

    def sweep(self, request: SweepRequest, cancel: threading.Event | None = None) -> Iterator[Progress | SweepResult]:
        """The sweep as it grows, config by config, and whole at the end. Raises EngineError.

        A config that fails, hangs or kills its worker is one line of the result. Setting `cancel` ends it with what
        was found so far already given.
        """
        from kernels import InputError
        from kernels.spec import Target
        from kernels.targets import TARGETS
        from playground.engine import choose, sweep

        chosen = self.validate(request)
        assert chosen is not None
        try:
            if request.target is not None:
                choose.target_named(request.target)  # a mistake is told before a worker is started
            here = Target.named("cpu")
            if request.timed:
                host = self.host()
                here = Target.named(host.arch if host.arch in TARGETS else "sm_90" if host.kind == "gpu" else "cpu")
            yield from sweep.sweep(self, request, chosen, here, cancel)
        except InputError as e:
            raise EngineError(Failure(kind="input", message=str(e), argument=e.argument)) from None

    def recorded_sweeps(self, request: SweepRequest) -> tuple[SweepResult, ...]:
        """Sweeps recorded on GPUs for this kernel and dtype, the nearest shape first. Raises EngineError."""
        from playground.engine import recordings

        chosen = self.validate(request)
        return () if chosen is None else recordings.find_sweeps(self.settings.recordings, chosen)

    def recorded(self, request: AnyRequest) -> tuple[BenchResult, ...]:
        """What GPUs reached on this kernel and dtype: the exact shape first, else the nearest, whose note says so.

        Edge cases, planted bugs and edited kernels have none. Raises EngineError as `validate` does.
        """
        from playground.engine import recordings

        chosen = self.validate(request)
        if chosen is None or getattr(request, "source", None) is not None:
            return ()
        return recordings.find(self.settings.recordings, chosen)

    def _on(
        self, device: str, request: AnyRequest, cancel: threading.Event | None
    ) -> Generator[Progress, None, Done | Failed]:
        ticket = self._ticket(request)
        lane = self._submit(device, ticket)
        try:
            while True:
                if cancel is not None and cancel.is_set() and not ticket.stop.is_set():
                    lane.stop(ticket)
                try:
                    answer = ticket.answers.get(timeout=POLL_SECONDS)
                except queue.Empty:
                    continue
                if not isinstance(answer, Progress):
                    return answer
                yield answer
        finally:
            lane.stop(ticket)  # nothing happens where it has ended

    def _ticket(self, request: AnyRequest) -> Ticket:
        if request.verb in TIMED or (isinstance(request, HostRequest) and (request.roofs or request.curve)):
            return Ticket(request, self.settings.bench_seconds, "PLAYGROUND_BENCH_SECONDS", alone=True)
        return Ticket(request, self.settings.run_seconds, "PLAYGROUND_RUN_SECONDS")

    def _device(self, request: AnyRequest | SweepRequest) -> str:
        """Where a request is done. Raises EngineError for a device that there is not."""
        if isinstance(request, HostRequest):
            return self.default_device
        if request.verb in PLACES:
            return PLACES[request.verb]
        device = {"auto": self.default_device, "cuda": "cuda:0"}.get(request.device, request.device)
        if device not in self.devices():
            raise EngineError(self._no_device(device))
        if device == INTERPRETER and request.verb in TIMED:
            message = "the interpreter's times say nothing of a kernel; set device to cpu or auto"
            raise EngineError(Failure(kind="input", message=message, argument="device"))
        return device

    def _no_device(self, device: str) -> Failure:
        choices = " or ".join(("auto", *self.devices()))
        if not device.startswith("cuda:") or not device[5:].isdigit():
            said = f"no device is named {device[:60]!r}; choose {choices}"
            return Failure(kind="input", message=said, argument="device")
        _, why = self.gpus()
        message = f"there is no {device[:60]} here{': ' * bool(why)}{why}; choose {choices}"
        return Failure(kind="unavailable", message=message, argument="device")

    def _allow_edits(self) -> None:
        if not self.settings.edits:
            message = (
                "kernels cannot be edited here; serve on a loopback address, with PLAYGROUND_EDIT=loopback and no proxy"
            )
            raise EngineError(Failure(kind="unavailable", message=message, argument="source"))

    # Workers

    def _submit(self, device: str, ticket: Ticket) -> Lane:
        """Into the device's lane; of the compilers' into the first that is idle, else that with the fewest."""
        with self._choosing:
            lanes = (self._lane(device, i) for i in range(self.compilers if device == COMPILER else 1))
            lane = min(lanes, key=lambda lane: lane.load)
            lane.submit(ticket)
        return lane

    def _lane(self, device: str, number: int = 0) -> Lane:
        name = f"{device} {number + 1}" if number else device
        with self._lock:
            if name not in self._lanes:
                start = functools.partial(Worker, device, self._handlers, environment(device, self.settings))
                self._lanes[name] = Lane(device, start, self._gate(device), self._grace)
                if self._closed:
                    self._lanes[name].close()
            return self._lanes[name]

    def gate(self, device: str) -> Gate:
        """Who may use a device: whatever works on it enters here, so that a timing is alone."""
        with self._lock:
            return self._gate(device)

    def _gate(self, device: str) -> Gate:
        return self._gates.setdefault(device, Gate()) if device.startswith("cuda") else self._cpu_gate


def compiler_environment() -> dict[str, str]:
    """What makes every process that compiles kernels compile them alike.

    TRITON_DEFAULT_FP_FUSION: its default changes in a later Triton. TRITON_PTXAS_PATH: once torch.compile has run in a
    process it points Triton at a newer ptxas than the one that Triton brings, unless it is set.
    """
    found = importlib.util.find_spec("triton")
    folder = Path(next(iter(found.submodule_search_locations or ()))) if found else None
    bundled = folder / "backends" / "nvidia" / "bin" / "ptxas" if folder else None
    set_ = {"TRITON_DEFAULT_FP_FUSION": "1"}
    if bundled and bundled.exists() and "TRITON_PTXAS_PATH" not in os.environ:
        set_["TRITON_PTXAS_PATH"] = str(bundled)
    return set_


def environment(device: str, settings: Settings) -> dict[str, str]:
    """A worker's environment: ours, with the engine's own settings and what its device asks for."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    path = os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH"))))
    env |= {
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
        **compiler_environment(),
        "PLAYGROUND_CACHE": str(Path(settings.cache).absolute()),
        "PLAYGROUND_RECORDINGS": str(Path(settings.recordings).absolute()),
        "PLAYGROUND_RUN_SECONDS": f"{settings.run_seconds:g}",
        "PLAYGROUND_BENCH_SECONDS": f"{settings.bench_seconds:g}",
        "PLAYGROUND_EDIT": settings.edit,
    }
    if devices.cpu_share():  # more threads than that stop each other, most of all those that wait for one another
        threads = dict.fromkeys(("OMP_NUM_THREADS", "PLAYGROUND_NATIVE_THREADS"), str(devices.cpu_cores()))
        env = threads | env
    if device == INTERPRETER:
        env["TRITON_INTERPRET"] = "1"  # read when @triton.jit decorates, so it needs a process of its own
    if not device.startswith("cuda"):
        env |= dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "")
    return env


def _noted(result: AnyResult, note: str) -> AnyResult:
    if not note or not hasattr(result, "note"):
        return result
    return result.model_copy(update={"note": "; ".join(filter(None, (note, result.note)))})
