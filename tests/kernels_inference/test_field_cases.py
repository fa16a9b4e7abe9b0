"""Faults reported against other kernels, for the kernels of inference: far offsets, many rows, what is not finite.

Rows 1, 2, 8, 19 and 23 of the list that tests/kernels/test_cases.py names; the others stand beside each kernel.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import kernels
from kernels.rope import rope_tables
from tests.kernels import conformance
from tests.kernels.test_cases import sparse

FAR = 2**30 + 16  # three rows that far apart end past 2^31
pytestmark = pytest.mark.skipif(conformance.job().device.type != "cpu", reason="tests/gpu has it on real memory")


def far_rows(*shape: int, values: torch.Tensor | None = None) -> torch.Tensor:
    """float16 [3, ...] whose first stride is FAR; memory is taken only where it is touched."""
    inner = torch.empty(shape[1:], device="meta").stride()
    size = (shape[0] - 1) * FAR + torch.Size(shape[1:]).numel()
    far = sparse(size).as_strided(shape, (FAR, *inner))
    generator = torch.Generator().manual_seed(0)
    return far.copy_(torch.randn(shape, generator=generator).half() if values is None else values)


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool(torch.allclose(found.double(), expected.double(), rtol=4e-3, atol=4e-3))


def test_case_01_a_weight_past_2_31_elements():
    weight, x = far_rows(3, 64), torch.randn(1, 64).half()
    assert close(kernels.linear(x, weight), x.double() @ weight.double().T)
    rows = far_rows(3, 64)
    assert close(kernels.linear(rows, torch.eye(64).half()), rows)


def test_case_01_rows_past_2_31_elements():
    x = far_rows(3, 64)
    q, scale = kernels.quantize_int8(x)
    assert ((kernels.dequantize(q, scale, torch.float32) - x.float()).abs() <= scale[:, None] * 0.501).all()
    table = far_rows(3, 64)
    assert torch.equal(kernels.embedding(torch.tensor([2, 0, 1]), table), table[[2, 0, 1]])
    logits = far_rows(3, 64)
    assert kernels.sample(logits, temperature=0.0).tolist() == logits.argmax(-1).tolist()
    assert kernels.sample(logits, top_k=1).tolist() == logits.argmax(-1).tolist()


def test_case_01_tokens_past_2_31_elements():
    q = far_rows(3, 2, 16)
    cos, sin = rope_tables(8, 16)
    positions = torch.tensor([1, 5, 7])
    found, _ = kernels.rope(q, q, cos, sin, positions)
    expected, _ = kernels.get("rope").reference(q.double(), q.double(), cos.double(), sin.double(), positions)
    assert close(found, expected)


def test_case_19_caches_past_2_31_elements():
    k_cache, v_cache = far_rows(3, 2, 16, 32), far_rows(3, 2, 16, 32)
    k, v = torch.randn(20, 2, 32).half(), torch.randn(20, 2, 32).half()
    kernels.kv_cache_write(k, v, k_cache, v_cache, torch.arange(20) + 28)  # the end of page 1, and page 2
    assert torch.equal(k_cache[2].transpose(0, 1), k[4:]) and torch.equal(v_cache[1, :, 12:].transpose(0, 1), v[:4])
    table, lengths = torch.tensor([[2, 0]], dtype=torch.int32), torch.tensor([25], dtype=torch.int32)
    q = torch.randn(1, 2, 32).half()
    keys, values = (torch.cat((c[2], c[0, :, :9]), dim=1).double()[None] for c in (k_cache, v_cache))
    expected = F.scaled_dot_product_attention(q[:, :, None].double(), keys, values)[:, :, 0]
    assert close(kernels.decode_attention(q, k_cache, v_cache, table, lengths), expected)
    starts = torch.tensor([0, 1], dtype=torch.int32)
    assert close(kernels.prefill_attention(q, k_cache, v_cache, table, starts, lengths), expected)


@pytest.mark.parametrize("name", ("attention", "alibi_attention"))
def test_case_01_batches_past_2_31_elements(name):
    q, k, v = (far_rows(3, 2, 20, 16) for _ in range(3))
    more = (torch.tensor([0.5, 0.25]),) if name == "alibi_attention" else ()
    expected = kernels.get(name).reference(q.double(), k.double(), v.double(), *more)
    assert close(getattr(kernels, name)(q, k, v, *more), expected)


@pytest.mark.skipif(conformance.job().interpreted, reason="65,537 programs take the interpreter minutes")
def test_case_02_more_rows_than_65_535():
    rows = 65_537
    x = torch.randn(rows, 3)
    q, scale = kernels.quantize_int8(x)
    assert ((kernels.dequantize(q, scale, torch.float32) - x).abs() <= scale[:, None] * 0.501).all()
    assert kernels.sample(x, temperature=0.0).tolist() == x.argmax(-1).tolist()
    ids = torch.randint(0, 3, (rows,))
    assert torch.equal(kernels.embedding(ids, x), x[ids])
    heads = torch.randn(rows, 1, 4)
    cos, sin = rope_tables(8, 4)
    positions = torch.randint(0, 8, (rows,))
    expected, _ = kernels.get("rope").reference(heads, heads, cos, sin, positions)
    assert torch.allclose(kernels.rope(heads, heads, cos, sin, positions)[0], expected, atol=1e-6)
    cache = torch.zeros(rows, 1, 1, 4)
    slots = torch.randperm(rows)
    kernels.kv_cache_write(heads, heads, cache, cache.clone(), slots)
    assert torch.equal(cache[slots, :, 0], heads)


def test_case_08_what_is_not_finite_stays_in_its_row():
    q, k, v = (torch.randn(1, 1, 8, 16) for _ in range(3))
    expected = kernels.get("attention").reference(q.double(), k.double(), v.double())
    q[0, 0, 3, 5] = float("nan")
    found = kernels.attention(q, k, v)
    assert found[0, 0, 3].isnan().all()
    others = [0, 1, 2, 4, 5, 6, 7]
    assert torch.allclose(found[0, 0, others].double(), expected[0, 0, others], atol=1e-5)
    x = torch.randn(4, 64)
    x[1, 7] = float("nan")
    out = kernels.linear(x, torch.eye(64))
    assert out[1].isnan().all() and torch.allclose(out[[0, 2, 3]], x[[0, 2, 3]])
