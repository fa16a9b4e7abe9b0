"""The catalogue against what follows from the vendors' architecture guides, and against the limits used elsewhere."""

import pytest

from playground.engine import occupancy
from playground.engine.gpus import CATALOGUE, GB

ASKED = {"A100", "H100", "H200", "B200", "L4", "L40S", "T4", "RTX 4090", "RTX 5090", "MI300X", "MI355X"}
# Dense 16-bit products: FLOP each clock in one SM or CU, accumulating in float32 (whitepapers; GeForce has half).
MATRIX_FLOP = {
    "T4": 1024, "A100": 2048, "L4": 1024, "L40S": 1024, "RTX 4090": 512, "RTX 5090": 512, "H100": 4096, "H200": 4096,
    "B200": 8192, "MI300X": 2048, "MI355X": 4096,
}  # fmt: skip
# Memory: width of the bus in bits, and Gbit/s of each pin.
MEMORY = {
    "T4": (256, 10), "A100": (5120, 3.186), "L4": (192, 12.5), "L40S": (384, 18), "RTX 4090": (384, 21),
    "RTX 5090": (512, 28), "H100": (5120, 5.234), "H200": (6144, 6.25), "B200": (8192, 7.81), "MI300X": (8192, 5.2),
    "MI355X": (8192, 7.81),
}  # fmt: skip


def test_every_card_that_was_asked_for_is_there_with_its_source():
    assert set(CATALOGUE) == ASKED
    for gpu in CATALOGUE.values():
        assert gpu.source.startswith("AMD " if gpu.arch.startswith("gfx") else "NVIDIA ")
        assert any(word in gpu.source for word in ("datasheet", "whitepaper", "guide"))


@pytest.mark.parametrize("name", sorted(ASKED))
def test_matrix_rate_is_that_of_its_units_at_its_clock(name):
    gpu = CATALOGUE[name]
    assert gpu.matrix_flops == pytest.approx(gpu.sms * gpu.clock_hz * MATRIX_FLOP[name], rel=0.015)


@pytest.mark.parametrize("name", sorted(ASKED))
def test_memory_rate_is_that_of_its_bus(name):
    bits, rate = MEMORY[name]
    assert CATALOGUE[name].memory_rate == pytest.approx(bits * rate / 8 * GB, rel=0.01)


@pytest.mark.parametrize("name", sorted(ASKED))
def test_an_sm_holds_what_the_occupancy_rules_say(name):
    gpu = CATALOGUE[name]
    if gpu.arch in occupancy.NVIDIA:
        assert gpu.register_bytes == 4 * occupancy.REGISTERS
        assert gpu.shared_bytes == occupancy.NVIDIA[gpu.arch].shared_bytes <= gpu.l1_bytes
    else:
        simd = occupancy.AMD[gpu.arch]
        assert gpu.register_bytes == simd.count * simd.registers * 64 * 4  # 64 lanes of 4 bytes
        assert gpu.shared_bytes == simd.shared_bytes
