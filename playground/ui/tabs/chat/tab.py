"""Chat: a conversation with a decoder that runs on our kernels, and its KV cache shown while it talks."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from playground.decoder import recorded
from playground.decoder.messages import INTERPRETER_TOKENS
from playground.ui import bench as form
from playground.ui import live, panels
from playground.ui.api.openai import DEFAULT
from playground.ui.bench import Bench
from playground.ui.context import LONG, Context
from playground.ui.tabs import Loaded, Tab
from playground.ui.tabs.chat import charts as chat_charts
from playground.ui.tabs.chat import elsewhere
from playground.ui.tabs.chat import inside as chat_inside
from playground.ui.tabs.chat import panel as chat_panel
from playground.ui.tabs.chat import talk as chat_talk
from playground.ui.tabs.chat.charts import Steps
from playground.ui.tabs.chat.talk import BACKENDS, CACHES, Talk, Wishes

SUGGESTIONS = (
    "What does a KV cache keep, and why is it faster?",
    "Explain what a GPU kernel is to a cook.",
    "Write a short poem about memory bandwidth.",
    "List three ways to make a program faster.",
)
FIRST_TIME = (
    "{} answers here, every step of it on this project's own Triton kernels. The model is fetched when it is first "
    "asked, once."
)
WHO = {
    "Triton": "every step on this project's kernels",
    "PyTorch": "every step in PyTorch, to compare",
    "Interpreter": f"our kernels stepped in numpy, to look inside: slow, {INTERPRETER_TOKENS} tokens at most",
}
NO_STEPS = (
    '<p class="quiet">After an answer: the time of each token against the context, and the time in all. Turn the KV '
    "cache off under System prompt and sampling, and press Retry: the second line shows what it saves.</p>"
)
ONE_KIND = '<p class="quiet">Now one {} cache: switch it under System prompt and sampling, and press Retry.</p>'
# The question leaves the box as it is sent, and not as it is answered: what is typed in between is the visitor's. One
# at a time: what is sent while another is on its way stays in the box. What was refused stands there again.
TAKE = "(text, sent) => sent || !text.trim() ? [] : ['', text]"
GIVE_BACK = "(text, sent) => [[sent, text].filter(Boolean).join('\\n'), '']"
TOKENS = (
    '<div class="tokens" role="group" aria-label="Tokens of the answer; arrow keys walk them"></div>'
    '<div class="token-read" role="status"></div><p class="tokens-none quiet">The tokens of the next answer stand '
    "here as they come. Retry asks the last question again.</p>"
)


@dataclasses.dataclass(frozen=True)
class Asked:
    """The talk up to its question, and the ticket that its answer claims: once, and unless another was asked since."""

    ticket: int
    talk: Talk


@dataclasses.dataclass(frozen=True)
class Parts:
    """The components of the tab that events use."""

    bot: Any
    seen: Any  # how often the talk that the page shows was cleared
    clears: Any  # how often it was by the server: more often, while the answer to Clear is on its way
    asked: Any  # Asked: what the page shows may still be drawn over by the answer before
    note: Any
    head: Any
    panel: Any
    box: Any
    sent: Any  # the question that is on its way
    wishes: list[Any]  # in the order of Wishes
    tokens: Any
    ended: Any
    steps: Any
    charts: list[Any]

    @property
    def talk(self) -> list[Any]:
        """What `_current` takes."""
        return [self.bot, self.seen, self.clears]

    @property
    def drawn(self) -> list[Any]:
        return [self.bot, self.note, self.head, self.panel, self.tokens, self.ended]

    @property
    def streamed(self) -> list[Any]:
        return [*self.drawn, self.steps, *self.charts]


def build(context: Context, bench: Bench) -> Loaded:
    model = Path(context.settings.model).name or DEFAULT
    ended, asked = gr.State(None), gr.State(None)
    seen, clears = gr.Number(0, precision=0, visible=False), gr.State(0)
    with gr.Row(elem_classes="cols chatrow"):
        with gr.Column(scale=7, min_width=460, elem_classes="sheet chatpanel"):
            with gr.Row(elem_classes="headrow"):
                title = live.html(_title(model, "Triton"))
                backend = gr.Radio(
                    list(BACKENDS), value="Triton", show_label=False, container=False, elem_classes="seg two",
                    elem_id="chat-backend", min_width=180,
                )  # fmt: skip
            bot = _bot(model)
            note = live.html(js_on_load=live.script("talk.js"), elem_id="chat-note")
            ready = live.html(elem_id="chat-ready")
            box, send, sent = _say()
            with gr.Row(elem_classes="exports chat-tools"):
                stop, retry, clear = (
                    gr.Button(name, size="sm", elem_id=f"chat-{name.lower()}") for name in ("Stop", "Retry", "Clear")
                )
                tokens_on = gr.Checkbox(False, label="Show tokens and their probabilities", elem_id="chat-tokens-on")
            rest = _settings()
        with gr.Column(scale=5, min_width=460, elem_classes="sheet", elem_id="live"):
            head = live.html(chat_panel.head(None))
            panel = live.html(chat_panel.live(None), elem_id="chat-live")
            look = chat_inside.build_look()
    with gr.Column(elem_classes="sheet", elem_id="chat-tokens"):
        live.html(panels.section("Tokens", None, "the stronger its shade, the less likely the model held it"))
        tokens = gr.HTML(
            None, html_template=TOKENS, js_on_load=live.script("tokens.js"), apply_default_css=False,
            elem_id="chat-token-list",
        )  # fmt: skip
    charts = _charts(context)
    inside = chat_inside.build(context)
    if runs := recorded.runs(context.settings.recordings):
        with gr.Column(elem_classes="sheet", elem_id="chat-recorded"):
            live.html(elsewhere.sheet(runs))
    wishes = [backend, tokens_on, inside.groups, inside.keep, *rest]
    parts = Parts(bot, seen, clears, asked, note, head, panel, box, sent, wishes, tokens, ended, gr.State({}), charts)
    _wire(context, parts, send, stop, retry, clear)
    backend.change(lambda name: _title(model, name), backend, title, **form.FAST)
    chat_inside.wire(context, inside, look, backend, ready, ended, wishes)
    return Loaded()


def _title(model: str, backend: str) -> str:
    """Who does the steps, as it is chosen now."""
    return panels.section(model, None, WHO[backend])


def _bot(model: str) -> gr.Chatbot:
    return gr.Chatbot(
        show_label=False, container=False, height=440, layout="bubble", buttons=["copy"], feedback_options=None,
        editable="user", elem_classes="talk", elem_id="chat-talk", placeholder=FIRST_TIME.format(model),
        examples=[{"text": text} for text in SUGGESTIONS], allow_tags=False,
    )  # fmt: skip


def _say() -> tuple[gr.Textbox, gr.Button, gr.Textbox]:
    with gr.Row(elem_classes="say-row"):
        box = gr.Textbox(
            placeholder="Ask the model", label="Message", show_label=False, container=False, lines=1, max_lines=4,
            scale=8, min_width=100, max_length=20_000, elem_id="chat-box",
        )  # fmt: skip
        send = gr.Button("Send", variant="primary", scale=0, min_width=88, elem_id="chat-send")
    return box, send, gr.Textbox("", visible=False)


def _settings() -> list[Any]:
    """What Wishes has from `system` on, in its order."""
    first = Wishes()
    with gr.Accordion("System prompt and sampling", open=False, elem_id="chat-settings"):
        system = gr.Textbox(first.system, label="System prompt", lines=2, placeholder="none: the model's own stands")
        with gr.Row():
            temperature = gr.Slider(0, 2, first.temperature, step=0.05, label="temperature (0: the likeliest token)")
            top_p = gr.Slider(0.05, 1, first.top_p, step=0.05, label="top-p")
        with gr.Row():
            top_k = gr.Number(first.top_k, label="top-k (0: all)", precision=0, min_width=100)
            seed = gr.Number(first.seed, label="seed", precision=0, min_width=100)
            most = gr.Number(first.max_tokens, label="max tokens", precision=0, min_width=100)
        with gr.Row():
            slide = gr.Checkbox(first.slide, label="Let old turns slide out when the context is full")
            watch = gr.Checkbox(first.attention, label="Show attention by page (costs a reading twice a second)")
        with gr.Row():
            cache = gr.Checkbox(first.cache, label="Keep the KV cache (off: each token reads the whole text again)")
            dtype = gr.Dropdown(
                list(CACHES), value=first.cache_dtype, label="KV cache dtype", filterable=False, min_width=100
            )
    return [system, temperature, top_p, top_k, seed, most, slide, watch, cache, dtype]


def _charts(context: Context) -> list[Any]:
    """Two charts, and the words above them: what they show, or how they come about."""
    with gr.Column(elem_classes="sheet"):
        live.html(panels.section("What the cache saves", "measured", "answers of this visit, as their tokens came"))
        words = live.html(NO_STEPS, elem_id="chat-steps")
        with gr.Row(elem_classes="cols pair"):
            each = live.chart(context.plotly, "Time per token against context", min_width=300, elem_id="chat-each")
            total = live.chart(context.plotly, "Time in all against tokens", min_width=300, elem_id="chat-total")
    return [each, total, words]


def _wire(context: Context, parts: Parts, send: Any, stop: Any, retry: Any, clear: Any) -> None:
    jobs = context.jobs

    def asked(session: gr.Request, talk: Talk) -> Asked:
        """What answered until now draws no more."""
        return Asked(jobs.announce(chat_inside.key_of(session)), talk)

    def ask(session: gr.Request, text: str, *held: Any) -> tuple[Any, ...]:
        if not text.strip():
            return "", gr.skip(), gr.skip(), gr.skip()
        talk = [*_current(*held), {"role": "user", "content": text.strip()}]
        return "", chat_talk.shown(talk), asked(session, talk), ""

    def again(session: gr.Request, *held: Any) -> tuple[Talk, Asked, str]:
        talk = chat_talk.until_question(_current(*held))
        return chat_talk.shown(talk), asked(session, talk), ""

    def edited(session: gr.Request, change: gr.EditData, *held: Any) -> tuple[Talk, Asked, str]:
        at = change.index if isinstance(change.index, int) else change.index[0]
        talk = [*_current(*held)[:at], {"role": "user", "content": str(change.value)}]
        return chat_talk.shown(talk), asked(session, talk), ""

    def suggested(session: gr.Request, chosen: gr.SelectData) -> tuple[Talk, Asked, str]:
        talk = [{"role": "user", "content": str(chosen.value["text"])}]
        return talk, asked(session, talk), ""

    def stopped(session: gr.Request) -> None:
        jobs.stop(chat_inside.key_of(session))

    def cleared(session: gr.Request, clears: int) -> list[Any]:
        jobs.give_up(chat_inside.key_of(session))
        return [[], "", chat_panel.head(None), chat_panel.live(None), "", None, clears + 1, clears + 1]

    def stream(session: gr.Request, asked: Asked | None, steps: Steps, *values: Any) -> Iterator[list[Any]]:
        yield [gr.skip()] * len(parts.streamed)  # a generator that draws nothing would empty them
        yield from _stream(context, chat_inside.key_of(session), asked, steps, Wishes(*values))

    shows, said = [parts.bot, parts.asked, parts.note], [parts.box, parts.sent]
    taken = gr.on([send.click, parts.box.submit], None, said, said, js=TAKE, api_visibility="private")
    sent = taken.success(ask, [parts.sent, *parts.talk], [parts.sent, *shows], **form.FAST)
    sent.failure(None, said, said, js=GIVE_BACK, api_visibility="private")
    events = [
        sent,
        retry.click(again, parts.talk, shows, **form.FAST),
        parts.bot.edit(edited, parts.talk, shows, **form.FAST),
        parts.bot.example_select(suggested, None, shows, **form.FAST),
    ]
    inputs = [parts.asked, parts.steps, *parts.wishes]
    # One that is asked while another answers takes its place.
    streams = [e.success(stream, inputs, parts.streamed, trigger_mode="multiple", **LONG) for e in events]
    stop.click(stopped, None, None, **form.FAST)
    # Cancelled in the browser too: a drawing that is on its way would come after the clearing.
    clear.click(cleared, parts.clears, [*parts.drawn, parts.seen, parts.clears], cancels=streams, **form.FAST)


def _current(talk: Talk, seen: float, clears: int) -> Talk:
    """The talk as the page shows it; nothing of it where it is cleared already, and the page does not know yet."""
    return chat_talk.plain(talk) if seen >= clears else []


def _stream(context: Context, key: str, asked: Asked | None, steps: Steps, wishes: Wishes) -> Iterator[list[Any]]:
    """Draw an answer as it comes, as long as nothing else has taken its place. Nothing asked: nothing happens."""
    cancel = context.jobs.claim(key, asked.ticket) if asked else None
    if asked and cancel:
        yield from context.jobs.newest(key, cancel, _drawn(context, key, cancel, asked.talk, steps, wishes))


def _drawn(
    context: Context, key: str, cancel: threading.Event, talk: Talk, steps: Steps, wishes: Wishes
) -> Iterator[list[Any]]:
    charts = _charted(steps)
    if not talk or talk[-1]["role"] != "user":
        return
    for drawn in chat_talk.answer(context.chats, talk, wishes, key, cancel, context.known_host):
        if drawn.came and drawn.seen and drawn.seen.result:
            prompt = drawn.seen.result.prompt_tokens
            steps = chat_charts.kept(steps, wishes.backend, wishes.cache, prompt, list(drawn.came))
            charts = _charted(steps)
        panel = [chat_panel.head(drawn.seen, drawn.busy), chat_panel.live(drawn.seen)]
        yield [drawn.talk, drawn.note, *panel, drawn.tokens, drawn.ended, steps, *charts]


def _charted(steps: Steps) -> list[Any]:
    missing = [words for words in ("with the", "without the") if not any(words in name for name in steps)]
    said = f"<h3>{panels.text(chat_charts.heading(steps))}</h3>" if steps else NO_STEPS
    said += ONE_KIND.format(*missing) if len(missing) == 1 else ""
    return [live.drawn(chat_charts.per_token(steps)), live.drawn(chat_charts.in_all(steps)), said]


TAB = Tab("Chat", 50, build)
