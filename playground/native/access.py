"""Vector accesses to memory: contiguous or scattered, masked or not.

AVX-512 masks loads and stores of every width itself. Elsewhere a mask that is
all true, which most are, takes an ordinary access.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .emit import Reg, byte_size, literal

if TYPE_CHECKING:
    from .lower import Lowering


def is_run(lo: Lowering, pointers: Reg, element: str) -> Reg:
    """Do these addresses follow each other?"""
    first = lo.b.lane(pointers, 0)
    step = lo.b.iota("i64", pointers.width)
    expected = lo.b.gep("i8" if element == "i1" else element, first, step)
    return lo.b.all(lo.b.icmp("eq", pointers, expected))


def load_run(lo: Lowering, element: str, address: Reg, width: int, mask, other) -> Reg:
    """A contiguous load of `width` elements, masked or not."""
    b = lo.b
    if mask is None:
        return b.load(element, address, width)
    if element == "i1":
        wide = b.cast("zext", other, "i8") if other.startswith("%") else Reg("zeroinitializer", "i8", width)
        return b.cast("trunc", load_run(lo, "i8", address, width, mask, wide), "i1")

    def masked() -> Reg:
        name = f"llvm.masked.load.v{width}{_spell(element)}.p0"
        align = literal(byte_size(element), "i32")
        return b.call(name, element, width, address, align, mask, other)

    if lo.target.masked_memory:
        return masked()
    return b.choose(b.all(mask), lambda: b.load(element, address, width), masked)


def gather(lo: Lowering, element: str, pointers: Reg, mask: Reg | None, other) -> Reg:
    b, width = lo.b, pointers.width
    if element == "i1":
        wide = None if other is None else b.cast("zext", other, "i8")
        return b.cast("trunc", gather(lo, "i8", pointers, mask, wide), "i1")
    mask = literal(1, "i1", width) if mask is None else mask
    other = Reg("poison", element, width) if other is None else other
    name = f"llvm.masked.gather.v{width}{_spell(element)}.v{width}p0"
    align = literal(byte_size(element), "i32")
    return b.call(name, element, width, pointers, align, mask, other)


def _spell(element: str) -> str:
    return {"float": "f32", "double": "f64", "ptr": "p0"}.get(element, element)


def store_run(lo: Lowering, x: Reg, address: Reg, mask: Reg | None) -> None:
    b = lo.b
    x = b.cast("zext", x, "i8") if x.elem == "i1" else x
    if mask is None:
        b.store(x, address)
        return

    def masked() -> None:
        name = f"llvm.masked.store.v{x.width}{_spell(x.elem)}.p0"
        call_void(b, name, x, address, literal(byte_size(x.elem), "i32"), mask)

    if lo.target.masked_memory:
        masked()
        return
    whole, part, after = (b.fresh(p) for p in ("whole", "part", "stored"))
    b.branch(b.all(mask), whole, part)
    b.block(whole)
    b.store(x, address)
    b.jump(after)
    b.block(part)
    masked()
    b.jump(after)
    b.block(after)


def scatter(lo: Lowering, x: Reg, pointers: Reg, mask: Reg | None) -> None:
    b = lo.b
    x = b.cast("zext", x, "i8") if x.elem == "i1" else x
    mask = literal(1, "i1", x.width) if mask is None else mask
    name = f"llvm.masked.scatter.v{x.width}{_spell(x.elem)}.v{x.width}p0"
    call_void(b, name, x, pointers, literal(byte_size(x.elem), "i32"), mask)


def call_void(b, name: str, *args: Reg, constants: int = 0) -> None:
    """The first `constants` arguments are ones that the intrinsic wants written out."""
    types = [a.type + " immarg" * (i < constants) for i, a in enumerate(args)]
    b.declarations.add(f"declare void @{name}({', '.join(types)})")
    b.line(f"call void @{name}({', '.join(a.typed for a in args)})")
