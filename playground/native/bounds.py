"""Checked mode's part of the lowering: is this address inside its tensor?

A pointer is followed back to the kernel's argument that it was made from, and
the address compared with that tensor's first and last byte, which the job
carries. A lane outside is reported and masked off, so that nothing is touched
and the program goes on to its end. A pointer that was loaded from memory, or
made from a number, belongs to no argument and is not checked.
"""

from __future__ import annotations

from .emit import Builder, Reg, literal
from .ir import Op, Value
from .layout import FIRST_ARGUMENT, Point, memory_bytes
from .lower import Lowering

ANY, FOREIGN = -1, -2  # of some argument, not known which; of none
_FROM_FIRST_OPERAND = {
    "tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "tt.reshape",
    "tt.bitcast", "tt.unsplat",
}  # fmt: skip


def guard(lo: Lowering, op: Op, pointer: Value, point: Point, addresses: Reg, mask):
    """The mask without the lanes that are out of bounds, which are reported."""
    if not lo.checked:
        return mask
    root = argument_of(lo, pointer)
    if root == FOREIGN:
        return mask
    b = lo.b
    size = memory_bytes(pointer.type.pointee)
    where = b.cast("ptrtoint", addresses, "i64")
    inside = _inside(lo, root, where, size)
    outside = b.binary("xor", inside, literal(1, "i1", inside.width))
    bad = outside if mask is None else b.and_(mask, outside)
    kind = "load" if op.name == "tt.load" else "store"
    site = add_site(lo, op, kind, root, size)
    report_lanes(lo, site, bad, where, point, pointer.type.shape)
    return inside if mask is None else b.and_(mask, inside)


def guard_run(lo: Lowering, op: Op, pointer: Value, point: Point, address: Reg, mask):
    """`guard` for lanes that follow each other from `address`."""
    if not lo.checked:
        return mask
    size = memory_bytes(pointer.type.pointee)
    lanes = lo.b.gep("i8", address, lo.b.iota("i64", point.width, size))
    return guard(lo, op, pointer, point, lanes, mask)


def _inside(lo: Lowering, root: int, where: Reg, size: int) -> Reg:
    arguments = lo.module.entry.args
    pointers = [i for i, v in enumerate(arguments) if v.type.is_pointer]
    candidates = pointers if root == ANY else [root]
    inside = literal(0, "i1", where.width)
    for argument in candidates:
        word = FIRST_ARGUMENT + len(arguments) + 2 * pointers.index(argument)
        first, reach = (_job_word(lo.b, word + k) for k in (0, 1))
        # How many byte offsets an element may start at: none in an empty tensor.
        starts = lo.b.intrinsic("usub.sat", lo.b.add(reach, 1), size)
        offset = lo.b.sub(where, lo.b.splat(first, where.width))
        hit = lo.b.icmp("ult", offset, lo.b.splat(starts, where.width))
        inside = hit if len(candidates) == 1 else lo.b.or_(inside, hit)
    return inside


def _job_word(b: Builder, word: int) -> Reg:
    return b.load("i64", b.gep("i64", Reg("%job", "ptr"), word))


def add_site(lo: Lowering, op: Op, kind: str, root: int = ANY, size: int = 1, text="") -> int:
    """A number that stands for this op in reports."""
    lo.program.sites.append((kind, *lo.module.where(op), root, size, text))
    return len(lo.program.sites) - 1


def report_lanes(lo: Lowering, site: int, bad: Reg, where: Reg, point: Point, shape) -> None:
    """Report the first lane that is bad, if one is."""
    b = lo.b

    def report() -> None:
        first, address = literal(0, "i64"), where
        if bad.width > 1:
            bits = b.cast_mask(bad)
            count = b.call(f"llvm.cttz.{bits.elem}", bits.elem, 1, bits, Reg("true", "i1"))
            first = count if count.elem == "i64" else b.cast("zext", count, "i64")
            address = b.lane(where, first)
        lane = lo.linear(point.index, shape)
        if point.dim is not None:
            step = 1
            for n in shape[point.dim + 1 :]:
                step *= n
            lane = b.add(b.mul(first, step), lane)
        passed = ", ".join(r.typed for r in (literal(site, "i64"), address, lane))
        numbers = ", ".join(f"i32 %{n}_{d}" for n in ("pid", "grid") for d in "xy")
        b.line(f"call void @report(ptr %job, {passed}, {numbers}, i32 %pid_z)")

    b.when(b.any(bad), report)


def argument_of(lo: Lowering, value: Value) -> int:
    """Which argument of the kernel a pointer was made from; or ANY, or FOREIGN."""
    op = value.op
    if op is None:
        return _argument_of_block(lo, value)
    if op.name in _FROM_FIRST_OPERAND:
        return argument_of(lo, op.operands[0])
    if op.name in ("tt.load", "tt.int_to_ptr"):
        return FOREIGN
    if op.name == "arith.select":
        return _agreed(lo, op.operands[1:])
    if op.name == "scf.for":
        return argument_of(lo, op.operands[3 + value.number])
    if op.name == "scf.if":
        yields = [region[0].ops[-1].operands[value.number] for region in op.regions]
        return _agreed(lo, yields)
    return ANY


def _argument_of_block(lo: Lowering, value: Value) -> int:
    parent, number = value.block.parent, value.number
    if parent.name == "func":
        is_entry = value.block is lo.module.entry.blocks[0]
        return number if is_entry else ANY
    if parent.name == "scf.for":
        return argument_of(lo, parent.operands[2 + number])
    if parent.name == "scf.while" and value.block is parent.regions[0][0]:
        return argument_of(lo, parent.operands[number])
    return ANY


def _agreed(lo: Lowering, values: list[Value]) -> int:
    roots = {argument_of(lo, v) for v in values}
    return roots.pop() if len(roots) == 1 else ANY


REPORT = """
define internal void @report(ptr %job, i64 %site, i64 %address, i64 %lane, \
i32 %pid_x, i32 %pid_y, i32 %grid_x, i32 %grid_y, i32 %pid_z) cold noinline nounwind {
  %p = getelementptr i64, ptr %job, i64 4
  %r = load ptr, ptr %p
  %row = mul i32 %pid_z, %grid_y
  %rows = add i32 %row, %pid_y
  %before = mul i32 %rows, %grid_x
  %pid = add i32 %before, %pid_x
  %wide = zext i32 %pid to i64
  %mine = add i64 %wide, 1
  br label %lock
lock:
  %pair = cmpxchg ptr %r, i64 0, i64 1 acquire monotonic
  %held = extractvalue {i64, i1} %pair, 1
  br i1 %held, label %look, label %lock
look:
  %w1 = getelementptr i64, ptr %r, i64 1
  %seen = load i64, ptr %w1
  %none = icmp eq i64 %seen, 0
  %earlier = icmp ult i64 %mine, %seen
  %first = or i1 %none, %earlier
  br i1 %first, label %write, label %unlock
write:
  store i64 %mine, ptr %w1
  %w2 = getelementptr i64, ptr %r, i64 2
  store i64 %site, ptr %w2
  %w3 = getelementptr i64, ptr %r, i64 3
  store i64 %address, ptr %w3
  %w4 = getelementptr i64, ptr %r, i64 4
  store i64 %lane, ptr %w4
  br label %unlock
unlock:
  store atomic i64 0, ptr %r release, align 8
  ret void
}
"""
