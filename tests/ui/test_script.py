"""The exported script runs anywhere with torch and triton, and reproduces the verdict, right or wrong."""

import ast
import re
import subprocess
import sys

import pytest

import kernels
from kernels.spec import Target
from playground.engine import choose, edits
from playground.engine.messages import Request
from playground.ui.tabs.run.gather import Collector
from playground.ui.tabs.run.script import script

ALLOWED = {"torch", "triton"} | sys.stdlib_module_names


def choice_of(name, **given):
    spec = kernels.get(name)
    request = Request(kernel=name, dtype="float32" if "float32" in spec.dtypes else None, **given)
    chosen = choose.validate(request)
    config = spec.default_config(spec.inputs(chosen.dims, chosen.dtype, "meta"), Target.named("cpu"))
    return choose.as_choice(request, chosen, config, "spec")


class WithoutAnnotations(ast.NodeTransformer):
    """They are text in the file, and name what it need not have."""

    def visit_AnnAssign(self, node):
        node.annotation = ast.Constant(0)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node):
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node):
        node.annotation = None
        return node


def cases(spec):
    return [{}, *({"edge": e.name} for e in spec.edges), *({"bug": b.name} for b in spec.bugs)]


@pytest.mark.parametrize("name", kernels.all_kernels())
def test_every_case_becomes_a_file_of_torch_and_triton(name, tmp_path):
    for i, case in enumerate(cases(kernels.get(name))):
        tree = ast.parse(script(choice_of(name, **case)))
        imported = {
            (node.module if isinstance(node, ast.ImportFrom) else alias.name).split(".")[0]
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert imported - ALLOWED - {"__future__"} == set(), case
        (tmp_path / f"{i}.py").write_text(ast.unparse(WithoutAnnotations().visit(tree)))
    # Names that nothing defines: the file would end where it comes to them.
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", tmp_path]
    found = subprocess.run(ruff, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def test_a_module_taken_whole_is_refused():
    collector = Collector(
        {"mine": "from kernels import attention_problem\n\ndef cost():\n    attention_problem.cost\n"}
    )
    with pytest.raises(LookupError, match="attention_problem as a whole module"):
        collector.all("mine", "cost")


def test_two_things_of_one_name_are_kept_apart():
    """A variant that borrows from another kernel's module, where both have a `plan`."""
    borrowed = "from kernels.vector_add import plan as theirs\n\ndef plan():\n    return theirs\n"
    collector = Collector({"mine": borrowed})
    assert collector.all("mine", "plan") == "plan"
    text = "\n\n".join(collector.pieces())
    assert "return vector_add_plan" in text and "def vector_add_plan(inputs, config, target):" in text
    assert len(re.findall(r"^def plan\(", text, re.M)) == 1
    ast.parse(text)


def run(text, folder):
    """In an empty folder, without this project on the path."""
    path = folder / "reproduce.py"
    path.write_text(text)
    return subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True, cwd=folder, timeout=120)


@pytest.mark.parametrize(
    ("name", "given", "code", "says"),
    [
        ("add_rms_norm", {"dims": {"rows": 4, "n": 300}, "seed": 3}, 0, "out: right"),
        ("add_rms_norm", {"dims": {"rows": 4, "n": 300}, "bug": "Mean over the block"}, 1, "out: WRONG"),
        ("softmax", {"edge": "Strided rows"}, 0, "out: right"),
        ("alibi_attention", {}, 0, "out: right"),
        ("embedding", {"bug": "One row early"}, 1, "out: WRONG"),  # an element that is never written
        ("quantize_int8", {}, 0, "q: right"),
        ("quantize_int8", {"bug": "Truncated"}, 1, "q: WRONG"),  # codes off by one, between the borders
        ("sample", {"dims": {"rows": 2, "vocab": 300, "top_k": 5}}, 0, "ids: right"),
    ],
)
def test_it_runs_and_reproduces_the_verdict(name, given, code, says, tmp_path):
    if "edge" in given and given["edge"] not in [e.name for e in kernels.get(name).edges]:
        given = {"edge": kernels.get(name).edges[0].name}
    check(script(choice_of(name, **given)), code, says, tmp_path)


def test_an_edited_kernel_is_what_is_exported(tmp_path):
    text = edits.source_of(kernels.get("vector_add")).replace("x.to(tl.float32) + y", "x.to(tl.float32) - y", 1)
    choice = choice_of("vector_add", dims={"n": 300})
    check(script(choice, edit=text), 1, "out: WRONG", tmp_path)


def check(text, code, says, folder):
    done = run(text, folder)
    assert (done.returncode, says in done.stdout) == (code, True), done.stdout + done.stderr
