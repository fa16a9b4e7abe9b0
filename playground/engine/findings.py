"""What is worth looking at in generated code, found by reading it: each finding leads to its lines.

Works on the rows of `listing`. Says what the code contains, in plain words; how fast that makes it is for a
measurement to say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from playground.engine.listing import Row


class Finding(NamedTuple):
    """claim: a few words. plain: what it means. stage: where. rows: from 0. lines: the Python they came from."""

    claim: str
    plain: str
    stage: str
    rows: tuple[int, ...]
    lines: tuple[int, ...]


class _Rule(NamedTuple):
    """A pattern to look for; say(matches) -> (claim, plain)."""

    pattern: re.Pattern[str]
    say: Callable[[list[re.Match[str]]], tuple[str, str]]


def find(stages: Mapping[str, Sequence[Row]]) -> list[Finding]:
    """Findings of the stages given, the most telling stage for each thing; in the order of the rules."""
    found: list[Finding] = []
    for stage, rules in _RULES.items():
        if stage in stages:
            found += [f for rule in rules if (f := _apply(stage, stages[stage], rule))]
    return found


def _apply(stage: str, rows: Sequence[Row], rule: _Rule) -> Finding | None:
    hits = [(i, row, match) for i, row in enumerate(rows) if (match := rule.pattern.search(row.text))]
    if not hits:
        return None
    claim, plain = rule.say([match for _, _, match in hits])
    lines = tuple(dict.fromkeys(line for _, row, _ in hits for line in row.lines))
    return Finding(claim, plain, stage, tuple(i for i, _, _ in hits), lines)


def _count(things: list, one: str, many: str | None = None) -> str:
    return f"{len(things)} {one if len(things) == 1 else many or one + 's'}"


def _bytes_of(match: re.Match[str]) -> int:
    return int(match["n"] or 1) * int(match["bits"]) // 8


def _global_access(word: str, verb: str) -> Callable[[list[re.Match[str]]], tuple[str, str]]:
    def say(matches: list[re.Match[str]]) -> tuple[str, str]:
        widths = [_bytes_of(m) for m in matches]
        (usual, times), *others = Counter(widths).most_common()
        name = re.sub(r"^@\S+\s+", "", matches[widths.index(usual)][0].strip())
        if usual >= 16:
            claim = f"{usual}-byte {word}"
            plain = f"{times} × {name}: one instruction {verb} {usual} bytes for each lane."
        elif usual >= 8:
            claim = f"{usual}-byte {word}"
            plain = f"{times} × {name}: vectorised, yet not the full 16 bytes; look at alignment and block width."
        else:
            claim = f"Scalar {word}"
            plain = (
                f"{times} × {name}: {usual} bytes for each lane. A stride, an unknown alignment or a small block "
                "keeps elements from being joined."
            )
        if others:
            plain += f" Beside them {', '.join(f'{n} of {width} bytes' for width, n in others)}."
        return claim, plain

    return say


def _note(pattern: str, claim: str, plain: str) -> _Rule:
    """A rule whose words are fixed, but for {n}, how many there are, and {first}, the first of them."""
    return _Rule(
        re.compile(pattern),
        lambda matches: (claim, plain.format(n=len(matches), first=matches[0][0].strip())),
    )


def _async_copies(matches: list[re.Match[str]]) -> tuple[str, str]:
    return (
        "Asynchronous copies",
        f"{_count(matches, 'cp.async')}: global memory goes to shared memory without passing through registers, while "
        "the arithmetic of an earlier step runs.",
    )


def _depth(matches: list[re.Match[str]]) -> tuple[str, str]:
    left = max(int(m["left"]) for m in matches)
    return (
        f"Pipeline {left + 1} groups deep" if left else "Waits for its copies",
        f"cp.async.wait_group {left}: up to {left} groups of copies stay in flight when the loop goes on.",
    )


def _tensor_core(name: str) -> Callable[[list[re.Match[str]]], tuple[str, str]]:
    def say(matches: list[re.Match[str]]) -> tuple[str, str]:
        shape = matches[0]["shape"]
        m, n, k = re.findall(r"\d+", shape)[:3]
        return (
            f"Tensor cores: {m} × {n} × {k}",
            f"{_count(matches, name)} of shape {shape}: each multiplies a {m} × {k} by a {k} × {n} tile.",
        )

    return say


def _swizzle(matches: list[re.Match[str]]) -> tuple[str, str]:
    vec, phase = matches[0]["vec"], matches[0]["phase"]
    if phase == "1":
        return "Shared memory without a swizzle", f"Rows of {vec} elements lie one after another."
    return (
        "Swizzled shared memory",
        f"Groups of {vec} elements are permuted over {phase} phases, which spreads a column over the banks.",
    )


def _blocked(matches: list[re.Match[str]]) -> tuple[str, str]:
    return (
        "Layout of a block",
        f"sizePerThread = [{matches[0]['size']}]: how many neighbouring elements one thread holds. "
        "Times the element's size, this is the width of a load.",
    )


_GLOBAL = r"\.global(?:\.\w+(?:::\w+)*)*?(?:\.v(?P<n>\d))?\.[busf](?P<bits>\d+)"
_TTGIR = [
    _Rule(re.compile(r"swizzled_shared<\{vec = (?P<vec>\d+), perPhase = \d+, maxPhase = (?P<phase>\d+)"), _swizzle),
    _note(
        r"#ttg\.nvmma_shared<\{swizzlingByteWidth",
        "Shared memory for wgmma",
        "{n} layouts in the swizzle that Hopper's tensor cores read directly.",
    ),
    _Rule(re.compile(r"#ttg\.blocked<\{sizePerThread = \[(?P<size>[\d, ]+)\]"), _blocked),
]
_PTX = [
    _Rule(re.compile(r"\bld" + _GLOBAL), _global_access("loads", "loads")),
    _Rule(re.compile(r"\bst" + _GLOBAL), _global_access("stores", "stores")),
    _Rule(re.compile(r"cp\.async\.c[ag]\.shared"), _async_copies),
    _Rule(re.compile(r"cp\.async\.wait_group\s+(?P<left>\d+)"), _depth),
    _note(
        r"cp\.async\.bulk\.tensor",
        "TMA",
        "{n} × cp.async.bulk.tensor: one thread asks the copy engine for a whole tile; no lane computes addresses.",
    ),
    _Rule(re.compile(r"wgmma\.mma_async\.sync\.aligned\.(?P<shape>m\d+n\d+k\d+)"), _tensor_core("wgmma")),
    _note(r"tcgen05\.mma", "Tensor cores of Blackwell", "{n} × tcgen05.mma, accumulating in tensor memory."),
    _Rule(re.compile(r"(?<!wg)mma\.sync\.aligned\.(?P<shape>m\d+n\d+k\d+)"), _tensor_core("mma.sync")),
    _note(
        r"ldmatrix",
        "ldmatrix",
        "{n} × ldmatrix: tiles go from shared memory to registers in the layout that tensor cores want.",
    ),
    _note(
        r"shfl\.sync\.bfly",
        "A reduction by shuffle",
        "{n} × shfl.sync.bfly: lanes of a warp swap values, half as far each step; no memory is touched.",
    ),
    _note(
        r"\b(ld|st)\.shared",
        "Shared memory",
        "{n} accesses: warps pass values to each other, for a reduction across warps or a change of layout.",
    ),
    _note(r"\bbar\.sync|barrier\.sync", "Barriers", "{n} × bar.sync: all warps of the program wait for each other."),
    _note(
        r"\bmbarrier\.",
        "Memory barriers",
        "{n} uses of mbarrier: a copy announces its arrival, and warps wait for that.",
    ),
    _note(r"\bfma\.rn(\.\w+)?\.f32", "Fused multiply-add", "{n} × fma: a product and a sum, rounded once."),
    _note(
        r"\b(ex2|lg2|rsqrt|sqrt|rcp|sin|cos|tanh)\.approx\S*",
        "Fast special functions",
        "{n}, such as {first}: the hardware's approximation, within a few units in the last place.",
    ),
    _note(
        r"@!?%p\d+\s+(ld|st)\.global",
        "Masks are predicates",
        "{n} accesses are guarded one by one, so an odd width costs no branch.",
    ),
    _note(r"\b(atom|red)\.", "Atomics", "{n} atomic operations: programs meet in one place of memory."),
    _note(
        r"\b(ld|st)\.local",
        "Local memory",
        "{n} accesses: an array or a spilled register lives in memory. Try a smaller block or more warps.",
    ),
]
_SASS = [
    _note(r"\bLDG\.E\S*\.128", "LDG.128", "{n} loads of 16 bytes a lane in the machine code."),
    _note(r"\b[HQI]GMMA\.\S+", "GMMA", "{n} × {first}: Hopper's tensor-core instruction of four warps."),
    _note(r"\bHMMA\.\S+", "HMMA", "{n} × {first}: the tensor-core instruction of one warp."),
    _note(r"\b(LDL|STL)\b", "Spills", "{n} × LDL or STL: local memory is used. Try a smaller block or more warps."),
]
_AMDGCN = [
    _note(
        r"\b(global|buffer)_load_(dwordx4|b128)",
        "16-byte loads",
        "{n} × {first}: 16 bytes for each lane in one instruction.",
    ),
    _note(
        r"\b(global|buffer)_load_(dword|ushort|sshort|ubyte|sbyte|short|b32|u16|d16)\b(?!x)",
        "Narrow loads",
        "{n} loads of 4 bytes or fewer for each lane, such as {first}.",
    ),
    _note(r"\b(global|buffer)_store_(dwordx4|b128)", "16-byte stores", "{n} × {first}."),
    _Rule(re.compile(r"\bv_mfma_\w+?_(?P<shape>\d+x\d+x\d+)"), _tensor_core("MFMA instruction")),
    _Rule(re.compile(r"\bv_wmma_\w+?_(?P<shape>\d+x\d+x\d+)"), _tensor_core("WMMA instruction")),
    _note(r"\bds_\w+", "LDS", "{n} uses of the compute unit's shared memory, such as {first}."),
    _note(
        r"row_shr|row_bcast|row_ror|quad_perm|\w+_dpp\b",
        "A reduction by DPP",
        "{n}: lanes read each other's registers inside an arithmetic instruction.",
    ),
    _note(r"\bs_barrier", "Barriers", "{n} × s_barrier: all waves of the program wait for each other."),
    _note(r"\bscratch_(load|store)", "Spills", "{n} accesses to scratch memory: the registers did not suffice."),
]
_RULES: dict[str, list[_Rule]] = {"ptx": _PTX, "amdgcn": _AMDGCN, "sass": _SASS, "ttgir": _TTGIR}
