"""A child process that does the engine's work: `python -m playground.engine.worker --device cpu ...`.

It takes one request at a time from a pipe and answers on another (see protocol.py); a thread of its own listens
for cancels meanwhile. Its stdout and stderr are a pipe that the parent keeps the end of: what kernels, compilers
and C libraries print goes there. It knows no kernel; what it can do comes from a table (see handlers.py).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import queue
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from playground.engine.job import Cancelled, NeedsInterpreter, is_fatal
from playground.engine.messages import EngineError, Failure, Progress
from playground.engine.protocol import Do, Done, Failed, ProtocolError, Ready, Report, Sender, Taken, receive, to_worker

REPORT_SECONDS = 0.05  # a page draws no faster
PR_SET_PDEATHSIG = 1


class Inbox:
    """Listens to the parent. Iterating gives the requests; `stopped` tells whether one has been cancelled.

    When the parent is gone, so is this process, with all that it has started.
    """

    def __init__(self, fd: int):
        self._fd = fd
        self._requests: queue.SimpleQueue[Do] = queue.SimpleQueue()
        self._cancelled = -1
        threading.Thread(target=self._listen, name="inbox", daemon=True).start()

    def _listen(self) -> None:
        try:
            for message in receive(self._fd, to_worker):
                if isinstance(message, Do):
                    self._requests.put(message)
                else:
                    self._cancelled = max(self._cancelled, message.id)
        except (OSError, ProtocolError) as e:
            print(f"the worker hangs up: {e}", file=sys.stderr, flush=True)
        end_with_children()

    def __iter__(self) -> Iterator[Do]:
        while True:
            yield self._requests.get()

    def stopped(self, id: int) -> bool:
        return id <= self._cancelled


class Reporter:
    """Passes progress on, at most once in REPORT_SECONDS; the last one always arrives, and before the result."""

    def __init__(self, sender: Sender):
        self._sender = sender
        self._wake = threading.Condition()
        self._waiting: Report | None = None
        self._sent = 0.0
        threading.Thread(target=self._send_late_ones, name="reporter", daemon=True).start()

    def report(self, id: int, progress: Progress) -> None:
        with self._wake:
            self._waiting = Report(id=id, progress=progress)
            if time.monotonic() - self._sent >= REPORT_SECONDS:
                self._send()
            else:
                self._wake.notify()

    def flush(self) -> None:
        with self._wake:
            self._send()

    def _send(self) -> None:
        if self._waiting:
            self._sender.send(self._waiting)
            self._sent = time.monotonic()
            self._waiting = None

    def _send_late_ones(self) -> None:
        with self._wake:
            while True:
                self._wake.wait_for(lambda: self._waiting is not None)
                self._wake.wait(max(0.0, self._sent + REPORT_SECONDS - time.monotonic()))
                if time.monotonic() - self._sent >= REPORT_SECONDS:
                    self._send()


def serve(do: Do, find: Callable, make_job: Callable, inbox: Inbox, reporter: Reporter) -> Done | Failed:
    """Do one request. Whatever happens in it, the answer is a message."""
    try:
        handler = find(do.request.verb)
        job = make_job(report=lambda progress: reporter.report(do.id, progress), stopped=lambda: inbox.stopped(do.id))
        return Done(id=do.id, result=handler(do.request, job))
    except NeedsInterpreter as e:
        return Failed(id=do.id, failure=Failure(kind="unavailable", message=one_line(str(e))), interpret=True)
    except BaseException as e:  # noqa: BLE001 - a handler runs other people's code: sys.exit must not end us either
        return Failed(id=do.id, failure=explain(e), broken=is_fatal(e))
    finally:
        with contextlib.suppress(OSError):
            reporter.flush()


def explain(error: BaseException) -> Failure:
    """An exception as a line for a person. Those that are no one's expected answer leave a traceback in stderr."""
    if isinstance(error, EngineError):
        return error.failure
    if isinstance(error, Cancelled):
        return Failure(kind="cancelled", message="stopped")
    if type(error).__name__ == "InputError":  # kernels.InputError; its module would bring torch along
        return Failure(kind="input", message=one_line(str(error)), argument=getattr(error, "argument", ""))
    traceback.print_exception(error)
    sys.stderr.flush()
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        detail = f" ({one_line(str(error))})" if str(error) else ""
        return Failure(kind="failed", message=f"memory ran out{detail}: choose a smaller shape")
    return Failure(kind="failed", message=one_line(f"{type(error).__name__}: {error}"))


def one_line(text: str, longest: int = 400) -> str:
    """The first line that says anything."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _free_memory() -> None:
    """After a failure the traceback is gone only now, and with it the tensors of its frames."""
    gc.collect()
    if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def settle(parent: int) -> None:
    """Die with the parent, leave no core file, and be what Linux kills first when memory runs out."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
            f.write("800")
    if os.getppid() != parent:  # it died before it could be asked to tell
        end_with_children()


def end_with_children() -> None:
    if os.getpgrp() == os.getpid():  # ours alone, compilers and their helpers
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _arguments() -> Any:
    parser = argparse.ArgumentParser(prog="playground.engine.worker", description=__doc__)
    parser.add_argument("--device", required=True, help="cuda:0, cpu, interpreter or compiler")
    parser.add_argument("--handlers", default="playground.engine.handlers", help="module with the table of handlers")
    parser.add_argument("--pipes", type=int, nargs=2, required=True, help="descriptors to read from and to write to")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="process to die with")
    return parser.parse_args()


def main() -> None:
    started = time.monotonic()
    arguments = _arguments()
    read, write = arguments.pipes
    for fd in (read, write):
        os.set_inheritable(fd, False)  # a child that held it would hide our death from the parent
    settle(arguments.parent)
    sender = Sender(write)
    inbox = Inbox(read)
    reporter = Reporter(sender)
    handlers = importlib.import_module(arguments.handlers)
    make_job, note = handlers.start(arguments.device)
    gc.freeze()  # what has been imported stays: a collection that walked it would cost a compiler a twentieth
    sender.send(Ready(seconds=time.monotonic() - started, note=note))
    for do in inbox:
        sender.send(Taken(id=do.id))
        answer = serve(do, handlers.find, make_job, inbox, reporter)
        if isinstance(answer, Failed):
            _free_memory()
        sender.send(answer)


if __name__ == "__main__":
    main()
