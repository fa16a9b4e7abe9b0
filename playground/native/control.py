"""Loops, branches, calls and the program's own numbers.

Scalars that a loop carries live in stack slots, which LLVM turns into
registers; tensors live in buffers that each iteration writes again.
"""

from __future__ import annotations

from .emit import Reg
from .ir import Block, Op, Value
from .layout import SCALAR, register_type
from .lower import LOOP_GUESS, Lowering
from .registry import statement


@statement("tt.get_program_id")
def program_id(lo: Lowering, op: Op) -> None:
    op.result.reg = Reg(f"%pid_{op.words[0]}", "i32")


@statement("tt.get_num_programs")
def num_programs(lo: Lowering, op: Op) -> None:
    op.result.reg = Reg(f"%grid_{op.words[0]}", "i32")


@statement("llvm.intr.assume", "ttg.barrier", "gpu.barrier", "tt.debug_barrier")
def nothing(lo: Lowering, op: Op) -> None:
    """A program is one thread here: its own steps are in order already."""


def slots_for(lo: Lowering, values: list[Value]) -> list[Reg]:
    return [lo.b.slot(register_type(v.type.element), v.type.size) for v in values]


def assign(lo: Lowering, slots: list[Reg], sources: list[Value]) -> None:
    """`slots = sources`, all at once: every source is read before a slot is written."""
    scalars = [(s, lo.at(v, SCALAR)) for s, v in zip(slots, sources, strict=True)
               if not v.type.is_tensor]  # fmt: skip
    tensors = [(s, v) for s, v in zip(slots, sources, strict=True)
               if v.type.is_tensor and v.buffer != s]  # fmt: skip
    tensors = [(s, _safe_source(lo, v, slots)) for s, v in tensors]
    for shape in dict.fromkeys(v.type.shape for _, v in tensors):
        group = [(s, v) for s, v in tensors if v.type.shape == shape]

        def body(point, *regs: Reg, group=group, shape=shape) -> None:
            for (slot, _), reg in zip(group, regs, strict=True):
                lo.store_buffer_as(shape, slot, reg, point)

        lo.sweep([v for _, v in group], shape, body)
    for slot, reg in scalars:
        lo.b.store(reg, slot)


def _safe_source(lo: Lowering, value: Value, slots: list[Reg]) -> Value:
    """A copy where reading `value` element by element could meet a slot already written."""
    if value.buffer is not None:
        return value
    displaced = any(
        leaf.buffer in slots and (not in_place or leaf.type.shape != value.type.shape)
        for leaf, in_place in lo.leaves(value)
        if leaf.buffer is not None
    )
    if displaced:
        lo.materialise(value)
    return value


@statement("scf.for")
def for_loop(lo: Lowering, op: Op) -> None:
    low, high, step = (lo.at(v, SCALAR) for v in op.operands[:3])
    body = op.regions[0][0]
    slots = slots_for(lo, body.args[1:])
    assign(lo, slots, op.operands[3:])
    b = lo.b
    counter = b.slot(low.elem)
    b.store(low, counter)
    head, inside, after = (b.fresh(p) for p in ("for", "body", "end"))
    b.jump(head)
    b.block(head)
    i = b.load(low.elem, counter)
    b.branch(b.icmp("ult" if op.words else "slt", i, high), inside, after)
    b.block(inside)
    body.args[0].reg = i
    with b.scope():
        lo.bind(body.args[1:], slots)
        lo.yields.append(slots)
        _inside(lo, body)
        lo.yields.pop()
        b.store(b.add(i, step), counter)
    b.jump(head)
    b.block(after)
    lo.bind(op.results, slots)


def _inside(lo: Lowering, block: Block, repeats: bool = True) -> None:
    """A region's block."""
    factor = LOOP_GUESS if repeats else 1
    lo.multiplier *= factor
    parent = block.parent
    with lo.region(lambda value: parent.position < value.op.position <= parent.end):
        lo.block(block)
    lo.multiplier //= factor


@statement("scf.yield")
def yield_(lo: Lowering, op: Op) -> None:
    assign(lo, lo.yields[-1], op.operands)


@statement("scf.if")
def if_(lo: Lowering, op: Op) -> None:
    slots = slots_for(lo, op.results)
    b = lo.b
    condition = lo.at(op.operands[0], SCALAR)
    labels = [b.fresh("then"), b.fresh("else")]
    after = b.fresh("end")
    b.branch(condition, *labels)
    lo.yields.append(slots)
    for number, label in enumerate(labels):
        b.block(label)
        with b.scope():
            if number < len(op.regions):
                _inside(lo, op.regions[number][0], repeats=False)
        b.jump(after)
    lo.yields.pop()
    b.block(after)
    lo.bind(op.results, slots)


@statement("scf.while")
def while_loop(lo: Lowering, op: Op) -> None:
    before, body = op.regions[0][0], op.regions[1][0]
    carried, results = slots_for(lo, before.args), slots_for(lo, op.results)
    assign(lo, carried, op.operands)
    b = lo.b
    head, inside, after = (b.fresh(p) for p in ("while", "body", "end"))
    b.jump(head)
    b.block(head)
    with b.scope():
        lo.bind(before.args, carried)
        lo.yields.append((results, inside, after))
        _inside(lo, before)
        lo.yields.pop()
    b.block(inside)
    with b.scope():
        lo.bind(body.args, results)
        lo.yields.append(carried)
        _inside(lo, body)
        lo.yields.pop()
    b.jump(head)
    b.block(after)
    lo.bind(op.results, results)


@statement("scf.condition")
def condition(lo: Lowering, op: Op) -> None:
    slots, inside, after = lo.yields[-1]
    holds = lo.at(op.operands[0], SCALAR)
    assign(lo, slots, op.operands[1:])
    lo.b.branch(holds, inside, after)


@statement("cf.br", "cf.cond_br")
def jump(lo: Lowering, op: Op) -> None:
    """Arguments of a block are passed in slots; each edge gets a label of its own."""
    b = lo.b
    if op.name == "cf.br":
        _pass_on(lo, op, *op.successors[0])
        return
    edges = [b.fresh("edge") for _ in op.successors]
    b.branch(lo.at(op.operands[0], SCALAR), *edges)
    for edge, (label, values) in zip(edges, op.successors, strict=True):
        b.block(edge)
        with b.scope():
            _pass_on(lo, op, label, values)


def _pass_on(lo: Lowering, op: Op, label: str, values: list[Value]) -> None:
    blocks = op.block.parent.regions[0]
    target = next(block for block in blocks if block.label == label)
    if label not in lo.block_slots:
        lo.block_slots[label] = slots_for(lo, target.args)
    assign(lo, lo.block_slots[label], values)
    lo.b.jump(lo.prefix + label)


@statement("tt.return")
def return_(lo: Lowering, op: Op) -> None:
    for i, value in enumerate(op.operands):
        lo.b.store(lo.at(value, SCALAR), Reg(f"%out{i}", "ptr"))
    lo.b.line("ret void")


@statement("tt.call")
def call(lo: Lowering, op: Op) -> None:
    """A noinline function; Triton lets it take and return scalars alone."""
    symbol = lo.callee(op.text.split("@", 1)[1].split("(", 1)[0])
    outs = slots_for(lo, op.results)
    passed = [a.typed for a in (*lo.operands(op, SCALAR), *outs)] + COMMON_ARGUMENTS
    lo.b.line(f"call void @{symbol}({', '.join(passed)})")
    lo.bind(op.results, outs)


COMMON_ARGUMENTS = [
    "ptr %job", *(f"i32 %pid_{d}" for d in "xyz"), *(f"i32 %grid_{d}" for d in "xyz")
]  # fmt: skip
