"""What the panel shows of a running conversation, against transformers; looking must change nothing."""

import pytest
import torch

from playground import native
from playground.decoder import inspect, profile, stats
from playground.decoder.conversation import Conversation, Limits
from playground.decoder.looks import ProfileRequest
from playground.decoder.sampler import Sampling
from playground.engine.messages import Source
from tests.decoder import tiny
from tests.decoder.test_batch import prompt

HERE = Source(kind="measured", device="this CPU", date="2026-01-02T03:04:05", versions={})


@pytest.fixture
def running():
    batch = tiny.make_batch()
    conversation = batch.submit(prompt(1, 21), limits=Limits(max_tokens=30), owner="ada")
    for _ in range(6):
        batch.step()
    return batch, conversation


def test_attention_mass_is_the_softmax_summed_over_pages(running):
    batch, conversation = running
    got = inspect.attention_mass(batch.runner.model, conversation)
    read = conversation.tokens[: conversation.hold.length]
    model = tiny.reference("llama", torch.float64)
    model.set_attn_implementation("eager")
    weights = model(torch.tensor([read]), output_attentions=True).attentions
    for layer, expected in enumerate(weights):
        last = expected[0, :, -1]  # [heads, tokens]
        pages = torch.stack([part.sum(-1) for part in last.split(8, dim=-1)], dim=-1)
        torch.testing.assert_close(got[layer].double(), pages, rtol=1e-4, atol=1e-6)


def test_looking_changes_no_token(running):
    batch, conversation = running
    inspect.attention_mass(batch.runner.model, conversation)
    profile.profile(batch, ProfileRequest(), HERE)
    tiny.finish(batch)
    assert conversation.answer == tiny.expected_answer(prompt(1, 21), 30)


def test_nothing_to_look_at_is_said():
    batch = tiny.make_batch()
    with pytest.raises(LookupError, match="nothing in the cache"):
        inspect.attention_mass(batch.runner.model, batch.submit([3, 4], owner="bob"))


def test_a_profile_accounts_for_every_operation(running):
    batch, _ = running
    found = profile.profile(batch, ProfileRequest(context=20), HERE)
    assert (found.batch, found.context) == (1, 20) and found.step_seconds > 0
    assert {"torch linear", "torch decode_attention", "torch rope", "torch sample"} <= found.kernels.keys()
    assert sum(box.seconds for box in found.boxes) == pytest.approx(sum(found.kernels.values()))
    assert sum(box.share for box in found.boxes) == pytest.approx(1)


@pytest.mark.parametrize("backend", ["torch", "triton"])
def test_boxes_carry_the_models_shapes_and_compulsory_bytes(backend):
    native.enable()
    try:
        batch = tiny.make_batch("qwen3", backend=backend)
        boxes = {box.box: box for box in profile.profile(batch, ProfileRequest(batch=3, context=20), HERE).boxes}
    finally:
        native.disable()
    names = ["attn_norm", "qkv", "q_norm", "k_norm", "rope", "cache_write", "attention", "o", "ffn_norm", "gate_up"]
    names += ["activation", "down"]
    assert list(boxes) == ["state", "embedding", *names, "norm", "head", "sampling"]
    assert all(boxes[name].calls == 2 for name in names if name != "qkv") and boxes["qkv"].calls == 6
    assert all(box.provider == backend and box.seconds > 0 for box in boxes.values())
    shapes = {s.name: s.shape for s in boxes["down"].inputs}
    assert shapes == {"x": (3, 96), "weight": (64, 96)} and boxes["down"].outputs[0].shape == (3, 64)
    assert boxes["down"].bytes == 4 * (3 * 96 + 64 * 96 + 3 * 64) and boxes["down"].spec == "linear"
    heads, kv_heads, head_dim = 4, 2, 32
    assert [s.shape for s in boxes["rope"].outputs] == [(3, heads, head_dim), (3, kv_heads, head_dim)]
    read = 2 * 3 * 20 * kv_heads * head_dim  # keys and values of 3 rows of 20 tokens
    assert boxes["attention"].bytes == 4 * (read + 2 * 3 * heads * head_dim + 3)  # and q, the answer, the lengths
    assert (boxes["attention"].spec, boxes["ffn_norm"].spec) == ("decode_attention", "add_rms_norm")
    assert batch.pool.available == 64 and batch.idle


def test_a_profile_needs_a_free_page(running):
    batch, _ = running
    batch.pool.grow(batch.pool.open("greedy"), batch.pool.available * 8)
    with pytest.raises(LookupError, match="no page is free"):
        profile.profile(batch, ProfileRequest(), HERE)


def test_the_cache_equation_is_filled_in(running):
    batch, conversation = running
    kv = stats.kv_stats(batch.runner.model, batch.pool.view())
    assert kv.tokens == conversation.hold.length == 26
    assert kv.bytes_used == 2 * 2 * 2 * 16 * 4 * 26
    assert kv.mha_bytes == 2 * kv.bytes_used
    assert kv.equation == "2 × 2 × 2 × 16 × 4 × 26 = 13,312 bytes"
    assert kv.pages_used == 4 and kv.bytes_reserved == 2 * 2 * 2 * 16 * 4 * 64 * 8


def test_figures_of_a_running_batch():
    meter = stats.Meter()
    batch = tiny.make_batch()
    batch._on_step = meter
    first = batch.submit(prompt(1, 10), limits=Limits(max_tokens=30), owner="ada")
    for _ in range(4):
        batch.step()
    batch.submit(prompt(2, 10), owner="bob")
    got = stats.chat_stats(batch, meter)
    assert [(c.owner, c.state, c.answer) for c in got.conversations] == [("bob", "waiting", 0), ("ada", "decode", 5)]
    assert got.tokens == 4 and got.batch == 1 and got.waiting == 1 and got.prefill_tokens == 10
    assert got.bytes_per_step - got.weight_bytes == first.hold.length * 2 * 2 * 2 * 16 * 4
    assert got.map.states.count("u") == 2 and got.map.names == ("ada",)
    assert got.decode_ms > 0 and got.tokens_per_second > 0


def test_a_report_of_a_full_batch_goes_into_a_pipe_at_once():
    """A Linux pipe holds 64 KiB; what is longer would keep the decoder until its reader has read."""
    batch = tiny.make_batch(max_batch=64, pages=4096, page_size=16, max_context=1024)
    for i in range(64):
        hold = batch.pool.open(f"someone's chat, number {i}")
        batch.pool.grow(hold, 1024)
        batch.pool.commit(hold, prompt(i, 1019))
        batch._decoding.append(Conversation(i, prompt(i, 1019), 1019, Sampling(), Limits(), hold.owner, 0.0, hold=hold))
    got = stats.chat_stats(batch, stats.Meter())
    assert got.kv.pages_used == 4096 and got.kv.tokens == 64 * 1019
    assert sum(got.map.fill(page, 16) for page in range(4096)) == 64 * 1019
    assert len(got.model_dump_json()) < 2**16
