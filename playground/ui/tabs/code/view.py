"""Generated code as the page shows it: pure functions from the engine's results to JSON for code.js, and to HTML."""

from __future__ import annotations

import ast
import difflib
import json
import textwrap
from collections.abc import Iterator, Sequence
from html import escape

from playground.engine.code_messages import CodeResult, LaunchCode
from playground.engine.gpus import one_unit_of
from playground.ui import panels, words

CONTEXT = 3  # unchanged lines around a change
MOST = 4000  # lines of a diff that are shown


def as_json(result: CodeResult) -> str:
    """What code.js draws: launches, each with its Python and its stages as [text, lines] pairs."""
    return json.dumps(
        {
            "target": result.target,
            "first": "amdgcn" if result.target.startswith("gfx") else "ptx",
            "launches": [
                {
                    "kernel": launch.kernel,
                    "file": launch.file,
                    "first": launch.first_line,
                    "python": launch.python,
                    "spans": spans(launch.python, launch.first_line),
                    "stages": {name: [[r.text, r.lines] for r in rows] for name, rows in launch.stages.items()},
                }
                for launch in result.launches
            ],
        },
        separators=(",", ":"),
    )


def spans(python: Sequence[str], first: int) -> list[tuple[int, int]]:
    """First and last line of each statement that takes several: code comes from one of them, and all stand for it.

    Of a loop or a branch it is the head. The function's own head has none. Nothing for what is no Python.
    """
    try:
        tree = ast.parse(textwrap.dedent("\n".join(python)))
    except SyntaxError:
        return []
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            if last > node.lineno and not _docstring(node):
                found.append((first + node.lineno - 1, first + last - 1))
    return sorted(found)


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def banner(result: CodeResult) -> str:
    """The answer first: what it costs a program, and what that means for an SM."""
    if not result.launches:
        return panels.verdict("unknown", "Nothing is launched", "This shape has no elements, so no kernel runs.")
    worst = max(result.launches, key=lambda launch: (launch.resources.spills, launch.resources.registers))
    used = worst.resources
    spilled = f"spills {used.spills} bytes a thread" if used.spills else "no spills"
    headline = f"{used.registers} registers a thread, {spilled}"
    shared = f"{used.shared_bytes:,} bytes of shared memory" if used.shared_bytes else "no shared memory"
    detail = f"{worst.kernel} for {result.target}: {words.count(used.num_warps, 'warp')}, {shared}. "
    if worst.occupancy is not None:
        one = one_unit_of(result.target)
        detail += (
            f"{one[:1].upper()}{one[1:]} holds {words.count(worst.programs_per_sm or 0, 'program')}, "
            f"{words.percent(worst.occupancy)}\u00a0% of its warps, limited by {worst.limit}."
        )
    return panels.verdict("code", headline, detail, result.source)


def found(result: CodeResult) -> str:
    """The first findings, as the heading of all."""
    claims = list(dict.fromkeys(f.claim for launch in result.launches for f in launch.findings))
    return f"What to look at: {', '.join(claims[:2])}" if claims else "What to look at"


def findings(result: CodeResult) -> str:
    """What to look at, as buttons that lead to the lines."""
    items = [
        f'<li><button type="button" data-launch="{i}" data-stage="{f.stage}" data-row="{f.rows[0] if f.rows else 0}" '
        f'data-l="{f.lines[0] if f.lines else ""}"><b>{escape(f.claim)}</b><span>{escape(f.plain)}</span>'
        f"<small>{escape(_where(f.stage, f.lines))}</small></button></li>"
        for i, launch in enumerate(result.launches)
        for f in launch.findings
    ]
    return f'<ul class="finds">{"".join(items)}</ul>' if items else ""


def _where(stage: str, lines: Sequence[int]) -> str:
    if not lines:
        return stage.upper()
    shown = ", ".join(map(str, sorted(lines)[:6]))
    return f"{stage.upper()}, from line{'s' * (len(lines) > 1)} {shown}{' …' if len(lines) > 6 else ''}"


# Two results side by side


def resources_table(before: CodeResult, after: CodeResult, names: tuple[str, str]) -> str:
    """Registers, spills, shared memory, occupancy and lines of both, launch by launch."""
    pairs = list(zip(before.launches, after.launches, strict=False))
    body = ""
    for one, two in pairs:
        body += f'<tr><th scope=rowgroup colspan="4">{escape(one.kernel)}</th></tr>' if len(pairs) > 1 else ""
        body += "".join(
            f"<tr><th scope=row>{escape(name)}</th><td>{a:,}</td><td>{b:,}</td>"
            f"<td>{f'{b - a:+,}' if b != a else 'same'}</td></tr>"
            for name, a, b in _used(one, two)
        )
    heads = "".join(f"<th scope=col>{escape(h)}</th>" for h in ("", *names, "change"))
    return _figure(heads, body)


def _used(one: LaunchCode, two: LaunchCode) -> list[tuple[str, int, int]]:
    return [
        ("registers a thread", one.resources.registers, two.resources.registers),
        ("spills, bytes a thread", one.resources.spills, two.resources.spills),
        ("shared memory, bytes", one.resources.shared_bytes, two.resources.shared_bytes),
        ("warps", one.resources.num_warps, two.resources.num_warps),
        ("programs on an SM or CU", one.programs_per_sm or 0, two.programs_per_sm or 0),
        ("occupancy, %", round(100 * (one.occupancy or 0)), round(100 * (two.occupancy or 0))),
        *((f"lines of {stage.upper()}", *both) for stage, both in _lengths(one, two)),
    ]


def _figure(heads: str, body: str) -> str:
    return f'<div class="scroll"><table class="fig"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _lengths(one: LaunchCode, two: LaunchCode) -> Iterator[tuple[str, tuple[int, int]]]:
    for stage in one.stages:
        if stage in two.stages:
            yield stage, (len(one.stages[stage]), len(two.stages[stage]))


def diff(before: CodeResult, after: CodeResult, stage: str) -> str:
    """A unified diff of one stage, or of "python", as HTML; a line where it is the same, or missing in one."""
    one, two = _text(before, stage), _text(after, stage)
    if one is None or two is None:
        return f'<p class="sub">{escape(stage.upper())} is a stage of only one of the two targets.</p>'
    lines = list(difflib.unified_diff(one, two, "", "", lineterm="", n=CONTEXT))[2:]
    if not lines:
        return f'<p class="sub">{escape(stage.upper())} is the same in both.</p>'
    body = "".join(map(_diff_line, lines[:MOST]))
    more = f'<li class="gap">{len(lines) - MOST:,} more lines differ</li>' if len(lines) > MOST else ""
    return f'<ol class="diff" tabindex="0" aria-label="Differences in {escape(stage.upper())}">{body}{more}</ol>'


def _text(result: CodeResult, stage: str) -> list[str] | None:
    """The lines of a stage of every launch; launches are told apart by a line with their name."""
    lines: list[str] = []
    for launch in result.launches:
        if stage != "python" and stage not in launch.stages:
            return None
        lines += [f"// {launch.kernel}"] if len(result.launches) > 1 else []
        lines += launch.python if stage == "python" else [row.text for row in launch.stages[stage]]
    return lines


def _diff_line(line: str) -> str:
    if line.startswith("@@"):
        return '<li class="gap" data-mark="">⋯</li>'
    kind = {"+": "plus", "-": "minus"}.get(line[:1], "same")
    shown = {"plus": "+", "minus": "−", "same": ""}[kind]
    return f'<li class="{kind}" data-mark="{shown}">{escape(line[1:])}</li>'
