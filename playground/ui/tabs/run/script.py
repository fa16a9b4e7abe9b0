"""A run as one Python file that needs torch and triton alone: the kernel, its inputs, its reference and the check.

The file is put together from this project's own source: from the kernel's file, and from the modules it imports, it
takes the definitions that the run needs and nothing else. So what is exported is what was run, planted bugs included.
"""

from __future__ import annotations

import ast
import sys

from kernels import KernelSpec, get
from kernels.spec import Target, torch_dtype
from playground.engine import edits
from playground.engine.messages import Choice, Source
from playground.ui import words
from playground.ui.tabs.run.gather import REPRODUCE, Collector, bound_in, names_in

INTERPRETED = 'os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported'
OUTSIDE = "\nWhat a planted bug writes outside a tensor can end a process, and this one too."


def edge_change(text: str, edge: str) -> ast.expr | None:
    """The `change` of an edge case, as it stands in the kernel's SPEC."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Edge":
            given = dict(zip(("name", "attacks", "dims", "change"), node.args, strict=False))
            given |= {k.arg: k.value for k in node.keywords if k.arg}
            if isinstance(given.get("name"), ast.Constant) and given["name"].value == edge:  # type: ignore[attr-defined]
                return given.get("change")
    return None


def spec_part(text: str, role: str) -> ast.expr | None:
    """What the SPEC says for one of its fields, where that is no function with a name."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "KernelSpec":
            return next((k.value for k in node.keywords if k.arg == role), None)
    return None


def script(choice: Choice, source: Source | None = None, edit: str | None = None) -> str:
    """The file. edit: the kernel's text, where it was edited."""
    spec = get(choice.kernel)
    bug = next((b for b in spec.bugs if b.name == choice.bug), None)
    text = edits.plant(spec, bug, edit) if bug else edit or edits.source_of(spec)
    own = spec.plan.__module__
    collector = Collector({own: text})
    functions = {"plan": spec.plan, "make_inputs": spec.make_inputs, "reference": spec.reference}
    functions["eager"] = spec.eager or spec.reference
    change = edge_change(text, choice.edge) if choice.edge else None
    called = {
        role: collector.all(f.__module__, f.__name__) if f.__name__.isidentifier()
        else _expression(collector, f.__module__, spec_part(collector.module(f.__module__).text, role))
        for role, f in functions.items()
    }  # fmt: skip
    called["change"] = _expression(collector, own, change)
    collector.all("kernels.spec", "Config")
    collector.all(REPRODUCE, "reproduce")
    return _file(spec, choice, source, collector, called)


def _expression(collector: Collector, module: str, change: ast.expr | None) -> str:
    """An edge's change as the file writes it, with all that it needs."""
    if change is None:
        return "None"
    for name in names_in(change):
        collector.all(module, name)
    for part in ast.walk(change):
        if isinstance(part, ast.Name) and part.id not in bound_in(change):
            part.id = collector.name_of(module, part.id)
    return ast.unparse(change)


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
    without_gpu, alone = INTERPRETED, "without one Triton's interpreter runs it"
    if reason := spec.unsupported(choice.dtype, Target.named("cpu")):
        without_gpu, alone = f"raise SystemExit({reason!r})", "it has to have one"
    header = f'''"""{what}: one run of Triton Playground.

Needs torch and triton alone. On a GPU the kernel runs and is timed; {alone}.{OUTSIDE * bool(choice.bug)}{seen}
"""

from __future__ import annotations

{chr(10).join(sorted({*standard, "import os"}))}

import torch

if not torch.cuda.is_available():
    {without_gpu}

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
    return "\n\n\n".join([header.rstrip() + "\n", *collector.pieces(), main]).replace("\n\n\n\n", "\n\n\n")
