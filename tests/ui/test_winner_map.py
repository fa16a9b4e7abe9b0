"""How the winner moves over shapes: which shapes, who is shown to win where, and what is kept when it is stopped."""

import html
import itertools
import re

import pytest

from kernels import InputError, all_kernels, get
from playground.engine.messages import Choice, ConfigChoice, EngineError, Failure, HostResult, Request, Source, Times
from playground.engine.sweep_messages import ConfigResult, SweepResult
from playground.settings import Settings
from playground.ui import bench, links
from playground.ui.context import Context
from playground.ui.tabs.autotune import moves, winner_map
from playground.ui.tabs.autotune.winner_map import NONE

CPU = HostResult(kind="cpu", device="Test CPU", detail="", arch="cpu", memory_bytes=0, versions={})
HERE = Source(kind="measured", device="Test CPU", date="2026-11-30")
NARROW, WIDE = (ConfigChoice(meta={"BLOCK_M": 1, "BLOCK_N": n}) for n in (512, 1024))


def asked(kernel, **dims):
    first = links.first_choice(get(kernel), False)
    return first.model_copy(update={"dims": {**first.dims, **dims}})


def swept(request, narrow, wide):
    """A sweep of two configs; the narrow one is the default. None: it has no time."""
    times = [None if us is None else Times(p20=us, p50=us, p80=us) for us in (narrow, wide)]
    found = tuple(
        ConfigResult(config=c, ok=us is not None, us=us, failure=None if us else "too slow")
        for c, us in zip((NARROW, WIDE), times, strict=True)
    )
    known = {i: us for i, us in enumerate((narrow, wide)) if us is not None}
    best = min(known, key=lambda i: known[i]) if known else None
    choice = Choice(kernel=request.kernel, dims=request.dims, dtype="float32", seed=0, config=NARROW,
                    config_origin="spec")  # fmt: skip
    return SweepResult(choice=choice, configs=found, done=True, best=best, default=0,
                       speedup=narrow / known[best] if narrow and known else None, source=HERE)  # fmt: skip


class Engine:
    """Narrow wins where n is small, wide where it is large; `fails` says what else happens, by shape."""

    def __init__(self, fails=lambda dims: None):
        self.fails, self.shapes = fails, []

    def host(self):
        return CPU

    def sweep(self, request, cancel=None):
        self.shapes.append(request.dims)
        if failure := self.fails(request.dims):
            raise EngineError(failure)
        n = request.dims["n"]
        yield swept(request, 2.0 + n / 1000, 4.0 if n < 2000 else n / 2000)


def drawn(engine, across, down, kernel="softmax", **dims):
    context = Context(engine, Settings())
    request = asked(kernel, **dims)
    spec = get(kernel)
    numbers = [request.dims[d.name] for d in spec.dims]
    values = [kernel, *numbers, request.dtype, "auto", bench.NO_CASE, [], 0]
    *drawn, _ = moves.sweep_shapes(context, "tune x", across, down, tuple(values))  # the last is a drawing of nothing
    return drawn


def rows(page):
    """The map's cells as text, row by row: "A 1.5×"."""
    body = re.search(r"<tbody>(.*?)</tbody>", page)[1]
    return [
        [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.findall(r"<td.*?</td>", row)]
        for row in body.split("</tr>")[:-1]
    ]


def test_a_cell_says_who_wins_and_how_far_the_default_is_behind():
    engine = Engine()
    page = drawn(engine, "n", "rows")[-1][0]
    sizes = sorted({s["n"] for s in engine.shapes})
    expected = ["default" if n < 2000 else f"{(2 + n / 1000) / (n / 2000):.2f}×" for n in sizes]
    first = rows(page)[0]
    assert [cell.split()[1] for cell in first] == expected and "default" in expected and expected[-1] != "default"
    wins = 3 * sum(cell.split()[1] == "default" for cell in first)
    most, often = (NARROW, wins) if wins >= 6 else (WIDE, 12 - wins)
    assert f"<h3>softmax: 2 configs win over 12 shapes, and {most.label} most often: at {often}</h3>" in page
    assert len({cell.split()[0] for cell in first}) == 2 and len(rows(page)) == 3
    assert len(engine.shapes) == 12 and all(row == first for row in rows(page))
    legend = dict(re.findall(r'<b class="who">(\w)</b>([^<]+)<small>', page))
    assert legend[first[0].split()[0]] == NARROW.label and legend[first[-1].split()[0]] == WIDE.label


def spread(us):
    return Times(p20=0.9 * us, p50=us, p80=1.1 * us)


@pytest.mark.parametrize(
    "times, wins", [((10.0, 9.0), 0), ((10.0, 5.0), 1), ((5.0, 10.0), 0), ((10.0, 9.0, 5.0, 4.9), 2)]
)
def test_noise_makes_no_winner(times, wins):
    """Spreads of 10 % each: 9 cannot be told from 10, the default's; 5 can, and not from 4.9."""
    found = tuple(ConfigResult(config=NARROW, ok=True, us=spread(us)) for us in times)
    cell = swept(asked("softmax"), 1.0, 2.0).model_copy(update={"configs": found, "best": times.index(min(times))})
    assert winner_map.winner(cell) == wins


def test_a_busy_host_is_told_below_the_map():
    found = winner_map.empty(get("softmax"), asked("softmax"), CPU, "n", "rows")
    quiet = swept(asked("softmax"), 2.0, 1.0)
    found.cells = dict.fromkeys(found.shapes, quiet)
    assert "busy" not in winner_map.picture(found)
    found.cells[found.shapes[0]] = quiet.model_copy(update={"note": "the host was busy (load 9 on 2 cores)"})
    assert "At 1 shape: the host was busy" in winner_map.picture(found)
    assert "on a busy host no ranking is sure</h3>" in winner_map.picture(found)


def test_a_shape_that_fails_is_a_cell_with_its_reason_and_the_rest_goes_on():
    refuses = Engine(lambda d: Failure(kind="input", message="n needs <more>") if d["n"] < 300 else None)
    page = drawn(refuses, "n", "rows")[-1][0]
    assert [row[0] for row in rows(page)] == ["not swept"] * 3 and "n needs &lt;more&gt;" in page
    assert all(len(row[1].split()) == 2 for row in rows(page))


def test_a_stop_keeps_the_shapes_that_were_swept():
    engine = Engine()
    engine.fails = lambda d: Failure(kind="cancelled", message="stopped") if len(engine.shapes) > 2 else None
    page = drawn(engine, "n", "rows")[-1][0]
    assert "Stopped after 2 shapes." in page and rows(page)[0][2] == "·"


def test_no_winner_anywhere_says_why():
    out = drawn(Engine(lambda d: Failure(kind="unavailable", message="needs a GPU")), "n", "rows")[-1]
    assert "no config has a time at any of these shapes" in out[0].lower() and "needs a GPU" in out[0]


def test_over_one_dim_every_config_is_shown_at_every_size():
    engine = Engine()
    page = drawn(engine, "n", NONE)[-1][0]
    assert len(engine.shapes) == 5 and len(rows(page)) == 2
    assert all(sorted(row[i] for row in rows(page))[0] == "1.00× best" for i in range(5))


@pytest.mark.parametrize("across, down, why", [("n", "n", "Both axes are n"), ("k", "rows", "Softmax has no dim 'k'")])
def test_axes_that_cannot_be_are_refused_in_one_line(across, down, why):
    engine = Engine()
    assert why in html.unescape(drawn(engine, across, down)[-1][0]) and not engine.shapes


@pytest.mark.parametrize("spec", all_kernels().values(), ids=lambda spec: spec.name)
def test_every_kernel_has_axes_whose_shapes_it_takes(spec):
    """Each shape can be planned, and holds no more than a sweep on a CPU has time for."""
    request = asked(spec.name)
    _, across, down = winner_map.axes(spec)
    assert (down == NONE) == (len(spec.dims) == 1)
    found = winner_map.empty(spec, request, CPU, across, down)
    assert len(found.xs) > 1 and (down == NONE or len(found.ys) > 1)
    for x, y in found.shapes:
        assert not winner_map.too_large(spec, request, CPU, found.dims(x, y))
        inputs = spec.inputs({**request.dims, **found.dims(x, y)}, request.dtype, "meta")
        assert spec.cost(inputs).bytes_moved <= 2**26 and spec.cost(inputs).flops <= 1e9


def test_sizes_that_a_shape_does_not_leave_room_for_are_refused():
    request = asked("softmax")
    assert "minutes" in winner_map.too_large(get("softmax"), request, CPU, {"rows": 2**20, "n": 2**14})
    with pytest.raises(InputError, match="softmax has no dim 'm'; choose "):
        winner_map.empty(get("softmax"), Request(kernel="softmax"), CPU, "m", NONE)


def test_the_map_has_no_hue_of_a_provider_and_a_line_where_the_winner_changes():
    page = drawn(Engine(), "n", "rows")[-1][0]
    assert "--p-" not in page and "--own" not in page
    first = re.search(r"<tbody><tr>(.*?)</tr>", page)[1]
    letters = re.findall(r'<b class="who">(\w)</b>', first)
    lined = [" left" in cell for cell in re.findall(r'<td class="([^"]*)"', first)]
    assert lined == [False, *(a != b for a, b in itertools.pairwise(letters))] and sum(lined) == 1
    assert " up" not in page  # every row has the same winners


@pytest.mark.parametrize("times, heat", [(1.1, "20"), (1.3, "40"), (1.5, "76"), (1.9, "88"), (2.1, "100"), (40, "100")])
def test_the_faster_the_winner_the_stronger_the_colour(times, heat):
    """A step for each quarter of a doubling: 1, 1.19, 1.41, 1.68 and 2 times the default."""
    found = winner_map.empty(get("softmax"), asked("softmax"), CPU, "n", "rows")
    found.cells = dict.fromkeys(found.shapes, swept(asked("softmax"), 10.0 * times, 10.0))
    assert set(re.findall(r"--heat:(\d+)%", winner_map.picture(found))) == {heat}
