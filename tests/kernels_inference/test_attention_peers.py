"""Baselines of attention that take its options: they compute what is asked for, and not something near it."""

import pytest
import torch
from torch.nn.attention import flex_attention

from kernels.attention import reference
from kernels.attention_peers import flex


@pytest.fixture
def uncompiled(monkeypatch):
    """FlexAttention in plain PyTorch: what the masks say, without the minute that compiling takes."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    with monkeypatch.context() as m:
        m.setattr(torch, "compile", lambda fn: fn)
        return flex()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window, softcap", [(None, None), (7, None), (130, None), (None, 2.0), (40, 2.0)])
@pytest.mark.parametrize("q_len, kv_len", [(70, 70), (33, 200)])
def test_flex_attention_heeds_window_and_softcap(uncompiled, causal, window, softcap, q_len, kv_len):
    torch.manual_seed(0)
    q, (k, v) = torch.randn(2, 6, q_len, 16), torch.randn(2, 2, 3, kv_len, 16)
    options = {"causal": causal, "scale": None, "window": window, "softcap": softcap}
    expected = reference(q.double(), k.double(), v.double(), **options)
    torch.testing.assert_close(uncompiled(q, k, v, **options).double(), expected, atol=2e-5, rtol=0)
