"""The engine without the page: `python -m playground VERB`.

With --json stdout holds one strict JSON value and nothing else, an error included (see answers.py). Progress goes to
stderr, where that is a terminal. Exit codes: 0 done; 1 a wrong answer; 2 bad input; 3 not available here; 4 failed,
timed out or stopped.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from playground.cli import interrupt
from playground.cli.answers import Answer, ErrorAnswer, ErrorLine
from playground.engine.messages import EngineError, Failure

EXIT_CODES = {"input": 2, "unavailable": 3}
FAILED = 4
_STOPPED = Failure(kind="cancelled", message="stopped")


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in words
    try:
        with interrupt.listening():
            answer, code = _do(words)
        return _print(answer, code, as_json)
    except EngineError as e:
        return _fail(e.failure, as_json)
    except KeyboardInterrupt:
        return _fail(_STOPPED, as_json)
    except BrokenPipeError:  # the reader, such as `head`, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as e:  # a traceback is no answer: scripts get JSON, people a line
        if interrupt.stopped.is_set():
            return _fail(_STOPPED, as_json)
        logging.getLogger(__name__).exception("a fault of the playground itself")
        return _fail(Failure(kind="failed", message=f"{type(e).__name__}: {e}"), as_json)


def _do(words: list[str]) -> tuple[Answer, int]:
    from playground.cli import arguments

    options = arguments.parse(words)
    if not options.verbose:
        logging.getLogger("playground").addHandler(logging.NullHandler())  # else warnings go to stderr
    from playground.cli.verbs import VERBS

    return VERBS[options.verb](options)


def _print(answer: Answer, code: int, as_json: bool) -> int:
    if as_json:
        print(answer.model_dump_json(), flush=True)
    else:
        from playground.cli import show_chat, show_code, show_trace  # noqa: F401 - register their answers
        from playground.cli.show import text

        print(text(answer), flush=True)
    return code


def _fail(failure: Failure, as_json: bool) -> int:
    message = " ".join(failure.message.split())
    if as_json:
        error = ErrorLine(kind=failure.kind, message=message, argument=failure.argument)
        print(ErrorAnswer(error=error).model_dump_json(), flush=True)
    else:
        argument = failure.argument
        named = f"{argument}: " if argument and argument not in message else ""
        print(f"{named}{message}", file=sys.stderr, flush=True)
    return EXIT_CODES.get(failure.kind, FAILED)
