"""Keep Gradio from rewriting its editor stubs: a quarter of the server's start, spent on files that nobody here reads.

Each import of gradio parses the source of each component and renders a .pyi beside it (gradio.component_meta). Only
editors use those files. Where Gradio drops or renames the step, nothing happens here.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

MODULE, STEP = "gradio.component_meta", "create_or_modify_pyi"


class _Finder(importlib.machinery.PathFinder):
    """Finds MODULE as usual, and has its loader leave out STEP."""

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None):
        if fullname != MODULE:
            return None
        spec = super().find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        if hasattr(module, STEP):
            setattr(module, STEP, lambda *_: None)


def install() -> None:
    """Before gradio is imported; later, it changes nothing."""
    if not any(finder is _Finder for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder)
