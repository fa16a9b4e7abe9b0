"""Liger's kernels, unmodified: forward and backward against float64."""

import importlib

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("liger_kernel.ops", reason="liger-kernel is not installed; pip install --no-deps liger-kernel")


def function(module: str, name: str):
    return getattr(importlib.import_module(f"liger_kernel.ops.{module}"), name).apply


def gelu(a, b):
    return F.gelu(a, approximate="tanh") * b


def rotated(q):
    angles = torch.arange(20)[:, None] / (1e4 ** (torch.arange(32) / 32))
    angles = torch.cat([angles, angles], -1)
    return q * angles.cos() + torch.cat([-q[..., 32:], q[..., :32]], -1) * angles.sin()


def liger_rope(q, k):
    angles = torch.arange(20)[:, None] / (1e4 ** (torch.arange(32) / 32))
    angles = torch.cat([angles, angles], -1)[None]
    return function("rope", "LigerRopeFunction")(q, k, angles.cos(), angles.sin())


def rows(*shape):
    return torch.randn(*shape)


TARGETS = torch.randint(0, 1000, (16,), generator=torch.Generator().manual_seed(0))
# name: Liger's function, the same in PyTorch, the inputs
CASES = {
    "rms_norm": (
        lambda x, w: function("rms_norm", "LigerRMSNormFunction")(x, w, 1e-6, 0.0, "llama", False),
        lambda x, w: F.rms_norm(x, (300,), w, 1e-6),
        ((8, 300), (300,)),
    ),
    "layer_norm": (
        lambda x, w, b: function("layer_norm", "LigerLayerNormFunction")(x, w, b, 1e-6),
        lambda x, w, b: F.layer_norm(x, (300,), w, b, 1e-6),
        ((8, 300), (300,), (300,)),
    ),
    "group_norm": (
        lambda x, w, b: function("group_norm", "LigerGroupNormFunction")(x, w, b, 12, 4, 1e-6),
        lambda x, w, b: F.group_norm(x, 4, w, b, 1e-6),
        ((2, 12, 50), (12,), (12,)),
    ),
    "swiglu": (
        function("swiglu", "LigerSiLUMulFunction"),
        lambda a, b: F.silu(a) * b,
        ((8, 300), (8, 300)),
    ),
    "geglu": (function("geglu", "LigerGELUMulFunction"), gelu, ((8, 300), (8, 300))),
    "softmax": (function("softmax", "LigerSoftmaxFunction"), lambda a: a.softmax(-1), ((8, 300),)),
    "cross_entropy": (
        lambda x: function("cross_entropy", "LigerCrossEntropyFunction")(
            x, TARGETS, None, -100, 0.0, 0.1, "mean", None, False
        ),
        lambda x: F.cross_entropy(x, TARGETS, label_smoothing=0.1),
        ((16, 1000),),
    ),
    "fused_linear_cross_entropy": (
        lambda x, w: function("fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction")(x, w, TARGETS),
        lambda x, w: F.cross_entropy(x @ w.t(), TARGETS),
        ((16, 64), (1000, 64)),
    ),
    "rope": (liger_rope, lambda q, k: rotated(q) + 0 * k.sum(), ((2, 4, 20, 64), (2, 2, 20, 64))),
    "fused_add_rms_norm": (
        lambda x, y, w: function("fused_add_rms_norm", "LigerFusedAddRMSNormFunction")(
            x, y, w, 1e-6, 0.0, "llama", False
        ),
        lambda x, y, w: F.rms_norm(x + y, (300,), w, 1e-6),
        ((8, 300), (8, 300), (300,)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_liger(name):
    theirs, reference, shapes = CASES[name]
    torch.manual_seed(0)
    inputs = [rows(*shape) for shape in shapes]
    mine = [x.clone().requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    got = theirs(*mine)
    got = got[0] if isinstance(got, tuple) else got
    value = got.detach().clone()  # some of Liger's backward passes write over it
    wanted = reference(*exact)
    weights = torch.randn_like(value)
    (got * weights).sum().backward()
    (wanted * weights.double()).sum().backward()
    pairs = [(value, wanted)] + [(a.grad, b.grad) for a, b in zip(mine, exact, strict=True) if b.grad is not None]
    for a, b in pairs:
        assert (a.double() - b).norm() <= 2e-6 * b.norm() + 1e-12
