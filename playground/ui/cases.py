"""What a case changes in the choice, and what comes back when it is put away. Pure: it knows no Gradio.

An edge case brings its shape, a planted bug also the dtype in which it bites. What a person had before is kept, and
what they changed by hand meanwhile stays theirs.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernels import get
from playground.engine.messages import Request


@dataclass(frozen=True)
class Kept:
    """before: the choice without the case; now: what the case made of it."""

    before: Request
    now: Request


def taken(request: Request, kind: str, name: str) -> Kept:
    """The request with an edge case or a bug in it: its shape, and its dtype where it needs one."""
    spec = get(request.kernel)
    found = next(c for c in (spec.edges if kind == "edge" else spec.bugs) if c.name == name)
    now = request.model_copy(
        update={
            "edge": name if kind == "edge" else None, "bug": name if kind == "bug" else None, "config": None,
            "dims": {**request.dims, **found.dims}, "dtype": found.dtype or request.dtype,
        }
    )  # fmt: skip
    return Kept(request, now)


def put_away(request: Request, kept: Kept | None) -> Request:
    """The request without a case: what the case has set goes back to what stood there before it."""
    plain = request.model_copy(update={"edge": None, "bug": None})
    if kept is None or kept.before.kernel != request.kernel:
        return plain
    before, now = kept.before, kept.now
    dims = {n: before.dims.get(n, size) if size == now.dims.get(n) else size for n, size in request.dims.items()}
    return plain.model_copy(
        update={
            "dims": dims,
            "dtype": before.dtype if request.dtype == now.dtype else request.dtype,
            "config": before.config if request.config == now.config else request.config,
        }
    )


def said(kept: Kept | None) -> str:
    """What the case has set and what comes back without it; "" where it has changed nothing. Plain text."""
    if kept is None:
        return ""
    before, now = kept.before, kept.now
    had = {"dtype": before.dtype, **before.dims}
    changes = [(n, had.get(n), new) for n, new in {"dtype": now.dtype, **now.dims}.items() if had.get(n) != new]
    if not changes:
        return ""
    sets = _listed([f"{name} to {new}" for name, _, new in changes])
    back = _listed([f"{name} {old}" for name, old, _ in changes])
    return f"“{now.edge or now.bug}” has set {sets}. Without it {back} {'comes' if len(changes) == 1 else 'come'} back."


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
