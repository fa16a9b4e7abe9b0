"""Triton kernels for LLM inference, and the classics one learns on.

`import kernels; kernels.softmax(x)` works on GPU tensors, and on CPU tensors natively or under
TRITON_INTERPRET=1. A kernel is one file in this package that ends in a SPEC; there is no list to edit.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from triton import knobs

from kernels.checks import InputError
from kernels.interpreted import as_compiled
from kernels.spec import KernelSpec

__all__ = ["InputError", "KernelSpec", "all_kernels", "get"]


if knobs.runtime.interpret:
    as_compiled()


@functools.cache
def all_kernels() -> dict[str, KernelSpec]:
    """Every kernel by name, in the order of the names."""
    modules = (importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__))
    specs = (m.SPEC for m in modules if hasattr(m, "SPEC"))
    return {spec.name: spec for spec in sorted(specs, key=lambda s: s.name)}


def get(name: str) -> KernelSpec:
    """The kernel of this name. Raises InputError that lists the names there are."""
    try:
        return all_kernels()[name]
    except (KeyError, TypeError):  # a TypeError where it is not hashable
        raise InputError(
            f"no kernel is named {str(name)[:60]!r}; there are {', '.join(all_kernels())}", "kernel"
        ) from None


# A module and its function share a name; after this the package's attribute is the function.
for _spec in all_kernels().values():
    globals()[_spec.name] = _spec.function
    __all__.append(_spec.name)
