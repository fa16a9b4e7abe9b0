"""Attention at its borders: masked rows, page borders, lengths of 0, groups, offsets and eight-bit caches.

Cases from the field: a fully masked row and logits below -5e4 (burn#4694, flashinfer#4401), one query against twenty
keys (triton-lang/kernels#6), padded pages (vllm#49716).
"""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
import torch.nn.functional as F

import kernels
from kernels.alibi_attention import alibi_slopes
from kernels.codes import LARGEST
from kernels.spec import Target
from tests.kernels import conformance


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(got: torch.Tensor, expected: torch.Tensor, bar: float = 2e-5) -> bool:
    return bool((got.double() - expected.double()).abs().max() <= bar)


def paged(k: torch.Tensor, v: torch.Tensor, page_size: int, seed: int = 0):
    """k, v [seqs, kv_heads, tokens, d] in shuffled pages, whose unused slots hold NaN: (k_cache, v_cache, table)."""
    seqs, heads, tokens, d = k.shape
    max_pages = -(-tokens // page_size)
    table = torch.randperm(seqs * max_pages, generator=torch.Generator().manual_seed(seed)).view(seqs, max_pages)
    caches = []
    for x in (k, v):
        cache = torch.full((seqs * max_pages, heads, page_size, d), float("nan"), dtype=x.dtype)
        x = F.pad(x, (0, 0, 0, max_pages * page_size - tokens), value=float("nan"))
        cache[table] = x.unflatten(2, (max_pages, page_size)).transpose(1, 2)
        caches.append(cache)
    return (*caches, table.to(torch.int32))


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 32, 33, 300])
def test_decode_at_page_borders(tokens):
    q, k, v = normal(2, 6, 64), normal(2, 2, tokens, 64, seed=1), normal(2, 2, tokens, 64, seed=2)
    lengths = torch.tensor([tokens, max(tokens - 1, 0)], dtype=torch.int32)
    got = kernels.decode_attention(q, *paged(k, v, 16), lengths)
    for seq, n in enumerate(lengths.tolist()):
        if not n:
            assert (got[seq] == 0).all()
            continue
        keys, values = (x[seq : seq + 1, :, :n].double() for x in (k, v))
        expected = F.scaled_dot_product_attention(q[seq : seq + 1, :, None].double(), keys, values, enable_gqa=True)
        assert close(got[seq], expected[0, :, 0])


@pytest.mark.parametrize("group", [1, 2, 3, 5, 7, 16, 17])
def test_groups_of_any_size(group):
    q, k, v = normal(1, 2 * group, 32), normal(1, 2, 40, 32, seed=1), normal(1, 2, 40, 32, seed=2)
    got = kernels.decode_attention(q, *paged(k, v, 16), torch.tensor([40], dtype=torch.int32))
    expected = F.scaled_dot_product_attention(q[:, :, None].double(), k.double(), v.double(), enable_gqa=True)
    assert close(got, expected[:, :, 0])


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_eight_bit_caches_are_written_and_read(dtype):
    tokens, heads, d, page_size = 50, 2, 64, 16
    k, v = normal(tokens, heads, d), normal(tokens, heads, d, seed=1) * torch.tensor([1.0, 30.0])[:, None]
    pages = 5
    caches = [torch.zeros(pages, heads, page_size, d).to(dtype) for _ in range(2)]
    scales = [torch.zeros(pages, heads, page_size) for _ in range(2)]
    table = torch.tensor([[3, 0, 4, 1]], dtype=torch.int32)
    place = torch.arange(tokens)
    slots = table[0, place // page_size].long() * page_size + place % page_size
    kernels.kv_cache_write(k, v, *caches, slots, *scales)
    expected = []
    for x, cache, scale in zip((k, v), caches, scales, strict=True):
        back = (cache.float() * scale[..., None])[table[0].long()].transpose(0, 1).flatten(1, 2)[:, :tokens]
        step = x.abs().amax(-1, keepdim=True) / LARGEST[dtype]  # the least step of int8; of fp8 a 16th of the value
        allowed = step * 0.501 if dtype == torch.int8 else x.abs() / 15.9 + step * 2**-9
        assert ((back.transpose(0, 1) - x).abs() <= allowed).all()
        expected.append(back.double())
    q = normal(1, 6, d, seed=3)
    lengths = torch.tensor([tokens], dtype=torch.int32)
    answer = F.scaled_dot_product_attention(q[:, :, None].double(), *(x[None] for x in expected), enable_gqa=True)
    got = kernels.decode_attention(q, *caches, table, lengths, k_scale=scales[0], v_scale=scales[1])
    assert close(got, answer[:, :, 0], 2e-4)
    starts = torch.tensor([0, 1], dtype=torch.int32)
    got = kernels.prefill_attention(q, *caches, table, starts, lengths, k_scale=scales[0], v_scale=scales[1])
    assert close(got, answer[:, :, 0], 2e-4)
    with pytest.raises(kernels.InputError, match="k_scale"):
        kernels.decode_attention(q, *caches, table, lengths)


def test_a_split_is_whole_blocks_for_any_batch_on_any_gpu():
    """A block that reaches beyond its split is counted twice: 16 sequences of 4,096 tokens were off by a quarter."""
    for seqs, context in itertools.product((1, 3, 16, 40), (16, 1000, 4096, 5000)):
        dims = {"seqs": seqs, "context": context, "kv_heads": 8, "group": 4, "head_dim": 128, "page_size": 16}
        inputs = kernels.get("decode_attention").inputs(dims, "bfloat16", "meta")
        for target in map(Target.named, ("sm_80", "sm_90", "sm_100", "gfx942", "cpu")):
            for config in kernels.get("decode_attention").configs(inputs, target):
                assert config.meta["SPLIT_KV"] % config.meta["BLOCK_N"] == 0, (dims, target.arch, config.label)


def test_prefill_of_ragged_sequences_matches_each_alone():
    new, lengths = [0, 1, 37, 64, 5], [9, 20, 37, 100, 30]
    q = normal(sum(new) + 6, 6, 64)  # six tokens of padding
    k, v = normal(5, 2, 100, 64, seed=1), normal(5, 2, 100, 64, seed=2)
    starts = torch.tensor([0, *torch.tensor(new).cumsum(0).tolist()], dtype=torch.int32)
    got = kernels.prefill_attention(q, *paged(k, v, 16), starts, torch.tensor(lengths, dtype=torch.int32))
    for seq, (n, length) in enumerate(zip(new, lengths, strict=True)):
        first = int(starts[seq])
        keys, values = (x[seq : seq + 1, :, :length].double() for x in (k, v))
        mask = torch.ones(n, length, dtype=torch.bool).tril(length - n)
        queries = q[first : first + n].transpose(0, 1)[None].double()
        expected = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
        assert n == 0 or close(got[first : first + n], expected[0].transpose(0, 1))
    assert (got[sum(new) :] == 0).all()


def test_one_query_against_twenty_keys():
    q, k, v = normal(1, 2, 1, 64), normal(1, 2, 20, 64, seed=1), normal(1, 2, 20, 64, seed=2)
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert close(kernels.attention(q, k, v), expected)


def test_queries_without_a_key_get_0_and_the_others_are_right():
    q, k, v = normal(1, 1, 40, 32), normal(1, 1, 10, 32, seed=1), normal(1, 1, 10, 32, seed=2)
    got = kernels.attention(q, k, v)
    assert (got[:, :, :30] == 0).all()
    mask = torch.ones(10, 10, dtype=torch.bool).tril()
    expected = F.scaled_dot_product_attention(q[:, :, 30:].double(), k.double(), v.double(), attn_mask=mask)
    assert close(got[:, :, 30:], expected)


def test_queries_without_a_key_get_0_beside_others_whose_values_are_not_numbers():
    """One block holds both: no weight times NaN is NaN, and what meets no key is 0 all the same."""
    q, k, v = normal(1, 1, 5, 16), normal(1, 1, 3, 16, seed=1), torch.full((1, 1, 3, 16), float("nan"))
    paging = torch.tensor([0, 5]), torch.tensor([3])
    for got in (
        kernels.attention(q, k, v),
        kernels.alibi_attention(q, k, v, torch.ones(1)),
        kernels.prefill_attention(q[0].transpose(0, 1), *paged(k, v, 16), *paging).transpose(0, 1),
        kernels.get("attention").reference(q, k, v),
        kernels.get("alibi_attention").reference(q, k, v, torch.ones(1)),
    ):
        assert (got[..., :2, :] == 0).all() and got[..., 2:, :].isnan().all()


def test_scores_far_below_zero_are_not_taken_for_masked():
    q, k, v = torch.full((1, 1, 3, 16), 100.0), torch.full((1, 1, 3, 16), -100.0), normal(1, 1, 3, 16)
    expected = v.double().cumsum(2) / torch.arange(1, 4)[:, None]  # equal scores of -160,000: the mean of what is met
    assert close(kernels.attention(q, k, v, scale=1.0), expected, 1e-6)


# What the scores of 200 keys each are near to, in the order in which they are met.
FAR = {"rising": (-3e11, -2e3, 5.0, 4e11), "falling": (4e11, 5.0, -2e3, -3e11), "all far below": (-7e9,) * 4}
KERNELS = {
    "attention": lambda q, k, v, scale=1.0: kernels.attention(q, k, v, scale=scale),
    "alibi": lambda q, k, v, scale=1.0: kernels.alibi_attention(q, k, v, torch.zeros(2), scale=scale),
    "decode": lambda q, k, v, scale=1.0: kernels.decode_attention(
        q[:, :, 0], *paged(k, v, 16), torch.tensor([k.shape[2]]), scale=scale
    )[:, :, None],
    "prefill": lambda q, k, v, scale=1.0: kernels.prefill_attention(
        q[:, :, 0], *paged(k, v, 16), torch.tensor([0, 1]), torch.tensor([k.shape[2]]), scale=scale
    )[:, :, None],
}


@pytest.mark.parametrize("scores", FAR.values(), ids=FAR)
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_the_maximum_comes_off_exactly_however_far_out_scores_are(kernel, scores):
    """An exponent of one multiply-add, of a rounded maximum, is wrong by thousands out there: NaN, or 0."""
    q, v = torch.ones(1, 2, 1, 16), normal(1, 1, 800, 16, seed=1)
    along = torch.tensor(scores).repeat_interleave(200) * (1 + 0.1 * normal(800, seed=2))
    k = (along[:, None] / 16).expand(1, 1, 800, 16).contiguous()
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), enable_gqa=True, scale=1.0)
    assert close(kernel(q, k, v), expected)


@pytest.mark.parametrize("far", (1e11, -1e11))
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_two_equal_scores_far_out_share_the_weight(kernel, far):
    """One in the first split, one in the last, beside others far below."""
    q, v = torch.ones(1, 2, 1, 16), normal(1, 1, 800, 16, seed=1)
    along = torch.full((800,), far - 0.5 * abs(far))
    along[[3, 790]] = far
    k = (along[:, None] / 16).expand(1, 1, 800, 16).contiguous()
    assert close(kernel(q, k, v), v[:, :, [3, 790]].mean(2, keepdim=True).expand(1, 2, 1, 16))


@pytest.mark.skipif(conformance.job().interpreted, reason="NumPy has no multiply-add, and rounds such scores to 8")
@pytest.mark.parametrize("pairs", (1, 17, 400))
@pytest.mark.parametrize("top", (2.0**25.8, 2.0**26.9, 2.0**27.4, 2.0**27.6, 1e10, -(2.0**27.4), -(2.0**27.6)))
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_products_a_unit_apart_far_out_are_weighed_by_their_difference(kernel, top, pairs):
    """It is 4 at the first of them, which leaves the lesser a weight of 0.02, and 8 at the second: 0.0003."""
    high = torch.tensor(top)
    along = torch.stack((high.nextafter(torch.tensor(float("-inf"))), high)).repeat(pairs)
    q, v = F.pad(torch.ones(1, 2, 1, 1), (0, 15)), normal(1, 1, 2 * pairs, 16, seed=1)
    expected = torch.softmax(along.double(), 0) @ v.double()
    assert close(kernel(q, F.pad(along[None, None, :, None], (0, 15)), v), expected.expand(1, 2, 1, 16))


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_weights_stay_within_float16_wherever_scores_are(kernel):
    """They share a factor of up to 2 to half a unit of the maximum, which from scores of 2^29 on is 16 and more."""
    q, v = F.pad(torch.full((1, 2, 1, 1), 1500.0), (0, 15)).half(), normal(1, 1, 70, 16, seed=1).half()
    k = F.pad(torch.tensor([1.37] * 5 + [1.2] * 65)[None, None, :, None], (0, 15)).half()
    expected = v[:, :, :5].double().mean(2, keepdim=True).expand(1, 2, 1, 16)
    for step in range(60):
        assert close(kernel(q, k, v, 2.0 ** (16 + step / 24)), expected, 2e-3)


@pytest.mark.parametrize("dtype", (torch.int8, torch.float8_e4m3fn))
@pytest.mark.parametrize("size", (1e-4, 1.0, 3e4))
def test_eight_bit_values_of_any_size_are_as_exact_in_float16(dtype, size):
    """A weight times the scale of such codes is often below the numbers that float16 has, and a value is not."""
    k, v = normal(1, 1, 300, 64, seed=1), size * normal(1, 1, 300, 64, seed=2).clamp(-3, 3)
    *caches, table = paged(k, v, 16)
    caches = [cache.nan_to_num() for cache in caches]
    scales = [cache.abs().amax(-1) / LARGEST[dtype] for cache in caches]
    codes = [cache / scale[..., None].clamp(min=1e-30) for cache, scale in zip(caches, scales, strict=True)]
    codes = [(code.round() if dtype == torch.int8 else code).to(dtype) for code in codes]
    values = normal(1, 2, 64).half(), *codes, table
    for name, rest in (("decode", ()), ("prefill", (torch.tensor([0, 1]),))):
        spec = kernels.get(f"{name}_attention")
        rest = (*values, *rest, torch.tensor([300]), None, *scales)
        got, expected = spec.function(*rest), spec.reference(values[0].double(), *rest[1:])
        assert close(got, expected, 1e-3 * float(expected.abs().max()) + 2**-24)  # a unit of its least numbers


@pytest.mark.parametrize("softcap, size", ((2.0, 1), (50.0, 1), (50.0, 40), (1e4, 1), (1e30, 1), (3e38, 1)))
def test_a_softcap_of_any_size_bends_scores_as_tanh_does(softcap, size):
    q, k, v = size * normal(1, 2, 70, 64), normal(1, 2, 70, 64, seed=1), normal(1, 2, 70, 64, seed=2)
    scores = softcap * torch.tanh(q.double() @ k.double().mT / 8 / softcap)
    expected = torch.softmax(scores, -1) @ v.double()
    assert close(kernels.attention(q, k, v, causal=False, softcap=softcap), expected, 2e-6 if size == 1 else 1e-4)


@pytest.mark.parametrize("head_dim", (128, 256, 512, 1024))
def test_what_joins_the_splits_of_a_table_for_millions_of_tokens_is_a_tile_that_triton_takes(head_dim):
    spec, target = kernels.get("decode_attention"), dataclasses.replace(Target.named("cpu"), num_sms=1)
    dims = {"seqs": 1, "context": 2**21 + 16, "kv_heads": 1, "group": 2, "head_dim": head_dim, "page_size": 16}
    inputs = spec.inputs(dims, "float32", "meta")
    for config in spec.configs(inputs, target):
        join = spec.plan(inputs, config, target).launches[1].config.meta
        assert join["BLOCK_S"] * join["BLOCK_D"] <= 2**20


@pytest.mark.parametrize("name", ("decode", "prefill"))
def test_int64_lengths_of_any_value_over_several_splits(name):
    """As int32 they would wrap: one beyond the table is all of it, one below 0 none."""
    k, v = normal(3, 1, 800, 16, seed=1), normal(3, 1, 800, 16, seed=2)
    caches, lengths = paged(k, v, 16), torch.tensor([2**40, -(2**33) + 1, 300])
    q = normal(3, 2, 16)
    if name == "decode":
        got = kernels.decode_attention(q, *caches, lengths)
    else:
        got = kernels.prefill_attention(q, *caches, torch.arange(4), lengths)
    for seq, n in ((0, 800), (2, 300)):
        keys, values = (x[seq : seq + 1, :, :n].double() for x in (k, v))
        expected = F.scaled_dot_product_attention(q[seq : seq + 1, :, None].double(), keys, values, enable_gqa=True)
        assert close(got[seq], expected[0, :, 0])
    assert (got[1] == 0).all()


@pytest.mark.parametrize("window, causal", [(1, True), (7, True), (64, True), (1000, True), (7, False)])
def test_windows(window, causal):
    q, k, v = normal(1, 1, 150, 32), normal(1, 1, 170, 32, seed=1), normal(1, 1, 170, 32, seed=2)
    distance = (torch.arange(150) + 20)[:, None] - torch.arange(170)[None]
    mask = (distance < window) & ((distance >= 0) if causal else (distance > -window))
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask)
    assert close(kernels.attention(q, k, v, causal=causal, window=window), expected)


def test_wrong_heads_and_scales_are_refused():
    q, k = torch.zeros(1, 5, 4, 16), torch.zeros(1, 2, 4, 16)
    with pytest.raises(kernels.InputError, match="multiple"):
        kernels.attention(q, k, k)
    with pytest.raises(kernels.InputError, match="scale"):
        kernels.attention(k, k, k, scale=-1.0)
    with pytest.raises(kernels.InputError, match="from 1e-30 to 1e30"):
        kernels.attention(k, k, k, scale=1e38)
    with pytest.raises(kernels.InputError, match="1e-37 times the scale"):
        kernels.attention(k, k, k, scale=1e9, softcap=1e-30)
    table = torch.zeros(1, 1, dtype=torch.int32).expand(1, 2**29)
    with pytest.raises(kernels.InputError, match="2\\^30 tokens"):
        kernels.decode_attention(k[:, :, 0], k, k, table, torch.tensor([3]))
    with pytest.raises(kernels.InputError, match="window"):
        kernels.attention(k, k, k, window=0)


def test_alibi_slopes_are_the_published_ones():
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    # 12 heads: those of 8, and every second of 16.
    found = alibi_slopes(12).tolist()
    assert found == pytest.approx([2.0**-i for i in range(1, 9)] + [2.0**-0.5, 2.0**-1.5, 2.0**-2.5, 2.0**-3.5])


def test_alibi_is_attention_with_a_bias():
    q, k, v = normal(1, 4, 30, 32), normal(1, 2, 50, 32, seed=1), normal(1, 2, 50, 32, seed=2)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    distance = (torch.arange(30) + 20)[:, None] - torch.arange(50)[None]
    bias = torch.where(distance >= 0, -slopes[:, None, None] * distance, float("-inf")).double()
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=bias, enable_gqa=True)
    assert close(kernels.alibi_attention(q, k, v, slopes), expected)
    steepest = kernels.alibi_attention(q, k, v, torch.full((4,), 2e38))  # over the scale no float32
    assert close(steepest, v[:, :, 20:].repeat_interleave(2, dim=1))  # each meets itself
    with pytest.raises(kernels.InputError, match="slopes has shape"):
        kernels.alibi_attention(q, k, v, slopes[:2])
