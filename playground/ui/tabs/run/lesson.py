"""What stands beside a case: what an edge attacks, a planted bug's hint and change, and the line that went astray."""

from __future__ import annotations

import difflib
from html import escape

from kernels import KernelSpec
from kernels.spec import Bug
from playground.engine import edits
from playground.engine.messages import OutOfBounds, Request, RunResult
from playground.ui import panels

AROUND = 3  # lines shown on each side of the one that matters


def note(spec: KernelSpec, request: Request, run: RunResult | None) -> str:
    """The sheet under the verdict: "" for a plain run that stayed within its tensors."""
    parts = []
    bug = next((b for b in spec.bugs if b.name == request.bug), None)
    edge = next((e for e in spec.edges if e.name == request.edge), None)
    if run and run.out_of_bounds:
        parts.append(_astray(spec, bug, run.out_of_bounds))
    if bug:
        parts.append(_bug(spec, bug))
    if request.source is not None and run:
        parts.append(_edit(spec, request.source))
    if edge:
        parts.append(panels.section(f"Edge case: {edge.name}", None, edge.attacks))
    return f'<div class="sheet lesson">{"".join(parts)}</div>' if parts else ""


def _bug(spec: KernelSpec, bug: Bug) -> str:
    """The hint, and the answer for whoever asks for it."""
    head = panels.section(f"Planted bug: {bug.name}", None, f"Hint: {bug.hint}")
    change = diff(edits.source_of(spec), edits.plant(spec, bug))
    return (
        f"{head}<p>What one sees: {escape(bug.symptom)}. With case on none the kernel runs as it is.</p>"
        f"<details><summary>Show what was changed</summary>{change}</details>"
    )


def _edit(spec: KernelSpec, text: str) -> str:
    head = panels.section("Your edit", None, "Run runs the kernel as it is; Run the edit, this text")
    return head + diff(edits.source_of(spec), text)


def diff(before: str, after: str) -> str:
    """The lines that differ, with a little of what surrounds them; marked by sign and colour."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=1, lineterm=""))[2:]
    signs = {"-": "del", "+": "ins", "@": "at"}
    body = "".join(f'<span class="{signs.get(line[:1], "")}">{escape(line) or " "}</span>' for line in lines)
    return f'<pre class="diff" tabindex="0" role="region" aria-label="Change">{body}</pre>'


def _astray(spec: KernelSpec, bug: Bug | None, outside: OutOfBounds) -> str:
    """The source around an access out of bounds, as it ran."""
    lines = (edits.plant(spec, bug) if bug else edits.source_of(spec)).splitlines()
    first, last = max(1, outside.line - AROUND), min(len(lines), outside.line + AROUND)
    body = "".join(
        f'<span class="{"hit" if n == outside.line else ""}"><i>{n}</i>{escape(lines[n - 1]) or " "}</span>'
        for n in range(first, last + 1)
    )
    head = panels.section(f"Out of bounds at line {outside.line}", None, outside.message)
    return f'{head}<pre class="source" tabindex="0" role="region" aria-label="Source">{body}</pre>'
