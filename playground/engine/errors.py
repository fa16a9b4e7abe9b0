"""An exception as one line for a person."""

from __future__ import annotations

import sys

from kernels.spec import KernelSpec
from playground.engine.edits import first_line, line_in


def describe(error: BaseException, spec: KernelSpec | None = None) -> str:
    """The error in one line, with the line of the spec's file that it comes from.

    A compile error's is the compiler's message, and the line of Python that it points at.
    """
    from triton.compiler.errors import CompilationError

    if not isinstance(error, CompilationError):
        line = line_in(_root(error), file_of(spec)) if spec else 0
        return f"{type(error).__name__}: {first_line(error)}" + (f" (line {line})" if line else "")
    # An error inside a called function is wrapped once for each call; the innermost says what is wrong, and
    # the outermost stands in the kernel itself.
    deepest = _root(error)
    said = deepest.error_message if isinstance(deepest, CompilationError) else first_line(deepest)
    code, line = _code_at(error, spec)
    place = ": ".join(filter(None, (f"line {line}" if line else "", f"`{code}`" if code else "")))
    return f"does not compile: {str(said).strip().splitlines()[0]}" + (f" (at {place})" if place else "")


def _root(error: BaseException) -> BaseException:
    """The exception that the others were raised from."""
    while isinstance(error.__cause__, BaseException):
        error = error.__cause__
    return error


def file_of(spec: KernelSpec) -> str:
    """The file that the spec's plan comes from, an edited one included."""
    return spec.plan.__code__.co_filename


def _code_at(error: BaseException, spec: KernelSpec | None) -> tuple[str, int]:
    """The line of Python that a compile error points at, and its number in the spec's file, 0 where it is not there."""
    source, node = getattr(error, "src", None), getattr(error, "node", None)
    at = getattr(node, "lineno", 0)
    lines = source.splitlines() if source else []
    if not 0 < at <= len(lines):
        return "", 0
    functions = vars(sys.modules[spec.plan.__module__]).values() if spec else ()
    starts = [_def_line(fn) for fn in functions if getattr(fn, "src", None) == source]
    return lines[at - 1].strip(), starts[0] + at - 1 if starts else 0


def _def_line(kernel) -> int:
    """The line of `def`; Triton counts from the decorators, and its source begins at the def."""
    before = next((i for i, line in enumerate(kernel.raw_src) if line.lstrip().startswith("def ")), 0)
    return kernel.starting_line_number + before
