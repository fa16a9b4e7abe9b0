"""How a figure is written: three significant digits, a unit after a space, commas in thousands.

Pure text: no HTML, and nothing is escaped here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from playground.engine.messages import Source

MICROSECONDS = (("µs", 1.0), ("ms", 1e3), ("s", 1e6))
GIGABYTES = (("GB/s", 1.0), ("TB/s", 1e3))
TERAFLOPS = (("GFLOP/s", 1e-3), ("TFLOP/s", 1.0))
BYTES = (("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9))

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

Units = tuple[tuple[str, float], ...]


def digits(value: float) -> str:
    """Three significant digits, with commas: 0.812, 33.2, 134, 2,287."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "infinite" if value > 0 else "-infinite"
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    rounded = float(f"{value:.3g}")  # first, so that 9.996 counts as 10.0
    places = 2 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(0, places)}f}" if places <= 6 else f"{value:.2g}"


def unit_for(value: float, units: Units) -> tuple[str, float]:
    """The largest unit in which the value is 1 or more, and how many of the first unit it holds."""
    fitting = [u for u in units if abs(value) >= u[1]]
    return fitting[-1] if fitting else units[0]


def quantity(value: float, units: Units) -> tuple[str, str]:
    """(digits, unit) in the unit that suits the value."""
    name, size = unit_for(value, units)
    return digits(value / size), name


def text(value: float, units: Units) -> str:
    return " ".join(quantity(value, units))


def percent(share: float) -> str:
    """What is there is never said to be 0: "98", "<1"."""
    return "<1" if 0 < share < 0.005 else f"{100 * share:.0f}"


def speedup(times: float) -> str:
    """Against eager: "3.6×", "12×", "0.42×"."""
    return f"{times:.0f}×" if times >= 10 else f"{times:.1f}×" if times >= 0.995 else f"{times:.2g}×"


def ulps(value: float) -> str:
    """Worst distance in units in the last place; beyond a million only its size matters."""
    if not math.isfinite(value):
        return digits(value)
    if value >= 1e6:
        return f"10{str(math.floor(math.log10(value))).translate(RAISED)}"
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def number(value: float) -> str:
    """An element of a tensor, as a person reads it back: NaN and infinities by name."""
    return f"{value:.6g}" if math.isfinite(value) else digits(value).replace("infinite", "infinity")


def shape(dims: Mapping[str, int]) -> str:
    """Dims as one types them: rows=64, n=3000."""
    return ", ".join(f"{name}={size}" for name, size in dims.items())


def place(source: Source) -> str:
    """Device and day for a recording ("H200, 2026-11-20"), else the device alone."""
    return f"{source.device}, {source.date[:10]}" if source.kind == "recorded" else source.device


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
