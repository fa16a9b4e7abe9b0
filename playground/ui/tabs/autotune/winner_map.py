"""How the winner moves over shapes: which shapes are swept, and the picture of which config wins at each.

Pure: a spec and engine results in, shapes and HTML out. Over one dim every config's time is shown at every size; over
two a cell is a shape: its letter says who wins there, with a line where that changes, and its number and strength of
colour how far the default is behind. Hues are the providers', so that no config has one of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import torch

from kernels import InputError, KernelSpec
from kernels.spec import nbytes
from playground.engine.host import BUSY
from playground.engine.messages import HostResult, Request
from playground.engine.sweep_messages import SweepResult
from playground.ui import panels, sweep, words
from playground.ui.tabs.autotune.view import STEPS

NONE = "one dim alone"
MOST_ACROSS, MOST_DOWN, MOST_ALONE = 4, 3, 5
# Bytes moved and FLOPs of the largest shape: each is run by every config, and the whole map should take a minute.
CPU_LIMITS, GPU_LIMITS = (2**26, 1e9), (2**31, 2e13)


@dataclass
class Map:
    """across, down: dims; down is "" over one dim. cells: by (across, down) size, a sweep or why there is none."""

    across: str
    down: str
    xs: Sequence[int]
    ys: Sequence[int]
    cells: dict[tuple[int, int], SweepResult | str] = field(default_factory=dict)

    def dims(self, x: int, y: int) -> dict[str, int]:
        """What a cell's shape has in place of the request's."""
        return {self.across: x} | ({self.down: y} if self.down else {})

    @property
    def shapes(self) -> list[tuple[int, int]]:
        return [(x, y) for y in self.ys for x in self.xs]

    @property
    def swept(self) -> list[SweepResult]:
        """The shapes at which a config has won, in the order of `shapes`."""
        found = (self.cells.get(at) for at in self.shapes)
        return [cell for cell in found if isinstance(cell, SweepResult) and cell.best is not None]


def axes(spec: KernelSpec) -> tuple[list[str], str, str]:
    """(the dims there are, the one across first, the one down first or NONE)."""
    names = [dim.name for dim in spec.dims]
    others = [name for name in (spec.shrinks, *names) if name != spec.sweep_dim]
    return names, spec.sweep_dim, next(iter(others), NONE)


def empty(spec: KernelSpec, asked: Request, host: HostResult, across: str, down: str) -> Map:
    """The map before anything is swept. Raises InputError."""
    names = [dim.name for dim in spec.dims]
    for name in (across, *([] if down == NONE else [down])):
        if name not in names:
            raise InputError(f"{spec.name} has no dim {str(name)[:40]!r}; choose {', '.join(names)}", "dims")
    if across == down:
        raise InputError(f"both axes are {across}; choose another dim down, or {NONE}", "dims")
    most = _limits(host)
    if down == NONE:
        return Map(across, "", _sizes(spec, asked, across, MOST_ALONE, most), (0,))
    # Each axis takes the root of the room there is above the shape that is asked, so that both ends fit together.
    own = _work(spec, asked, {})
    half = (min(most[0], math.sqrt(most[0] * own[0])), min(most[1], math.sqrt(most[1] * max(1, own[1]))))
    return Map(across, down, _sizes(spec, asked, across, MOST_ACROSS, half), _sizes(spec, asked, down, MOST_DOWN, half))


def _limits(host: HostResult) -> tuple[float, float]:
    return GPU_LIMITS if host.kind == "gpu" else CPU_LIMITS


def _sizes(spec: KernelSpec, asked: Request, name: str, most: int, limits: tuple[float, float]) -> list[int]:
    """Powers of two that fit beside the other dims as they are asked; without any, the size that is asked."""
    dim = next(d for d in spec.dims if d.name == name)
    fitting: list[int] = []
    for power in range(max(0, (dim.low - 1).bit_length()), dim.high.bit_length()):
        if not _refusal(spec, asked, {name: 2**power}, limits):
            fitting.append(2**power)
        elif fitting:
            break
    return sweep.thinned(fitting[-2 * most :], most) or [asked.dims[name]]


def too_large(spec: KernelSpec, asked: Request, host: HostResult, dims: Mapping[str, int]) -> str:
    """Why a shape is not swept on this host, or ""."""
    return _refusal(spec, asked, dims, _limits(host))


def _refusal(spec: KernelSpec, asked: Request, dims: Mapping[str, int], limits: tuple[float, float]) -> str:
    try:
        held, flops = _work(spec, asked, dims)
    except (InputError, RuntimeError) as error:
        return str(error).splitlines()[0]
    if held > limits[0] or flops > limits[1]:
        return "a sweep of this shape would take minutes on this host"
    return ""


def _work(spec: KernelSpec, asked: Request, dims: Mapping[str, int]) -> tuple[int, int]:
    """(bytes, FLOPs) of the shape: what is moved or, where a table is read here and there, what is held."""
    inputs = spec.inputs({**asked.dims, **dims}, asked.dtype or spec.dtypes[0], "meta")
    cost = spec.cost(inputs)
    held = nbytes(*(value for value in inputs.values() if isinstance(value, torch.Tensor)))
    return max(cost.bytes_moved, held), cost.flops


# Pictures


def picture(found: Map) -> str:
    """The map as far as it is; "" before the first winner."""
    swept = found.swept
    if not swept:
        return ""
    source = swept[0].source
    mark = f"<p>{panels.badge(source)} {panels.text(words.place(source))}</p>" if source else ""
    noisy = [cell.note for cell in swept if cell.note]
    note = f'<p class="quiet">At {words.count(len(noisy), "shape")}: {escape(noisy[-1])}.</p>' if noisy else ""
    return f"<h3>{escape(heading(swept))}</h3>" + mark + (_grid(found) if found.down else _columns(found)) + note


def heading(swept: Sequence[SweepResult]) -> str:
    """Whether one config wins everywhere, as the heading of the map."""
    won = [cell.configs[winner(cell)].config.label for cell in swept]
    busy = "; on a busy host no ranking is sure" if any(BUSY in cell.note for cell in swept) else ""
    most = max(dict.fromkeys(won), key=won.count)
    shapes = words.count(len(won), "shape")
    kernel = swept[0].choice.kernel
    if len(set(won)) == 1:
        return f"{kernel}: {most} wins at {'all ' * (len(won) > 1)}{shapes}{busy}"
    configs = words.count(len(set(won)), "config")
    return f"{kernel}: {configs} win over {shapes}, and {most} most often: at {won.count(most)}{busy}"


def _columns(found: Map) -> str:
    """Configs down, sizes across: each time as a multiple of that size's best, so that the winner's move shows."""
    points = found.swept
    labels = list(dict.fromkeys(c.config.label for p in points for c in p.configs if c.ok and c.us))
    head = "".join(f"<th scope=col>{p.choice.dims[found.across]:,}</th>" for p in points)

    def cell(p: SweepResult, label: str) -> str:
        timed = {c.config.label: c.us.p50 for c in p.configs if c.ok and c.us}
        if label not in timed:
            return '<td class="none"></td>'
        times = timed[label] / min(timed.values())
        heat = STEPS[max(0, 5 - int(4 * math.log2(times)))]
        star = '<b class="star">best</b>' if times == 1 else ""
        return (
            f'<td class="{"best" if star else ""}" style="--heat:{heat}%" data-hot="{int(heat > 50)}" '
            f'title="{words.text(timed[label], words.MICROSECONDS)}">{words.digits(times)}×{star}</td>'
        )

    rows = "".join(f"<tr><th scope=row>{escape(x)}</th>{''.join(cell(p, x) for p in points)}</tr>" for x in labels)
    return _table(f"Winner over {found.across}", "time over that of the size's best; 1× wins",
                  f"{escape(found.across)} →", head, rows)  # fmt: skip


def _grid(found: Map) -> str:
    """One cell a shape, and below it who the letters are, whoever wins most shapes first."""
    won = [cell.configs[winner(cell)].config.label for cell in found.swept]
    ranked = sorted(dict.fromkeys(won), key=lambda label: -won.count(label))
    head = "".join(f"<th scope=col>{x:,}</th>" for x in found.xs)
    rows = "".join(
        f"<tr><th scope=row>{y:,}</th>{''.join(_cell(found, i, j, ranked) for i in range(len(found.xs)))}</tr>"
        for j, y in enumerate(found.ys)
    )
    legend = "".join(
        f'<li><b class="who">{_letter(i)}</b>{escape(label)}'
        f"<small>{words.count(won.count(label), 'shape')}</small></li>"
        for i, label in enumerate(ranked)
    )
    title = f"Winner over {found.across} and {found.down}"
    caption = (
        "letter: the config that wins, or the default where the two cannot be told apart, with a line where it "
        "changes; number and strength of colour: how many times as fast as the default"
    )
    corner = f"{escape(found.across)} →<br>{escape(found.down)} ↓"
    return _table(title, caption, corner, head, rows) + f'<ul class="winners">{legend}</ul>'


def winner(cell: SweepResult) -> int:
    """The best config's position; where others cannot be told from it, the default among them, else the first.

    Two times cannot be told apart where their middle 60 % overlap. Else noise would make the winner move.
    """
    assert cell.best is not None
    best = cell.configs[cell.best].us
    assert best is not None
    tied = [i for i, c in enumerate(cell.configs) if c.ok and c.us and c.us.overlaps(best)]
    return cell.default if cell.default in tied else tied[0]


def _who(found: Map, i: int, j: int) -> str | None:
    """Who wins at the i-th size across and the j-th down; None where nobody does, beyond the edge too."""
    cell = found.cells.get((found.xs[i], found.ys[j])) if i >= 0 and j >= 0 else None
    return cell.configs[winner(cell)].config.label if isinstance(cell, SweepResult) and cell.best is not None else None


def _cell(found: Map, x: int, y: int, ranked: Sequence[str]) -> str:
    cell = found.cells.get((found.xs[x], found.ys[y]))
    if cell is None:
        return '<td class="none" title="not swept yet">·</td>'
    if isinstance(cell, str):
        return f'<td class="failed" title="{escape(cell)}">not swept</td>'
    if cell.best is None:
        return '<td class="failed" title="no config has a time at this shape">no time</td>'
    at = winner(cell)
    own, default = cell.configs[at], cell.configs[cell.default] if cell.default is not None else None
    assert own.us is not None
    told, i = f"{own.config.label}: {words.text(own.us.p50, words.MICROSECONDS)}", ranked.index(own.config.label)
    times = 1.0
    if at == cell.default:
        gain = "default"
    elif default and default.ok and default.us:
        times = default.us.p50 / own.us.p50
        gain = f"{words.digits(times)}×"
        told += f"; default {words.text(default.us.p50, words.MICROSECONDS)}"
    else:
        gain, told = "–", f"{told}; the default has no time here"
    heat = STEPS[min(5, math.ceil(4 * math.log2(times)))] if times > 1 else 0
    beside = {"left": _who(found, x - 1, y), "up": _who(found, x, y - 1)}
    lines = "".join(f" {side}" for side, who in beside.items() if who not in (None, own.config.label))
    return (
        f'<td class="won{lines}" style="--heat:{heat}%" data-hot="{int(heat > 50)}" title="{escape(told)}">'
        f'<b class="who">{_letter(i)}</b>{gain}</td>'
    )


def _letter(i: int) -> str:
    return chr(ord("A") + i % 26)


def _table(label: str, caption: str, corner: str, head: str, rows: str) -> str:
    return (
        f'<div class="heat" tabindex="0" role="region" aria-label="{escape(label)}"><table><caption>{caption}</caption>'
        f'<thead><tr><th class="corner">{corner}</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
