"""The documents are true: their commands run, their paths, verbs and variables exist, their example kernel works."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.project.documents import blocks, code_spans, commands, documents, links, prose, text
from tests.project.source import ROOT, files
from tools import install

EXAMPLE = "kernels/squared_relu.py"  # the file that CONTRIBUTING.md has a person write
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def run(*command: str, seconds: float = 120, **more) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=more.pop("cwd", ROOT), **more)


# Paths


def named_paths(document: str) -> set[str]:
    """What a document names in code and looks like a path of ours: it has a slash or a file's suffix."""
    suffixes = (".py", ".md", ".txt", ".toml", ".css", ".json")
    spans = [s for s in code_spans(document) if PATH.fullmatch(s)]
    return {s for s in spans if s.endswith(suffixes) or "/" in s}


@pytest.mark.parametrize("document", documents())
def test_paths_in_code_exist(document):
    tops = {f.split("/")[0] for f in files()}
    ours = {p for p in named_paths(document) if p != EXAMPLE and ("/" not in p or p.split("/")[0] in tops)}
    names = {f.split("/")[-1] for f in files()}  # a page about one folder names its files alone
    beside = (ROOT / document).parent
    assert not {p for p in ours if not ((ROOT / p).exists() or (beside / p).exists() or p in names)}


@pytest.mark.parametrize("document", documents())
def test_links_lead_somewhere(document):
    local = [link.split("#")[0] for link in links(document) if "://" not in link and not link.startswith("#")]
    assert not {link for link in local if not ((ROOT / document).parent / link).exists()}


def test_every_decision_has_context_decision_and_consequence():
    pages = [d for d in documents() if d.startswith("docs/decisions/")]
    assert len(pages) >= 5
    for page in pages:
        for heading in ("# ", "**Context.**", "**Decision.**", "**Consequence.**"):
            assert heading in text(page), f"{page} lacks {heading}"


# Environment variables


def settings_variables() -> set[str]:
    return set(re.findall(r'"([A-Z]+_[A-Z_]+)"', (ROOT / "playground/settings.py").read_text()))


def test_every_setting_stands_in_the_readme():
    table = {v for span in code_spans("README.md") for v in VARIABLE.findall(span)}
    assert "GRADIO_SERVER_PORT" in settings_variables()
    assert not settings_variables() - table


def test_every_variable_that_documents_name_is_read_somewhere():
    code = "\n".join((ROOT / f).read_text() for f in files() if f.endswith((".py", "Dockerfile", "Makefile")))
    for document in documents():
        named = {v for span in code_spans(document) for v in VARIABLE.findall(span)}
        assert not {v for v in named if not re.search(rf"\b{v}\b", code)}, document


# Commands


def check_make(command: list[str]) -> None:
    done = run("make", "-n", *command[1:])
    assert done.returncode == 0, done.stderr


def check_pip_then_app(command: list[str]) -> None:
    assert command == shlex.split("pip install -r requirements.txt && python app.py")
    assert (ROOT / "requirements.txt").exists() and (ROOT / "app.py").exists()


def check_docker(command: list[str]) -> None:
    """No engine is at hand: what the line names must stand in the Dockerfile."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    for flag, value in itertools.pairwise(command):
        if flag == "--build-arg":
            assert f"ARG {value.split('=')[0]}=" in dockerfile
        if flag == "-p":
            assert f"EXPOSE {value.split(':')[-1]}" in dockerfile


def check_pytest(command: list[str]) -> None:
    done = run(sys.executable, *command[1:], "--collect-only", "-q")
    assert done.returncode == 0, done.stdout + done.stderr


def check_playground(command: list[str]) -> None:
    done = run(sys.executable, *command[1:])
    assert done.returncode == ("--bug" in command), done.stderr  # a planted bug is a wrong answer: 1
    if "--json" in command:
        json.loads(done.stdout)


def check_curl(command: list[str]) -> None:
    """Its body is one that the endpoint takes; tests/ui/test_openai.py runs the command itself."""
    from playground.ui.api import openai_schema

    url, body = command[1], command[command.index("-d") + 1]
    assert f"EXPOSE {url.split(':')[2].split('/')[0]}\n" in (ROOT / "Dockerfile").read_text()
    asked = openai_schema.read(body.encode())
    assert asked.model in openai_schema.models("SmolLM2-135M-Instruct")


def checker(command: str):
    """How a command of the documents is checked; None where nobody has said how."""
    for start, check in (
        ("make", check_make),
        ("pip install", check_pip_then_app),
        ("docker", check_docker),
        (".venv/bin/python -m pytest", check_pytest),
        (".venv/bin/python -m playground", check_playground),
        ("curl", check_curl),
    ):
        if command.startswith(start):
            return check
    return None


@pytest.mark.parametrize(("document", "command"), [(d, c) for d in documents() for c in commands(d)])
def test_commands_work(document, command):
    check = checker(command)
    assert check, f"{document}: {command!r} is checked by nothing; say in this file how"
    check(shlex.split(command))


def shape(output: str) -> list[str]:
    """Output without its figures and the spaces that line them up: what stays when a time or a device changes."""
    return [re.sub(r"\s+", " ", re.sub(r"[\d.,]+(e[+-]?\d+)?", "#", line)).strip() for line in output.splitlines()]


GPU = install.has_gpu()
CONSOLE = [(d, b.body) for d in documents() for b in blocks(d) if b.language == "console"]


@pytest.mark.skipif(GPU, reason="the output shown is that of a host without a GPU")
@pytest.mark.parametrize(("document", "body"), CONSOLE)
def test_output_shown_is_what_comes(document, body):
    """The figures may differ, the words may not; a device's own name is a figure too."""
    first, *expected = body.splitlines()
    done = run(sys.executable, *shlex.split(first.removeprefix("$ "))[1:])
    wanted, got = shape("\n".join(expected)), shape(done.stdout)
    assert [words(line) for line in wanted if line] == [words(line) for line in got if line]


def words(line: str) -> str:
    """A line up to where it names this host."""
    return re.sub(r"\bon .*$", "on ...", line)


@pytest.mark.parametrize("body", [b.body for b in blocks("README.md") if b.language == "python"])
def test_python_in_the_readme_runs(body):
    done = run(sys.executable, "-c", body)
    assert done.returncode == 0, done.stderr


# The README itself


def test_front_matter_is_what_a_space_needs():
    front = text("README.md").split("---\n")[1]
    fields = dict(line.split(": ", 1) for line in front.splitlines())
    assert fields["sdk"] == "docker"
    assert f"EXPOSE {fields['app_port']}\n" in (ROOT / "Dockerfile").read_text()
    assert fields["license"] == "apache-2.0"
    assert len(fields["short_description"]) <= 60


def test_the_readme_has_a_real_screenshot_in_both_modes():
    shots = [link for link in links("README.md") if link.startswith("assets/screenshots/")]
    assert {"light", "dark"} <= {mode for shot in shots for mode in ("light", "dark") if mode in shot}
    for shot in shots:
        assert (ROOT / shot).read_bytes().startswith(b"\x89PNG")


def test_the_readme_is_short():
    assert len(prose("README.md").split()) < 900


def test_verbs_named_are_verbs():
    named = set()
    for document in documents():
        named |= set(re.findall(r"-m playground ([a-z]+)", text(document)))
    help_text = run(sys.executable, "-m", "playground", "--help").stdout
    assert named and all(re.search(rf"\b{verb}\b", help_text) for verb in named)
    assert not {verb for verb in re.findall(r"^ {4}([a-z-]+)", help_text, re.MULTILINE)} - set(code_spans("README.md"))


# The kernel in CONTRIBUTING.md


@pytest.fixture(scope="module")
def checkout_with_example(tmp_path_factory):
    """A copy of the code, with the example kernel saved where CONTRIBUTING.md says."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in ("kernels", "playground", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    (example,) = (b.body for b in blocks("CONTRIBUTING.md") if b.language == "python")
    (copy / EXAMPLE).write_text(example)
    return copy


def test_the_example_kernel_appears_and_passes_conformance(checkout_with_example):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels", "-k", "squared_relu"]
    done = run(*command, cwd=checkout_with_example, env=env, seconds=180)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"\b\d+ passed", done.stdout)


def test_the_example_kernel_is_in_house_style(checkout_with_example):
    for arguments in (["check"], ["format", "--check"]):
        done = run(sys.executable, "-m", "ruff", *arguments, EXAMPLE, cwd=checkout_with_example)
        assert done.returncode == 0, done.stdout
