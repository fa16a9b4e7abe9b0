"""The chat worker: `python -m playground.decoder.worker --device cpu --pipes R W`.

One process for each device, backend and cache dtype. It loads a model, then serves any number of conversations over
one batch (server.py). As in every worker, what libraries print goes to stderr and can break nothing.
"""

from __future__ import annotations

import argparse
import gc
import os
import queue
import sys
import threading
import time

from playground.decoder.config import ModelError
from playground.decoder.generate import Decoder, Setup
from playground.decoder.protocol import Loading, Refused, ToChat, to_chat
from playground.decoder.server import Server
from playground.engine import worker as common
from playground.engine.messages import Failure
from playground.engine.protocol import ProtocolError, Ready, Sender, receive


def _listen(fd: int, inbox: queue.SimpleQueue[ToChat]) -> None:
    """In a thread of its own. When the parent is gone, so is this process."""
    try:
        for message in receive(fd, to_chat):
            inbox.put(message)
    except (OSError, ProtocolError) as error:
        print(f"the chat worker hangs up: {error}", file=sys.stderr, flush=True)
    common.end_with_children()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="playground.decoder.worker", description=__doc__)
    parser.add_argument("--pipes", type=int, nargs=2, required=True, help="descriptors to read from and to write to")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="process to die with")
    parser.add_argument("--device", default="auto", help="cuda:0, cpu, or interpreter (with TRITON_INTERPRET=1)")
    parser.add_argument("--backend", default="auto", help="triton or torch")
    parser.add_argument("--model", help="folder or hub name; the default is SmolLM2-135M-Instruct")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16")
    parser.add_argument("--cache-dtype", help="as --dtype, or int8 or fp8")
    parser.add_argument("--max-context", type=int, help="tokens of one conversation; the model's own by default")
    return parser.parse_args()


def _setup(arguments: argparse.Namespace) -> Setup:
    interpreted = arguments.device == "interpreter"
    return Setup(
        model=arguments.model,
        device="cpu" if interpreted else arguments.device,
        dtype=arguments.dtype,
        backend="interpreter" if interpreted else arguments.backend,
        cache_dtype=arguments.cache_dtype,
        max_context=arguments.max_context,
    )


def main() -> int:
    began = time.monotonic()
    arguments = _arguments()
    read, write = arguments.pipes
    for fd in (read, write):
        os.set_inheritable(fd, False)  # a child that held it would hide our death from the parent
    common.settle(arguments.parent)
    sender = Sender(write)
    inbox: queue.SimpleQueue[ToChat] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(read, inbox), name="inbox", daemon=True).start()
    try:
        decoder = Decoder.load(_setup(arguments), say=lambda line: sender.send(Loading(what=line)))
        decoder.warm()
        gc.freeze()  # what is loaded stays: a collection that walked it would hold a token up
        seconds = time.monotonic() - began
        sender.send(Ready(seconds=seconds))
        Server(decoder, sender, inbox, seconds).serve()
    except ModelError as error:
        sender.send(Refused(id=None, failure=Failure(kind="unavailable", message=common.one_line(str(error)))))
    except Exception as error:  # noqa: BLE001 - the parent is to hear why, whatever it was
        sender.send(Refused(id=None, failure=common.explain(error)))
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
