"""A planted bug or an edited source becomes a KernelSpec of its own.

An edit changes the kernel, never the goal posts: from the edited file come its plan, configs and public function;
reference, inputs, cost, outputs and edge cases stay the spec's. The text is written to a temporary file, so that
Triton finds its source and line numbers are a person's, and is gone when the `with` ends.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import itertools
import linecache
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from kernels.spec import Bug, InputError, KernelSpec

_count = itertools.count()


def source_of(spec: KernelSpec) -> str:
    """The text of the kernel's file."""
    return inspect.getsource(sys.modules[spec.plan.__module__])


def plant(spec: KernelSpec, bug: Bug, source: str | None = None) -> str:
    """The kernel's source with the bug in it. Raises InputError where `find` does not occur exactly once."""
    text = source_of(spec) if source is None else source
    # A kernel's file holds its bugs too: only what stands before the SPEC is the kernel.
    head, mark, tail = text.partition("\nSPEC = ")
    found = head.count(bug.find)
    if found != 1:
        raise InputError(
            f"bug {bug.name!r}: its text occurs {found} times in {spec.name}'s source, and must occur once", "bug"
        )
    return head.replace(bug.find, bug.replace) + mark + tail


@contextmanager
def edited(spec: KernelSpec, bug: Bug | None = None, source: str | None = None) -> Iterator[KernelSpec]:
    """The spec with the bug planted or the source edited; the spec itself where there is neither.

    Raises InputError with the line number for a source that does not load.
    """
    if bug is None and source is None:
        yield spec
        return
    text = plant(spec, bug, source) if bug else source
    assert text is not None
    with tempfile.TemporaryDirectory(prefix="playground-edit-") as folder:
        path = Path(folder) / f"{spec.name}.py"
        path.write_text(text, encoding="utf-8")
        name = f"_playground_edit_{next(_count)}_{spec.name}"
        try:
            own = _load(path, name)
            if own.name != spec.name:
                raise InputError(f"the edited SPEC is named {own.name!r}; it must stay {spec.name!r}", "source")
            yield dataclasses.replace(spec, plan=own.plan, configs=own.configs, function=own.function)
        finally:
            sys.modules.pop(name, None)
            linecache.cache.pop(str(path), None)


def _load(path: Path, name: str) -> KernelSpec:
    module = _execute(path, name)
    own = getattr(module, "SPEC", None)
    if not isinstance(own, KernelSpec):
        raise InputError("the source defines no SPEC; keep the SPEC = KernelSpec(...) at its end", "source")
    return own


def _execute(path: Path, name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, path)
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module  # dataclasses and Triton look the module up by its name
    try:
        found.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(_at(error.lineno, error.msg), "source") from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a person's source may raise anything
        what = f"{type(error).__name__}: {first_line(error)}"
        raise InputError(_at(line_in(error, path), what), "source") from None
    return module


def _at(line: int | None, what: str) -> str:
    return f"line {line}: {what}" if line else what


def line_in(error: BaseException, path: Path | str) -> int:
    """The last line of `path` that the exception went through; 0 where it did not."""
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else 0


def first_line(error: BaseException) -> str:
    """The first line of an exception's text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
