"""The Hopper variant of attention without a Hopper: its algorithm step by step, its code offline, its refusals.

What it answers on the chip itself is checked by tests/gpu, as every spec is.
"""

from __future__ import annotations

import pytest
import torch

import kernels
from kernels.online_softmax import LOG2E
from kernels.spec import Target
from playground.engine import edits
from playground.engine.compile import compile_launch
from tests.kernels_inference.gluon_stand_ins import Descriptor, Machine, Pointer, load, scalar

SPEC = kernels.get("gluon_attention")
LATE = {"copies late": (True, False), "products late": (False, True)}


def by_hand(
    source, late, q_len, kv_len, causal, block=16, stages=2, in_registers=1, head_dim=64, rows=8, v_value=None,
    scale=None,
):  # fmt: skip
    """(what the kernel's text computes, what is right), of 2 sequences x 4 heads over 2 kv heads."""
    generator = torch.Generator().manual_seed(q_len + kv_len)
    q, k, v = (
        torch.randn(2, heads, n, head_dim, generator=generator).bfloat16()
        for heads, n in ((4, q_len), (2, kv_len), (2, kv_len))
    )
    if v_value is not None:
        v.fill_(v_value)
    machine = Machine(*late)
    kernel = load(source, machine)["gluon_attention_kernel"]
    out = torch.full(q.shape, float("nan"), dtype=torch.bfloat16)
    q_blocks = -(-q_len // (2 * rows))
    for machine.program in range(2 * 4 * q_blocks):
        kernel(
            Descriptor(q, rows), Descriptor(k, block), Descriptor(v, block), Pointer(out),
            scalar((scale or head_dim**-0.5) * LOG2E), 4, 2, q_len, kv_len, q_blocks, CAUSAL=causal,
            HEAD_DIM=head_dim, ROWS=rows, BLOCK=block, STAGES=stages, Q_REGISTERS=in_registers,
        )  # fmt: skip
    return out.double(), SPEC.reference(q.double(), k.double(), v.double(), causal, scale)


def wrong(found, expected):
    return not bool(((found - expected).abs() <= 0.02 * expected.square().mean().sqrt() + 0.02).all())


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
@pytest.mark.parametrize("stages, in_registers", ((2, 1), (3, 0)))
@pytest.mark.parametrize(
    "q_len, kv_len, causal",
    ((32, 32, True), (30, 30, True), (20, 50, True), (1, 20, True), (50, 20, True), (5, 120, False), (33, 16, False)),
)
def test_the_text_is_right_however_late_copies_and_products_are(late, stages, in_registers, q_len, kv_len, causal):
    found, expected = by_hand(
        edits.source_of(SPEC), late, q_len, kv_len, causal, stages=stages, in_registers=in_registers
    )
    assert not wrong(found, expected)


def test_scores_far_out_are_scaled_by_a_power_of_two():
    found, expected = by_hand(edits.source_of(SPEC), LATE["copies late"], 50, 50, True, scale=1e9)
    assert not wrong(found, expected)


@pytest.mark.parametrize("kv_len, none", ((20, 30), (3, 47)))
def test_queries_that_meet_no_key_get_zero_whatever_the_values(kv_len, none):
    """The keys of a block that is looked at and masked weigh 0, and 0 times NaN is NaN."""
    found, _ = by_hand(edits.source_of(SPEC), LATE["copies late"], 50, kv_len, True, v_value=float("nan"))
    assert (found[:, :, :none] == 0).all() and found[:, :, none:].isnan().all()


@pytest.mark.parametrize("bug", SPEC.bugs, ids=lambda bug: bug.name)
def test_planted_bugs_are_seen(bug):
    source = edits.plant(SPEC, bug)

    def seen(late):
        try:
            return wrong(*by_hand(source, late, 20, 120, True))
        except AssertionError:  # waits for ever
            return True

    assert any(seen(late) for late in LATE.values())


def test_a_buffer_that_is_filled_too_early_is_seen():
    freed, issued = "mbarrier.arrive(v_free.index((j - 1) % STAGES), count=1)", "scores = warpgroup_mma_wait(1"
    early = edits.source_of(SPEC).replace(f"        {freed}\n", "").replace(issued, f"{freed}\n        {issued}")
    assert wrong(*by_hand(early, LATE["products late"], 20, 120, True))


@pytest.mark.parametrize("head_dim", (64, 128))
def test_every_config_compiles_for_hopper_without_spills_worth_a_name(head_dim):
    target = Target.named("sm_90")
    inputs = SPEC.inputs({**SPEC.presets["prefill"], "head_dim": head_dim}, "bfloat16", "meta")
    for config in list(SPEC.configs(inputs, target))[: 2 if head_dim == 64 else 1]:
        built = compile_launch(SPEC.plan(inputs, config, target).launches[0], target)
        assert built.instructions["wgmma.mma_async"] and built.spills <= 64, config.label
        assert any(name.startswith("cp.async.bulk.tensor") for name in built.instructions)
        assert built.num_warps == 12 and built.registers == 168, "two groups of 240 registers a thread, one of 24"


def test_elsewhere_it_is_refused_in_one_line():
    x = torch.zeros(1, 2, 8, 64, dtype=torch.bfloat16)
    with pytest.raises(kernels.InputError, match=r"written for Hopper \(sm_90\), and this is a CPU: use attention"):
        kernels.gluon_attention(x, x, x)
    for arch in ("cpu", "sm_80", "sm_100", "gfx942"):
        assert "Hopper" in SPEC.unsupported("bfloat16", Target.named(arch))
    assert SPEC.unsupported("bfloat16", Target.named("sm_90")) is None


@pytest.mark.parametrize(
    "change, line",
    (
        (lambda x: x.float(), "q is float32; this kernel takes bfloat16 or float16: use attention"),
        (lambda x: x[..., :32], "q has a head_dim of 32; this kernel takes 64 or 128: use attention"),
    ),
)
def test_what_it_cannot_take_is_named(change, line):
    x = change(torch.zeros(1, 2, 8, 64, dtype=torch.bfloat16))
    with pytest.raises(kernels.InputError) as refused:
        kernels.gluon_attention(x, x, x)
    assert str(refused.value) == line


def test_strides_that_the_copy_engine_cannot_take_are_named():
    x = torch.zeros(1, 2, 8, 128, dtype=torch.bfloat16, device="meta")[..., ::2]
    inputs = {"q": x, "k": x, "v": x}
    target = Target.named("sm_90")
    with pytest.raises(kernels.InputError, match=r"call q.contiguous\(\)"):
        SPEC.plan(inputs, SPEC.default_config(inputs, target), target)
