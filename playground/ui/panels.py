"""The HTML pieces that every tab is built from: header, badges, verdict, key figures, table, reasons, chips.

Pure: values in, HTML out. What a person typed is escaped here, and so is what a kernel or a compiler said.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from playground.engine.messages import HostResult, Progress, Source, Wrong
from playground.ui import live, words
from playground.ui.theme import slug

# Shape first, word second; colour says nothing here.
_RING = '<circle cx="6" cy="6" r="4.3" fill="none" stroke="currentColor" stroke-width="1.5"'
SHAPES = {
    "measured": '<circle cx="6" cy="6" r="4.5" fill="currentColor"/>',
    "interpreted": f'{_RING}/><path d="M6 1.8a4.2 4.2 0 0 0 0 8.4z" fill="currentColor"/>',
    "compiled": '<rect x="1.8" y="1.8" width="8.4" height="8.4" fill="currentColor"/>',
    "modelled": f'{_RING} stroke-dasharray="2.3 2.3"/>',
    "recorded": f'{_RING}/><circle cx="6" cy="6" r="1.9" fill="currentColor"/>',
}
MEANING = {
    "measured": "Measured on this device, just now",
    "interpreted": "Run by Triton's interpreter on the CPU: right or wrong, never how fast",
    "compiled": "Read from code compiled offline for the target",
    "modelled": "Computed from the cost model, not observed",
    "recorded": "Measured earlier on the GPU named, with these versions",
}
_LINK = (
    '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M6.5 9.5l3-3M7 4.5l1.4-1.4a3.2 3.2 0 0 1 4.5 4.5L11.5 9'
    'M9 11.5l-1.4 1.4a3.2 3.2 0 0 1-4.5-4.5L4.5 7" fill="none" stroke="currentColor" stroke-width="1.6" '
    'stroke-linecap="round"/></svg>'
)
_HALF = (
    '<svg viewBox="0 0 16 16" aria-hidden="true"><circle cx="8" cy="8" r="5.8" fill="none" stroke="currentColor" '
    'stroke-width="1.6"/><path d="M8 2.2a5.8 5.8 0 0 1 0 11.6z" fill="currentColor"/></svg>'
)
_MARKS = {
    "right": '<path d="M5 12.5l4.6 4.6L19 7.5"/>',
    "wrong": '<path d="M6.5 6.5l11 11M17.5 6.5l-11 11"/>',
    "unknown": '<path d="M8.5 9a3.5 3.5 0 1 1 5 3.2c-1 .5-1.5 1.1-1.5 2.3M12 18v.2"/>',
    "failed": '<path d="M12 5v8.5M12 18v.2"/>',
    "code": '<path d="M9 7l-5 5 5 5M15 7l5 5-5 5"/>',
}


def text(value: str) -> str:
    """Plain text as HTML."""
    return escape(value)


def badge(source: Source | str, note: str = "") -> str:
    """The mark of where a figure comes from; its tooltip says what that means, and names device and versions."""
    kind = source if isinstance(source, str) else source.kind
    title = MEANING[kind]
    if isinstance(source, Source):
        versions = ", ".join(f"{name} {version}" for name, version in source.versions.items())
        title = ". ".join(filter(None, (title, words.place(source), versions, source.note)))
    return (
        f'<span class="badge {kind}" title="{escape(title)}"><svg viewBox="0 0 12 12" aria-hidden="true">'
        f"{SHAPES[kind]}</svg>{kind}{' ' + escape(note) if note else ''}</span>"
    )


def mark(verdict: str) -> str:
    hidden = 'aria-hidden="true"' if verdict in ("failed", "code") else f'role="img" aria-label="{verdict}"'
    return f'<svg class="mark {verdict}" viewBox="0 0 24 24" {hidden}>{_MARKS[verdict]}</svg>'


def section(title: str, source: Source | str | None = None, note: str = "", aside: str = "") -> str:
    """The head of a sheet: its title, the source that its figures share, and how to read it. `aside` is HTML."""
    tag = badge(source) if source else ""
    return f'<div class="head"><h2>{escape(title)}</h2>{tag}<p>{escape(note)}{aside}</p></div>'


@functools.cache
def _logo() -> str:
    return (live.ASSETS / "logo.svg").read_text()


def header(host: HostResult | None, mode: str) -> str:
    """The bar at the top. None: the worker that knows the device is still starting."""
    device = escape(host.device) if host else "Starting"
    detail = escape(host.detail) if host else "the worker that runs kernels"
    kept = ("torch", "triton", "cuda", "hip")
    versions = "".join(
        f"<li>{escape(name)} {escape(host.versions[name].partition('+')[0])}</li>"
        for name in kept
        if host and name in host.versions
    )
    return f"""<header class="top">
  <h1><a class="brand" href="./" title="Start afresh">{_logo()}<span>Triton <b>Playground</b></span></a></h1>
  <div class="host"><span class="device">{device}<small>{detail}</small></span><ul>{versions}</ul></div>
  <span class="mode">{escape(mode)}</span>
  <div class="tools">
    <button type="button" data-do="link" title="Copy a link to this choice">{_LINK}<span>Copy link</span></button>
    <button type="button" data-do="mode" title="Light or dark">{_HALF}<span>Light / dark</span></button>
  </div>
</header>"""


@dataclass(frozen=True)
class Stat:
    """A key figure: "33.2", "µs", what it is, and a small line under it."""

    value: str
    unit: str
    label: str
    small: str = ""


def stats(items: Sequence[Stat], source: Source) -> str:
    """Key figures that share one source, which is said once, for the group."""
    body = "".join(
        f'<div class="stat"><dt>{escape(s.label)}</dt><dd><b>{escape(s.value)}</b> {escape(s.unit)}</dd>'
        f'<dd class="src"><small>{escape(s.small)}</small></dd></div>'
        for s in items
    )
    said = f"on {words.place(source)}" if source.kind != "recorded" else words.place(source)
    return f'<div class="statgroup"><dl class="stats">{body}</dl><p>{badge(source)} {escape(said)}</p></div>'


def verdict(kind: str, headline: str, detail: str, source: Source | str | None = None, figures: str = "") -> str:
    """The outcome across the page: right, wrong, unknown, or code, a fact that is no verdict. `figures` is HTML."""
    tag = badge(source) if source else ""
    return (
        f'<section class="verdict {kind}" role="status">{mark(kind)}<div class="say"><h2>{escape(headline)}</h2>'
        f"<p>{escape(detail)} {tag}</p></div>{figures}</section>"
    )


def busy(progress: Progress) -> str:
    """A run in progress, where the answer will stand: what runs, how far it is, or who is before it."""
    if progress.place:
        what, bar = "Waiting for the device", ""
        line = f"{words.count(progress.place, 'request')} before yours. Stop leaves the line."
    else:
        what = _capital(progress.what)
        of = f"{progress.done:,} of {progress.total:,} {progress.unit}. " if progress.total else ""
        line = of + ("Stop ends it at the next one." if progress.total else "Stop ends it.")
        done = f'value="{progress.done}" max="{progress.total}"' if progress.total else ""
        bar = f'<progress {done} aria-label="{escape(what)}"></progress>'
    return (
        '<section class="verdict busy" role="status" aria-live="polite"><span class="tiles" aria-hidden="true">'
        f'{"<i></i>" * 9}</span><div class="say"><h2>{escape(what)}</h2><p>{escape(line)}</p>{bar}</div></section>'
    )


def working(progress: Progress) -> str:
    """What is still being done, in a sheet whose figures are not there yet."""
    before = f": {words.count(progress.place, 'request')} before yours" if progress.place else ""
    done = f'value="{progress.done}" max="{progress.total}"' if progress.total else ""
    return (
        f'<div class="working" role="status"><p>{escape(_capital(progress.what))}{before}</p>'
        f'<progress {done} aria-label="{escape(progress.what)}"></progress></div>'
    )


def failed(message: str, nothing_ran: bool = True) -> str:
    """A request without a result. The engine's line is "what; remedy"; what is after the semicolon stands in bold."""
    what, _, remedy = message.partition("; ")
    did = "Nothing was run. " if nothing_ran else ""
    nearest = NEAREST.fullmatch(remedy)
    offer = ""
    if nearest:  # the nearest shape that fits: one click away
        offer = f'<button type="button" data-mend="{nearest[1]}" data-to="{nearest[2].replace(",", "")}">'
        offer += f"Set {nearest[1]} to {nearest[2]} and run</button>"
    return (
        f'<section class="verdict failed" role="alert">{mark("failed")}<div class="say">'
        f"<h2>{escape(_capital(what))}</h2><p>{did}<b>{escape(_sentence(remedy))}</b></p></div>{offer}</section>"
    )


# The engine's remedy where a shape does not fit: "set rows to 3,906".
NEAREST = re.compile(r"set (\w+) to ([\d,]+)")


def _capital(text: str) -> str:
    """A sentence's first letter as a capital, unless it begins with a name as code has it, such as a dim's."""
    first = text.split(" ")[0]
    return text if not first.isalpha() or len(first) < 2 or first in KEEP else text[0].upper() + text[1:]


KEEP = {"rows", "n", "m", "k", "seed", "dtype", "config"}


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:].rstrip(".") + "." if text else ""


@dataclass(frozen=True)
class Row:
    """One provider in a table of figures; texts are ready to be shown, and empty where there is none.

    gone: why it has no figures, e.g. "not installed: pip install liger-kernel"; ok: None where there is no verdict.
    """

    name: str
    ok: bool | None = None
    ulps: str = ""
    us: str = ""
    spread: str = ""
    rate: str = ""
    share: str = ""
    speedup: str = ""
    gone: str = ""


def compare_table(rows: Sequence[Row], time_unit: str, rate_unit: str, roof: str, label: str) -> str:
    """One line for each provider. Figures are right-aligned in tabular digits; units stand in the head."""
    heads = ('<th scope=col>Provider</th><th scope=col title="units in the last place of the dtype">worst ulp</th>'
             f"<th scope=col>{time_unit}</th>"
             f'<th scope=col class="opt">p20–p80</th><th scope=col class="opt">{rate_unit}</th>'
             f"<th scope=col>of {escape(roof)}</th><th scope=col>speed-up</th>")  # fmt: skip
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}"><table class="fig">'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(map(_row, rows))}</tbody></table></div>"
    )


def _row(row: Row) -> str:
    first = f'<th scope=row><i class="sw" style="--c:var(--p-{slug(row.name)})"></i>{escape(row.name)}</th>'
    if row.gone:
        why, _, install = row.gone.partition(": pip ")
        text = f"{escape(why)}: <code>pip {escape(install)}</code>" if install else escape(why)
        return f'<tr class="gone">{first.replace("style=", "data-c=")}<td colspan=6>{text}</td></tr>'
    judged = "" if row.ok is None else mark("right" if row.ok else "wrong")
    ours = "ours" if row.name == "Triton" else ""
    return (
        f'<tr class="{ours}">{first}<td class="v">{judged}<span>{row.ulps}</span></td>'
        f'<td>{row.us}</td><td class="opt">{row.spread}</td><td class="opt">{row.rate}</td><td>{row.share}</td>'
        f"<td>{row.speedup}</td></tr>"
    )


@dataclass(frozen=True)
class Reason:
    """Why it is as fast as it is: a claim, what shows it, and where that comes from; None for a choice."""

    claim: str
    evidence: str
    source: Source | str | None


def reasons(items: Sequence[Reason]) -> str:
    found = [(escape(r.claim), escape(r.evidence), badge(r.source) if r.source else "") for r in items]
    made = "".join(f"<li><b>{claim}</b><span>{shown}</span><div>{tag}</div></li>" for claim, shown, tag in found)
    return f'<ul class="why">{made}</ul>'


def error_picture(wrong: Wrong) -> str:
    """Where the answer is wrong: a cell for each block of the output, the fuller the more of it is wrong."""
    cols = max(map(len, wrong.picture), default=0)
    if not cols:
        return ""
    cells = "".join(
        f'<i class="bad" style="--share:{max(20, round(100 * share))}%"></i>' if share > 0 else "<i></i>"
        for line in wrong.picture
        for share in (*line, *[0.0] * (cols - len(line)))
    )
    high, wide = wrong.cell
    said = f"{wrong.count:,} of {wrong.total:,} elements are wrong"
    return (
        '<figure class="errmap"><h2>Where it is wrong</h2>'
        f'<div style="--cols:{cols}" role="img" aria-label="{said}">{cells}</div><figcaption>'
        f"{said}. Rows down, columns across; a cell is {high:,} × {wide:,} elements, hatched where one of them is "
        "wrong.</figcaption></figure>"
    )


def chips(cases: Sequence[tuple[str, str, str]], chosen: str) -> str:
    """One-click cases: (kind edge or bug, name, what it attacks). `chosen` is the name of the one in force."""
    return '<div class="chips" role="group" aria-label="Cases">' + "".join(
        f'<button type="button" class="chip {kind}" data-kind="{kind}" data-name="{escape(name)}" '
        f'aria-pressed="{str(name == chosen).lower()}"><b>{escape(name)}</b>'
        f"<span>{'planted bug: ' if kind == 'bug' else ''}{escape(attacks)}</span></button>"
        for kind, name, attacks in cases
    ) + "</div>"  # fmt: skip
