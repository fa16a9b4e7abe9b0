"""The eager chain's kernels and bytes, against counts by hand."""

import pytest
import torch

import kernels
from playground.engine.chain import eager_chain


def chain(name, dims, dtype="bfloat16"):
    spec = kernels.get(name)
    return eager_chain(spec, spec.inputs(dims, dtype, "meta"))


def test_vector_add_is_one_kernel():
    (step,) = chain("vector_add", {"n": 100}, "float32")
    assert step.kernel == "add"
    assert step.reads == (("x", 400), ("y", 400))
    assert step.writes == (("out", 400),)


def test_softmax_is_one_kernel():
    (step,) = chain("softmax", {"rows": 4, "n": 32}, "float32")
    assert (step.reads, step.writes) == ((("x", 512),), (("out", 512),))


def test_of_a_table_only_the_rows_that_are_picked_count():
    (step,) = chain("embedding", {"tokens": 3, "vocab": 1000, "n": 8}, "float32")
    assert dict(step.reads)["table"] == 3 * 8 * 4 and step.writes == (("out", 3 * 8 * 4),)  # not 32,000 bytes


def test_what_is_put_into_a_cache_neither_reads_nor_writes_the_rest_of_it():
    """19 tokens of 2 heads of 64 in 16-bit are 4,864 bytes, in a cache of 3 pages of 16."""
    steps = chain("kv_cache_write", {"tokens": 19, "kv_heads": 2, "head_dim": 64, "page_size": 16}, "bfloat16")
    puts = [step for step in steps if step.kernel == "index_put"]
    assert len(puts) == 2
    for step, name in zip(puts, "kv", strict=True):
        assert step.writes == ((f"{name}_cache", 4864),) and dict(step.reads)[name] == 4864
        assert f"{name}_cache" not in dict(step.reads)


def test_add_rms_norm_goes_through_memory_again_and_again():
    rows, n = 6, 50
    tensor, wide, column = rows * n * 2, rows * n * 4, rows * 4
    steps = chain("add_rms_norm", {"rows": rows, "n": n})
    assert steps[0].reads == (("x", tensor), ("residual", tensor))
    assert steps[0].writes == (("new_residual", tensor),)
    # to float32, square, mean, + eps, rsqrt, times scale, to bfloat16, times weight
    by_hand = [
        3 * tensor, tensor + wide, 2 * wide, wide + column, 2 * column, 2 * column, 2 * wide + column,
        wide + tensor, 2 * tensor + 2 * n,
    ]  # fmt: skip
    assert [step.bytes for step in steps] == by_hand
    assert steps[-1].writes == (("out", tensor),)


@pytest.mark.parametrize("name", sorted(kernels.all_kernels()))
def test_every_kernel_has_a_chain_that_starts_from_its_inputs(name):
    spec = kernels.get(name)
    inputs = spec.inputs(spec.default, spec.dtypes[0], "meta")
    steps = eager_chain(spec, inputs)
    tensors = {key for key, value in inputs.items() if isinstance(value, torch.Tensor)}
    assert steps
    assert {name for step in steps for name, _ in step.reads} & tensors
    assert sum(step.bytes for step in steps) >= spec.cost(inputs).bytes_written
