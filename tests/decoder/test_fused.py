"""The fused step against transformers in float64, natively on the CPU, with the context in one part and in several."""

import dataclasses

import pytest
import torch

from kernels.targets import Target
from playground import native
from playground.decoder.program import Recorder
from playground.decoder.runner import Row, Runner
from playground.decoder.sampler import Sampling
from tests.decoder import tiny

KIND = "llama-head-dim-apart"  # each half of a head is a side of a product, so heads of 16 are too small


@pytest.fixture(autouse=True)
def native_kernels():
    native.enable()
    yield
    native.disable()


@pytest.mark.parametrize("num_sms", [2, 16], ids=["one part", "eight parts"])
def test_a_fused_step_gives_the_same_logits(monkeypatch, num_sms):
    target = dataclasses.replace(Target.of(tiny.CPU), num_sms=num_sms)
    monkeypatch.setattr(Target, "of", staticmethod(lambda device: target))
    tokens = torch.randint(0, 100, (231,), generator=torch.Generator().manual_seed(3)).tolist()
    runner = Runner(tiny.make_model(KIND), 8, 4, 16)
    runner.swap(dict.fromkeys(runner.table, "torch"))
    monkeypatch.setattr(runner, "_make", lambda size: fused(runner, size))
    runner.prepare(1)
    names = [call.name for call in runner.decode_program(1).calls]
    assert names.count("linear_add_kernel") == 4 and names.count("attend_fused_kernel") == 2
    pages = list(range(30, 0, -1))
    expected = tiny.expected_logits(tokens, KIND)
    for position, token in enumerate(tokens):
        runner.rows.load([Row(token, position, pages, Sampling(), 0)])
        logits = runner.decode(1)["logits"][0].double()
        assert (logits - expected[position]).norm() < 1e-4 * expected[position].norm(), position
    runner.rows.load([])
    runner.decode(1)  # padding writes nothing
    runner.rows.load([Row(tokens[-1], len(tokens) - 1, pages, Sampling(), 0)])
    assert (runner.decode(1)["logits"][0].double() - expected[-1]).norm() < 1e-4 * expected[-1].norm()


def fused(runner, size):
    from playground.decoder.runner import _Ready

    ops = Recorder(runner.table, runner.arena)
    ops.fuse = True
    runner._record_decode(ops, size)
    return _Ready(ops.program)
