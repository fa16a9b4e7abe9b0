"""The colours can be told apart, and read: WCAG contrast, and distances as people with colour-vision deficits see them.

Values of reference: WCAG 2.2's formula of contrast, OKLab, and the matrices of Machado, Oliveira and Fernandes (2009)
at severity 1.0.
"""

import itertools
import math

import pytest

from playground.ui import theme

SIGHT = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
MODES = {"light": (theme.LIGHT, theme.PROVIDERS), "dark": (theme.DARK, theme.PROVIDERS_DARK)}


def linear(colour):
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def contrast(a, b):
    light, dark = sorted(
        (sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(x), strict=True)) for x in (a, b)), reverse=True
    )
    return (light + 0.05) / (dark + 0.05)


def oklab(rgb):
    r, g, b = (max(0.0, c) for c in rgb)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    medium = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def distance(a, b, sight):
    seen = [oklab([sum(m * c for m, c in zip(row, linear(x), strict=True)) for row in SIGHT[sight]]) for x in (a, b)]
    return 100 * math.dist(*seen)


def test_the_formulas_give_their_published_values():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21.0)
    assert oklab(linear("#FFFFFF")) == pytest.approx((1.0, 0.0, 0.0), abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_text_reaches_aa_on_every_ground(mode):
    tokens, _ = MODES[mode]
    inks = ("ink", "ink-2", "accent-text", "right-text", "wrong-text")
    pairs = [*itertools.product(inks, ("paper", "panel", "sunken")), ("on-accent", "accent"), ("on-sea", "sea")]
    pairs += [("on-sea-2", "sea"), ("ink-2", "accent-soft"), ("ink", "wrong-soft"), ("ink", "right-soft")]
    assert {p: round(c, 2) for p in pairs if (c := contrast(tokens[p[0]], tokens[p[1]])) < 4.5} == {}


@pytest.mark.parametrize("mode", MODES)
def test_providers_stand_out_from_the_panel(mode):
    tokens, providers = MODES[mode]
    assert {n: round(v, 2) for n, c in providers.items() if (v := contrast(c, tokens["panel"])) < 3} == {}


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("mode", MODES)
def test_providers_differ_for_every_sight(mode, sight):
    _, providers = MODES[mode]
    pairs = itertools.combinations(providers, 2)
    near = {p: round(d, 1) for p in pairs if (d := distance(providers[p[0]], providers[p[1]], sight)) < 6}
    assert near == {}


@pytest.mark.parametrize("sight", SIGHT)
def test_memory_levels_differ_for_every_sight(sight):
    assert all(distance(a, b, sight) > 9 for a, b in itertools.pairwise(theme.MEMORY.values()))


def test_every_provider_has_a_mark_and_a_dash_of_its_own():
    for marks in (theme.SYMBOLS, theme.DASHES):
        assert set(marks) == set(theme.PROVIDERS) == set(theme.PROVIDERS_DARK)
        assert len(set(marks.values())) == len(marks)
