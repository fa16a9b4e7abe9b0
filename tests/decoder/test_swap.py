"""Kernels swapped in one conversation: its own text changes and nobody else's, and a replay says by how much.

The swapped-in activation is replaced by one that gives zeros, so a swap is seen; what a model without its feed-forward
layers says is transformers' word, with down_proj set to zero.
"""

import copy
import dataclasses

import pytest
import torch

from playground import native
from playground.decoder import Decoder, Setup
from playground.decoder.config import ModelError
from playground.decoder.conversation import Limits
from playground.decoder.looks import AttentionRequest, ReplayRequest
from playground.decoder.messages import ChatMessage, ChatRequest
from playground.decoder.ops import OPS
from playground.decoder.replay import Replay, Rereading
from tests.decoder import tiny
from tests.decoder.test_batch import prompt

ZEROS = {"activation": "torch"}
WORDS = "t5 t6 t7 t8 t9 t10 t11 t12 t13 t14"
IDS = [1, *range(5, 15), 1]  # as the plain template has it


@pytest.fixture
def zeros(monkeypatch):
    """PyTorch's activation gives zeros; the batch's own is Triton's."""
    native.enable()
    op = dataclasses.replace(OPS["silu_mul"], torch=lambda out, gate, up: out["out"].zero_())
    monkeypatch.setitem(OPS, "silu_mul", op)
    yield
    native.disable()


def without_mlp():
    model = copy.deepcopy(tiny.reference("llama", torch.float64))
    for name, parameter in model.named_parameters():
        if "down_proj" in name:
            parameter.data.zero_()
    return model


def greedy(model, tokens, count):
    tokens = list(tokens)
    for _ in range(count):
        tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[-count:]


def test_a_swap_in_one_conversation_changes_no_other(zeros):
    batch = tiny.make_batch(backend="triton")
    text = prompt(1, 24)
    plain = batch.submit(text, limits=Limits(max_tokens=12))
    for _ in range(3):
        batch.step()
    swapped = [batch.submit(text, limits=Limits(max_tokens=12), table=ZEROS) for _ in range(2)]
    later = batch.submit(text, limits=Limits(max_tokens=12))
    tiny.finish(batch)
    assert plain.answer == later.answer == tiny.expected_answer(text, 12)
    assert swapped[0].answer == swapped[1].answer == greedy(without_mlp(), text, 12) != plain.answer
    again = batch.submit(text, limits=Limits(max_tokens=12), table=ZEROS)
    tiny.finish(batch)
    assert later.reused == 23 and swapped[0].reused == 0, "pages that other kernels wrote were read"
    assert again.reused == 23 and again.answer == swapped[0].answer


def test_a_running_conversation_goes_on_as_if_it_had_always_been_swapped(zeros):
    batch = tiny.make_batch(backend="triton")
    text = prompt(2, 9)
    conversation, other = (batch.submit(text, limits=Limits(max_tokens=16)) for _ in range(2))
    for _ in range(6):
        batch.step()
    batch.drain()
    head = list(conversation.answer)
    batch.swap(ZEROS, conversation)
    tiny.finish(batch)
    assert head == tiny.expected_answer(text, 16)[: len(head)] and 0 < len(head) < 16
    assert conversation.answer == head + greedy(without_mlp(), text + head, 16 - len(head))
    assert other.answer == tiny.expected_answer(text, 16)


def test_sampling_may_be_swapped_without_reading_the_text_again():
    batch = tiny.make_batch()
    conversation = batch.submit(prompt(2, 20), limits=Limits(max_tokens=8))
    for _ in range(5):
        batch.step()
    native.enable()
    try:
        batch.swap({"sampling": "triton"}, conversation)
        tiny.finish(batch)
    finally:
        native.disable()
    assert conversation.prefilled == 20
    assert conversation.answer == tiny.expected_answer(prompt(2, 20), 8)


@pytest.mark.parametrize("group", ["norm", "rope", "attention", "activation", "sampling"])
def test_each_kernel_swapped_in_an_answer_changes_no_token(group):
    native.enable()
    try:
        batch = tiny.make_batch(backend="triton")
        conversation = batch.submit(prompt(3, 19), limits=Limits(max_tokens=12))
        for _ in range(5):
            batch.step()
        batch.drain()
        batch.swap({group: "torch"}, conversation)
        tiny.finish(batch)
    finally:
        native.disable()
    assert conversation.answer == tiny.expected_answer(prompt(3, 19), 12)


@pytest.fixture
def decoder():
    yield Decoder.load(Setup(model=str(tiny.folder()), device="cpu", backend="triton", pages=48))
    native.disable()


def run(decoder, led):
    while not led.over:
        decoder.step()
        decoder.batch.pool.check()
    return led.end(7)


def user(words):
    return (ChatMessage(role="user", content=words),)


def test_a_replay_measures_what_a_swap_changes(zeros, decoder):
    ids = tiny.expected_answer(IDS, 20)
    chat = decoder.submit(ChatRequest(messages=user("t3 t4"), max_tokens=30))
    for _ in range(3):
        decoder.step()
    before = decoder.batch.pool.available
    request = ReplayRequest(messages=user(WORDS), ids=ids, swap=ZEROS)
    result = run(decoder, Replay(decoder, request)).result
    exact = tiny.expected_logits([*IDS, *ids])[11:-1]
    other = without_mlp()(torch.tensor([[*IDS, *ids]])).logits[0, 11:-1]
    largest = (exact - other).abs().amax(-1)
    kl = torch.nn.functional.kl_div(other.log_softmax(-1), exact.log_softmax(-1), reduction="none", log_target=True)
    assert [step.id for step in result.steps] == ids
    assert [step.largest for step in result.steps] == pytest.approx(largest.tolist(), rel=1e-3)
    assert [step.kl for step in result.steps] == pytest.approx(kl.sum(-1).tolist(), rel=1e-3, abs=1e-6)
    assert [step.drawn for step in result.steps] == list(zip(ids, other.argmax(-1).tolist(), strict=True))
    differing = (exact.argmax(-1) != other.argmax(-1)).nonzero()
    assert result.first_difference == int(differing[0]) and result.largest == pytest.approx(
        float(largest.max()), rel=1e-3
    )
    assert (result.table["activation"], result.swapped["activation"]) == ("triton", "torch")
    while chat.conversation.finish is None:
        decoder.step()
    assert chat.conversation.answer == tiny.expected_answer([1, 3, 4, 1], 30)[: chat.conversation.step]
    assert decoder.batch.pool.available >= before


def test_an_honest_swap_differs_by_rounding_alone(decoder):
    ids = tiny.expected_answer(IDS, 20)
    request = ReplayRequest(messages=user(WORDS), ids=ids, swap={"norm": "torch", "attention": "torch"})
    result = run(decoder, Replay(decoder, request)).result
    assert result.first_difference is None and 0 < result.largest < 1e-3 and result.kl < 1e-6


def test_a_replay_leaves_no_page_in_use_and_can_be_stopped(decoder):
    request = ReplayRequest(messages=user(WORDS), ids=tuple(range(3, 90)), swap={"rope": "torch"})
    replay = Replay(decoder, request)
    for _ in range(6):
        decoder.step()
    replay.cancel()
    answer = run(decoder, replay)
    assert len(answer.result.steps) >= 1
    assert decoder.batch.idle and decoder.batch.pool.available == 48


def test_a_swap_of_nothing_known_is_refused(decoder):
    with pytest.raises(ModelError, match="no group of operations named 'nrom'; there are embedding, norm"):
        decoder.submit(ChatRequest(messages=user("t5"), table={"nrom": "torch"}))
    with pytest.raises(ModelError, match="no group of operations named 'nrom'"):
        Replay(decoder, ReplayRequest(messages=user("t5"), ids=(3,), swap={"nrom": "torch"}))
    assert decoder.batch.idle


def test_attention_of_an_ended_answer_by_layer_and_head(decoder):
    ids = tuple(tiny.expected_answer(IDS, 9))
    request = AttentionRequest(owner="ada", messages=user(WORDS), ids=ids, layers=(1,), heads=(3, 0))
    result = run(decoder, Rereading(decoder, request)).result
    model = tiny.reference("llama", torch.float64)
    model.set_attn_implementation("eager")
    read = [*IDS, *ids[:-1]]
    expected = model(torch.tensor([read]), output_attentions=True).attentions[1][0, [3, 0], -1]
    pages = torch.stack([part.sum(-1) for part in expected.split(16, dim=-1)], dim=-1)
    torch.testing.assert_close(torch.tensor(result.mass[0], dtype=torch.float64), pages, rtol=1e-4, atol=1e-6)
    assert (result.layers, result.heads, result.tokens) == ((1,), (3, 0), len(read))
    assert result.mean == pytest.approx(pages.mean(0).tolist(), abs=1e-6)
    with pytest.raises(ModelError, match=r"layer is 2; .* has layers 0 to 1"):
        Rereading(decoder, AttentionRequest(owner="ada", messages=user(WORDS), layers=(2,)))
