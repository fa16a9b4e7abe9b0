"""What a person may pass and how it is read: odd memory, NumPy's numbers, pages that are none. Values by PyTorch."""

import re

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import kernels
from kernels import InputError


def cache(dtype=torch.float32, pages=2, page_size=4):
    return torch.ones(pages, 1, page_size, 16, dtype=dtype)


def decode(lengths=1, pages=(0, 1), k=None, v=None, **scales):
    k = cache() if k is None else k
    lengths = torch.tensor([lengths], dtype=torch.int32) if isinstance(lengths, int) else lengths
    table = torch.tensor([pages], dtype=torch.int32)
    return kernels.decode_attention(torch.ones(1, 2, 16), k, k.clone() if v is None else v, table, lengths, **scales)


def test_a_view_that_is_negated_on_reading_is_read_so():
    """The imaginary part of a conjugate is such a view: PyTorch turns its sign in every operation."""
    x = torch.randn(3, 40, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    torch.testing.assert_close(kernels.softmax(x), torch.softmax(x, -1))
    torch.testing.assert_close(kernels.matmul(x, torch.ones(40, 2)), x @ torch.ones(40, 2))
    assert torch.equal(kernels.embedding(torch.tensor([2, 0]), x), x[[2, 0]].resolve_neg())
    with pytest.raises(InputError, match=r"k_cache is to be written and is a negated view; pass \.resolve_neg\(\)"):
        new, view = torch.ones(1, 1, 16), torch.zeros(2, 1, 4, 16, dtype=torch.complex64).conj().imag
        kernels.kv_cache_write(new, new, view, cache(), torch.tensor([0]))


def test_what_is_written_has_memory_of_its_own():
    new, one = torch.ones(2, 1, 16), torch.ones(1, 1, 1, 16)
    with pytest.raises(InputError, match="k_cache is to be written and some of its elements share memory"):
        kernels.kv_cache_write(new, new, one.expand(2, 1, 4, 16), cache(), torch.tensor([0, 1]))
    with pytest.raises(InputError, match="k_scale is to be written and some of its elements share memory"):
        scale = torch.ones(()).expand(2, 1, 4)
        kernels.kv_cache_write(new, new, cache(torch.int8), cache(torch.int8), torch.tensor([0, 1]), scale, scale)


@pytest.mark.parametrize(
    ("make", "kind"),
    [(lambda x: x.to("meta"), "a meta tensor"), (torch.Tensor.to_sparse, "a sparse_coo tensor"),
     (torch.Tensor.to_mkldnn, "a mkldnn tensor"), (lambda x: torch.nested.nested_tensor([x, x]), "a nested tensor")],
    ids=["meta", "sparse", "mkldnn", "nested"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_tensor_without_plain_memory_is_refused(make, kind):
    with pytest.raises(InputError, match=f"x is {kind}"):
        kernels.softmax(make(torch.randn(3, 4)))


def test_numpys_numbers_are_numbers():
    x, w, q = torch.randn(2, 5), torch.ones(5), torch.randn(1, 2, 5, 16)
    assert torch.equal(kernels.rms_norm(x, w, eps=np.float32(0.25)), kernels.rms_norm(x, w, eps=0.25))
    assert torch.equal(kernels.attention(q, q, q, scale=np.float16(0.5), window=np.int64(2)),
                       kernels.attention(q, q, q, scale=0.5, window=2))  # fmt: skip
    assert torch.equal(kernels.sample(x, temperature=np.float32(0.5), top_k=np.int32(3), seed=np.uint8(7)),
                       kernels.sample(x, temperature=0.5, top_k=3, seed=7))  # fmt: skip


X, W, Q = torch.ones(2, 5), torch.ones(5), torch.ones(1, 2, 5, 16)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: kernels.rms_norm(X, W, eps=None), "eps is None; it needs a number"),
        (lambda: kernels.rms_norm(X, W, eps="1e-6"), "eps is '1e-6'; it needs a number"),
        (lambda: kernels.rms_norm(X, W, eps=10**400), "eps is 1000"),
        (lambda: kernels.rms_norm(X, W, offset=1j), "offset is 1j; it needs a number"),
        (lambda: kernels.layer_norm(X, W, W, eps=torch.tensor(1e-6)), "eps is tensor(1.0000e-06); it needs a number"),
        (lambda: kernels.add_rms_norm(X, X, W, eps=True), "eps is True; it needs a number"),
        (lambda: kernels.attention(Q, Q, Q, scale=torch.ones(2)), "scale is tensor([1., 1.]); it needs a number above"),
        (lambda: kernels.attention(Q, Q, Q, scale=0), "scale is 0; it needs a number above 0"),
        (lambda: kernels.attention(Q, Q, Q, window="3"), "window is '3'; it needs an integer above 0"),
        (lambda: kernels.attention(Q, Q, Q, window=0.5), "window is 0.5; it needs an integer above 0"),
        (lambda: kernels.attention(Q, Q, Q, window=2**31), "window is 2147483648; it needs less than 2^30, or None"),
        (lambda: kernels.attention(Q, Q, Q, softcap=-1.0), "softcap is -1.0; it needs a number above 0"),
        (lambda: decode(scale="1"), "scale is '1'; it needs a number above 0"),
        (lambda: kernels.get(["softmax"]), "no kernel is named \"['softmax']\""),
        (lambda: kernels.dequantize(torch.ones(2, 8, dtype=torch.int8), torch.empty(2, 0)), "scale has shape [2, 0]"),
        (lambda: decode(pages=(-1, 1)), "block_table holds page -1; k_cache has 2 pages, numbered from 0"),
        (lambda: decode(5, pages=(0, 2)), "block_table holds page 2; k_cache has 2 pages, numbered from 0"),
        (lambda: decode(k=cache(pages=0)), "block_table holds page 0; k_cache has 0 pages, numbered from 0"),
        (lambda: decode(v_scale=torch.ones(2, 1, 4)), "v_scale is given and k_cache is torch.float32"),
    ],
)  # fmt: skip
def test_what_is_no_option_or_no_page_is_one_line(call, said):
    with pytest.raises(InputError, match=re.escape(said)) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_lengths_of_either_integer_and_pages_behind_them_of_any_value():
    exact = decode(3, pages=(1, 10**9))  # its second page holds no token
    torch.testing.assert_close(exact, torch.ones(1, 2, 16))
    for length, like in ((3, exact), (2**40, exact), (-(2**31) - 1, 0 * exact)):  # all there is room for; none
        assert torch.equal(decode(torch.tensor([length])), like)
    values = torch.ones(1, 2, 16), cache(), cache(), torch.tensor([[0, 1]]), torch.tensor([3])
    with torch.device("meta"):  # where new tensors are made, which has nothing to do with these
        assert torch.equal(kernels.decode_attention(*values), exact)


def test_a_sequence_without_new_queries_has_no_page_looked_up():
    values = torch.ones(2, 2, 16), cache(), cache(), torch.tensor([[0, 1], [-1, -1]]), torch.tensor([0, 2, 2])
    for lengths in ([3, 5], [2**40, 5]):
        assert torch.equal(kernels.prefill_attention(*values, torch.tensor(lengths)), torch.ones(2, 2, 16))
    with pytest.raises(InputError, match="block_table holds page -1"):
        kernels.prefill_attention(*values[:4], torch.tensor([0, 1, 2]), torch.tensor([3, 5]))


def test_scales_may_lie_in_any_way_along_a_dimension_of_one():
    a, b = torch.ones(2, 1, 4), torch.ones(2, 4, 1).transpose(1, 2)
    assert a.stride() != b.stride()
    codes = cache(torch.int8)
    torch.testing.assert_close(decode(k=codes, k_scale=a, v_scale=b), torch.ones(1, 2, 16))


def test_no_gradient_is_lost_silently():
    codes, scale = cache(torch.int8), torch.ones(2, 1, 4)
    with pytest.raises(InputError, match="k_scale requires a gradient"):
        decode(k=codes, k_scale=scale.clone().requires_grad_(), v_scale=scale)
    with forward_ad.dual_level(), pytest.raises(InputError, match="x has a tangent and this kernel gives none"):
        kernels.softmax(forward_ad.make_dual(X, X))


def test_memory_that_32_bits_do_not_reach_over_is_refused():
    """Strides along a page and along head_dim are multiplied in 32 bits; all others in 64."""
    far = torch.empty(1).expand(1, 1, 16, 16).as_strided((1, 1, 3, 16), (0, 0, 0, 0))
    for strides, dim in (((0, 0, 2**30, 1), 2), ((0, 0, 1, 2**28), 3)):
        meta = torch.empty_strided((1, 1, 3, 16), strides, device="meta")
        with pytest.raises(InputError, match=f"k_cache reaches over .* along dimension {dim}; .*contiguous"):
            kernels.get("decode_attention").check({
                "q": torch.ones(1, 2, 16, device="meta"), "k_cache": meta, "v_cache": far.to("meta"),
                "block_table": torch.zeros(1, 1, dtype=torch.int32, device="meta"),
                "lengths": torch.ones(1, dtype=torch.int32, device="meta"),
            })  # fmt: skip
    q = torch.empty_strided((1, 2, 5, 16), (0, 0, 1, 2**28), device="meta")
    for name in ("attention", "naive_attention"):
        with pytest.raises(InputError, match="q reaches over"):
            kernels.get(name).check({"q": q, "k": q, "v": q})
    table = torch.ones(4, 8, device="meta")
    x, positions = torch.empty_strided((1, 2, 16), (0, 1, 2**28), device="meta"), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(InputError, match="q reaches over"):
        kernels.get("rope").check({"q": x, "k": x, "cos": table, "sin": table, "positions": positions.to("meta")})
    caches = {"k_cache": cache().to("meta"), "v_cache": cache().to("meta")}
    slots = torch.zeros(1, dtype=torch.int64, device="meta")
    with pytest.raises(InputError, match="k reaches over"):
        kernels.get("kv_cache_write").check({"k": x[:, :1], "v": x[:, :1], "slots": slots, **caches})
