"""What a kernel is, as a hash: its source without what does not matter, so that a recording outlives a comment."""

from __future__ import annotations

import hashlib
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

import kernels
from kernels.spec import KernelSpec


def bare(text: str) -> str:
    """A function's tokens without comments, docstring and formatting: the same on every Python."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)
    marks = {tokenize.NEWLINE: "\n", tokenize.INDENT: ">", tokenize.DEDENT: "<"}
    parts: list[str] = []
    for kind, string in _tokens(text):
        if kind in skipped:
            continue
        # A string that is a statement of its own is a docstring.
        alone = kind == tokenize.STRING and (not parts or parts[-1][-1:] in ("\n", ">", "<"))
        parts.append("" if alone else marks.get(kind, string + " "))
        parts = parts if parts[-1] else parts[:-1]
    return re.sub(r"\n+", "\n", "".join(parts))


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Kind and text of each token; an f-string is one STRING, as Python 3.11 has it and later ones no more."""
    lines = text.splitlines(keepends=True)
    opened: list[tuple[int, int]] = []  # where the f-strings around this token begin
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):
            opened.append(token.start)
        elif name.endswith("STRING_END"):
            start = opened.pop()
            if not opened:
                yield tokenize.STRING, _between(lines, start, token.end)
        elif not opened:
            yield token.type, token.string


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text from one (line, column) to another, as tokenize counts them."""
    rows = lines[start[0] - 1 : end[0]]
    rows[-1] = rows[-1][: end[1]]
    rows[0] = rows[0][start[1] :]
    return "".join(rows)


def current_hash(kernel: str) -> str:
    """source_hash of the project's own kernel, made once: a file that changes is another process's."""
    return _hash_by_name(kernel)


@lru_cache(maxsize=256)
def _hash_by_name(kernel: str) -> str:
    return source_hash(kernels.get(kernel))


def source_hash(spec: KernelSpec) -> str:
    """A hash of the kernel's jit functions, its plan and configs, all that they call, and the constants they name.

    Comments, docstrings and formatting do not count, nor do the checks of inputs.
    """
    module = sys.modules[spec.plan.__module__]
    waiting = [spec.plan, spec.configs, *filter(None, map(_jitted, vars(module).values()))]
    parts: dict[str, str] = {}
    while waiting:
        fn = waiting.pop()
        key = f"{fn.__module__}.{fn.__qualname__}"
        if key in parts:
            continue
        parts[key] = bare(inspect.getsource(fn))
        for name, value in _mentioned(fn):
            inner = _jitted(value) or value
            if inspect.isfunction(inner) and _is_ours(inner):
                waiting.append(inner)
            elif isinstance(value, int | float | str | tuple):
                parts[f"{key}:{name}"] = repr(value)
    return hashlib.sha256("\0".join(parts[key] for key in sorted(parts)).encode()).hexdigest()[:16]


def _is_ours(fn: Any) -> bool:
    return fn.__module__.startswith("kernels.") and fn.__module__ not in ("kernels.spec", "kernels.checks")


def _jitted(value: Any) -> Any:
    """The function that @triton.jit wraps, compiled or interpreted; None for all else, Triton's own library too."""
    fn = getattr(value, "fn", None)
    if not inspect.isfunction(fn) or not type(value).__module__.startswith("triton."):
        return None
    return None if fn.__module__.startswith("triton.") else fn


def _mentioned(fn: Any) -> list[tuple[str, Any]]:
    """The globals that a function names, and what it names of the kernels' modules among them."""
    scope, names = fn.__globals__, _names(fn.__code__)
    found = [(name, scope[name]) for name in names if name in scope]
    modules = [v for _, v in found if isinstance(v, ModuleType) and v.__name__.startswith("kernels.")]
    return found + [(name, getattr(module, name)) for module in modules for name in names if hasattr(module, name)]


def _names(code: CodeType) -> list[str]:
    """The names in a function's code, its lambdas and comprehensions included."""
    inner = [name for const in code.co_consts if isinstance(const, CodeType) for name in _names(const)]
    return [*code.co_names, *inner]
