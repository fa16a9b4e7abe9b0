"""Why fusing helps, in figures: the bytes and the time of one kernel beside those of eager's chain. Pure.

Bytes are modelled; each time has the source of the benchmark that it comes from. Nothing is shown where eager runs
one kernel too, or where the answer takes several launches itself.
"""

from __future__ import annotations

from html import escape

from kernels import get
from playground.engine.host import BUSY
from playground.engine.messages import BenchResult, Request, ResourcesResult, Source
from playground.ui import panels, words
from playground.ui.answer import Answer, exact
from playground.ui.theme import slug

# Products and attention: eager has kernels of its own for them, which this chain of single steps does not show.
WHOLE = ("mm", "addmm", "bmm", "baddbmm", "sort")
MOST = 40  # steps that a person can still follow
TO_MEMORY = '<a href="?tab=Memory" data-tab="Memory">Watch the bytes travel in Memory</a>'


def sheet(answer: Answer) -> str:
    """The sheet, or "" where fusing has nothing to save."""
    found = answer.resources
    if not answer.right or found is None or not chained(found):
        return ""
    ours, eager = least_bytes(found), found.eager_bytes
    if eager < 1.05 * ours:
        return ""
    kernels = found.eager_kernels
    title = f"Fusing moves {words.text(ours, words.BYTES)} instead of {words.text(eager, words.BYTES)}"
    steps = ", ".join(name.replace("_", " ") for name in dict.fromkeys(kernels))
    note = f"Eager runs {len(kernels)} kernels ({steps}); each writes to memory what the next one reads. "
    groups = [_group("Bytes through memory", "modelled", ours, eager, words.BYTES, _less(ours, eager))]
    groups += [_times(b, answer.request) for b in (answer.timed, answer.recorded) if b]
    body = "".join(groups)
    return f'<div class="sheet">{panels.section(title, None, note, TO_MEMORY)}<div class="fuse">{body}</div></div>'


def chained(found: ResourcesResult) -> bool:
    """Whether one launch stands beside several kernels of eager's."""
    kernels = found.eager_kernels
    return len(found.launches) == 1 and 1 < len(kernels) <= MOST and not any(k.startswith(WHOLE) for k in kernels)


def least_bytes(found: ResourcesResult) -> int:
    """Each input read once, each output written once, at the shape that was compiled."""
    spec = get(found.choice.kernel)
    return spec.cost(spec.inputs(found.choice.dims, found.choice.dtype, "meta")).bytes_moved


def _times(bench: BenchResult, asked: Request) -> str:
    """Triton's time and eager's; "" where either is missing."""
    ours, eager = (bench.providers.get(name) for name in ("triton", "eager"))
    if not (ours and eager and ours.us and eager.us and ours.ok and eager.ok):
        return ""
    said = "too close to say" if ours.us.overlaps(eager.us) else _less(ours.us.p50, eager.us.p50)
    said = "a busy host cannot say" if BUSY in bench.note else said
    title, shape = f"Time on {bench.source.device}", "" if exact(bench, asked) else words.shape(bench.choice.dims)
    return _group(title, bench.source, ours.us.p50, eager.us.p50, words.MICROSECONDS, said, shape)


def _less(ours: float, eager: float) -> str:
    return f"{words.speedup(eager / ours)[:-1]} times less" if eager >= 1.005 * ours else "no less"


def _group(
    title: str, source: Source | str, ours: float, eager: float, units: words.Units, said: str, note: str = ""
) -> str:
    """Two bars on one scale, with what they say together."""
    rows = "".join(
        f'<li><span>{name}</span><div class="bar"><i style="--c:var(--p-{slug(name)});'
        f'width:{100 * value / max(ours, eager):.1f}%"></i></div><b>{words.text(value, units)}</b></li>'
        for name, value in (("Triton", ours), ("eager", eager))
    )
    small = f"<small>{escape(note)}</small>" if note else ""
    return f"<section><h3>{escape(title)}: {said}</h3><p>{panels.badge(source)} {small}</p><ul>{rows}</ul></section>"
