"""Looking inside the chat's decoder: its block, the time of its kernels, a kernel swapped, where a token attends.

Gradio components and their wiring; what they show is made in chat_block, chat_swap, chat_attention and chat_panel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from kernels import InputError, get
from playground.decoder.looks import AttentionRequest, ProfileRequest, ReplayRequest
from playground.decoder.messages import SWAPS, ModelFacts, Provider, WarmResult
from playground.engine.messages import EngineError, Progress
from playground.ui import bench as form
from playground.ui import live, panels, words
from playground.ui.context import LONG, Context
from playground.ui.tabs.chat import attention, panel
from playground.ui.tabs.chat import block as chat_block
from playground.ui.tabs.chat import swap as chat_swap
from playground.ui.tabs.chat.talk import BACKENDS, Ended, Wishes

CONTEXT = 128  # tokens that a profiled step reads where there is no answer yet
ALL = "all layers"
NO_SHARES = '<p class="quiet">Time the kernels runs one decode step, kernel by kernel.</p>'
NO_BLOCK = '<p class="quiet">The block stands here once the model is loaded.</p>'
COMING = '<p class="quiet">The block is coming: it stands here once all is made ready, and answers go first.</p>'
NO_SWAP = (
    '<p class="quiet">Pick one or more and press Show what it changes: the last answer is gone through twice, as it '
    "was made and with the swap, and every token's logits are compared.</p>"
)
NO_LOOK = '<p class="quiet">Look shows which pages the last token attends to, by layer, or by head of one layer.</p>'
INSTEAD = {"triton": "On our kernels instead", "torch": "In PyTorch instead"}


@dataclass(frozen=True)
class Look:
    """What the live panel shows on request: the time of each kernel, and attention."""

    profile: gr.Button
    shares: gr.HTML
    layer: gr.Dropdown
    button: gr.Button
    map: gr.HTML


@dataclass(frozen=True)
class Inside:
    """The sheets below the chat. facts: the model's, once it is loaded."""

    facts: gr.State
    warm: gr.Button
    block: gr.HTML
    groups: gr.CheckboxGroup
    keep: gr.Checkbox
    compare: gr.Button
    changed: gr.HTML
    each: gr.HTML


def key_of(session: gr.Request) -> str:
    """Under which a visit's answer runs, and whose its pages are."""
    return f"chat {session.session_hash or ''}"


def build_look() -> Look:
    with gr.Row(elem_classes="headrow look"):
        live.html("<h3>Share of a step, by kernel</h3>")
        profile = gr.Button("Time the kernels", elem_id="chat-profile")
    shares = live.html(NO_SHARES, elem_id="chat-shares")
    with gr.Row(elem_classes="headrow look"):
        live.html("<h3>Where the last token looks</h3>")
        layer = gr.Dropdown(
            [ALL], value=ALL, show_label=False, label="layer", container=False, filterable=False, min_width=110,
            elem_id="chat-layer",
        )  # fmt: skip
        button = gr.Button("Look", elem_id="chat-look")
    return Look(profile, shares, layer, button, live.html(NO_LOOK, elem_id="chat-attention"))


def build(context: Context) -> Inside:
    with gr.Column(elem_classes="sheet"):
        live.html(panels.section("The decoder block", None, "one decode step; a box opens its kernel's Run tab"))
        block = live.html(NO_BLOCK, elem_id="chat-block")
        warm = gr.Button("Load the model", elem_id="chat-warm", elem_classes="unseen")
    with gr.Column(elem_classes="sheet", elem_id="chat-swap"):
        with gr.Row(elem_classes="headrow"):
            live.html(panels.section("Swap a kernel", None, "what changes where other code does the same step"))
            compare = gr.Button("Show what it changes", elem_id="chat-compare")
        groups = gr.CheckboxGroup(
            [(name[0].upper() + name[1:], group) for group, name in SWAPS.items()], value=[],
            label=INSTEAD["torch"], elem_id="chat-groups",
        )  # fmt: skip
        keep = gr.Checkbox(False, label="Keep it swapped for the rest of this chat", elem_id="chat-keep")
        changed = live.html(NO_SWAP, elem_id="chat-changed")
        each = live.chart(context.plotly, "Largest logit difference at each token", elem_id="chat-difference")
    return Inside(gr.State(None), warm, block, groups, keep, compare, changed, each)


def wire(context: Context, inside: Inside, look: Look, backend: Any, ready: Any, ended: Any, wishes: list[Any]) -> None:
    loaded = [ready, inside.facts, inside.block, look.layer]

    def warmed(session: gr.Request, name: str, facts: ModelFacts | None) -> Iterator[list[Any]]:
        yield [gr.skip()] * len(loaded)  # a generator that draws nothing would empty them
        yield from _warm(context, f"warm {session.session_hash or ''}", name, facts)

    def timed(name: str, facts: ModelFacts | None, last: Ended | None) -> Iterator[list[Any]]:
        yield from _profile(context, name, facts, last)

    def compared(session: gr.Request, groups: list[str], last: Ended | None) -> Iterator[list[Any]]:
        yield from _compare(context, f"swap {session.session_hash or ''}", groups, last)

    def looked(session: gr.Request, layer: str, last: Ended | None, *values: Any) -> Iterator[str]:
        yield from _look(context, key_of(session), layer, last, Wishes(*values))

    inside.warm.click(warmed, [backend, inside.facts], loaded, **LONG)
    backend.change(warmed, [backend, inside.facts], loaded, **LONG)
    backend.change(
        lambda name: gr.CheckboxGroup(label=INSTEAD[chat_swap.other_side(BACKENDS[name])]), backend, inside.groups,
        **form.FAST,
    )  # fmt: skip
    look.profile.click(timed, [backend, inside.facts, ended], [look.shares, inside.block], **LONG)
    inside.compare.click(compared, [inside.groups, ended], [inside.changed, inside.each], **LONG)
    look.button.click(looked, [look.layer, ended, *wishes], look.map, **LONG)
    look.layer.change(looked, [look.layer, ended, *wishes], look.map, **LONG)


def _warm(context: Context, key: str, name: str, facts: ModelFacts | None) -> Iterator[list[Any]]:
    """Load and compile ahead, so that Send finds the model ready. What is shown of the model stays as it is."""
    drawn = _block(facts) if facts else COMING
    cancel = context.jobs.start(key)
    try:
        for event in context.chats.warm(BACKENDS[name], cancel):
            if not context.jobs.owns(key, cancel):  # another backend has been chosen
                return
            if isinstance(event, WarmResult):
                layers = gr.Dropdown([ALL, *(f"layer {i}" for i in range(event.model.layers))], value=ALL)
                fresh = _block(event.model) if event.model != facts else drawn
                yield [_ready(event), event.model, fresh, layers if event.model != facts else gr.skip()]
            else:
                yield [panels.working(event), facts, drawn, gr.skip()]
    except EngineError as error:
        if error.failure.kind != "cancelled":
            yield [panels.failed(str(error), nothing_ran=False), facts, drawn, gr.skip()]
    finally:
        context.jobs.end(key, cancel)


def _ready(result: WarmResult) -> str:
    model = result.model
    weights = words.text(model.weight_bytes, words.BYTES)
    size = f"{words.digits(model.parameters / 1e6)} M parameters in {model.dtype}, {weights}"
    return f'<p class="sub" role="status">Ready: {size}; a context of {model.max_context:,} tokens.</p>'


def _block(facts: ModelFacts) -> str:
    return chat_block.picture(chat_block.lanes(facts, CONTEXT), facts.layers, facts.dtype)


def _profile(context: Context, name: str, facts: ModelFacts | None, last: Ended | None) -> Iterator[list[Any]]:
    drawn = _block(facts) if facts else gr.skip()  # the model may be loaded meanwhile, and draws its block
    yield [panels.working(Progress(what="timing each kernel of a decode step")), drawn]
    read = last.prompt_tokens + len(last.ids) if last else CONTEXT
    try:
        found = context.chats.profile(BACKENDS[name], request=ProfileRequest(batch=1, context=read))
    except EngineError as error:
        yield [panels.failed(str(error), nothing_ran=False), drawn]
        return
    if facts:
        made = chat_block.lanes(facts, found.context or read, found)
        drawn = chat_block.picture(made, facts.layers, facts.dtype)
    yield [panel.shares(found), drawn]


def _compare(context: Context, key: str, groups: list[str], last: Ended | None) -> Iterator[list[Any]]:
    if last is None or not groups:
        missing = "nothing is picked; pick what to swap" if last else "there is no answer yet; ask something first"
        yield [panels.failed(missing), None]
        return
    yield [panels.working(Progress(what="going through the last answer twice")), None]
    asked = last.request
    swap = {group: _other(asked.table.get(group), asked.backend) for group in groups}
    cancel = context.jobs.start(key)
    try:
        found = context.chats.replay(
            ReplayRequest(messages=asked.messages, ids=last.ids, swap=swap, table=asked.table,
                          temperature=asked.temperature, top_k=asked.top_k, top_p=asked.top_p, seed=asked.seed),
            asked.backend, cancel, asked.cache_dtype,
        )  # fmt: skip
        yield [chat_swap.told(found), live.drawn(chat_swap.per_token(found))]
    except (EngineError, InputError) as error:
        yield [panels.failed(str(error), nothing_ran=False), None]
    finally:
        context.jobs.end(key, cancel)


def _other(now: Provider | None, backend: str) -> Provider:
    """The side that does not do it now."""
    own = now or ("torch" if backend == "torch" else "triton")
    return "triton" if own == "torch" else "torch"


def _look(context: Context, key: str, layer: str, last: Ended | None, wishes: Wishes) -> Iterator[str]:
    layers = None if layer == ALL else (int(layer.split(" ")[1]),)
    running = context.jobs.running(key)
    if not running and last is None:
        yield NO_LOOK
        return
    yield panels.working(Progress(what="reading the last token again"))
    page_size = last.page_size if last else int(get("kv_cache_write").default["page_size"])
    try:
        if running or last is None:
            request = AttentionRequest(owner=key, layers=layers)
            found = context.chats.attention(key, wishes.side, request, wishes.dtype)
        else:
            asked = last.request
            request = AttentionRequest(owner=key, layers=layers, messages=asked.messages, ids=last.ids)
            found = context.chats.attention(key, asked.backend, request, asked.cache_dtype)
    except EngineError as error:
        yield panels.failed(str(error), nothing_ran=False)
        return
    yield attention.told(found, page_size, last.prompt_tokens if last else None)
