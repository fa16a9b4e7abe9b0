"""The layers hold: imports point one way, and heavy or optional packages stay where they belong."""

from __future__ import annotations

import graphlib
import subprocess
import sys

import pytest

from tests.project.source import ROOT, Import, imports, module_name, python_files

# Left to right as in docs/structure.md; each may import those before it, and the bottom is open to all but native.
LAYERS = (
    ("bottom", ("playground.settings", "playground.engine.messages")),
    ("native", ("playground.native",)),
    ("kernels", ("kernels",)),
    ("engine", ("playground.engine",)),
    ("decoder", ("playground.decoder",)),
    ("surface", ("playground.ui", "playground.cli", "playground.__main__")),
    ("app", ("app",)),
)
ORDER = [name for name, _ in LAYERS]
PRODUCT = python_files("app.py", "kernels", "playground")
EVERY_IMPORT = [i for file in PRODUCT for i in imports(file)]


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def layer(module: str) -> str | None:
    """The layer of one of our modules: the one with the longest matching name; None for other packages."""
    matches = [(len(package), name) for name, packages in LAYERS for package in packages if within(module, package)]
    return max(matches)[1] if matches else None


def breach(found: Import) -> str | None:
    """Why this import goes the wrong way, or None."""
    source, target = layer(found.module), layer(found.target)
    if source is None or target is None or source == target:
        return None
    if ORDER.index(target) > ORDER.index(source):
        return f"{found.module}:{found.line} ({source}) imports {found.target} ({target})"
    if source == "kernels" and target == "bottom":
        return f"{found.module}:{found.line}: kernels work without the playground, and import {found.target}"
    if source == "kernels" and target == "native" and not found.lazy:
        return f"{found.module}:{found.line}: kernels import {found.target} at the top; only inside a function"
    return None


def test_imports_point_left():
    assert not [why for found in EVERY_IMPORT if (why := breach(found))]


@pytest.mark.parametrize(
    ("module", "target", "lazy", "wrong"),
    [
        ("playground.engine.pool", "playground.ui.page", True, True),
        ("kernels.spec", "playground.engine.job", False, True),
        ("kernels.spec", "playground.native", False, True),
        ("kernels.spec", "playground.native", True, False),
        ("playground.native.jit", "kernels.spec", False, True),
        ("playground.settings", "playground.engine.engine", False, True),
        ("playground.engine.engine", "playground.engine.messages", False, False),
        ("playground.cli", "playground.engine.engine", False, False),
        ("playground.ui.page", "playground.cli", False, False),
        ("app", "playground.ui.page", False, False),
    ],
)
def test_the_rule_itself_tells_right_from_wrong(module, target, lazy, wrong):
    assert (breach(Import(module, target, 1, lazy)) is not None) == wrong


def test_every_module_has_a_layer():
    known = {"playground"}  # the bare package
    strays = [m for m in map(module_name, PRODUCT) if layer(m) is None and m not in known]
    assert not strays, f"these stand in no layer: {strays}"


@pytest.mark.parametrize("package", ["gradio", "plotly"])
def test_the_page_alone_imports(package):
    found = [f"{i.module}:{i.line}" for i in EVERY_IMPORT if within(i.target, package)]
    assert not [where for where in found if not within(where.split(":")[0], "playground.ui")]


def test_kernels_import_torch_and_triton_alone():
    allowed = {"torch", "triton", "kernels", "playground", *sys.stdlib_module_names}
    found = [i for file in python_files("kernels") for i in imports(file) if not i.lazy]
    assert not [f"{i.module}:{i.line} imports {i.target}" for i in found if i.target.split(".")[0] not in allowed]


def test_native_knows_triton_torch_llvmlite_and_numpy_alone():
    allowed = {"torch", "triton", "llvmlite", "numpy", *sys.stdlib_module_names}
    for file in python_files("playground/native"):
        for found in imports(file):
            root = found.target.split(".")[0]
            assert root in allowed or within(found.target, "playground.native") or found.target == "playground", found


def test_no_import_cycles():
    modules = {module_name(file) for file in PRODUCT}
    graph = {
        module_name(file): {
            i.target for i in imports(file) if not i.lazy and i.target in modules and i.target != module_name(file)
        }
        for file in PRODUCT
    }
    # A package's __init__ that gathers its own modules, and those modules, count as one.
    for module in modules:
        graph[module] -= {other for other in graph[module] if within(module, other)}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as cycle:
        pytest.fail(" -> ".join(cycle.args[1]))


def test_the_engines_door_brings_neither_page_nor_kernels_into_a_process():
    """The command line starts fast, and the page's process loads what it shows, not what workers run."""
    code = "import sys, playground.settings, playground.engine.messages; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & {"torch", "triton", "gradio", "plotly", "llvmlite", "pandas"}
