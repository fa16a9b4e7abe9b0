"""The bench: the form that says what is run, shared by every tab, and the link that carries it.

A choice is a `Request` everywhere else; here it is a row of inputs. `read` turns inputs into a request, `fill` a
request into what the inputs show. Ranges live with the kernels' dims and are checked by the engine's own `validate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import gradio as gr

from kernels import InputError, KernelSpec, get
from kernels.spec import Target
from playground.engine import choose
from playground.engine.messages import ConfigChoice, Request
from playground.ui import cases, links, live
from playground.ui.cases import Kept
from playground.ui.context import PRIVATE, Context

NO_CASE = "none"
SMALL = "default"  # the shape that this host answers at once
FAST = {**PRIVATE, "queue": False}
# Sent each time where several come quickly one after another. Of a choice or a click Gradio else drops all but the
# first; not of a change, whose last one it always sends.
EACH = {**FAST, "trigger_mode": "multiple"}
# Of a choice whose answer fills the bench: `until_filled` says what waits for it.
FILLS = {**EACH, "js": "(...values) => tp.fills(values)"}


@dataclass(frozen=True)
class Bench:
    """The inputs, in the order in which handlers take them."""

    kernel: gr.Dropdown
    preset: gr.Radio
    dims: tuple[gr.Number, ...]
    dtype: gr.Dropdown
    config: gr.Dropdown
    case: gr.Dropdown
    baselines: gr.CheckboxGroup
    seed: gr.Number
    explain: gr.HTML
    kept: gr.State  # what a case has changed, as cases.Kept
    note: gr.HTML  # which says so
    of: gr.State  # the kernel and the case that it was filled for
    run: gr.Button
    stop: gr.Button

    @property
    def inputs(self) -> list[Any]:
        return [self.kernel, *self.dims, self.dtype, self.config, self.case, self.baselines, self.seed]

    @property
    def shown(self) -> list[Any]:
        """What `fill` fills."""
        return [
            self.kernel, self.preset, *self.dims, self.dtype, self.config, self.case, self.baselines, self.seed,
            self.explain, self.kept, self.note, self.of,
        ]  # fmt: skip


def build(context: Context, start: Request) -> Bench:
    """Lay out the form, holding `start`."""
    spec = get(start.kernel)
    most = max(len(s.dims) for s in context.specs.values())
    listed = configs(spec, start, context.target())
    with gr.Row(elem_id="bench", equal_height=False):
        kernel = _list([(s.title, s.name) for s in context.specs.values()], spec.name, "kernel")
        shape = preset_of(spec, start.dims)
        preset = gr.Radio(presets(spec), value=shape, label="shape", elem_classes=["seg", "f-shape"])
        dims = tuple(_dim(spec, i, start) for i in range(most))
        dtype = _list(list(spec.dtypes), start.dtype, "dtype")
        with gr.Row(elem_classes="go"):
            config = _list(listed, links.config_key(start.config), "config")
            run = gr.Button("Run", variant="primary", elem_id="run")
            stop = gr.Button("Stop", elem_id="stop", visible=False)
    with gr.Row(elem_id="more", equal_height=False):
        explain = live.html(explanation(spec), elem_id="explain")
        case = _list(case_choices(spec), NO_CASE, "case")
        names = names_of_baselines(spec)
        baselines = gr.CheckboxGroup(names, value=[], label="compare with, beside eager", elem_id="baselines")
        seed = gr.Number(start.seed, label="seed", elem_classes="dim", elem_id="seed")
    kept = gr.State(None)
    note = live.html("", js_on_load=live.script("case.js"), elem_id="case-note")
    of = gr.State(("", ""))  # until the page is opened, or where the server has forgotten this visit
    return Bench(kernel, preset, dims, dtype, config, case, baselines, seed, explain, kept, note, of, run, stop)


def _list(choices: list[Any], value: str | None, label: str) -> gr.Dropdown:
    return gr.Dropdown(choices, value=value, label=label, filterable=False, elem_classes=f"f-{label}")


def _dim(spec: KernelSpec, i: int, start: Request) -> gr.Number:
    known = i < len(spec.dims)
    name = spec.dims[i].name if known else ""
    return gr.Number(start.dims.get(name), label=name, visible=known, elem_classes="dim")


# What a kernel offers


def presets(spec: KernelSpec) -> list[str]:
    return [SMALL, *spec.presets]


def preset_of(spec: KernelSpec, dims: Any) -> str | None:
    """The preset that has this shape, if one does."""
    shapes = {SMALL: spec.default, **spec.presets}
    return next((name for name, shape in shapes.items() if dict(shape) == dict(dims)), None)


def case_choices(spec: KernelSpec) -> list[tuple[str, str]]:
    """The edge cases and planted bugs as choices; the value says which kind it is."""
    edges = [(e.name, f"edge:{e.name}") for e in spec.edges]
    bugs = [(f"bug: {b.name}", f"bug:{b.name}") for b in spec.bugs]
    return [("none", NO_CASE), *edges, *bugs]


def case_of(request: Request) -> str:
    return f"edge:{request.edge}" if request.edge else f"bug:{request.bug}" if request.bug else NO_CASE


def names_of_baselines(spec: KernelSpec) -> list[str]:
    """What Triton can be compared with beside eager, which always runs."""
    return ["torch.compile", *(b.name for b in spec.baselines)]


def compared(spec: KernelSpec, request: Request, gpu: bool) -> list[str]:
    """The boxes that are ticked. Where nothing is said: all on a GPU, and on a CPU none, which compiles for long."""
    if request.baselines is None:
        return names_of_baselines(spec) if gpu else []
    return [n for n in names_of_baselines(spec) if n in request.baselines]


def configs(spec: KernelSpec, request: Request, target: Target) -> list[tuple[str, str]]:
    """auto, every config of the spec for this shape and target, and the one given where that is another."""
    given = request.config
    try:
        inputs = spec.inputs(request.dims, request.dtype or spec.dtypes[0], "meta")
        own = [ConfigChoice(meta=dict(c.meta), num_warps=c.num_warps, num_stages=c.num_stages)
               for c in spec.configs(inputs, target)]  # fmt: skip
    except (InputError, RuntimeError):  # a shape that cannot be: Run says what is wrong with it
        own = []
    listed = [(f"auto: {own[0].label}" if own else "auto", "auto")]
    listed += [(c.label, links.config_key(c)) for c in own]
    if given is not None and links.config_key(given) not in dict(listed).values():
        listed.append((f"given: {given.label}", links.config_key(given)))
    return listed


def explanation(spec: KernelSpec) -> str:
    first, _, rest = spec.doc.partition(". ")
    dims = "; ".join(f"{d.name}: {d.doc}" for d in spec.dims)
    return (
        f'<p class="explain"><b>{escape(first)}.</b> <span>{escape(rest)}</span> '
        f'<small class="dims">{escape(dims)}</small></p>'
    )


# Between the inputs and a request


def read(context: Context, *values: Any) -> Request:
    """The inputs as a request, checked. Raises InputError, whose line says what to change."""
    spec = get(values[0])
    numbers, (dtype, config, case, baselines, seed) = values[1:-5], values[-5:]
    kind, _, name = (case or NO_CASE).partition(":")
    edge = next((e for e in spec.edges if kind == "edge" and e.name == name), None)
    fixed = edge.dims if edge else {}
    dims = {
        dim.name: fixed[dim.name] if dim.name in fixed else links.whole(value, dim.name)
        for dim, value in zip(spec.dims, numbers, strict=False)
    }
    picked = tuple(n for n in baselines or () if n in names_of_baselines(spec))
    request = Request(
        kernel=spec.name, dims=dims, dtype=dtype, seed=links.whole(seed, "seed"), config=links.config_from(config),
        edge=name if kind == "edge" else None, bug=name if kind == "bug" else None,
        baselines=None if not picked and not context.gpu else picked,
    )  # fmt: skip
    choose.validate(request, context.gpu)
    return request


def fill(context: Context, request: Request, kept: Kept | None = None) -> list[Any]:
    """Updates of everything in `Bench.shown`, so that it shows the request, and what its case has changed."""
    spec = get(request.kernel)
    most = max(len(s.dims) for s in context.specs.values())
    sizes = [_fill_dim(spec, i, request) for i in range(most)]
    listed = configs(spec, request, context.target())
    return [
        spec.name,
        gr.update(choices=presets(spec), value=preset_of(spec, request.dims)),
        *sizes,
        gr.update(choices=list(spec.dtypes), value=request.dtype),
        gr.update(choices=listed, value=links.config_key(request.config)),
        gr.update(choices=case_choices(spec), value=case_of(request)),
        gr.update(choices=names_of_baselines(spec), value=compared(spec, request, context.gpu)),
        request.seed,
        explanation(spec),
        kept,
        case_note(kept),
        (spec.name, case_of(request)),
    ]


def case_note(kept: Kept | None) -> str:
    said = cases.said(kept)
    away = '<button type="button" data-away>Put it away</button>'
    return f'<p class="casenote" role="status">{escape(said)} {away}</p>' if said else ""


def _fill_dim(spec: KernelSpec, i: int, request: Request) -> Any:
    if i >= len(spec.dims):
        return gr.update(visible=False, value=None)
    name = spec.dims[i].name
    return gr.update(visible=True, label=name, value=request.dims.get(name))


def lenient(context: Context, *values: Any) -> Request:
    """The inputs as far as they can be used: what is wrong in them is at its first value."""
    try:
        return read(context, *values)
    except InputError:
        spec = get(values[0])
        first = links.first_choice(spec, context.gpu)
        return first.model_copy(update={"dtype": values[-5] if values[-5] in spec.dtypes else first.dtype})


def until_filled(event: Any) -> Any:
    """An event with FILLS. Presses and the fields that it fills wait until it has filled them, or has failed."""
    for end in (event.then, event.failure):
        end(None, js="() => tp.fill(-1)", api_visibility="private")
    return event


def wire(bench: Bench, context: Context) -> None:
    """Make the inputs follow each other, and the address follow the inputs."""
    held = [bench.kept, *bench.inputs]
    nothing = [gr.skip()] * len(bench.shown)

    def with_kernel(name: str, of: tuple[str, str]) -> list[Any]:
        """Gradio takes a list that is left as it was for a choice: what was typed below it stays."""
        return nothing if name == of[0] else fill(context, links.first_choice(get(name), context.gpu))

    def from_list(of: tuple[str, str], kept: Kept | None, *values: Any) -> list[Any]:
        return nothing if (values[0], values[-3]) == of else with_case(context, kept, *values)

    for event in (
        bench.kernel.input(with_kernel, [bench.kernel, bench.of], bench.shown, **FILLS),
        bench.preset.input(lambda *values: _preset(context, *values), [bench.preset, *held], bench.shown, **FILLS),
        bench.case.input(from_list, [bench.of, *held], bench.shown, **FILLS),
        bench.note.away(lambda kept, *values: put_away(context, kept, *values), held, bench.shown, **FILLS),
    ):
        until_filled(event)
    followers = [bench.preset, bench.config, bench.case, bench.kept, bench.note, bench.of]
    for part in (*bench.dims, bench.dtype):
        part.input(lambda *values: _retyped(context, *values), held, followers, **EACH)
    gr.on(
        [part.change for part in bench.inputs], None, bench.inputs, js="(...values) => tp.choice(values)",
        api_visibility="private",
    )  # fmt: skip


def _preset(context: Context, preset: str, kept: Kept | None, *values: Any) -> list[Any]:
    now = cases.put_away(lenient(context, *values), kept)
    spec = get(now.kernel)
    shape = spec.default if preset == SMALL else spec.presets[preset]
    return fill(context, now.model_copy(update={"dims": dict(shape), "config": None}))


def with_case(context: Context, kept: Kept | None, *values: Any) -> list[Any]:
    """The bench with the case that its list names, on what stood there before any other."""
    kind, _, name = values[-3].partition(":")
    cases_of = {value for _, value in case_choices(get(values[0]))}
    if not name or values[-3] not in cases_of:  # one of the kernel that stood there until now
        return put_away(context, kept, *values)
    taken = cases.taken(_plain(context, kept, *values), kind, name)
    return fill(context, taken.now, taken)


def put_away(context: Context, kept: Kept | None, *values: Any) -> list[Any]:
    """The bench without its case, as it was before it."""
    return fill(context, _plain(context, kept, *values))


def _plain(context: Context, kept: Kept | None, *values: Any) -> Request:
    return cases.put_away(lenient(context, *values[:-3], NO_CASE, *values[-2:]), kept)


def _retyped(context: Context, kept: Kept | None, *values: Any) -> list[Any]:
    """A size was typed: the preset and the configs follow, and an edge case whose shape it was is left."""
    spec = get(values[0])
    case = values[-3]
    typed = {d.name: v for d, v in zip(spec.dims, values[1:-5], strict=False)}
    edge = next((e for e in spec.edges if case == f"edge:{e.name}"), None)
    if edge and any(typed.get(name) != size for name, size in edge.dims.items()):
        case, kept = NO_CASE, None
    try:
        now = read(context, *values[:-3], case, *values[-2:])
    except InputError:
        return [None, gr.update(), case, kept, case_note(kept), (spec.name, case)]
    listed = configs(spec, now.model_copy(update={"config": None}), context.target())
    key = links.config_key(now.config)
    known = key if key in dict(listed).values() else "auto"
    config = gr.update(choices=listed, value=known)
    return [preset_of(spec, now.dims), config, case, kept, case_note(kept), (spec.name, case)]
