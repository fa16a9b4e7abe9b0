"""What torch.compile writes, as the page shows it: how many kernels, three things to notice, and each kernel's source.

Pure: the engine's result in, HTML out. What is noticed is read from the names and the sources themselves.
"""

from __future__ import annotations

from collections import Counter
from html import escape

from playground.engine.inductor_messages import InductorKernel, InductorResult
from playground.ui import words

# Words of a kernel's name, what they are the sign of, and the kernel here that does the same.
PATTERNS = (
    ("rsqrt", "a norm", "rms_norm or add_rms_norm"),
    ("softmax", "a softmax", "softmax"),
    ("silu", "an activation and its product", "silu_mul"),
)


def inductor(result: InductorResult, kernel: str, ours: int | None) -> str:
    """How many kernels each way takes and what they move, what to notice, then each of Inductor's kernels.

    ours: launches of the kernel's own plan.
    """
    rows = [("torch.compile", _runs(result), words.text(result.bytes_moved, words.BYTES))]
    rows.append(("eager", words.count(result.eager_kernels, "kernel"), words.text(result.eager_bytes, words.BYTES)))
    if ours is not None and not result.block:
        rows.append(("this kernel", words.count(ours, "launch").replace("launchs", "launches"), ""))
    body = "".join(f"<tr><th scope=row>{a}</th><td>{b}</td><td>{c}</td></tr>" for a, b, c in rows)
    heads = "<th scope=col></th><th scope=col>runs</th><th scope=col>bytes moved, modelled</th>"
    figure = (
        f'<div class="scroll"><table class="fig"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )
    seen = "".join(f"<li><b>{escape(claim)}</b><span>{escape(plain)}</span></li>" for claim, plain in notice(result))
    opened = " open" if len(result.kernels) == 1 else ""
    of = "a decoder block" if result.block else kernel  # which stays here when another is compiled above
    written = "".join(_generated(k, opened) for k in result.kernels)
    return f'<p class="quiet">Of {of}.</p>{figure}<ul class="why">{seen}</ul>{written}'


def _runs(result: InductorResult) -> str:
    libraries = f" and {words.count(len(result.extern), 'library call')}" if result.extern else ""
    return words.count(len(result.kernels), "Triton kernel") + libraries


def notice(result: InductorResult) -> list[tuple[str, str]]:
    """Three things: what fusion saves, which patterns were written, and where fusion stops or how a row is walked."""
    return [_fused(result), _patterns(result), _left(result) if result.extern else _walked(result)]


def _fused(result: InductorResult) -> tuple[str, str]:
    saved = result.eager_bytes - result.bytes_moved
    parts = len(result.kernels) + len(result.extern)
    become = "becomes" if result.eager_kernels == 1 else "become"
    claim = f"{words.count(result.eager_kernels, 'kernel')} of eager {become} {parts}"
    if saved <= 0.02 * result.eager_bytes:
        return claim, "Nothing is saved in bytes: the operation was one pass through memory already."
    return claim, (
        f"What stands between them stays in registers: {words.text(saved, words.BYTES)}, or "
        f"{words.percent(saved / result.eager_bytes)} %, less goes through memory."
    )


def _patterns(result: InductorResult) -> tuple[str, str]:
    found = Counter(p for k in result.kernels for p in PATTERNS if p[0] in k.name)
    if not found:
        names = ", ".join(k.name for k in result.kernels[:3])
        return "Read the name", f"{names}: what comes after fused_ is what the kernel joins."
    said = [f"{what} ({words.count(n, 'kernel')}; here {ours})" for (_, what, ours), n in found.items()]
    return (
        f"{words.count(len(found), 'pattern')} to find",
        f"{'; '.join(said)}. The name tells: after fused_ comes what the kernel joins.",
    )


def _left(result: InductorResult) -> tuple[str, str]:
    calls = ", ".join(f"{name} {n}×" if n > 1 else name for name, n in Counter(result.extern).items())
    scores = (
        " Between the two bmm the scores go to memory and back, which a fused attention spares."
        if "bmm" in result.extern
        else ""
    )
    return (
        "Fusion stops at products",
        f"Left to libraries: {calls}. Each parts what comes before from what follows.{scores}",
    )


def _walked(result: InductorResult) -> tuple[str, str]:
    """How the first kernel goes over its data: its second note says it, after what it fuses."""
    notes = [note for kernel in result.kernels for note in kernel.notes if not note.startswith("fuses")]
    first, *rest = notes or ["pointwise: every element on its own"]
    return f"{first[:1].upper()}{first[1:].split(':')[0]}", "; ".join(
        [first.partition(": ")[2] or first, *rest[:2]]
    ) + "."


def _generated(kernel: InductorKernel, opened: str) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in kernel.notes)
    return (
        f'<details class="gen"{opened}><summary>{escape(kernel.name)}</summary><ul>{notes}</ul>'
        f'<pre tabindex="0" aria-label="Source of {escape(kernel.name)}">{escape(_body(kernel.source))}</pre></details>'
    )


def _body(source: str) -> str:
    """From the decorator on: the imports before it are the same in every kernel."""
    at = source.find("@triton_heuristics")
    return source[at:] if at >= 0 else source
