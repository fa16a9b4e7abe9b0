"""Rewrites loop-carried pointer and index tensors that only move by a scalar.

`ptrs += BLOCK_K * stride` in a loop carries a whole tensor of addresses. Here
it becomes the tensor's first value, computed where it is used, plus a scalar
that is carried instead: no buffer of addresses, and the strides stay visible.
"""

from __future__ import annotations

from .ir import Block, Function, Op, Type, Value, walk
from .strides import constant_int

_STEPS = {"tt.addptr", "arith.addi"}


def carry_scalars(function: Function) -> None:
    for op in list(walk(function.blocks)):
        if op.name == "scf.for":
            for number in range(1, len(op.regions[0][0].args)):
                _rewrite(op, number)


def _rewrite(loop: Op, number: int) -> None:
    body = loop.regions[0][0]
    carried, yielded = body.args[number], body.ops[-1]
    update = yielded.operands[number - 1]
    if not carried.type.is_tensor or update.op is None or update.op.name not in _STEPS:
        return
    start, step = update.op.operands
    if start is not carried:
        return
    scalar = _uniform_scalar(step, body)
    if scalar is None:
        return
    first = loop.operands[2 + number]
    name = update.op.name
    if name == "tt.addptr":
        scalar = _widened(scalar, body)
    total = _carry(loop, number, scalar)
    _displace(carried, name, first, total, body, at=0, position=loop.position)
    after = loop.block.ops.index(loop) + 1
    offset = loop.results[number - 1]
    offset.type, old = total.type, Value(carried.type, None, 0, loop.block)
    old.users, offset.users = offset.users, []
    _displace(old, name, first, offset, loop.block, at=after, position=loop.end)


def _uniform_scalar(step: Value, body: Block) -> Value | None:
    """The scalar whose copies fill `step`, or None."""
    while step.op is not None and step.op.name in ("tt.broadcast", "tt.expand_dims"):
        step = step.op.operands[0]
    if step.op is None:
        return None
    if step.op.name == "tt.splat":
        return step.op.operands[0]
    number = constant_int(step)
    if number is None:
        return None
    scalar = Op("arith.constant", body, text=f"arith.constant {number} : {step.type.element}")
    scalar.position = scalar.end = body.parent.position
    scalar.results = [Value(Type((), step.type.element, False), scalar, 0, body)]
    body.ops.insert(0, scalar)
    return scalar.result


def _widened(step: Value, body: Block) -> Value:
    """A pointer's sum of steps needs 64 bits, whatever a step has."""
    if step.type.element == "i64":
        return step
    wide = Op("arith.extsi", body, text="arith.extsi", operands=[step])
    wide.position = wide.end = body.ops[-1].position
    wide.results = [Value(Type((), "i64", False), wide, 0, body)]
    body.ops.insert(len(body.ops) - 1, wide)
    step.users.append(wide)
    return wide.result


def _carry(loop: Op, number: int, step: Value) -> Value:
    """Make the loop carry a scalar, from 0, in place of the tensor; return it."""
    body = loop.regions[0][0]
    outer = loop.block
    type_ = step.type
    zero = Op("arith.constant", outer, text=f"arith.constant 0 : {type_.element}")
    zero.position = zero.end = loop.position
    zero.results = [Value(type_, zero, 0, outer)]
    outer.ops.insert(outer.ops.index(loop), zero)
    total = Value(type_, None, number, body)
    add = Op("arith.addi", body, text="arith.addi", operands=[total, step])
    add.position = add.end = body.ops[-1].position
    add.results = [Value(type_, add, 0, body)]
    body.ops.insert(len(body.ops) - 1, add)
    yielded = body.ops[-1]
    yielded.operands[number - 1].users.remove(yielded)
    yielded.operands[number - 1] = add.result
    add.result.users = [yielded]
    total.users, zero.result.users = [add], [loop]
    step.users.append(add)
    loop.operands[2 + number].users.remove(loop)
    loop.operands[2 + number] = zero.result
    body.args[number] = total
    return total


def _displace(old: Value, name: str, first: Value, offset: Value, block, at: int, position: int):
    """Replace `old` by `first + splat(offset)`, two ops inserted in `block`."""
    if not old.users:
        return
    splat = Op("tt.splat", block, text="tt.splat", operands=[offset])
    splat.results = [Value(Type(old.type.shape, offset.type.element, True), splat, 0, block)]
    moved = Op(name, block, text=name, operands=[first, splat.result])
    moved.results = [Value(old.type, moved, 0, block)]
    splat.position = splat.end = moved.position = moved.end = position
    block.ops[at:at] = [splat, moved]
    offset.users.append(splat)
    splat.result.users = [moved]
    first.users.append(moved)
    for user in set(old.users):
        user.operands = [moved.result if v is old else v for v in user.operands]
        user.successors = [
            (label, [moved.result if v is old else v for v in values]) for label, values in user.successors
        ]
    moved.result.users = old.users
