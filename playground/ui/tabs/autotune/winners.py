"""The Autotune tab's last sheets: winners that are kept, and shapes that are warmed up before anyone waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from html import escape
from typing import Any

import gradio as gr

from kernels import InputError, get
from playground.engine import tuned
from playground.engine.messages import BenchRequest, BenchResult, EngineError, Progress, Request
from playground.engine.sweep_messages import SweepResult
from playground.ui import bench as form
from playground.ui import live, panels, words
from playground.ui.answer import ask
from playground.ui.bench import FAST, SMALL, Bench
from playground.ui.context import LONG, Context

PRESETS = (SMALL, "decode", "prefill", "odd", "largest")
HEADS = ("shape", "dims", "config", "first call, ms", "again, ms", "in a row, ms")
KINDS = ("words", "words", "", "", "")  # of the cells after a shape's name
NOT_WARM = '<p class="quiet">Nothing warmed up yet.</p>'


def build(context: Context, bench: Bench) -> gr.HTML:
    """Lay the sheets out; returns the list of winners, which opening the page fills by `listed`."""
    with gr.Column(elem_classes="sheet", elem_id="winners"):
        with gr.Row(elem_classes="headrow"):
            note = "on disk, for their device; Run takes them where the config is auto, and so does the chat"
            live.html(panels.section("Winners kept", None, note))
            own = gr.Button("Forget this kernel's", size="sm")
            all_ = gr.Button("Forget all", size="sm", elem_id="forget-all")
        kept = live.html()
    with gr.Column(elem_classes="sheet", elem_id="warm-up"):
        with gr.Row(elem_classes="headrow"):
            note = "the first call of a shape compiles its kernel; after this, yours finds it compiled"
            live.html(panels.section("Warm up", None, note))
            shapes = gr.CheckboxGroup(list(PRESETS), value=[SMALL, "decode"], show_label=False, container=False)
            warm = gr.Button("Warm up", size="sm", elem_id="warm")
            stop = gr.Button("Stop", size="sm", elem_id="warm-stop", visible="hidden")
        warmed = live.html(NOT_WARM)

    def warm_(session: gr.Request, names: list[str], *values: Any) -> Iterator[list[Any]]:
        said = NOT_WARM
        for said in _warm_up(context, session.session_hash or "", names, values):
            yield [said, live.shown(False), live.shown(True)]
        yield [said, live.shown(True), live.shown(False)]

    def stop_(session: gr.Request) -> None:
        context.jobs.stop(f"warm-up {session.session_hash or ''}")

    def forget(kernel: str | None = None) -> str:
        count = tuned.forget(kernel, context.settings.cache)
        return f'<p class="quiet">{words.count(count, "winner")} forgotten.</p>{listed(context)}'

    own.click(forget, bench.kernel, kept, **FAST)
    all_.click(lambda: forget(), None, kept, **FAST)
    warm.click(warm_, [shapes, *bench.inputs], [warmed, warm, stop], **LONG)
    stop.click(stop_, None, None, **FAST)
    return kept


# Winners


def keep(context: Context, result: SweepResult | None) -> list[str]:
    """Write the winner of a sweep down; what to say, and the winners as they now are."""
    if result is None or result.best is None or result.source is None:
        return [
            panels.failed("no config has won on this device; sweep configs first", nothing_ran=False),
            listed(context),
        ]
    best = result.configs[result.best]
    assert best.us is not None
    own = result.configs[result.default].us if result.default is not None else None
    try:
        tuned.keep(
            result.choice.kernel, result.choice.dtype, result.choice.dims, result.source.device, best.config,
            best.us.p50, own.p50 if own else None, context.settings.cache,
        )  # fmt: skip
    except OSError as error:
        said = f"the winner cannot be written: {error.strerror}; free space or set PLAYGROUND_CACHE"
        return [panels.failed(said), listed(context)]
    return ['<p class="quiet">Kept: runs of this shape\'s class on this device now take it.</p>', listed(context)]


def listed(context: Context) -> str:
    """Every winner that holds: of today's kernels and this Triton."""
    found = sorted(tuned.winners(context.settings.cache), key=lambda w: (w.kernel, w.dtype, w.date))
    if not found:
        return '<p class="quiet">No winner is kept. Sweep configs, then Use the winner here.</p>'
    heads = ("kernel", "shapes up to", "dtype", "config", "µs", "default, µs", "device", "kept on")
    optional = {"default, µs", "device", "kept on"}
    head = "".join(
        f'<th scope=col class="{"" if "µs" in h else "words"} {"opt" if h in optional else ""}">{h}</th>' for h in heads
    )
    body = "".join(_winner(w) for w in found)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Winners kept"><table class="fig configs">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _winner(w: tuned.Winner) -> str:
    shape = words.shape({name: tuned.next_power_of_2(size) for name, size in w.dims.items()})
    cells = (
        (shape, "words"), (w.dtype, "words"), (w.config.label, "words"), (words.digits(w.us), ""),
        (words.digits(w.default_us) if w.default_us else "", "opt"), (w.device, "words opt"),
        (w.date[:10], "words opt"),
    )  # fmt: skip
    body = "".join(f'<td class="{kind}">{escape(text)}</td>' for text, kind in cells)
    return f"<tr><th scope=row>{escape(w.kernel)}</th>{body}</tr>"


# Warm-up


def _warm_up(context: Context, session: str, names: list[str], values: tuple[Any, ...]) -> Iterator[str]:
    """Each shape called twice: the first call as it comes, compiling included, and once more."""
    cancel = context.jobs.start(f"warm-up {session}")
    rows: list[str] = []
    source = None
    try:
        asked = form.read(context, *values)
        spec = get(asked.kernel)
        shapes = {name: spec.default if name == SMALL else spec.presets.get(name) for name in names}
        if not shapes:
            yield panels.failed("no shape is chosen; tick one", nothing_ran=False)
            return
        for done, (name, dims) in enumerate(shapes.items()):
            step = Progress(what=f"Warming up {name}", done=done, total=len(shapes), unit="shapes")
            yield _table(rows, source) + panels.working(step)
            if dims is None:
                rows.append(_reason(name, f"{spec.name} has no such shape"))
                continue
            row, source_of_row = _warmed(context, asked, name, dict(dims), cancel)
            rows, source = [*rows, row], source_of_row or source
        yield _table(rows, source)
    except (InputError, EngineError) as error:
        yield _table(rows, source) + panels.failed(str(error), nothing_ran=False)
    finally:
        context.jobs.end(f"warm-up {session}", cancel)


def _warmed(
    context: Context, asked: Request, name: str, dims: dict[str, int], cancel: threading.Event
) -> tuple[str, Any]:
    request = ask(
        BenchRequest, asked, dims=dims, edge=None, bug=None, config=None, baselines=(), quick=True, alone=True
    )
    calls: list[BenchResult] = []
    try:
        for _ in range(2):
            *_, result = context.engine.stream(request, cancel)
            calls.append(result)
    except EngineError as error:
        if error.failure.kind == "cancelled":
            raise
        return _reason(name, error.failure.message), None
    first, again = (call.providers["triton"] for call in calls)
    if calls[0].source.kind != "measured" or not first.ok or not first.us:
        return _reason(name, first.failure or "it was not timed here"), None
    choice = calls[0].choice
    cells = (
        words.shape(choice.dims), f"{choice.config.label} ({choice.config_origin})",
        *(words.digits(1e3 * call.first_seconds) for call in (first, again)), words.digits(first.us.p50 / 1e3),
    )  # fmt: skip
    body = "".join(f'<td class="{kind}">{escape(cell)}</td>' for kind, cell in zip(KINDS, cells, strict=True))
    return f"<tr><th scope=row>{escape(name)}</th>{body}</tr>", calls[0].source


def _reason(name: str, why: str) -> str:
    return f'<tr><th scope=row>{escape(name)}</th><td class="why" colspan="5">{escape(why)}</td></tr>'


def _table(rows: list[str], source: Any) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope=col class="{kind}">{h}</th>' for kind, h in zip(("", *KINDS), HEADS, strict=True))
    mark = f"<p>{panels.badge(source)} {panels.text(words.place(source))}</p>" if source else ""
    return (
        f'{mark}<div class="scroll" tabindex="0" role="region" aria-label="First calls"><table class="fig configs">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
