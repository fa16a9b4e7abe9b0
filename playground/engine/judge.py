"""Is an answer right? Compared with PyTorch in float64, against a bar that eager's own error sets.

error = |got - ref| / (|ref| + rms(ref)), as the rms over the tensor and as its worst element. The bar is four
times the larger of PyTorch eager's own error in that dtype and the dtype's eps, so an answer of zeros fails and an
honest reordering passes. For the rms of a 16-bit answer an eighth of eps takes the place of eps, so an answer whose
elements are all a little off in one direction fails. A long sum has a bar of its own where eager's is lower: a
library may add in many short parts, and a loop that adds K terms in turn is no less right. NaN and infinities must
stand where the reference has them.

It works in chunks on the tensors' own device, so that it needs little memory beside the answer and the reference.
It launches nothing and times nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from playground.engine.messages import OutputVerdict, Wrong

BAR = 4.0
# An all-zero answer has a worst error of 0.5 or more, whatever the reference: no bar may come near it.
HIGHEST_BAR = 0.25
TF32_EPS = 2.0**-10
# Where sums are in float32, a 16-bit answer is off by its one rounding: an rms of eps/10 or so, of eps/2 at the most.
ROUNDING = 1 / 8
# K float32 terms added in turn err by about 0.15 eps sqrt(K) of the sum's rms: each addition rounds a partial sum that
# grows as a walk does. The worst of millions of elements is six times that; BAR leaves both a little room.
IN_TURN_WORST, IN_TURN_RMS = 1 / 4, 1 / 16
PICTURE_ROWS, PICTURE_COLS = 12, 48
# Elements judged at once. On a CPU: so few that PyTorch takes one thread, and all temporaries stay in its cache.
CHUNK = {"cpu": 2**15, "cuda": 2**24}


@dataclass(frozen=True)
class Errors:
    """How far an answer is from the reference. `misplaced`: NaN or infinity on one side only."""

    worst: float = 0.0
    rms: float = 0.0
    ulps: float = 0.0
    misplaced: int = 0


@dataclass(frozen=True)
class Bars:
    """What an answer may be off by: worst element, rms, and what eager reaches in ulps."""

    worst: float
    rms: float
    ulps: float
    note: str = ""


def measure(got: torch.Tensor, ref: torch.Tensor) -> Errors:
    """Errors of a floating answer. Both have one shape; `ref` is float64."""
    scale = rms(ref)
    worst = ulps = squares = 0.0
    misplaced = 0
    for _, a, b in _chunks(got, ref):
        error = (a.double() - b).abs_() / _size(b, scale, got.dtype)
        if not math.isfinite(error.max().item()):  # NaN or infinity somewhere: sort out which stand right
            error, bad = relative_error(a, b, scale, got.dtype)
            misplaced += int(bad.sum())
            error = torch.where(bad, 0.0, error)
        worst = max(worst, error.max().item())
        squares += torch.linalg.vector_norm(error).item() ** 2
        ulps = max(ulps, _ulps(a, b, scale, got.dtype).max().item())
    if misplaced:
        return Errors(math.inf, math.inf, math.inf, misplaced)
    return Errors(worst, math.sqrt(squares / max(got.numel(), 1)), ulps)


def bars(
    eager: torch.Tensor | None, ref: torch.Tensor, dtype: torch.dtype, tf32: bool = False, terms: float = 1.0
) -> Bars:
    """The bar for an output of this dtype. Where eager has no finite answer of its own, eps alone sets it.

    terms: how many products are added up for an element, for the error of float32 sums in turn.
    """
    eps = TF32_EPS if tf32 else torch.finfo(dtype).eps
    in_turn = torch.finfo(torch.float32).eps * math.sqrt(terms)
    least = max(eps, IN_TURN_WORST * in_turn)
    least_rms = max(eps if tf32 or torch.finfo(dtype).bits >= 32 else eps * ROUNDING, IN_TURN_RMS * in_turn)
    if eager is None or eager.shape != ref.shape:
        return Bars(
            min(BAR * least, HIGHEST_BAR), min(BAR * max(eps, least_rms), HIGHEST_BAR), 1.0,
            "eager gave no answer, so the dtype's eps alone sets the bar",
        )  # fmt: skip
    own, note = measure(eager, ref), ""
    if own.misplaced:
        finite = eager.isfinite() & ref.isfinite()
        own = measure(eager[finite], ref[finite]) if finite.any() else Errors(0.0, 0.0, 1.0)
        note = "eager's NaN or infinities differ from float64: its other values set the bar"
    return Bars(
        min(BAR * max(own.worst, least), HIGHEST_BAR),
        min(BAR * max(own.rms, least_rms), HIGHEST_BAR),
        own.ulps,
        note,
    )


def judge(got: object, ref: torch.Tensor, bar: Bars, kind: str, dtype: torch.dtype | None = None) -> OutputVerdict:
    """The verdict on one output.

    kind "float": `ref` is float64. "bits": equal bit for bit to `ref` rounded to the answer's dtype. "codes":
    integers; where `ref` is floating it is the unrounded quotient, and a code may be off by one only where that
    lies on a rounding border; where it is integer, the codes are equal. dtype: what the answer's must be.
    """
    note = _mismatch(got, ref, kind, dtype)
    if note:
        return OutputVerdict(
            ok=False, error=math.inf, bar=bar.worst, rms_error=math.inf, rms_bar=bar.rms, ulps=math.inf,
            ulps_bar=bar.ulps, note=note,
        )  # fmt: skip
    assert isinstance(got, torch.Tensor)
    return _judge_float(got, ref, bar) if kind == "float" else _judge_exact(got, ref, kind)


def _mismatch(got: object, ref: torch.Tensor, kind: str, dtype: torch.dtype | None) -> str:
    if not isinstance(got, torch.Tensor):
        return f"the answer is a {type(got).__name__}, not a tensor"
    if got.shape != ref.shape:
        return f"the answer has shape {list(got.shape)}; the reference has {list(ref.shape)}"
    if kind == "float" and not got.is_floating_point():
        return f"the answer is {_name(got.dtype)}; a floating one is asked for"
    if dtype is not None and got.dtype != dtype:
        return f"the answer is {_name(got.dtype)}; {_name(dtype)} is asked for"
    return ""


def _judge_float(got: torch.Tensor, ref: torch.Tensor, bar: Bars) -> OutputVerdict:
    own = measure(got, ref)
    ok = own.misplaced == 0 and own.worst <= bar.worst and own.rms <= bar.rms
    wrong = None
    if not ok:
        scale = rms(ref)
        # Where no element is over the bar and the rms is, the worst one is shown.
        limit = bar.worst if own.worst > bar.worst else math.nextafter(own.worst, 0)

        def is_wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            error, bad = relative_error(a, b, scale, got.dtype)
            return bad | (error > limit)

        wrong = locate(got, ref, is_wrong)
    note = bar.note
    if own.misplaced:
        note = f"{own.misplaced:,} NaN or infinite values where the reference is finite, or the reverse"
    elif not ok and own.worst <= bar.worst:
        note = f"no element is over the bar, and all together are: an rms of {own.rms:.2g}, and {bar.rms:.2g} may be"
    return OutputVerdict(
        ok=ok, error=own.worst, bar=bar.worst, rms_error=own.rms, rms_bar=bar.rms, ulps=own.ulps,
        ulps_bar=bar.ulps, wrong=wrong, note=note,
    )  # fmt: skip


def _judge_exact(got: torch.Tensor, ref: torch.Tensor, kind: str) -> OutputVerdict:
    is_wrong = _bits_differ if kind == "bits" else _code_is_wrong
    wrong = locate(got, ref, is_wrong)
    error = 0.0 if wrong is None else wrong.count / wrong.total
    far = 0.0 if wrong is None else abs(wrong.got - wrong.expected)
    return OutputVerdict(
        ok=wrong is None, error=error, bar=0.0, rms_error=error, rms_bar=0.0, ulps=far, ulps_bar=0.0, wrong=wrong,
        note="compared bit for bit" if kind == "bits" else "codes compared one by one",
    )  # fmt: skip


def _bits_differ(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    b = b.to(a.dtype)
    if not a.is_floating_point():
        return a != b
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    same = (a.view(bits) == b.view(bits)) | (a.isnan() & b.isnan())
    return ~same


def _code_is_wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if not b.is_floating_point():
        return a != b
    # A float32 quotient may land on either side of a border that float64 puts it within a few eps of.
    slack = 4 * torch.finfo(torch.float32).eps * b.abs().clamp_min(1.0)
    return ~((a.double() - b).abs() <= 0.5 + slack)


def rms(ref: torch.Tensor) -> float:
    """Root mean square over the finite elements; 0 where there are none."""
    total, count = 0.0, 0
    for _, a, _ in _chunks(ref, ref):
        square = torch.linalg.vector_norm(a.double()).item() ** 2
        if not math.isfinite(square):
            a = a[a.isfinite()].double()
            square = torch.linalg.vector_norm(a).item() ** 2
        total += square
        count += a.numel()
    return math.sqrt(total / count) if count else 0.0


def _size(ref: torch.Tensor, scale: float, dtype: torch.dtype) -> torch.Tensor:
    """What an error is relative to. An all-zero reference leaves the dtype's smallest normal number."""
    return ref.abs().add_(scale or torch.finfo(dtype).tiny)


def relative_error(
    got: torch.Tensor, ref: torch.Tensor, scale: float, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """(|got - ref| / (|ref| + rms), where NaN or an infinity is misplaced). Matching ones have an error of 0."""
    got = got.double()
    # The reference in float64 may exceed what the dtype can hold; there infinity is the right answer.
    held = ref.to(dtype).double()
    special = ~(got.isfinite() & held.isfinite())
    agree = (got == held) | (got.isnan() & held.isnan())
    return torch.where(special, 0.0, (got - ref).abs() / _size(ref, scale, dtype)), special & ~agree


def _ulps(got: torch.Tensor, ref: torch.Tensor, scale: float, dtype: torch.dtype) -> torch.Tensor:
    """Distance in units in the last place of `dtype`, at the reference or at its rms, whichever is larger.

    A sum that cancels to almost nothing is not thousands of units off: its terms were not. Subnormals share the
    smallest unit.
    """
    info = torch.finfo(dtype)
    # The exponent bits of a float64 alone are the power of two below it.
    size = ref.abs().clamp_(max(info.tiny, scale), info.max)
    power = (size.view(torch.int64) & 0x7FF0000000000000).view(torch.float64)
    return ((got.double() - ref).abs_() / power.mul_(info.eps)).nan_to_num_(nan=0.0, posinf=0.0)


def locate(got: torch.Tensor, ref: torch.Tensor, is_wrong) -> Wrong | None:
    """The first wrong element, how many there are and where they lie; None where all are right.

    is_wrong: (chunk of got, chunk of ref) -> bool per element.
    """
    n_rows, n_cols = _as_2d(got.shape)
    cell = (math.ceil(n_rows / PICTURE_ROWS) or 1, math.ceil(n_cols / PICTURE_COLS) or 1)
    height, width = math.ceil(n_rows / cell[0]), math.ceil(n_cols / cell[1])
    counts = torch.zeros(height * width, dtype=torch.int64, device=got.device)
    first, total = None, 0
    for start, a, b in _chunks(got, ref):
        found = torch.nonzero(is_wrong(a, b)).flatten() + start
        if not found.numel():
            continue
        total += found.numel()
        first = int(found[0]) if first is None else first
        cells = (found // n_cols // cell[0]) * width + (found % n_cols) // cell[1]
        counts += torch.bincount(cells, minlength=height * width)
    if first is None:
        return None
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(first), got.shape)) if got.ndim else ()
    return Wrong(
        index=index, got=float(got[index]), expected=float(ref[index]), count=total, total=got.numel(),
        picture=_shares(counts.tolist(), (n_rows, n_cols), cell, width), cell=cell,
    )  # fmt: skip


def _shares(
    counts: list[int], shape: tuple[int, int], cell: tuple[int, int], width: int
) -> tuple[tuple[float, ...], ...]:
    """Counts as a share of each cell's elements; the last cells in a row or column may cover fewer."""

    def covered(i: int, axis: int) -> int:
        return min(cell[axis], shape[axis] - i * cell[axis])

    rows = [counts[i : i + width] for i in range(0, len(counts), width)]
    return tuple(tuple(n / (covered(i, 0) * covered(j, 1)) for j, n in enumerate(row)) for i, row in enumerate(rows))


def _as_2d(shape: torch.Size) -> tuple[int, int]:
    """[..., n] as [rows, n]; a vector is one row."""
    return (math.prod(shape[:-1]), shape[-1]) if len(shape) else (1, 1)


def _chunks(got: torch.Tensor, ref: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    size = CHUNK.get(got.device.type, CHUNK["cpu"])
    a, b = got.reshape(-1), ref.reshape(-1)
    for start in range(0, a.numel(), size):
        yield start, a[start : start + size], b[start : start + size]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
