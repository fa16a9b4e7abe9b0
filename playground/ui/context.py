"""What every tab is built with: the engine, the settings, the host as far as it is known, and who runs what."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping

from kernels import KernelSpec, all_kernels
from kernels.spec import Target
from playground.decoder.client import Chats
from playground.engine.code_messages import CodeRequest
from playground.engine.messages import EngineError, HostResult
from playground.engine.trace_messages import TraceRequest
from playground.settings import Settings
from playground.ui.answer import Engine
from playground.ui.jobs import Jobs

# An event that a page's own handlers use: no endpoint of its own, no veil over what it updates.
PRIVATE = {"api_visibility": "private", "show_progress": "hidden"}
# Long events wait in the engine, which tells each its place; so the queue lets them all in.
MOST_AT_ONCE = 128
LONG = {**PRIVATE, "concurrency_limit": MOST_AT_ONCE}
# What takes the place of its own earlier press: else one that comes while that still ends, unseen, would be lost.
AGAIN = {**LONG, "trigger_mode": "multiple"}


@dataclasses.dataclass
class Context:
    """One for the whole page. `plotly` is where the browser gets Plotly.js from."""

    engine: Engine
    settings: Settings
    plotly: str = ""
    jobs: Jobs = dataclasses.field(default_factory=Jobs)
    _host: HostResult | None = None
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.chats = Chats(self.engine)  # starts no worker before it is asked

    @property
    def specs(self) -> Mapping[str, KernelSpec]:
        return all_kernels()

    def host(self) -> HostResult:
        """The device that runs kernels. Waits for the worker to start the first time; raises EngineError."""
        with self._lock:
            if self._host is None:
                self._host = self.engine.host()
            return self._host

    @property
    def known_host(self) -> HostResult | None:
        """The host without waiting: None until the worker has said who it is."""
        return self._host

    @property
    def gpu(self) -> bool:
        return bool(self._host and self._host.kind == "gpu")

    def target(self) -> Target:
        """What configs are listed for: this host's device, and the CPU until it is known."""
        try:
            return Target.named(self._host.arch if self._host else "cpu")
        except KeyError:
            return Target.named("sm_90" if self.gpu else "cpu")

    def warm(self) -> None:
        """Start the workers in the background, so that the first press in any tab finds them ready.

        The device's and the interpreter's side by side, as the smallest host has two cores; then the compiler's.
        """
        for name, wake in (("warm", self._wake_device), ("warm-readers", self._wake_readers)):
            threading.Thread(target=wake, name=name, daemon=True).start()

    def _wake_device(self) -> None:
        try:
            self.engine.warm()
            self.host()
        except EngineError as error:
            self._say_unless_stopped("The kernel worker did not start", error)

    @staticmethod
    def _say_unless_stopped(what: str, error: EngineError) -> None:
        """Ending the page ends what is being warmed up, which is no news."""
        if error.failure.kind != "cancelled":
            print(f"{what}: {error}", flush=True)

    def _wake_readers(self) -> None:
        """A request each, since much is imported by the first one."""
        try:
            self.engine.run(TraceRequest(kernel="vector_add", dims={"n": 1000}))
            self.engine.run(CodeRequest(kernel="vector_add", dims={"n": 1000}, stages=("ttir",)))
        except EngineError as error:
            self._say_unless_stopped("The interpreter or the compiler did not start", error)
