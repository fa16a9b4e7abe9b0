"""Tensors in huge pages hold what the originals held, and are really in huge pages where Linux gives any."""

import pytest
import torch

from playground.native import pages


def huge_bytes() -> int:
    with open("/proc/self/smaps_rollup") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("AnonHugePages"))


@pytest.mark.skipif(not pages.are_available(), reason="this system has no huge pages")
def test_a_large_matrix_lies_in_huge_pages():
    matrix = torch.arange(6 << 20, dtype=torch.float32).view(3, -1)  # 24 MB
    before = huge_bytes()
    placed = pages.HugePages().place(matrix)
    assert torch.equal(placed, matrix)
    assert placed.data_ptr() != matrix.data_ptr()
    assert huge_bytes() - before >= 16 << 20  # of 24; a host short of memory may keep a few back


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_tensors_that_share_a_chunk_do_not_overlap(dtype):
    holder = pages.HugePages()
    shapes = [(1,), (7, 3), (1000, 100), (5,), (2, 3, 4)]
    originals = [torch.randint(-100, 100, shape).to(dtype) for shape in shapes]
    placed = [holder.place(t) for t in originals]
    for one, other in zip(originals, placed, strict=True):
        assert torch.equal(one, other)
        assert other.is_contiguous()
        assert other.data_ptr() % 64 == 0 or not pages.are_available()


@pytest.mark.parametrize("huge", [True, False])
def test_parts_are_joined_in_the_dtype_wanted(monkeypatch, huge):
    monkeypatch.setattr(pages, "are_available", lambda: huge)
    parts = [torch.randn(rows, 6) for rows in (3, 1, 7)]
    placed = pages.HugePages().place(*parts, dtype=torch.bfloat16)
    assert torch.equal(placed, torch.cat(parts).bfloat16()) and placed.is_contiguous()


def test_a_transposed_tensor_becomes_contiguous_and_an_empty_one_stays():
    holder = pages.HugePages()
    turned = torch.randn(30, 20).t()
    assert torch.equal(holder.place(turned), turned)
    empty = torch.empty(0, 4)
    assert holder.place(empty) is empty


def test_without_huge_pages_nothing_is_copied(monkeypatch):
    monkeypatch.setattr(pages, "are_available", lambda: False)
    tensor = torch.randn(10)
    assert pages.HugePages().place(tensor) is tensor
