"""The Memory tab's headings and methods, against figures reckoned by hand from the vendors' datasheets."""

import csv
import io
import re
from dataclasses import replace

import pytest

from playground.engine.code_messages import CodeRow
from playground.engine.gpus import CATALOGUE
from playground.ui.tabs.memory import drawn, export, headings, method, views
from playground.ui.tabs.memory.facts import rates_of
from tests.ui.memory_samples import CHOICE, code, facts, trace

SIDE = 256  # a product of 256 x 256 matrices: 2 * 256^3 FLOP over three matrices


def product(gpu, dtype, width, stages=True):
    """Facts of that product on a card of the catalogue; width: bytes of an element."""
    choice = CHOICE.model_copy(update={"dtype": dtype})
    traced = trace(choice, flops=2 * SIDE**3, compulsory_bytes=3 * width * SIDE**2)
    compiled = code(choice, CATALOGUE[gpu].arch)
    rows = (CodeRow(text="%d = tt.dot %a, %b, %c", lines=(1,)),) if stages else ()
    launches = tuple(launch.model_copy(update={"stages": {"ttir": rows}}) for launch in compiled.launches)
    return facts(
        gpu=CATALOGUE[gpu], trace=traced, rates=rates_of(CATALOGUE[gpu], dtype, {}),
        code=compiled.model_copy(update={"launches": launches}), recorded=(),
    )  # fmt: skip


@pytest.mark.parametrize(
    "gpu, dtype, width, flops, rate, bound",
    [
        # A100: 312 TFLOP/s in 16 bits, 156 in TF32, 19.5 in float32, 2.039 TB/s
        ("A100", "bfloat16", 2, 312e12, 2.039e12, "memory"),  # 85.3 of 153
        ("A100", "tf32", 4, 156e12, 2.039e12, "memory"),  # 42.7 of 76.5
        ("A100", "float32", 4, 19.5e12, 2.039e12, "arithmetic"),  # 42.7 of 9.56
        # B200: 2,250, 1,125 and 75 TFLOP/s, 8 TB/s. MI300X: 1,307, 653.5 and 163.4, 5.3 TB/s
        ("B200", "tf32", 4, 1125e12, 8e12, "memory"),  # 42.7 of 141
        ("B200", "float32", 4, 75e12, 8e12, "arithmetic"),  # 42.7 of 9.38
        ("MI300X", "tf32", 4, 653.5e12, 5.3e12, "memory"),  # 42.7 of 123
        ("MI300X", "float32", 4, 163.4e12, 5.3e12, "arithmetic"),  # 42.7 of 30.8
        ("T4", "tf32", 4, 8.1e12, 320e9, "arithmetic"),  # Turing has no TF32
    ],
)
def test_a_product_is_held_against_the_peak_of_its_dtype(gpu, dtype, width, flops, rate, bound):
    shown = product(gpu, dtype, width)
    assert shown.arithmetic == pytest.approx(flops)
    at = {2: "85.3", 4: "42.7"}[width]  # 2 * 256^3 / (3 * 256^2 * width)
    said = headings.of_roof(shown)
    assert said.startswith(f"Roofline: {bound} bounds it, at {at} FLOP per byte; the roofs meet at ")
    assert float(said.rsplit(" ", 1)[1].replace(",", "")) == pytest.approx(flops / rate, rel=5e-3)


def test_what_has_no_products_is_held_against_the_vector_units():
    """85.3 FLOP per byte: the A100's matrix units would wait for memory (153), its vector units (9.56) do not."""
    shown = product("A100", "bfloat16", 2, stages=False)
    assert headings.of_roof(shown) == "Roofline: arithmetic bounds it, at 85.3 FLOP per byte; the roofs meet at 9.56"
    assert "has no matrix products" in method.roofs(shown)


def test_the_other_gpus_stand_in_the_same_dtype():
    fig = drawn.roofline(product("A100", "float32", 4))
    tops = {line.hovertemplate.split(",")[0]: max(line.y) for line in fig.data if "datasheet" in line.hovertemplate}
    assert tops == pytest.approx({"B200": 75.0, "MI300X": 163.4, "L4": 30.3})


def test_headings_say_what_their_picture_shows():
    """The sample: 3 reads and 2 writes of 48 bytes asked for, the weight's 12 bytes once a row; the least is 204."""
    shown = facts()
    assert headings.of_ways(shown) == "Bytes three ways: 1.18 times the least is asked for"  # 240 / 204
    assert headings.of_map(shown) == "Access map: 38 % of the sectors touched is used"  # 0.375 everywhere
    assert headings.of_flows(shown) == "Fused 204 B, eager 252 B"  # 3 * 48 and 48 + 12 + 48
    # One warp with 2,048 registers of 65,536 is 32 times there, and 32 blocks are the most that an SM takes.
    assert headings.of_occupancy(shown) == "Occupancy: 50 %, by registers and programs"
    assert re.fullmatch(r"The journey of a tile: [\d.]+ ns at the least, eager's [\d.]+ ns", headings.of_journey(shown))


def test_a_trace_that_leaves_out_what_steers_a_later_launch_claims_no_sum():
    steered = facts(trace=trace(steered=True, exact=False, note="sampled"))
    said = views.banner(steered)
    assert "204 B is the least; too little was traced to say more" in said and "240 B" not in said
    assert headings.of_ways(steered) == "Bytes three ways"


def test_no_roofline_says_why():
    """A device that has not been measured has no roofs; that does not make a kernel one that computes nothing."""
    assert "computes nothing" in views.no_roofline(facts(trace=trace(flops=0)))
    said = views.no_roofline(facts(rates=replace(facts().rates, memory=0.0)))
    assert "computes nothing" not in said and "Measure this device" in said


def test_a_trace_is_taken_along_with_its_shape_and_source():
    rows = list(csv.DictReader(io.StringIO(export.as_csv(trace()))))
    assert len(rows) == 5 and sum(int(row["bytes"]) for row in rows) == 5 * 48
    assert {(row["dims"], row["dtype"], row["source"], row["exact"]) for row in rows} == {
        ("rows=4 n=6", "bfloat16", "interpreted", "True")
    }
    assert export.as_json(trace()).startswith('{\n  "verb": "trace"')
