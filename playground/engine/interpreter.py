"""Makes Triton's interpreter cheaper in a process that does nothing but interpret.

Under TRITON_INTERPRET=1 Triton replaces some 300 functions of its language at every launch and at every nested jit
call, and puts them back after the launch: most of the time of a small kernel. `patch_once` replaces them once and
leaves them so. A process where that has been done can no longer compile with Triton's front end, so it is done in
the interpreter worker only. What the interpreter computes is not changed.
"""

from __future__ import annotations

import types
from typing import Any


class _Kept:
    """Stands for the scope that would undo the patches after a launch."""

    def restore(self) -> None:
        pass


def patch_once() -> str:
    """Patch Triton's language for the life of this process.

    Returns "", or a note where this Triton's interpreter is not built as 3.6's and 3.7's are; it is then left as
    it is, slower and just as right.
    """
    from triton.runtime import interpreter

    missing = _missing(interpreter)
    if missing:
        return f"kernels are interpreted at Triton's own speed: its interpreter has no {missing} to patch once"
    if isinstance(interpreter._patch_lang, types.FunctionType) and interpreter._patch_lang.__module__ == __name__:
        return ""
    language = interpreter.tl

    def kernel() -> None:
        """Never called: its globals name the modules to patch, as a jit function's do."""

    namespace = {"tl": language, "core": language.core}
    scope = interpreter._patch_lang(types.FunctionType(kernel.__code__, namespace))
    if not hasattr(scope, "restore"):
        return "kernels are interpreted at Triton's own speed: its interpreter patches in another way"

    def _patch_lang(fn: Any) -> _Kept:
        return _Kept()

    interpreter._patch_lang = _patch_lang
    return ""


def _missing(interpreter: Any) -> str:
    """The first of the parts that we lean on that is not there, or "". Launches must look `_patch_lang` up by name."""
    for name in ("_patch_lang", "GridExecutor", "InterpretedFunction", "tl"):
        if not hasattr(interpreter, name):
            return name
    for owner in (interpreter.GridExecutor, interpreter.InterpretedFunction):
        if "_patch_lang" not in owner.__call__.__code__.co_names:
            return f"call of _patch_lang in {owner.__name__}"
    return ""
