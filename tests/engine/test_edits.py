"""Planted bugs and edited sources: what is replaced, what stays ours, and errors with the person's line numbers."""

from __future__ import annotations

import inspect
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

import kernels
from kernels.spec import Bug, InputError
from playground.engine import edits
from playground.engine.engine import Engine
from playground.engine.messages import EngineError, RunRequest
from playground.settings import Settings

SPEC = kernels.get("vector_add")


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path, monkeypatch):
    """Other processes of the host edit kernels too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def traces() -> tuple[int, int]:
    folder = Path(tempfile.gettempdir())
    return len(list(folder.glob("playground-edit-*"))), sum(name.startswith("_playground_edit") for name in sys.modules)


def test_without_an_edit_it_is_the_spec_itself():
    with edits.edited(SPEC) as spec:
        assert spec is SPEC


@pytest.mark.parametrize("name", list(kernels.all_kernels()))
def test_every_planted_bug_can_be_planted_and_leaves_no_trace(name):
    before = traces()
    spec = kernels.get(name)
    for bug in spec.bugs:
        with edits.edited(spec, bug) as planted:
            assert bug.replace in inspect.getsource(sys.modules[planted.plan.__module__])
    assert traces() == before


def test_an_edit_changes_the_kernel_and_never_the_goal_posts():
    source = edits.source_of(SPEC).replace("return x + y", "return x * 0")
    with edits.edited(SPEC, source=source) as spec:
        assert spec.plan is not SPEC.plan and spec.plan.__module__ != SPEC.plan.__module__
        for kept in ("reference", "make_inputs", "cost", "outputs", "edges", "name", "dtypes"):
            assert getattr(spec, kept) is getattr(SPEC, kept), kept


def test_an_edited_kernel_has_its_source_at_its_own_lines():
    source = "# one line more\n" + edits.source_of(SPEC)
    with edits.edited(SPEC, source=source) as spec:
        kernel = spec.plan(SPEC.inputs({"n": 8}, "float32", "meta"), *_config(spec)).launches[0].kernel
        lines, start = inspect.getsourcelines(kernel.fn)
        _, before = inspect.getsourcelines(kernels.vector_add)  # the public function, further down in the same file
    assert lines[1].startswith("def vector_add_kernel") and start > 1
    assert source.splitlines()[start - 1] == "@triton.jit" and before > start


def _config(spec):
    target = kernels.spec.Target.named("cpu")
    return spec.default_config(SPEC.inputs({"n": 8}, "float32", "meta"), target), target


@pytest.mark.parametrize(
    "broken,message",
    [
        (lambda s: s.replace("    mask = offsets", "    mask = = offsets"), "line {}: invalid syntax"),
        (
            lambda s: s.replace("import torch\n", "import torch\nraise RuntimeError('no')\n", 1),
            "line {}: RuntimeError: no",
        ),
        (lambda s: s.replace("import torch\n", "import torch\nraise SystemExit(3)\n", 1), "line {}: SystemExit: 3"),
        (lambda s: s + "\0", "source code string cannot contain null bytes"),
        (lambda s: s.partition("\nSPEC = ")[0], "the source defines no SPEC"),
        (lambda s: s.replace('name="vector_add"', 'name="other"'), "the edited SPEC is named 'other'"),
    ],
    ids=["syntax", "raises", "leaves", "no text", "no SPEC", "renamed"],
)
def test_a_source_that_does_not_load_is_one_line_with_its_number(broken, message):
    source = broken(edits.source_of(SPEC))
    line = next((i for i, text in enumerate(source.splitlines(), 1) if "= = " in text or text.startswith("raise")), 0)
    before = traces()
    with pytest.raises(InputError) as caught, edits.edited(SPEC, source=source):
        pass
    assert str(caught.value).startswith(message.format(line)) and "\n" not in str(caught.value)
    assert caught.value.argument == "source" and traces() == before


@pytest.mark.parametrize("find,times", [("no such text", 0), ("mask=mask", 3)])
def test_a_bug_whose_text_does_not_occur_once_is_refused(find, times):
    bug = Bug("Broken", find, "", "", "", {})
    with pytest.raises(InputError, match=f"occurs {times} times"):
        edits.plant(SPEC, bug)


def test_traces_go_even_where_the_block_raises():
    before = traces()
    with pytest.raises(ZeroDivisionError), edits.edited(SPEC, SPEC.bugs[0]):
        raise ZeroDivisionError
    assert traces() == before


HERE = Settings()


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        (HERE, True),
        (replace(HERE, host="localhost"), True),
        (replace(HERE, host="::1"), True),
        (replace(HERE, host="0.0.0.0"), False),
        (replace(HERE, root_path="/behind/a/proxy"), False),
        (replace(HERE, edit="off"), False),
    ],
)
def test_an_edit_is_taken_on_this_machine_alone(settings, allowed):
    """Before any worker hears of it: the file is Python, and importing it runs it."""
    request = RunRequest(kernel="vector_add", source="raise SystemExit")
    with Engine(settings, gpus=()) as engine:
        if allowed:
            assert engine.validate(request)
            return
        with pytest.raises(EngineError, match="cannot be edited here; serve on a loopback address") as refused:
            engine.validate(request)
    assert (refused.value.failure.kind, refused.value.failure.argument) == ("unavailable", "source")


def test_a_switch_that_there_is_not_is_named():
    with pytest.raises(ValueError, match="PLAYGROUND_EDIT is 'sandbox'; it needs loopback or off"):
        Settings.from_env({"PLAYGROUND_EDIT": "sandbox"})
