"""`trace`: the bytes that a kernel loads and stores, exact, and every access that lies outside its tensors."""

from __future__ import annotations

import argparse

from playground.cli import arguments
from playground.cli.verbs import WRONG, fields, opened, result_of
from playground.engine.engine import INTERPRETER
from playground.engine.trace_messages import TraceRequest, TraceResult

MOST_SECONDS = 60


def trace(options: argparse.Namespace) -> tuple[TraceResult, int]:
    """Programs are given one by one only where --programs names them. An access out of bounds is a wrong answer."""
    if not 1 <= options.seconds <= MOST_SECONDS:
        message = f"seconds is {options.seconds}; it needs to be from 1 to {MOST_SECONDS}"
        raise arguments.bad("seconds", message)
    for program in options.programs or ():
        if program < 0:
            raise arguments.bad("programs", f"programs has {program}; programs are counted from 0")
    request = TraceRequest(**fields(options), programs=options.programs or (), seconds=float(options.seconds))
    with opened(INTERPRETER) as engine:
        result = result_of(engine, request)
    return result, WRONG if result.out_of_bounds else 0
