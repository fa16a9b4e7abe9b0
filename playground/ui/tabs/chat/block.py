"""The decoder block as a picture: one decode step's kernels with this model's shapes, coloured by their share of time.

Pure: a model's facts and a profile in, SVG out. It is drawn twice, in lanes for a wide page and as a column for a
narrow one; the style sheet shows one of them. Each box is a link to its kernel's Run tab, at the shape it has here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from urllib.parse import urlencode

from kernels import all_kernels
from playground.decoder.looks import ProfileResult
from playground.decoder.messages import ModelFacts
from playground.ui import words

DEEPEST = 0.42  # of a box's colour, so that the ink on it stays readable
COLUMN, BOX, HIGH, RAIL = (
    168,
    148,
    78,
    26,
)  # of the wide picture, in pixels: pitch, box, its height, room for the residual
NARROW, LOW, PITCH = 340, 58, 78  # of the narrow one: its width, a box's height, from box to box


@dataclass(frozen=True)
class Box:
    """key: as in playground.decoder.looks.KernelBox. dims: of the kernel's Run tab. share: None before a profile.

    joined: one kernel with the box before it.
    """

    key: str
    title: str
    kernel: str
    shape: str
    dims: dict[str, int]
    share: float | None = None
    provider: str = "triton"
    does: str = ""
    joined: bool = False

    def link(self, dtype: str) -> str:
        return "?" + urlencode({"kernel": self.kernel, **self.dims, "dtype": dtype})


@dataclass(frozen=True)
class Lanes:
    """What comes before the layers, the two halves of a layer, and what comes after the last."""

    before: tuple[Box, ...]
    attention: tuple[Box, ...]
    forward: tuple[Box, ...]
    after: tuple[Box, ...]

    @property
    def all(self) -> tuple[Box, ...]:
        return (*self.before, *self.attention, *self.forward, *self.after)


def lanes(facts: ModelFacts, context: int, profile: ProfileResult | None = None) -> Lanes:
    """A step of one token that reads `context` tokens."""
    h, d = facts.hidden, facts.head_dim
    wide = (facts.heads + 2 * facts.kv_heads) * d
    page = int(all_kernels()["kv_cache_write"].default["page_size"])
    group = facts.heads // facts.kv_heads
    heads = {"kv_heads": facts.kv_heads, "head_dim": d}
    norm = {"rows": 1, "n": h}
    qk = f"q {facts.heads} × {d}, k {facts.kv_heads} × {d}"
    norms = Box("q_norm", "RMSNorm of q, k", "rms_norm", qk, {"rows": facts.heads, "n": d})
    made = Lanes(
        (Box("embedding", "Embedding", "embedding", f"1 token → {_row(h)}",
             {"tokens": 1, "vocab": facts.vocab_size, "n": h}),),
        (
            Box("attn_norm", "RMSNorm", "add_rms_norm", _row(h), norm),
            _linear("qkv", "Q, K, V", h, wide),
            *((norms,) if facts.qk_norm else ()),
            Box("rope", "RoPE", "rope", qk, {"tokens": 1, "heads": facts.heads, **heads}),
            Box("cache_write", "KV write", "kv_cache_write", f"k, v {facts.kv_heads} × {d} → page",
                {"tokens": 1, **heads, "page_size": page}),
            Box("attention", "Attention", "decode_attention", f"{facts.heads} × {d} over {context:,}",
                {"seqs": 1, "context": context, "kv_heads": facts.kv_heads, "group": group, "head_dim": d,
                 "page_size": page}),
            _linear("o", "Output", facts.heads * d, h),
        ),
        (
            Box("ffn_norm", "RMSNorm", "add_rms_norm", _row(h), norm),
            _linear("gate_up", "Gate, up", h, 2 * facts.ffn),
            Box("activation", "SiLU · up", "silu_mul", f"2 × {facts.ffn:,} → {facts.ffn:,}",
                {"rows": 1, "n": facts.ffn}),
            _linear("down", "Down", facts.ffn, h),
        ),
        (
            Box("norm", "RMSNorm", "add_rms_norm", _row(h), norm),
            _linear("head", "Head", h, facts.vocab_size),
            Box("sampling", "Sampling", "sample", f"{facts.vocab_size:,} → 1 token",
                {"rows": 1, "vocab": facts.vocab_size, "top_k": 0}),
        ),
    )  # fmt: skip
    return made if profile is None else _timed(made, profile)


def _row(n: int) -> str:
    return f"1 × {n:,}"


def _linear(key: str, title: str, k: int, n: int) -> Box:
    return Box(key, title, "linear", f"{k:,} → {n:,}", {"m": 1, "n": n, "k": k})


def _timed(made: Lanes, profile: ProfileResult) -> Lanes:
    """With each box's share and who did it; where one kernel does several boxes, they are joined and share it."""
    found = {part: box for box in profile.boxes for part in box.box.split("+")}

    def timed(lane: tuple[Box, ...]) -> tuple[Box, ...]:
        done: list[Box] = []
        for box in lane:
            seen = found.get(box.key)
            if seen is None:
                done.append(box)
                continue
            share = seen.share + (found["k_norm"].share if box.key == "q_norm" and "k_norm" in found else 0.0)
            alone = seen.spec if "+" not in seen.box else None  # a fused kernel has no tab of its own
            own, does = alone or box.kernel, alone or seen.kernel.split(" ")[0].removesuffix("_kernel")
            joined = bool(done) and found.get(done[-1].key) is seen
            done.append(replace(box, share=share, provider=seen.provider, does=does, kernel=own, joined=joined))
        return tuple(done)

    return Lanes(timed(made.before), timed(made.attention), timed(made.forward), timed(made.after))


def picture(made: Lanes, layers: int, dtype: str) -> str:
    """Both drawings, and what they say in a line."""
    return (
        f'<div class="scroll block-wide" tabindex="0" role="region" aria-label="The decoder block, drawn in lanes">'
        f'{_wide(made, layers, dtype)}</div><div class="block-narrow">{_narrow(made, layers, dtype)}</div>'
        f'<p class="sub">{escape(_said(made))}</p>'
    )


def _said(made: Lanes) -> str:
    if all(box.share is None for box in made.all):
        return "Time the kernels, beside the chat, colours each box by its share of a step."
    joined = " Boxes that a band joins are one kernel." if any(box.joined for box in made.all) else ""
    return f"The deeper a box, the more of a step its kernel takes, in all layers together.{joined}"


# Wide: the layers' two lanes one below the other, what comes before on their left, what comes after on their right


def _wide(made: Lanes, layers: int, dtype: str) -> str:
    across = max(len(made.attention), len(made.forward))
    left, right = COLUMN, COLUMN * (1 + across)
    width = right + BOX + 16
    tops = (RAIL + 40, RAIL + 40 + HIGH + 56)  # of the two lanes' boxes
    height = tops[1] + HIGH + 16
    parts = [f'<rect class="frame" x="{left - 12}" y="6" width="{right - left}" height="{height - 12}" rx="6"/>',
             f'<text class="times" x="{right - 24}" y="28" text-anchor="end">× {layers} layers</text>']  # fmt: skip
    top = _middle(len(made.before), height)
    parts += [_box(box, 0, top + i * (HIGH + 14), BOX, HIGH, dtype) for i, box in enumerate(made.before)]
    rail = [_rail(left, right - 24, y - 22, first=i == 0) for i, y in enumerate(tops)]
    for lane, y in zip((made.attention, made.forward), tops, strict=True):
        parts += _lane(lane, left, y, dtype)
    start = top + HIGH / 2
    parts += [*rail, _line(BOX, start, left - 12, start),
              _line(right - 12, start, right, start)]  # fmt: skip
    top = _middle(len(made.after), height)
    for i, box in enumerate(made.after):
        parts.append(_box(box, right, top + i * (HIGH + 14), BOX, HIGH, dtype))
        if i:
            at = top + i * (HIGH + 14)
            parts.append(_line(right + BOX / 2, at - 14, right + BOX / 2, at))
    return _svg(width, height, parts)


def _middle(count: int, height: float) -> float:
    return (height - count * HIGH - (count - 1) * 14) / 2


def _lane(lane: Sequence[Box], left: float, y: float, dtype: str) -> list[str]:
    """Boxes from left to right; the first reads the residual above it, the last adds to it."""
    parts, middle = [], y + HIGH / 2
    for i, box in enumerate(lane):
        x = left + i * COLUMN
        if box.joined:
            parts.append(
                f'<rect class="joint" x="{x - (COLUMN - BOX)}" y="{middle - 12}" width="{COLUMN - BOX}" height="24"/>'
            )
        elif i:
            parts.append(_line(x - (COLUMN - BOX), middle, x, middle))
        parts.append(_box(box, x, y, BOX, HIGH, dtype))
    first, last = left + BOX / 2, left + (len(lane) - 1) * COLUMN + BOX / 2
    parts += [_line(first, y - 22, first, y), _line(last, y, last, y - 15), _plus(last, y - 22)]
    return parts


def _rail(x: float, to: float, y: float, first: bool) -> str:
    label = f'<text class="note" x="{x + BOX + 4}" y="{y - 6}">residual</text>' if first else ""
    return f'<path class="rail" d="M{x - 12} {y}H{to}"/>{label}'


# Narrow: one box below the other, the residual on the left


def _narrow(made: Lanes, layers: int, dtype: str) -> str:
    parts: list[str] = []
    x, wide, y = 44, NARROW - 52, 8
    starts: list[float] = []
    for name, lane in (
        ("before", made.before),
        ("attention", made.attention),
        ("forward", made.forward),
        ("after", made.after),
    ):
        y += 24 if name in ("attention", "after") else 0
        starts.append(y)
        for i, box in enumerate(lane):
            if box.joined:
                parts.append(
                    f'<rect class="joint" x="{x + 20}" y="{y - PITCH + LOW}" width="24" height="{PITCH - LOW}"/>'
                )
            elif i:
                parts.append(_line(x + wide / 2, y - PITCH + LOW, x + wide / 2, y))
            parts.append(_box(box, x, y, wide, LOW, dtype))
            y += PITCH
        if name in ("attention", "forward"):
            first, last = starts[-1] + LOW / 2, y - PITCH + LOW / 2
            parts += [_line(20, first, x, first), _line(x, last, 27, last), _plus(20, last)]
    rail = f'<path class="rail" d="M{x} {starts[0] + LOW / 2}H20V{starts[3] + LOW / 2}H{x}"/>'
    top, high = starts[1] - 14, starts[3] - starts[1] - 4
    frame = f'<rect class="frame" x="2" y="{top}" width="{NARROW - 4}" height="{high}" rx="6"/>'
    times = f'<text class="times" x="{NARROW - 8}" y="{top - 6}" text-anchor="end">× {layers} layers</text>'
    return _svg(NARROW, y, [frame, times, rail, *parts])


# Pieces


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return (
        f'<svg class="decoder" viewBox="0 0 {width:g} {height:g}" style="--w:{width:g}px" role="group" '
        f'aria-label="The kernels of a decode step">{"".join(parts)}</svg>'
    )


def _box(box: Box, x: float, y: float, wide: float, high: float, dtype: str) -> str:
    share = "" if box.share is None else f"{words.percent(box.share)} %"
    does = "PyTorch" if box.provider == "torch" else box.does or box.kernel
    part = f", {share} of a step" if share else ""
    said = escape(f"{box.title}: {does}, {box.shape}{part}. Opens {box.kernel} in a new tab.")
    deep = DEEPEST * min(1.0, (box.share or 0.0) / 0.5)  # half of a step is as deep as it gets
    once = 0.0 if box.joined else box.share or 0.0  # one kernel's share stands in its first box
    shown = "" if box.joined else escape(share)
    bar = f'<rect class="bar" x="{x}" y="{y + high - 5}" width="{wide * once:.1f}" height="5"/>'
    low = high < HIGH
    second, third = (y + 40, y + 40) if low else (y + 42, y + 62)
    third_at = f'x="{x + wide - 10}" text-anchor="end"' if low else f'x="{x + 10}"'
    return (
        f'<a class="box {box.provider}" href="{escape(box.link(dtype))}" target="_blank" rel="noopener" '
        f'aria-label="{said}"><title>{said}</title>'
        f'<rect class="ground" x="{x}" y="{y}" width="{wide}" height="{high}" rx="4"/>'
        f'<rect class="depth" x="{x}" y="{y}" width="{wide}" height="{high}" rx="4" style="opacity:{deep:.2f}"/>{bar}'
        f'<text class="name" x="{x + 10}" y="{y + 21}">{escape(box.title)}</text>'
        f'<text class="part" x="{x + wide - 10}" y="{y + 21}" text-anchor="end">{shown}</text>'
        f'<text class="does" x="{x + 10}" y="{second}">{escape(does)}</text>'
        f'<text class="dims" {third_at} y="{third}">{escape(box.shape)}</text></a>'
    )


def _line(x: float, y: float, to_x: float, to_y: float) -> str:
    """An arrow, along one axis."""
    if y == to_y:
        tip = 6 if to_x > x else -6
        return f'<path class="way" d="M{x:g} {y:g}H{to_x:g}m{-tip} -4l{tip} 4l{-tip} 4"/>'
    tip = 6 if to_y > y else -6
    return f'<path class="way" d="M{x:g} {y:g}V{to_y:g}m-4 {-tip}l4 {tip}l4 {-tip}"/>'


def _plus(x: float, y: float) -> str:
    return f'<circle class="plus" cx="{x:g}" cy="{y:g}" r="7"/><path class="way" d="M{x - 4:g} {y:g}h8m-4 -4v8"/>'
