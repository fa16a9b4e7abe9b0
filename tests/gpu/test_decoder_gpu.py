"""The decoder on a real GPU: graphs, steps ahead of the host, fused steps, 16- and 8-bit caches, on a tiny model.

Every text is compared with transformers' on the CPU in float32; what is computed in bfloat16 is compared with float64
beside transformers' own bfloat16. PLAYGROUND_TEST_DEVICE=cpu runs the same natively, without graphs.
"""

from __future__ import annotations

import dataclasses
import os

import pytest
import torch

from playground.decoder import Decoder, Setup, profile
from playground.decoder.conversation import Limits
from playground.decoder.looks import ProfileRequest, ReplayRequest
from playground.decoder.messages import ChatMessage, ChatRequest
from playground.decoder.replay import Replay
from playground.decoder.runner import Chunk, Row, Runner
from playground.decoder.sampler import Sampling
from playground.engine.messages import Source
from tests.decoder import tiny
from tests.decoder.test_batch import prompt

DEVICE = torch.device("cpu" if os.environ.get("PLAYGROUND_TEST_DEVICE") == "cpu" else "cuda:0")
ON_GPU = DEVICE.type == "cuda"
pytestmark = pytest.mark.gpu if ON_GPU else []

KIND = "llama-head-dim-apart"  # a head of 32: the least that the fused step takes
PROMPTS = [(i, n) for i, n in enumerate((3, 40, 1, 17, 70, 8, 9, 33))]


@pytest.fixture(autouse=True)
def no_gradients():
    if not ON_GPU:
        from playground import native

        native.enable()
    with torch.no_grad():
        yield
    if not ON_GPU:
        native.disable()


def texts(count=24, sampling=Sampling(), **options):  # noqa: B008 - a frozen value
    """The answers of eight conversations that join one after another."""
    batch = tiny.make_batch(KIND, device=DEVICE, backend="triton", max_batch=8, **options)
    conversations = []
    for seed, length in PROMPTS:
        own = dataclasses.replace(sampling, seed=seed)
        conversations.append(batch.submit(prompt(seed, length), own, Limits(max_tokens=count)))
        batch.step()
        batch.step()
    tiny.finish(batch)
    assert batch.pool.available == len(batch.pool.pages)
    return [c.answer for c in conversations]


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "no graphs"])
@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "separate"])
def test_texts_equal_transformers(graphs, fuse):
    got = texts(graphs=graphs and ON_GPU, fuse=fuse)
    for (seed, length), answer in zip(PROMPTS, got, strict=True):
        assert answer == tiny.expected_answer(prompt(seed, length), 24, KIND)


def test_sampled_texts_do_not_depend_on_graphs_or_on_pytorch():
    hot = Sampling(temperature=0.9, top_k=40, top_p=0.95)
    expected = texts(sampling=hot, graphs=False, fuse=False)
    assert texts(sampling=hot) == expected
    batch = tiny.make_batch(KIND, device=DEVICE, backend="torch", max_batch=8)
    conversations = [
        batch.submit(prompt(s, n), dataclasses.replace(hot, seed=s), Limits(max_tokens=24)) for s, n in PROMPTS
    ]
    tiny.finish(batch)
    assert [c.answer for c in conversations] == expected


def test_few_pages_cancels_and_a_full_context():
    batch = tiny.make_batch(KIND, device=DEVICE, backend="triton", pages=9, max_batch=4, max_context=64)
    conversations = [batch.submit(prompt(i, n), limits=Limits(max_tokens=30)) for i, n in enumerate((10, 20, 5, 12))]
    gone = batch.submit(prompt(9, 6), limits=Limits(max_tokens=40))
    for _ in range(5):
        batch.step()
    batch.cancel(gone)
    tiny.finish(batch)
    for i, (conversation, n) in enumerate(zip(conversations, (10, 20, 5, 12), strict=True)):
        assert conversation.answer == tiny.expected_answer(prompt(i, n), 30, KIND)
    assert gone.finish == "cancelled"
    full = batch.submit(prompt(1, 50))
    tiny.finish(batch)
    assert full.finish == "context" and full.answer == tiny.expected_answer(prompt(1, 50), 15, KIND)
    assert batch.pool.available == 9


def test_a_swap_in_mid_answer_changes_no_token():
    batch = tiny.make_batch(KIND, device=DEVICE, backend="triton")
    conversation = batch.submit(prompt(1, 21), limits=Limits(max_tokens=40))
    for group in ("norm", "rope", "attention", "activation", "sampling", "linear"):
        for _ in range(4):
            batch.step()
        batch.swap({group: "torch"})
    tiny.finish(batch)
    assert conversation.answer == tiny.expected_answer(prompt(1, 21), 40, KIND)


def test_kernels_swapped_in_some_conversations_change_no_text_and_share_no_page():
    batch = tiny.make_batch(KIND, device=DEVICE, backend="triton", max_batch=8)
    text, tables = (
        prompt(1, 40),
        ({}, {"norm": "torch"}, {"attention": "torch", "rope": "torch"}, {}, {"norm": "torch"}),
    )
    conversations = []
    for table in tables:
        conversations.append(batch.submit(text, limits=Limits(max_tokens=24), table=table))
        batch.step()
        batch.step()
    tiny.finish(batch)
    for conversation in conversations:
        assert conversation.answer == tiny.expected_answer(text, 24, KIND)
    assert [c.reused > 0 for c in conversations] == [False, False, False, True, True]


def test_chances_are_told_while_steps_run_ahead():
    batch = tiny.make_batch(KIND, device=DEVICE, backend="triton")
    tokens = prompt(6, 9)
    batch.submit(tokens, limits=Limits(max_tokens=8, alternatives=True))
    emitted = []
    while not batch.idle:
        emitted += [event for event in batch.step() if event.token is not None]
    assert len(emitted) == 8
    for event in emitted:
        chances = tiny.expected_logits(tokens, KIND)[-1].softmax(-1)
        assert event.chance.own == pytest.approx(float(chances[event.token]), rel=1e-3)
        assert [other.token for other in event.alternatives] == chances.topk(5).indices.tolist()
        tokens.append(event.token)


def test_a_replay_beside_a_chat():
    setup = Setup(model=str(tiny.folder(KIND)), device=str(DEVICE), dtype="float32", backend="triton", pages=64)
    decoder = Decoder.load(setup)
    message = (ChatMessage(role="user", content="t5 t6 t7"),)
    chat = decoder.submit(ChatRequest(messages=message, max_tokens=40))
    for _ in range(4):
        decoder.step()
    ids = tuple(tiny.expected_answer([1, 5, 6, 7, 1], 24, KIND))
    replay = Replay(decoder, ReplayRequest(messages=message, ids=ids, swap={"norm": "torch", "attention": "torch"}))
    while not replay.over or chat.conversation.finish is None:
        decoder.step()
    result = replay.end(1).result
    assert [step.id for step in result.steps] == list(ids) and result.first_difference is None
    assert 0 < result.largest < 1e-2 and result.kl < 1e-5
    expected = tiny.expected_answer([1, 5, 6, 7, 1], 40, KIND, eos=True)
    assert chat.conversation.answer == expected[: chat.conversation.step]


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "separate"])
def test_a_step_is_taken_apart_by_box(fuse):
    batch = tiny.make_batch(KIND, device=DEVICE, backend="triton", fuse=fuse)
    here = Source(kind="measured", device=str(DEVICE), date="", versions={})
    found = profile.profile(batch, ProfileRequest(batch=1, context=100), here)
    names = [box.box for box in found.boxes]
    assert ("attn_norm+qkv" in names) == fuse and ("activation" in names) != fuse
    assert all(0 < box.seconds < 0.1 for box in found.boxes)
    assert sum(box.share for box in found.boxes) == pytest.approx(1)
    attention = next(box for box in found.boxes if box.box.endswith("attention"))
    assert attention.bytes >= 2 * 100 * 2 * 32 * 4 and batch.pool.available == 64


def logits_of(tokens, prompt_tokens, count, **model):
    """Teacher-forced: a prefill, then one step for each token, `count` rows of the same text in each step."""
    runner = Runner(tiny.make_model(KIND, device=DEVICE, pages=16 * count, **model), 8, count, 128)
    pages = [list(range(16 * i, 16 * i + 16)) for i in range(count)]
    for own in pages:
        slots = [own[i // 8] * 8 + i % 8 for i in range(prompt_tokens)]
        row = Row(tokens[prompt_tokens - 1], prompt_tokens - 1, own, Sampling(), 0)
        first = runner.prefill([Chunk(tokens[:prompt_tokens], 0, slots, row)])["logits"][0].double().cpu()
    rows = [first]
    runner.prepare(count)
    for position in range(prompt_tokens, len(tokens)):
        runner.rows.load([Row(tokens[position], position, own, Sampling(), 0) for own in pages])
        rows.append(runner.decode(count)["logits"][-1].double().cpu())
    return torch.stack(rows)


@pytest.mark.parametrize("count", [1, 3], ids=["one row", "three rows"])
def test_bfloat16_is_as_near_to_float64_as_transformers_bfloat16(count):
    tokens = prompt(5, 104)
    exact = tiny.expected_logits(tokens, KIND)[39:]
    theirs = tiny.reference(KIND, torch.bfloat16)(torch.tensor([tokens])).logits[0, 39:].double()
    ours = logits_of(tokens, 40, count, dtype=torch.bfloat16)
    assert (ours - exact).norm() < 1.2 * (theirs - exact).norm()


@pytest.mark.parametrize(("cache", "bar"), [(torch.int8, 0.08), (torch.float8_e4m3fn, 0.3)], ids=["int8", "fp8"])
def test_an_eight_bit_cache_stays_near(cache, bar):
    tokens = prompt(5, 80)
    exact = tiny.expected_logits(tokens, KIND)[39:]
    ours = logits_of(tokens, 40, 2, cache=cache)
    assert (ours - exact).norm() < bar * exact.norm()


def test_sixty_four_conversations_share_a_batch():
    batch = tiny.make_batch(KIND, device=DEVICE, backend="triton", pages=640, max_batch=64, chunk=256)
    conversations = [batch.submit(prompt(i, 1 + i % 40), limits=Limits(max_tokens=12)) for i in range(80)]
    widest = 0
    while not batch.idle:
        batch.step()
        widest = max(widest, len(batch.decoding))
    assert widest == 64
    for i in (0, 7, 39, 63, 79):
        assert conversations[i].answer == tiny.expected_answer(prompt(i, 1 + i % 40), 12, KIND)
