"""Charts: units on every axis, Triton first and thickest, a named ceiling, nothing told by colour alone."""

import json

import pytest

from playground.ui import charts, theme
from playground.ui.tabs.run import view
from tests.ui.fake_engine import FakeEngine
from tests.ui.samples import REQUEST, answer

BARS = [charts.Bar("Triton", 33.2, 32.9, 34.0), charts.Bar("eager", 118.0, 116.2, 121.5)]


def titles(fig):
    return fig.layout.xaxis.title.text, fig.layout.yaxis.title.text


def test_bars_have_units_whiskers_and_a_named_floor():
    fig = charts.provider_bars(BARS, 31.6, "copy floor")
    assert titles(fig)[0] == "time, µs (less is better)"
    assert [t.name for t in fig.data] == ["Triton", "eager"]
    assert fig.data[1].error_x.array[0] == pytest.approx(3.5) and fig.data[1].error_x.arrayminus[0] == pytest.approx(
        1.8
    )
    assert any(a.text == "copy floor 31.6 µs" for a in fig.layout.annotations)
    assert fig.layout.xaxis.range[1] > 121.5  # the label beside the longest bar is not cut


@pytest.mark.parametrize(("floor", "anchor"), [(1.0, "left"), (60.0, "center"), (140.0, "right")])
def test_the_floors_name_is_cut_by_neither_edge(floor, anchor):
    fig = charts.provider_bars(BARS, floor, "copy floor")
    assert next(a for a in fig.layout.annotations if a.text.startswith("copy floor")).xanchor == anchor


def test_long_times_are_told_in_milliseconds():
    fig = charts.provider_bars([charts.Bar("Triton", 5200, 5100, 5600)], 4000, "copy floor")
    assert titles(fig)[0] == "time, ms (less is better)" and fig.data[0].x[0] == pytest.approx(5.2)


def sweep():
    sizes = [2.0**k for k in range(13, 29)]
    lines = [charts.Line(n, [0.1 * s / (s + 1e6) for s in sizes]) for n in ("Triton", "eager", "New")]
    return charts.throughput(sizes, "bytes moved", lines, [4200.0] * len(sizes), "copy ceiling", False)


def test_throughput_has_units_and_triton_on_top():
    fig = sweep()
    assert titles(fig) == ("bytes moved", "TB/s")
    assert [t.name for t in fig.data] == ["copy ceiling", "New", "eager", "Triton"]  # the last is drawn on top
    widths = {t.name: t.line.width for t in fig.data}
    assert widths["Triton"] == max(widths.values())
    looks = {(t.line.dash, t.marker.symbol) for t in fig.data[1:]}
    assert len(looks) == 3  # told apart without colour, one that has no colour of its own included


def test_ticks_are_round_sizes_with_units_inside_the_range():
    axis = sweep().layout.xaxis
    low, high = (10**v for v in axis.range)
    assert all(low <= v <= high for v in axis.tickvals) and 3 <= len(axis.tickvals) <= 7
    assert axis.ticktext == ("10 KB", "100 KB", "1 MB", "10 MB", "100 MB")


def test_a_short_sweep_has_marks_too():
    sizes = [12_288.0, 49_152.0, 196_608.0, 786_432.0]
    axis = charts.throughput(sizes, "bytes moved", [charts.Line("Triton", sizes)], sizes, "copy", False).layout.xaxis
    assert axis.ticktext == ("20 KB", "50 KB", "100 KB", "200 KB", "500 KB")


@pytest.mark.parametrize("sizes", [[1024.0], [1000.0, 1001.0], [1.0, 2.0**40]])
def test_any_range_of_sizes_has_ticks(sizes):
    fig = charts.throughput(sizes, "bytes moved", [charts.Line("Triton", sizes)], sizes, "copy ceiling", False)
    assert 1 <= len(fig.layout.xaxis.tickvals) <= 8 and fig.layout.xaxis.range[0] < fig.layout.xaxis.range[1]


def test_a_size_without_a_time_leaves_a_gap():
    fig = charts.throughput(
        [1e3, 1e6], "bytes moved", [charts.Line("Triton", [1.0, None])], [2, 2], "copy ceiling", False
    )
    assert list(fig.data[-1].y) == [1.0, None]


def test_every_colour_of_a_chart_can_be_repainted():
    """What dark mode cannot swap would stay as it is: only tokens, white hatching and clear paper may occur."""
    swapped = {c.lower() for c in (theme.INK, theme.MUTED, theme.FAINT, theme.GROUND, *theme.PROVIDERS.values())}
    allowed = swapped | {"#ffffff", "#0b2533", "#36aeb2"}  # hatching; the hover label, which has its own ground
    found = set()

    def walk(value):
        if isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, str) and value.startswith("#"):
            found.add(value.lower())

    for fig in (sweep(), charts.provider_bars(BARS, 31.6, "floor"), charts.run_bars([("1: a", BARS[0])] * 2)):
        walk(json.loads(fig.to_json()))
    assert found - allowed == set()


def test_the_pages_own_charts_come_from_results():
    found = answer(FakeEngine(gpu=True))
    assert view.bars(found.bench).data[0].name == "Triton"
    points = FakeEngine().recorded(REQUEST)
    fig = view.sweep_chart(sorted(points, key=lambda p: p.bytes_moved), "rows")
    assert titles(fig) == ("bytes moved", "TB/s") and {t.name for t in fig.data} >= {"Triton", "eager", "copy ceiling"}
    assert view.sweep_chart([], "rows") is None
