"""Generated code as lines that know which lines of Python they came from.

Each stage says so in its own way: MLIR by loc attributes, LLVM IR by !dbg metadata, PTX and AMD's assembly by .loc
directives, SASS by the cubin's line table. All end as `Row`s: the text without that clutter, and the Python lines of
the kernel's file, from the innermost inlined function outwards. Lines of Triton's own library are left out: what
`tl.sum` became belongs to the line that calls it.
"""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import triton


class Row(NamedTuple):
    """One line of generated code; `lines` are 1-based lines of the kernel's file, innermost first, none repeated."""

    text: str
    lines: tuple[int, ...]


def listing(stage: str, code: str, source_file: str) -> list[Row]:
    """The rows of one stage: "ttir", "ttgir", "llir", "ptx" or "amdgcn"; SASS has `sass_listing`."""
    return _READERS[stage](code, source_file)


def _unique(lines: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(line for line in lines if line))  # line 0: the compiler's own


def _same_file(path: str, source_file: str) -> bool:
    """Compilers shorten paths, so the last parts decide."""
    return path.rsplit("/", 1)[-1] == source_file.rsplit("/", 1)[-1]


# MLIR

_LOC_LINE = re.compile(r"^(#loc\w*) = loc\((.*)\)$", re.M)
_LOC_FILE = re.compile(r'"([^"]+)":(\d+):\d+')
_TRAILING_LOC = re.compile(r"\s*loc\(((?:[^()]|\([^()]*\))*)\)\s*$")
_INNER_LOC = re.compile(r"\s*loc\((?:[^()]|\([^()]*\))*\)(?=[,)\s]|$)")


def _mlir(code: str, source_file: str) -> list[Row]:
    named = dict(_LOC_LINE.findall(code))

    @functools.cache
    def lines(loc: str) -> tuple[int, ...]:
        """callsite(#inner at #outer), fused[...], "name"(#loc) and "file":line:column, innermost first."""
        found: list[int] = []
        for part in re.findall(r'"[^"]+":\d+:\d+|#loc\w*', loc):
            if part.startswith("#"):
                found += lines(named.get(part, ""))
            elif (at := _LOC_FILE.match(part)) and _same_file(at[1], source_file):
                found.append(int(at[2]))
        return _unique(found)

    rows: list[Row] = []
    open_regions: list[int] = []
    for text in code.splitlines():
        if text.startswith("#loc"):
            continue
        loc = _TRAILING_LOC.search(text)
        row = Row(_INNER_LOC.sub("", text).rstrip(), lines(loc[1]) if loc else ())
        if row.text.lstrip().startswith("})") and open_regions:
            # An operation with a region, such as tt.reduce, tells its place where the region ends.
            start = open_regions.pop()
            rows[start] = rows[start]._replace(lines=row.lines)
        if row.text.endswith("({"):
            open_regions.append(len(rows))
        rows.append(row)
    return rows


# LLVM IR

_META = re.compile(r"^(!\d+) = (?:distinct )?!(DI\w+)\((.*)\)$", re.M)
_DBG = re.compile(r", !dbg (!\d+)")


def _llir(code: str, source_file: str) -> list[Row]:
    meta = {name: (kind, _fields(body)) for name, kind, body in _META.findall(code)}

    def in_file(scope: str) -> bool:
        kind, fields = meta.get(scope, ("", {}))
        if kind == "DIFile":
            return _same_file(fields.get("filename", "").strip('"'), source_file)
        nearer = fields.get("file") or fields.get("scope")
        return in_file(nearer) if nearer else False

    @functools.cache
    def lines(location: str) -> tuple[int, ...]:
        found = []
        while location in meta:
            fields = meta[location][1]
            if in_file(fields.get("scope", "")):
                found.append(int(fields.get("line", 0)))
            location = fields.get("inlinedAt", "")
        return _unique(found)

    rows = []
    for text in code.splitlines():
        if not text.strip() or text.startswith("!"):
            continue
        dbg = _DBG.search(text)
        rows.append(Row(_DBG.sub("", text), lines(dbg[1]) if dbg else ()))
    return rows


def _fields(body: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+): (\"[^\"]*\"|[^,]+)", body))


# PTX and AMD's assembly: .loc directives whose comment spells the chain of inlining out,
# "standard.py:263:15 @[ standard.py:293:36 @[ kernel.py:57:25 ] ]"

_ASM_LOC = re.compile(r"^\s*\.loc\s.*?(?://|;)\s*(.*)$")
_ASM_PLACE = re.compile(r"([^\s:@\[\]]+):(\d+):\d+")
_ASM_NOISE = re.compile(r"\s*(//|;|\.file|\.cfi_|\.Ltmp|\$L__tmp)")
_ASM_DATA = re.compile(r"\s*\.section\s+\.?(debug|AMDGPU\.csdata)")


def _assembly(code: str, source_file: str) -> list[Row]:
    rows: list[Row] = []
    at: tuple[int, ...] = ()
    for text in code.splitlines():
        if loc := _ASM_LOC.match(text):
            at = _unique(int(line) for file, line in _ASM_PLACE.findall(loc[1]) if _same_file(file, source_file))
        elif _ASM_DATA.match(text):
            break
        elif text.strip() and not _ASM_NOISE.match(text):
            instruction = re.match(r"\s+[@{a-z]", text) is not None
            rows.append(Row(text.replace("\t", "  ").rstrip(), at if instruction else ()))
    return rows


# SASS

_PTX_LOC = re.compile(r"^(\s*\.loc\s+)\d+ \d+ \d+(?=.*?//\s*(.*)$)", re.M)
_SASS_FILE = re.compile(r'//## File "[^"]+", line (\d+)')
_SASS_CODE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(.*?;)")
_SASS_LABEL = re.compile(r"^(\.L\w+):")


def sass_listing(ptx: str, assemble: Callable[[str], bytes], source_file: str) -> list[Row]:
    """The machine code that `assemble` (PTX to cubin, as Triton does it) makes of the PTX.

    A cubin's line table knows one place for an instruction and no chain of inlining. So the PTX is assembled with
    each place replaced by the number of its chain, which changes no instruction, and the numbers are read back.
    """
    chains: dict[tuple[int, ...], int] = {(): 1}

    def numbered(loc: re.Match[str]) -> str:
        chain = _unique(int(line) for file, line in _ASM_PLACE.findall(loc[2]) if _same_file(file, source_file))
        return f"{loc[1]}1 {chains.setdefault(chain, len(chains) + 1)} 0"

    cubin = assemble(_PTX_LOC.sub(numbered, ptx))
    by_number = {number: chain for chain, number in chains.items()}
    rows: list[Row] = []
    at: tuple[int, ...] = ()
    for text in _disassembled(cubin).splitlines():
        if place := _SASS_FILE.search(text):
            at = by_number.get(int(place[1]), ())
        elif code := _SASS_CODE.match(text):
            rows.append(Row(f"{code[1]}  {code[2]}", at))
        elif label := _SASS_LABEL.match(text):
            rows.append(Row(f"{label[1]}:", ()))
    return rows


def _disassembled(cubin: bytes) -> str:
    """By the nvdisasm that Triton brings; without its analysis of the data flow, which adds nothing to the text."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [tool, "-g", "-c", "-ndf", file.name], capture_output=True, text=True, timeout=60, check=True
        )
    return done.stdout


_READERS: dict[str, Callable[[str, str], list[Row]]] = {
    "ttir": _mlir,
    "ttgir": _mlir,
    "llir": _llir,
    "ptx": _assembly,
    "amdgcn": _assembly,
}
