"""A run as one Python file that needs torch and triton alone: the kernel, its inputs, its reference and the check.

The file is put together from this project's own source: from the kernel's file, and from the modules it imports, it
takes the definitions that the run needs and nothing else. So what is exported is what was run, planted bugs included.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernels import KernelSpec, get
from kernels.spec import torch_dtype
from playground.engine import edits
from playground.engine.messages import Choice, Source
from playground.ui import words

REPRODUCE = "playground.ui.reproduce"
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

    def source(self, node: ast.stmt) -> str:
        """The statement with its decorators and the comment right above it."""
        lines = self.text.splitlines()
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        while first > 1 and lines[first - 2].startswith("#"):
            first -= 1
        return "\n".join(lines[first - 1 : node.end_lineno])


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


class Collector:
    """Gathers definitions in an order in which they can be executed."""

    def __init__(self, texts: dict[str, str]):
        self.modules: dict[str, Module] = {name: Module(text) for name, text in texts.items()}
        self.imports: set[str] = set()
        self.pieces: list[str] = []
        self.taken: dict[str, tuple[str, ast.stmt]] = {}
        self.later: list[tuple[str, str]] = []

    def module(self, name: str) -> Module:
        if name not in self.modules:
            __import__(name)
            self.modules[name] = Module(inspect.getsource(sys.modules[name]))
        return self.modules[name]

    def all(self, module: str, name: str) -> None:
        """This name, and everything that it needs at any time."""
        self.take(module, name)
        while self.later:
            self.take(*self.later.pop())

    def take(self, module: str, name: str) -> None:
        module, name = STAND_INS.get((module, name), (module, name))
        place = self.module(module)
        if name in place.ours:
            there, original = place.ours[name]
            self.take(there, original)
            if original != name and name not in self.taken:
                self.taken[name] = (module, ast.Pass())
                self.pieces.append(f"{name} = {original}")
        elif name in place.defined:
            self._define(module, place, name)
        elif name in place.others:
            self.imports.add(place.others[name])

    def _define(self, module: str, place: Module, name: str) -> None:
        node = place.defined[name]
        if name in self.taken:
            if self.taken[name][1] is not node:
                raise ValueError(f"{name} is defined in {module} and in {self.taken[name][0]}; rename one of them")
            return
        for other in [n for n, owner in place.defined.items() if owner is node]:
            self.taken[other] = (module, node)
        for used in needed_now(node):
            self.take(module, used)
        self.pieces.append(place.source(node))
        self.later += [(module, used) for used in names_in(node)]


def edge_change(text: str, edge: str) -> ast.expr | None:
    """The `change` of an edge case, as it stands in the kernel's SPEC."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Edge":
            given = dict(zip(("name", "attacks", "dims", "change"), node.args, strict=False))
            given |= {k.arg: k.value for k in node.keywords if k.arg}
            if isinstance(given.get("name"), ast.Constant) and given["name"].value == edge:  # type: ignore[attr-defined]
                return given.get("change")
    return None


def script(choice: Choice, source: Source | None = None) -> str:
    """The file. Raises ValueError where two modules give different things one name."""
    spec = get(choice.kernel)
    bug = next((b for b in spec.bugs if b.name == choice.bug), None)
    text = edits.plant(spec, bug) if bug else edits.source_of(spec)
    own = spec.plan.__module__
    collector = Collector({own: text})
    functions = {"plan": spec.plan, "make_inputs": spec.make_inputs, "reference": spec.reference}
    functions["eager"] = spec.eager or spec.reference
    change = edge_change(text, choice.edge) if choice.edge else None
    for function in functions.values():
        collector.all(function.__module__, function.__name__)
    for name in names_in(change) if change else ():
        collector.all(own, name)
    collector.all("kernels.spec", "Config")
    collector.all(REPRODUCE, "reproduce")
    called = {k: f.__name__ for k, f in functions.items()} | {"change": ast.unparse(change) if change else "None"}
    return _file(spec, choice, source, collector, called)


def _file(spec: KernelSpec, choice: Choice, source: Source | None, collector: Collector, called: dict[str, str]) -> str:
    collector.imports |= {"import torch", "import triton", "import triton.language as tl"}
    standard = sorted(i for i in collector.imports if i.split()[1].split(".")[0] in sys.stdlib_module_names)
    others = sorted(collector.imports - set(standard) - {"import torch"})
    case = choice.edge or choice.bug
    seen = f"\nIn the playground it ran on {source.device}, {source.date[:10]}." if source else ""
    more = {"precision": "tf32" if choice.dtype == "tf32" else "ieee"} if "tf32" in spec.dtypes else {}
    assert torch_dtype(choice.dtype)
    outputs = [(o.name, o.kind) for o in spec.outputs]
    config = f"Config({dict(choice.config.meta)!r}, {choice.config.num_warps}, {choice.config.num_stages})"
    what = f"{spec.title}, {words.shape(choice.dims)}, {choice.dtype}{f', case {case}' if case else ''}"
    header = f'''"""{what}: one run of Triton Playground.

Needs torch and triton alone. On a GPU the kernel runs and is timed; without one Triton's interpreter runs it.{seen}
"""

from __future__ import annotations

{chr(10).join(sorted({*standard, "import os"}))}

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

{chr(10).join(others)}
'''
    main = f"""if __name__ == "__main__":
    right = reproduce(
        {called["make_inputs"]}, {called["change"]}, {called["plan"]}, {called["reference"]}, {called["eager"]},
        outputs={outputs!r},
        dims={dict(choice.dims)!r}, dtype={choice.dtype!r}, more={more!r}, seed={choice.seed},
        config={config},
    )
    raise SystemExit(not right)
"""
    return "\n\n\n".join([header.rstrip() + "\n", *collector.pieces, main]).replace("\n\n\n\n", "\n\n\n")
