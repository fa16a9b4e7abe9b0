"""An exception as one line for a person, and which ones a CUDA context does not survive."""

from __future__ import annotations

from playground.engine.edits import first_line


def is_fatal(error: BaseException) -> bool:
    """A CUDA error after which the context answers nothing any more: the worker must be replaced."""
    text = str(error)
    return "CUDA error" in text or "illegal memory access" in text or "Triton Error [CUDA]" in text


def describe(error: BaseException) -> str:
    """The error in one line. A compile error's is the compiler's message, with the line of Python it stands at."""
    from triton.compiler.errors import CompilationError

    if not isinstance(error, CompilationError):
        return f"{type(error).__name__}: {first_line(error)}"
    # An error inside a called function is wrapped once for each call; the innermost says what is wrong, and
    # the outermost stands in the kernel itself.
    deepest: BaseException = error
    while isinstance(deepest, CompilationError) and isinstance(deepest.__cause__, BaseException):
        deepest = deepest.__cause__
    said = deepest.error_message if isinstance(deepest, CompilationError) else first_line(deepest)
    code = _code_at(error)
    return f"does not compile: {str(said).strip().splitlines()[0]}" + (f" (at `{code}`)" if code else "")


def _code_at(error: BaseException) -> str:
    """The line of Python that a compile error points at."""
    source, node = getattr(error, "src", None), getattr(error, "node", None)
    line = getattr(node, "lineno", 0)
    lines = source.splitlines() if source else []
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
