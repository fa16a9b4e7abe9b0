"""How figures are written: LOOK's own examples."""

import math

import pytest

from playground.engine.messages import Source
from playground.ui import words


@pytest.mark.parametrize(
    ("value", "text"),
    [(33.2, "33.2"), (4.04, "4.04"), (134.2, "134"), (2287, "2,287"), (0.812, "0.812"), (9.996, "10.0"),
     (99.96, "100"), (0, "0"), (1e-9, "1e-09"), (-3.5, "-3.50"), (math.nan, "NaN"), (-math.inf, "-infinite")],
)  # fmt: skip
def test_three_significant_digits(value, text):
    assert words.digits(value) == text


@pytest.mark.parametrize(
    ("value", "units", "text"),
    [(33.2, words.MICROSECONDS, "33.2 µs"), (1520.0, words.MICROSECONDS, "1.52 ms"),
     (4040.0, words.GIGABYTES, "4.04 TB/s"), (134_217_728, words.BYTES, "134 MB"),
     (0.45, words.TERAFLOPS, "450 GFLOP/s"),
     (742.0, words.TERAFLOPS, "742 TFLOP/s"), (0.4, words.MICROSECONDS, "0.400 µs")],
)  # fmt: skip
def test_units_suit_the_value(value, units, text):
    assert words.text(value, units) == text


def test_speed_ups_percentages_and_ulps():
    assert [words.speedup(v) for v in (3.6, 12.4, 1.0, 0.42)] == ["3.6×", "12×", "1.0×", "0.42×"]
    assert words.percent(0.951) == "95"
    assert [words.ulps(v) for v in (0.81, 2500, 7e9, math.inf)] == ["0.81", "2,500", "10⁹", "infinite"]


def test_a_recording_is_named_with_its_day():
    recorded = Source(kind="recorded", device="NVIDIA H200", date="2026-11-20T10:00:00+00:00")
    assert words.place(recorded) == "NVIDIA H200, 2026-11-20"
    assert words.place(recorded.model_copy(update={"kind": "measured"})) == "NVIDIA H200"
