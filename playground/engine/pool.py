"""A worker process as its parent sees it: start it, talk to it, find out why it died, kill it.

Each worker leads a process group of its own, so killing it takes the compilers it has started too. Who may use a
worker, and what becomes of a request when it dies, is decided in lane.py.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import TypeAdapter

from playground.engine.messages import Message
from playground.engine.protocol import (
    Do,
    Done,
    Failed,
    ProtocolError,
    Ready,
    Report,
    Sender,
    Taken,
    from_worker,
)
from playground.engine.protocol import receive as receive_messages

TAIL_BYTES = 64 * 1024
LAST_WORDS = 300  # characters of a worker's output that an error quotes

# Linux kills a worker when the *thread* that started it ends, so one that lasts starts them all.
_SPAWNER = ThreadPoolExecutor(1, thread_name_prefix="worker-spawner")

_DEATHS = {
    int(signal.SIGSEGV): "a segmentation fault, SIGSEGV",
    int(signal.SIGBUS): "a bus error, SIGBUS",
    int(signal.SIGABRT): "an abort, SIGABRT",
    int(signal.SIGFPE): "an arithmetic fault, SIGFPE",
    int(signal.SIGILL): "an instruction that this CPU does not have, SIGILL",
    int(signal.SIGKILL): "killed from outside, most likely because memory ran out, SIGKILL",
}


@dataclass(frozen=True)
class Garbage:
    """The worker sent something that is no message."""

    what: str


@dataclass(frozen=True)
class Gone:
    """The worker's end of the pipe is closed: it is dead, or as good as."""


Event = Ready | Taken | Report | Done | Failed | Garbage | Gone


class Tail:
    """The end of what a process prints, read all the time so that it never waits for us."""

    def __init__(self, fd: int):
        self._fd = fd
        self._data = b""
        self._thread = threading.Thread(target=self._read, name="worker-output", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while chunk := os.read(self._fd, 1 << 16):
                self._data = (self._data + chunk)[-TAIL_BYTES:]
        os.close(self._fd)

    def forget(self) -> None:
        """What comes from now on belongs to another request."""
        self._data = b""

    def text(self, wait: float = 0.0) -> str:
        """`wait`: seconds to wait for the end, where the process is dead."""
        self._thread.join(wait)
        return self._data.decode(errors="replace")


class Worker:
    """One child process. `events` holds what it says, in order, and ends with Gone.

    A kind of worker of its own has another module and says other messages.
    """

    module: ClassVar[str] = "playground.engine.worker"
    says: ClassVar[TypeAdapter[Any]] = from_worker

    def __init__(self, device: str, handlers: str, env: Mapping[str, str]):
        self.device = device
        self.ready: Ready | None = None  # kept by whoever takes it from `events`
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()  # Event, or what `says` has
        self._reaping = threading.Lock()
        self._reaped = threading.Event()
        _SPAWNER.submit(self._start, self.arguments(handlers), env).result()

    def arguments(self, handlers: str) -> list[str]:
        """What its module is started with, besides the parent and the pipes."""
        return ["--device", self.device, "--handlers", handlers]

    def _start(self, arguments: list[str], env: Mapping[str, str]) -> None:
        child_read, to_child = os.pipe()
        from_child, child_write = os.pipe()
        output, child_output = os.pipe()
        command = [sys.executable, "-m", self.module, *arguments]
        command += ["--parent", str(os.getpid()), "--pipes", str(child_read), str(child_write)]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=child_output, stderr=child_output,
                pass_fds=(child_read, child_write), start_new_session=True, env=dict(env),
            )  # fmt: skip
        except OSError:
            for fd in (to_child, from_child, output):
                os.close(fd)
            raise
        finally:
            for fd in (child_read, child_write, child_output):
                os.close(fd)
        self._sender = Sender(to_child)
        self._tail = Tail(output)
        for target, args in ((self._listen, (from_child,)), (self._reap, ())):
            threading.Thread(target=target, args=args, name=f"worker-{self.device}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._reaped.is_set()

    def send(self, message: Message) -> None:
        """A worker that is gone says so by its Gone event, not here. Raises EngineError for what cannot be sent."""
        if isinstance(message, Do):
            self._tail.forget()
        with contextlib.suppress(OSError):
            self._sender.send(message)

    def kill(self) -> None:
        """Kill it with all that it has started. Nothing happens where it is dead."""
        with self._reaping:
            if self.alive:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def output(self) -> str:
        return self._tail.text(0.0 if self.alive else 0.5)

    def why_it_died(self) -> str:
        """Waits for the end, which has begun; kills where it has not."""
        if not self._reaped.wait(1.0):  # it has closed its pipe and lives on
            self.kill()
            self._reaped.wait(5.0)
            return "it stopped answering"
        code = self._process.returncode
        if code < 0:
            return _DEATHS.get(-code, f"signal {-code}")
        return f"it ended with exit code {code}"

    def _listen(self, fd: int) -> None:
        try:
            for message in receive_messages(fd, self.says):
                self.events.put(message)
        except ProtocolError as e:
            self.events.put(Garbage(str(e)))
        os.close(fd)
        self.events.put(Gone())

    def _reap(self) -> None:
        """Its children die with it; they share our pipes, and the group's number is ours until it is reaped."""
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            self._reaped.set()
        self._sender.close()


def last_words(output: str) -> str:
    """The end of a dead worker's output as one short line; where Python told which line was at work, that too."""
    printed, _, fault = output.partition("Fatal Python error:")
    before, traceback, error = printed.rpartition("Traceback (most recent call last):")
    lines = [" ".join(line.split()) for line in (before if traceback else printed).splitlines() if line.strip()]
    lines = lines[-2:] + error.splitlines()[-1:] if traceback else lines[-3:]
    words = " | ".join(lines)
    if len(words) > LAST_WORDS:
        words = "…" + words[-LAST_WORDS:]
    _, _, thread = fault.partition("Current thread")  # the one that was hit, its innermost call first
    place = re.search(r'File "(?:[^"]*/)?([^"/]+/[^"/]+)", line (\d+) in (\S+)', thread)
    at = f"at {place[1]}:{place[2]} in {place[3]}" if place else ""
    return "; ".join(part for part in (f"it printed: {words}" if words else "", at) if part)
