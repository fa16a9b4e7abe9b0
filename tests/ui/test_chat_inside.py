"""What looks inside the decoder draws: the block with its shapes and links, a swap in words, attention, the warm-up."""

import re
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest

from kernels import get
from playground.decoder.looks import AttentionResult, KernelBox, ProfileResult, ReplayResult, ReplayStep
from playground.decoder.messages import ChatMessage, ChatRequest, ModelFacts, WarmResult
from playground.engine import choose
from playground.engine.messages import EngineError, Failure, Progress, Request, Source
from playground.ui.jobs import Jobs
from playground.ui.tabs.chat import attention as chat_attention
from playground.ui.tabs.chat import block as chat_block
from playground.ui.tabs.chat import inside, swap
from playground.ui.tabs.chat.talk import Ended, Wishes

HERE = Source(kind="measured", device="a CPU", date="2026-01-02T03:04:05", versions={"torch": "2.13.0"})
# https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct, config.json
FACTS = ModelFacts(
    name="SmolLM2-135M-Instruct", layers=30, hidden=576, heads=9, kv_heads=3, head_dim=64, ffn=1536, vocab_size=49152,
    max_context=8192, parameters=134_515_008, weight_bytes=538_060_032, dtype="float32", cache_dtype="float32",
    tied=True, qkv_bias=False, qk_norm=False,
)  # fmt: skip
ASKED = ChatRequest(messages=(ChatMessage(role="user", content="Hi"),), backend="triton", temperature=0.5, seed=3)
LAST = Ended(ASKED, (5, 6), 10, 16)


def box(name, share, spec=None, provider="triton", kernel="some_kernel"):
    return KernelBox(box=name, group="linear", provider=provider, kernel=kernel, spec=spec, calls=30, inputs=(),
                     outputs=(), bytes=1, seconds=share, share=share)  # fmt: skip


def profile(*boxes):
    return ProfileResult(batch=1, kernels={"linear_kernel": 0.5, "rope_kernel": 0.5}, step_seconds=0.03, source=HERE,
                         boxes=boxes, context=200)  # fmt: skip


# The block


def test_the_block_has_the_models_shapes():
    html = chat_block.picture(chat_block.lanes(FACTS, 128), 30, "float32")
    for shape in ("576 → 960", "q 9 × 64, k 3 × 64", "9 × 64 over 128", "576 → 3,072", "1,536 → 576", "576 → 49,152"):
        assert html.count(f">{shape}</text>") == 2, shape  # once in lanes, once as a column
    assert html.count("× 30 layers") == 2


@pytest.mark.parametrize("qk_norm", [False, True])
def test_each_box_opens_its_kernel_at_a_shape_that_runs(qk_norm):
    made = chat_block.lanes(FACTS.model_copy(update={"qk_norm": qk_norm}), 128)
    assert len(made.all) == 14 + qk_norm
    for part in made.all:
        given = {name: values[0] for name, values in parse_qs(part.link("float32").removeprefix("?")).items()}
        dims = {d.name: int(given.pop(d.name)) for d in get(part.kernel).dims}
        assert given == {"kernel": part.kernel, "dtype": "float32"}, part
        choose.validate(Request(kernel=part.kernel, dims=dims, dtype="float32"), False)


def test_a_profile_colours_the_boxes_and_says_who_did_them():
    found = profile(box("gate_up", 0.3, "linear"), box("head", 0.002, "linear"), box("rope", 0.1, None, "torch"))
    made = chat_block.lanes(FACTS, 200, found)
    html = chat_block.picture(made, 30, "float32")
    assert ">30 %</text>" in html and ">&lt;1 %</text>" in html
    assert 'class="box torch"' in html and ">PyTorch</text>" in html
    shares = {part.key: part.share for part in made.all}
    assert (shares["gate_up"], shares["rope"], shares["down"]) == (0.3, 0.1, None)


def test_boxes_of_one_fused_kernel_are_joined_and_show_its_share_once():
    found = profile(
        box("ffn_norm+gate_up+activation", 0.4, "linear", kernel="norm_linear_silu_kernel"), box("down", 0.2)
    )
    made = chat_block.lanes(FACTS, 200, found)
    assert [part.joined for part in made.forward] == [False, True, True, False]
    html = chat_block.picture(made, 30, "float32")
    assert html.count(">40 %</text>") == 2 and html.count(">norm_linear_silu</text>") == 6
    assert [part.kernel for part in made.forward] == ["add_rms_norm", "linear", "silu_mul", "linear"]  # tabs that exist


# A swap


def replay(first=None, largest=1.6e-5):
    step = ReplayStep(id=5, text="a", largest=largest, kl=1e-11, drawn=(5, 5), drawn_text=("a", "<b>"))
    return ReplayResult(steps=(step, step), largest=largest, kl=1.8e-11, first_difference=first,
                        table={"norm": "triton", "rope": "triton"}, swapped={"norm": "torch", "rope": "triton"},
                        source=HERE)  # fmt: skip


def test_a_swap_that_changes_nothing_is_told_in_words():
    html = swap.told(replay())
    assert "RMSNorm on PyTorch" in html and "1.6 × 10⁻⁵" in html and "1.8 × 10⁻¹¹" in html and "nats" in html
    assert "<b>none</b>" in html and "token for token" in html


def test_a_swap_that_changes_a_token_says_which():
    html = swap.told(replay(first=1))
    assert "<b>2</b> of 2" in html and "“a”" in html and "“&lt;b&gt;”" in html


def test_a_difference_of_none_can_be_drawn():
    assert min(swap.per_token(replay(largest=0.0)).data[0].y) > 0  # the axis is logarithmic


class Chats:
    """Answers each question with what it was given, or raises it."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def __getattr__(self, name):
        def ask(*arguments, **named):
            self.asked.append((name, *arguments, *named.values()))
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return ask


def context(answer):
    return SimpleNamespace(chats=Chats(answer), jobs=Jobs())


def test_a_swap_is_compared_on_the_last_answer_as_it_was_drawn():
    where = context(replay())
    *_, (told, figure) = inside._compare(where, "swap me", ["norm"], LAST)
    request = where.chats.asked[0][1]
    assert request.swap == {"norm": "torch"} and request.ids == (5, 6)
    assert (request.temperature, request.seed) == (0.5, 3) and "RMSNorm" in told and figure


def test_a_kernel_that_was_swapped_already_is_swapped_back():
    where = context(replay())
    kept = Ended(ASKED.model_copy(update={"table": {"norm": "torch"}}), (5,), 10, 16)
    list(inside._compare(where, "swap me", ["norm"], kept))
    assert where.chats.asked[0][1].swap == {"norm": "triton"}


@pytest.mark.parametrize(
    ("groups", "last", "said"), [([], LAST, "Pick what to swap"), (["norm"], None, "Ask something")]
)
def test_a_swap_without_its_parts_says_what_is_missing(groups, last, said):
    where = context(replay())
    *_, (told, _) = inside._compare(where, "swap me", groups, last)
    assert said in told and where.chats.asked == []


# Attention


def attention(layers=(0, 1)):
    mass = (((0.75, 0.25), (0.25, 0.75)), ((1.0, 0.0), (0.5, 0.5)))[: len(layers)]
    return AttentionResult(owner="me", tokens=20, pages=(4, 9), mass=mass, layers=layers, heads=(0, 1), mean=(0.6, 0.4))


def test_attention_by_layer_is_the_mean_of_its_heads():
    html = chat_attention.told(attention(), 16, 18)
    assert re.findall(r"--mass:([\d.]+)", html) == ["0.500", "0.500", "0.750", "0.250"]
    assert "layer 1, tokens 0 to 15, prompt: 75 %" in html and "62 % on tokens 0 to 15, prompt" in html


def test_attention_of_one_layer_is_by_head():
    html = chat_attention.told(attention(layers=(7,)), 16, 18)
    assert re.findall(r"--mass:([\d.]+)", html) == ["0.750", "0.250", "0.250", "0.750"] and "head of layer 7" in html


def test_a_long_context_shares_cells():
    pages = tuple(range(100))
    found = AttentionResult(
        owner="me", tokens=1600, pages=pages, mass=((tuple([0.01] * 100),),), layers=(0,), heads=(0,)
    )
    html = chat_attention.told(found, 16, None)
    assert html.count("--mass:0.030") == 33 and "a column 48 tokens" in html


@pytest.mark.parametrize("running", [True, False])
def test_a_running_answer_is_looked_at_as_it_is_and_an_ended_one_is_read_again(running):
    where = context(attention(layers=(3,)))
    if running:
        where.jobs.start("chat me")
    *_, html = inside._look(where, "chat me", "layer 3", LAST, Wishes())
    request = where.chats.asked[0][3]
    assert request.layers == (3,) and request.ids == (() if running else (5, 6)) and "head of layer 3" in html


def test_looking_where_nothing_was_asked_says_what_it_is_for():
    assert list(inside._look(context(None), "chat me", inside.ALL, None, Wishes())) == [inside.NO_LOOK]


# Profile and warm-up


def test_a_profile_reads_as_much_as_the_last_answer():
    where = context(profile(box("gate_up", 0.5, "linear")))
    *_, (shares, block) = inside._profile(where, "Triton", FACTS, LAST)
    assert where.chats.asked[0][2].context == 12
    assert "<span>linear</span>" in shares and ">50 %</text>" in block and "over 200" in block


def test_the_warm_up_says_what_it_does_and_then_what_is_ready():
    ready = WarmResult(seconds=3.0, model=FACTS, backend="triton", table={}, source=HERE)
    where = context([Progress(what="loading the weights"), ready])
    first, last = inside._warm(where, "warm me", "Triton", None)
    assert "Loading the weights" in first[0] and first[2] == inside.COMING
    assert "Ready: 135 M parameters in float32, 538 MB; a context of 8,192 tokens." in last[0]
    assert last[1] == FACTS and "576 → 960" in last[2] and not where.jobs.running("warm me")


@pytest.mark.parametrize(("kind", "shown"), [("unavailable", True), ("cancelled", False)])
def test_a_warm_up_that_fails_says_why(kind, shown):
    where = context(EngineError(Failure(kind=kind, message="no space for the model; set PLAYGROUND_CACHE")))
    drawn = list(inside._warm(where, "warm me", "Triton", None))
    assert bool(drawn) == shown and (not shown or "Set PLAYGROUND_CACHE." in drawn[0][0])


def test_any_failure_inside_is_one_line():
    lost = context(EngineError(Failure(kind="crashed", message="the chat worker crashed")))
    assert "The chat worker crashed" in [*inside._profile(lost, "Triton", FACTS, None)][-1][0]
    assert "The chat worker crashed" in [*inside._compare(lost, "swap me", ["norm"], LAST)][-1][0]
    assert "The chat worker crashed" in [*inside._look(lost, "chat me", inside.ALL, LAST, Wishes())][-1]


def test_a_visit_that_leaves_stops_all_of_it():
    jobs = Jobs()
    events = [jobs.start(f"{what} me") for what in ("chat", "warm", "swap")]
    jobs.stop_visit("me")
    assert all(event.is_set() for event in events)
