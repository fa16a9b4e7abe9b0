"""What a worker can do: a handler for each verb, and what is done once when the worker starts.

A worker takes its table from a module like this one (`--handlers`), so tests can give it one that crashes. A
handler is `handler(request, job) -> result`; its module is imported when its verb is first asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from playground.engine import interpreter
from playground.engine.job import Job

HANDLERS = {
    "run": "playground.engine.execute:run",
    "bench": "playground.engine.bench:bench",
    "resources": "playground.engine.compile:resources",
    "code": "playground.engine.code:code",
    "inductor": "playground.engine.inductor:inductor",
    "trace": "playground.engine.trace:trace",
    "host": "playground.engine.device:device",
}


def find(verb: str) -> Callable:
    """The handler of a verb. Raises KeyError where there is none."""
    module, name = HANDLERS[verb].split(":")
    return getattr(importlib.import_module(module), name)


def start(device: str) -> tuple[Callable[..., Job], str]:
    """Import what every request needs and wake the device up.

    Returns what makes a Job (it takes `report` and `stopped`), and a note on what is missing here, or "".
    """
    import torch

    import kernels  # noqa: F401 - the specs, and triton with them

    note = ""
    if device == "interpreter":
        note = interpreter.patch_once()
    elif device == "cpu":
        note = _enable_native()
    elif device.startswith("cuda"):
        torch.cuda.set_device(device)
        torch.zeros(1, device=device).item()  # makes the context now, and not in the first run
    on = torch.device(device if device.startswith("cuda") else "cpu")
    return lambda report, stopped: Job(on, device == "interpreter", report, stopped), note


def _enable_native() -> str:
    try:
        from playground.native import enable

        enable()
    except (ImportError, OSError, RuntimeError) as e:
        return f"kernels run in the interpreter, since the native CPU path does not start: {e}"
    return ""
