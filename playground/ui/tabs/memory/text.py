"""Sizes and rates of memory as text."""

from __future__ import annotations

from playground.ui import words

KIB = 1024
SHORT = (("ns", 1e-3), *words.MICROSECONDS)


def cache_size(size: float) -> str:
    """Caches as vendors write them, in powers of 1,024; memory in powers of 1,000."""
    for unit, step in (("GB", KIB**3), ("MB", KIB**2), ("KB", KIB)):
        if size >= step:
            return f"{size / step:.3g} {unit}"
    return f"{size:,.0f} B"


def bytes_text(size: float) -> str:
    return words.text(size, words.BYTES)


def times_text(times: float) -> str:
    """How often: 64, 1.5."""
    return f"{times:,.0f}" if times >= 100 else f"{times:.3g}"


def time_text(us: float) -> str:
    return words.text(us, SHORT)


def rate_text(rate: float) -> str:
    """Bytes a second as GB/s or TB/s."""
    return words.text(rate / 1e9, words.GIGABYTES)
