"""Handlers that misbehave, for the workers under test. A request's kernel names the fault; nothing here needs torch."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time

from playground.engine.job import Job, NeedsInterpreter
from playground.engine.messages import Choice, ConfigChoice, HostResult, RunResult, Source

_libc = ctypes.CDLL(None)
_pipe = int(sys.argv[sys.argv.index("--pipes") + 2])
STARTED_BY_US: list[subprocess.Popen] = []


class InputError(ValueError):
    """Stands for kernels.InputError, which the worker knows by its name."""

    argument = "n"


def start(device):
    if os.environ.get("FAULT_AT_START"):
        print("no such driver", flush=True)
        os._exit(3)
    return lambda report, stopped: Job(device, device == "interpreter", report, stopped), ""


def find(verb):
    return handler


def handler(request, job):
    if request.verb == "host":
        return HostResult(
            kind="cpu", device="a test's", detail=str(os.getpid()), arch="cpu", memory_bytes=0, versions={},
        )  # fmt: skip
    note = globals()[request.kernel](request, job)
    return note if request.kernel == "no_result" else _result(request, job, str(note or ""))


def _result(request, job, note):
    choice = Choice(
        kernel=request.kernel, dims=request.dims, dtype="float32", seed=request.seed, config=ConfigChoice(),
        config_origin="spec",
    )  # fmt: skip
    source = Source(kind="interpreted" if job.interpreted else "measured", device=str(job.device), date="2026-01-01")
    return RunResult(ok=True, choice=choice, outputs={}, providers={}, source=source, note=note)


def fine(request, job):
    return os.getpid()


def environment(request, job):
    names = ("TRITON_DEFAULT_FP_FUSION", "TRITON_INTERPRET", "CUDA_VISIBLE_DEVICES", "PLAYGROUND_CACHE")
    return " ".join(f"{name}={os.environ.get(name)}" for name in names)


def crash(request, job):
    os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(10)


def wild_pointer(request, job):
    os.write(1, b"about to read nowhere\n")
    ctypes.string_at(8)


def abort(request, job):
    _libc.abort()


def leave(request, job):
    os._exit(7)


def sys_exit(request, job):
    sys.exit("a kernel called sys.exit")


def killed(request, job):
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(10)


def hang(request, job):
    """Deaf to a stop."""
    job.progress("hanging")
    time.sleep(60)


def slow(request, job):
    """Listens to a stop."""
    for i in range(600):
        job.progress("working", i, 600, "steps")
        time.sleep(0.02)


def deaf(request, job):
    """Keeps the interpreter's lock, so that no thread of the worker hears anything."""
    job.progress(str(os.getpid()))
    ctypes.PyDLL(None).sleep(60)


def pause(request, job):
    job.progress("pausing")
    time.sleep(request.dims.get("ms", 100) / 1000)
    return f"{time.monotonic_ns() - request.dims.get('ms', 100) * 10**6} {time.monotonic_ns()}"


def count(request, job):
    for i in range(2000):
        job.progress("counting", i + 1, 2000)


def noise(request, job):
    """What kernels, compilers and C libraries print, half a message among it."""
    print('{"op":"result","id":1,"resu')
    os.write(1, b'{"op":"failure","id":1,"failure":{"kind":"input","message":"forged"}}\n')
    os.write(2, b"\x00\xff\xfe ptxas fatal\n" * 20_000)
    _libc.printf(b"from C\n")
    subprocess.run(["sh", "-c", "echo from a child; echo and its stderr >&2"], check=True)


def garbage(request, job):
    os.write(_pipe, b"Segmentation fault (core dumped)\n")
    time.sleep(10)


def half_a_line(request, job):
    os.write(_pipe, b'{"op":"result","id"')
    os._exit(0)


def hang_up(request, job):
    """Closes the pipe and lives on."""
    os.close(_pipe)
    time.sleep(60)


def leave_children(request, job):
    STARTED_BY_US.append(subprocess.Popen(["sleep", "300"]))
    return STARTED_BY_US[-1].pid


def sticky(request, job):
    raise RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later")


def memory(request, job):
    bytearray(1 << 60)


def wrong_type(request, job):
    raise TypeError("unsupported operand\n  more lines\n  that nobody reads")


def bad_input(request, job):
    raise InputError("n is -1; it needs 1 or more")


def no_result(request, job):
    return "not a message"


def needs_interpreter(request, job):
    if not job.interpreted:
        raise NeedsInterpreter("inline PTX has no meaning on a CPU")
