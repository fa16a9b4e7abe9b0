"""What the tests of the project read: its tracked files, its modules and what each imports."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("app.py", "kernels", "playground", "tools", "tests")


@cache
def files() -> tuple[str, ...]:
    """Every file that git would hand on, tracked or about to be; a copy without git is walked instead."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0 and done.stdout:
        return tuple(name for name in sorted(set(done.stdout.splitlines())) if (ROOT / name).is_file())
    skip = {".git", ".venv", "__pycache__", "build", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".hypothesis"}
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return tuple(sorted(str(path) for path in found if not skip & set(path.parts)))


def python_files(*folders: str) -> list[str]:
    """Tracked Python files, in these folders (or of these names)."""
    wanted = folders or CODE
    return [f for f in files() if f.endswith(".py") and any(f == w or f.startswith(f"{w}/") for w in wanted)]


def module_name(file: str) -> str:
    """playground/engine/pool.py -> playground.engine.pool; a package's __init__.py is the package."""
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


@dataclass(frozen=True)
class Import:
    """module imports target at line; lazy: inside a function, so importing the module does not run it."""

    module: str
    target: str
    line: int
    lazy: bool


def _targets(node: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + (1 if is_package else 0)]
        base = ".".join([*parts, base] if base else parts)
    # `from package import submodule` imports the submodule too.
    return [base, *(f"{base}.{alias.name}" for alias in node.names if alias.name != "*")]


def _type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _walk(node: ast.AST, lazy: bool):
    """(import, lazy) below a node, those for type checkers alone left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, lazy
        elif _type_checking(child):
            yield from ((found, late) for other in child.orelse for found, late in _walk(other, lazy))
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _walk(child, lazy or inside)


@cache
def imports(file: str) -> tuple[Import, ...]:
    """All imports of a file, absolute; `from a import b` counts as a and as a.b."""
    module, is_package = module_name(file), file.endswith("__init__.py")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"), file)
    return tuple(
        Import(module, target, node.lineno, lazy)
        for node, lazy in _walk(tree, lazy=False)
        for target in _targets(node, module, is_package)
    )
