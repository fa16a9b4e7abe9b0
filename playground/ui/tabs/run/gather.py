"""Gathers from this project's modules the definitions that one thing needs, as the text of a single file.

A definition brings along what it names, from whichever of our modules that comes; imports of others are noted. Two
modules may give different things one name: the later one is then renamed, wherever it is used.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

REPRODUCE = "playground.ui.tabs.run.reproduce"
OURS = ("kernels", REPRODUCE)
# The playground's Plan knows the native CPU path; a script has the GPU and the interpreter.
STAND_INS = {("kernels.spec", "Plan"): (REPRODUCE, "Plan")}


@dataclass
class Module:
    """A module's text and where each of its names comes from."""

    text: str
    defined: dict[str, ast.stmt] = field(default_factory=dict)
    ours: dict[str, tuple[str, str]] = field(default_factory=dict)  # local name -> (module, name there)
    others: dict[str, str] = field(default_factory=dict)  # local name -> the import statement

    def __post_init__(self) -> None:
        for node in ast.parse(self.text).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
                self.defined.update(dict.fromkeys(names, node))
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            local = alias.asname or alias.name.split(".")[0]
            renamed = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
            if isinstance(node, ast.Import):
                self.others[local] = f"import {renamed}"
            elif node.module and node.module.startswith(OURS):
                self.ours[local] = (node.module, alias.name)
            elif node.module != "__future__":
                self.others[local] = f"from {node.module} import {renamed}"

    def source(self, node: ast.stmt) -> tuple[int, list[str]]:
        """The statement's first line and its text, with its decorators and the comment right above it."""
        lines = self.text.splitlines()
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        while first > 1 and lines[first - 2].startswith("#"):
            first -= 1
        return first, lines[first - 1 : node.end_lineno]


@functools.lru_cache(64)
def parsed(text: str) -> Module:
    """A module's text, parsed once: nothing changes it afterwards."""
    return Module(text)


def names_in(node: ast.AST) -> Iterator[str]:
    """Names that a piece of code reads; annotations are text here, and do not count."""
    for child, value in ast.iter_fields(node):
        if child in ("annotation", "returns"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from names_in(part)
    if isinstance(node, ast.Name):
        yield node.id


def needed_now(node: ast.stmt) -> Iterator[str]:
    """Names that must exist when the statement is executed; a function's body is only read when it is called."""
    if isinstance(node, ast.FunctionDef):
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            yield from names_in(part)
    elif isinstance(node, ast.ClassDef):
        for part in (*node.decorator_list, *node.bases):
            yield from names_in(part)
        for inner in node.body:
            yield from needed_now(inner)
    else:
        yield from names_in(node)


def bound_in(node: ast.AST) -> set[str]:
    """Names that a function makes its own: its parameters and what it assigns."""
    found = {part.arg for part in ast.walk(node) if isinstance(part, ast.arg)}
    return found | {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


@functools.lru_cache(4096)
def names_at(node: ast.stmt) -> tuple[tuple[int, int, str], ...]:
    """(line, column, name) of what a statement names and does not bind itself, its own name among them; last first."""
    definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
    bound = bound_in(node) if definition else set()
    found = [(n.lineno, n.col_offset, n.id) for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in bound]
    if definition:
        keyword = "def " if isinstance(node, ast.FunctionDef) else "class "
        found.append((node.lineno, node.col_offset + len(keyword), node.name))  # type: ignore[attr-defined]
    return tuple(sorted(found, reverse=True))


class Collector:
    """Definitions in an order in which they can be executed. `texts` are modules whose text differs from the file's."""

    def __init__(self, texts: dict[str, str]):
        self.modules: dict[str, Module] = {name: parsed(text) for name, text in texts.items()}
        self.imports: set[str] = set()
        self.order: list[tuple[str, ast.stmt]] = []
        self.named: dict[tuple[str, str], str] = {}  # (module, name there) -> name in the file
        self.later: list[tuple[str, str]] = []

    def module(self, name: str) -> Module:
        if name not in self.modules:
            __import__(name)
            self.modules[name] = parsed(inspect.getsource(sys.modules[name]))
        return self.modules[name]

    def all(self, module: str, name: str) -> str:
        """This name, and everything that it needs at any time; returns what it is called in the file."""
        self.take(module, name)
        while self.later:
            self.take(*self.later.pop())
        return self.name_of(module, name)

    def take(self, module: str, name: str) -> None:
        module, name = STAND_INS.get((module, name), (module, name))
        place = self.module(module)
        if name in place.ours:
            there = self.module(place.ours[name][0])
            if not any(place.ours[name][1] in names for names in (there.defined, there.ours, there.others)):
                raise LookupError(f"{module} takes {name} as a whole module; a file needs its names, imported by name")
            self.take(*place.ours[name])
        elif name in place.defined:
            self._define(module, place, name)
        elif name in place.others:
            self.imports.add(place.others[name])

    def _define(self, module: str, place: Module, name: str) -> None:
        if (module, name) in self.named:
            return
        node = place.defined[name]
        for other in [n for n, owner in place.defined.items() if owner is node]:
            taken = other in self.named.values()
            self.named[module, other] = f"{module.rsplit('.', 1)[-1]}_{other}" if taken else other
        for used in needed_now(node):
            self.take(module, used)
        self.order.append((module, node))
        self.later += [(module, used) for used in names_in(node)]

    def name_of(self, module: str, name: str) -> str:
        """What a name of this module is called in the file."""
        module, name = STAND_INS.get((module, name), (module, name))
        place = self.module(module)
        return self.name_of(*place.ours[name]) if name in place.ours else self.named.get((module, name), name)

    def pieces(self) -> list[str]:
        return [self._written(module, node) for module, node in self.order]

    def _written(self, module: str, node: ast.stmt) -> str:
        """The statement's text, with the names that it has in the file."""
        place = self.module(module)
        first, lines = place.source(node)
        for line, column, name in names_at(node):
            new = self.name_of(module, name)
            text = lines[line - first].encode()  # columns are counted in bytes
            if new != name and text[column:].startswith(name.encode()):
                lines[line - first] = (text[:column] + new.encode() + text[column + len(name.encode()) :]).decode()
        return "\n".join(lines)
