"""Positions, slots and codes: RoPE's pairs, what is written where in a cache, and how a float becomes a code.

Cases from the field: RoPE beyond position 0 (lattice#392, vllm#43676), empty inputs (triton#10427), rounding half to
even (triton#2923), e4m3 beyond 448 (sglang#31712), a kernel that works in place (triton#6547), K = 0 (FlagGems#6144).
"""

from __future__ import annotations

import math
import os
import subprocess
import sys

import pytest
import torch

import kernels
from kernels.rope import rope_tables
from playground.settings import ROOT


def test_rope_turns_named_pairs_and_leaves_the_tail():
    cos, sin = rope_tables(32, 8, theta=100.0)
    x = torch.zeros(1, 1, 12)
    x[..., 1], x[..., 8:] = 1.0, torch.tensor([5.0, 6.0, 7.0, 8.0])
    position = torch.tensor([3])
    angle = 3 * 100.0 ** (-2 / 8)  # of the second pair in halves
    half, _ = kernels.rope(x, x, cos, sin, position)
    assert half[0, 0, 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    assert half[0, 0, 5].item() == pytest.approx(math.sin(angle), abs=1e-6)
    woven, _ = kernels.rope(x, x, cos, sin, position, interleaved=True)
    assert woven[0, 0, 0].item() == pytest.approx(-math.sin(3.0), abs=1e-6)  # element 1 is the first pair's second
    assert woven[0, 0, 1].item() == pytest.approx(math.cos(3.0), abs=1e-6)
    for out in (half, woven):
        assert out[0, 0, 8:].tolist() == [5.0, 6.0, 7.0, 8.0]


def test_rope_outside_its_table_is_nan_and_not_another_tensor():
    cos, sin = rope_tables(16, 8)
    x = torch.ones(3, 1, 8)
    out, _ = kernels.rope(x, x, cos, sin, torch.tensor([15, 16, -1]))
    assert out[0].isfinite().all()
    assert out[1:].isnan().all()


def _cache(pages=4, page_size=8):
    return torch.full((pages, 2, page_size, 16), -7.0), torch.full((pages, 2, page_size, 16), -7.0)


def test_only_the_slots_named_are_written():
    k_cache, v_cache = _cache()
    k, v = torch.randn(3, 2, 16), torch.randn(3, 2, 16)
    kernels.kv_cache_write(k, v, k_cache, v_cache, torch.tensor([9, -1, 31]))
    for x, cache in ((k, k_cache), (v, v_cache)):
        assert torch.equal(cache[1, :, 1], x[0])
        assert torch.equal(cache[3, :, 7], x[2])
        assert (cache == -7.0).sum() == cache.numel() - 2 * 2 * 16


@pytest.mark.parametrize("slot", [32, 2**40, -2])
def test_a_slot_outside_the_cache_is_refused_on_a_cpu_and_never_written(slot):
    k_cache, v_cache = _cache()
    k = torch.randn(1, 2, 16)
    with pytest.raises(kernels.InputError, match="slots"):
        kernels.kv_cache_write(k, k, k_cache, v_cache, torch.tensor([slot]))
    # As on a GPU, where no value is read beforehand: the kernel itself skips it.
    kernels.get("kv_cache_write").run(k=k, v=k, k_cache=k_cache, v_cache=v_cache, slots=torch.tensor([slot]))
    assert (k_cache == -7.0).all()


def test_a_kernel_that_works_in_place_says_so():
    spec = kernels.get("kv_cache_write")
    inputs = spec.inputs(spec.default, "float32", "cpu")
    outputs = spec.plan(inputs, next(iter(spec.configs(inputs, kernels.spec.Target.named("cpu")))),
                        kernels.spec.Target.named("cpu")).outputs  # fmt: skip
    for name, tensor in outputs.items():
        assert name in spec.in_place
        assert tensor is inputs[name]


def test_halves_go_to_even_and_large_values_do_not_wrap():
    x = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.49]])
    q, scale = kernels.quantize_int8(x)
    assert scale.tolist() == [1.0]
    assert q[0].tolist() == [127, 0, 2, 2, 0, -2, -2, 3]
    q, scale = kernels.quantize_int8(torch.tensor([[200.0, -200.0, 100.0]]))
    assert q[0].tolist() == [127, -127, 64]  # 63.5 to even
    assert scale.item() == pytest.approx(200 / 127)


def test_what_is_not_finite_does_not_spoil_its_row():
    x = torch.tensor([[float("nan"), float("inf"), float("-inf"), 2.0, -1.0]])
    q, scale = kernels.quantize_int8(x)
    assert q[0].tolist() == [0, 127, -127, 127, -64]
    assert scale.item() == pytest.approx(2 / 127)
    q, scale = kernels.quantize_fp8(x)
    values = q.float()[0]
    assert values[0].isnan()
    assert values[1:].tolist() == [448.0, -448.0, 448.0, -224.0]
    q, scale = kernels.quantize_int8(torch.zeros(2, 5))
    assert q.tolist() == [[0] * 5] * 2 and scale.tolist() == [1.0, 1.0]


def test_every_e4m3_number_survives_and_the_middle_goes_to_even():
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    numbers = codes[codes.isfinite()].sort().values.unique()
    middle = (numbers[1:] + numbers[:-1]) / 2
    x = torch.cat((numbers, middle, torch.tensor([448.0])))[None]  # 448 makes the scale 1
    q, scale = kernels.quantize_fp8(x)
    assert scale.item() == 1.0
    assert torch.equal(q.view(torch.uint8), x.to(torch.float8_e4m3fn).view(torch.uint8))


def test_groups_have_scales_of_their_own_and_come_back():
    x = torch.randn(3, 256) * torch.tensor([1.0, 1000.0]).repeat_interleave(128)
    q, scale = kernels.quantize_fp8(x, group_size=128)
    assert scale.shape == (3, 2)
    back = kernels.dequantize(q, scale, torch.float32)
    assert ((back - x).abs() <= x.abs() / 15.9 + scale.repeat_interleave(128, 1) * 2**-9).all()
    with pytest.raises(kernels.InputError, match="group_size"):
        kernels.quantize_fp8(x, group_size=100)


def test_empty_inputs_are_no_ops():
    assert kernels.linear(torch.zeros(2, 0), torch.zeros(3, 0)).tolist() == [[0.0] * 3] * 2
    assert kernels.quantize_int8(torch.zeros(0, 8))[0].shape == (0, 8)
    for quantize in (kernels.quantize_int8, kernels.quantize_fp8):  # a row of nothing has the scale of zeros
        assert quantize(torch.zeros(3, 0))[1].tolist() == [1.0] * 3
    assert kernels.embedding(torch.zeros(0, dtype=torch.int64), torch.zeros(5, 4)).shape == (0, 4)
    q = torch.zeros(0, 4, 64)
    cache = torch.zeros(1, 2, 16, 64)
    table, lengths = torch.zeros(0, 3, dtype=torch.int32), torch.zeros(0, dtype=torch.int32)
    assert kernels.decode_attention(q, cache, cache, table, lengths).shape == (0, 4, 64)


def test_an_id_outside_the_table_is_refused():
    with pytest.raises(kernels.InputError, match="ids holds 5"):
        kernels.embedding(torch.tensor([1, 5]), torch.zeros(5, 4))


TINY = """
import torch
import kernels
x = torch.zeros(1, 128)
x[0, :4] = torch.tensor([448.0, -1e-4, 1e-4, -0.0])
print(kernels.quantize_fp8(x, 128)[0].view(torch.uint8)[0, :4].tolist())
"""


@pytest.mark.parametrize("interpreted", ["0", "1"])
def test_a_negative_that_rounds_to_0_keeps_its_sign(interpreted):
    done = subprocess.run(
        [sys.executable, "-c", TINY], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": interpreted},
    )  # fmt: skip
    assert done.stdout == "[126, 128, 0, 0]\n", done.stderr[-2000:]


def test_what_must_move_of_a_paged_cache_is_its_tokens_and_not_the_slots_of_its_pages():
    heads, sizes = 6, {"kv_heads": 2, "group": 3, "head_dim": 8, "page_size": 64}
    decode = kernels.get("decode_attention")
    inputs = decode.inputs({"seqs": 2, "context": 8, **sizes}, "bfloat16", "cpu")
    cost = decode.cost({**inputs, "lengths": torch.tensor([3, 0], dtype=torch.int32)})
    assert cost.bytes_read == 2 * heads * 8 * 2 + 2 * (3 * 2 * 8) * 2 + (2 + 2) * 4  # queries; cache; ids, lengths
    assert cost.flops == 4 * heads * 8 * 3
    prefill = kernels.get("prefill_attention")
    inputs = prefill.inputs({"seqs": 2, "q_len": 1, "context": 8, **sizes}, "bfloat16", "cpu")
    starts, lengths = torch.tensor([0, 2, 2], dtype=torch.int32), torch.tensor([3, 5], dtype=torch.int32)
    cost = prefill.cost({**inputs, "q_starts": starts, "lengths": lengths})
    assert cost.bytes_read == 2 * heads * 8 * 2 + 2 * (3 * 2 * 8) * 2 + (2 + 3 + 2) * 4  # the second has no query
    assert cost.flops == 4 * heads * 8 * (2 + 3)  # the two queries see two keys and three
