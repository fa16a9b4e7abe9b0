"""The short forms of a tape's operations: what NumPy does, without the interpreter's wrapping.

Each is taken only where it gives, on the operands at hand, the bits, the dtype and the layout in memory that the
interpreter gave. Layout counts since NumPy's sums depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import ReduceOps, TensorHandle

from playground.engine import tape_memory

Array = np.ndarray
Function = Callable[..., Any]


def alike(a: Any, b: Array) -> bool:
    """Whether a is b in every respect that a later operation can see."""
    if not isinstance(a, np.ndarray) or a.dtype != b.dtype or a.shape != b.shape or a.strides != b.strides:
        return False
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def shortest(
    name: str, again: Function, given: Sequence[Any], operands: tuple, out: tuple, primitive: Function | None
) -> tuple[Function, tuple]:
    """A function of arrays that does the operation, and its operands, which may be smaller ones that were spread."""
    whole = wrapped(again, given)
    if len(out) != 1 or name.startswith("create_atomic"):
        return whole, operands
    for function, chosen in _candidates(name, given, operands, out[0].seen.dtype, primitive):
        try:
            if alike(function(*(o.seen for o in chosen)), out[0].seen):
                return function, chosen
        except (TypeError, ValueError):  # operands of shapes or dtypes that this form is not made for
            continue
    return whole, operands


def wrapped(again: Function, given: Sequence[Any]) -> Function:
    """The interpreter's own operation, on arrays."""
    dtypes = [a.dtype if isinstance(a, TensorHandle) else None for a in given]

    def function(*arrays: Array) -> Any:
        rest = iter(arrays)
        handles = [a if d is None else TensorHandle(next(rest), d) for a, d in zip(given, dtypes, strict=True)]
        made = again(*handles)
        if isinstance(made, tuple):
            return tuple(handle.data for handle in made)
        return None if made is None else made.data

    # The handles given hold arrays of the run that was watched; only what is no handle is needed.
    given = [None if isinstance(a, TensorHandle) else a for a in given]
    return function


def _candidates(
    name: str, given: Sequence[Any], operands: tuple, dtype: np.dtype, primitive: Function | None
) -> Iterator[tuple[Function, tuple]]:
    """Short forms, best first. NumPy spreads small operands itself, so those that were spread may be left small."""
    rest = [a for a in given if not isinstance(a, TensorHandle)]
    if name == "create_masked_load" and operands[0].rows is not None and len(operands) == 3:
        base, cells = operands[0].rows
        yield tape_memory.row_loader(cells, dtype), (base, *operands[1:])
    for chosen in product(*([o.source, o] if o.source is not None else [o] for o in operands)):
        if primitive is not None:
            yield primitive, chosen
            yield _cast_after(primitive, dtype), chosen
        elif name in _CASTS:
            # NumPy has no bfloat16 and no fp8: they stand as integers, and become others by Triton's own function.
            if all(_is_itself(o.seen.dtype, o.dtype) for o in operands) and _is_itself(dtype, rest[0]):
                yield _cast(dtype), chosen
        elif name in _FORMS:
            yield _FORMS[name](rest, chosen, dtype), chosen


def _is_itself(dtype: np.dtype, of: Any) -> bool:
    return of.scalar.is_floating() == (dtype.kind == "f")


def _cast_after(primitive: Function, dtype: np.dtype) -> Function:
    return lambda *arrays: primitive(*arrays).astype(dtype)


def _cast(dtype: np.dtype) -> Function:
    return lambda a: a.astype(dtype, copy=False)


def _add_pointer(rest: list, operands: tuple, dtype: np.dtype) -> Function:
    return moved(operands[0])


def moved(pointer: Any) -> Function:
    """What adding an offset to this pointer does to its address."""
    width = max(1, TensorHandle(pointer.seen, pointer.dtype).get_element_ty().primitive_bitwidth // 8)
    return lambda address, offset: address + width * offset.astype(np.uint64)


def _expand(rest: list, operands: tuple, dtype: np.dtype) -> Function:
    shape = list(operands[0].seen.shape)
    shape.insert(rest[0], 1)
    return lambda a: a.reshape(shape)


def _dot(rest: list, operands: tuple, dtype: np.dtype) -> Function:
    return lambda a, b, c: np.matmul(a, b, dtype=dtype) + c


def _load(rest: list, operands: tuple, dtype: np.dtype) -> Function:
    load = interpreter._interpreter.load
    if len(operands) == 3:
        return lambda pointers, mask, other: load(pointers, mask, other, dtype)
    return lambda pointers, *mask: load(
        pointers, mask[0] if mask else np.ones(pointers.shape, bool), np.zeros(pointers.shape, dtype), dtype
    )


_CASTS = (
    "create_si_to_fp", "create_ui_to_fp", "create_fp_to_si", "create_fp_to_ui", "create_fp_ext", "create_fp_trunc",
    "create_int_cast",
)  # fmt: skip
_FORMS: dict[str, Callable[[list, tuple, np.dtype], Function]] = {
    "create_addptr": _add_pointer,
    "create_expand_dims": _expand,
    "create_broadcast": lambda rest, operands, dtype: lambda a: np.broadcast_to(a, rest[0]),
    "create_splat": lambda rest, operands, dtype: lambda a: np.full(rest[0].shape, a, dtype),
    "create_reshape": lambda rest, operands, dtype: lambda a: a.reshape(rest[0]),
    "create_trans": lambda rest, operands, dtype: lambda a: a.transpose(rest[0]),
    "create_bitcast": lambda rest, operands, dtype: lambda a: a.view(dtype),
    "create_rsqrt": lambda rest, operands, dtype: lambda a: 1 / np.sqrt(a),
    "create_fma": lambda rest, operands, dtype: lambda a, b, c: a * b + c,
    **dict.fromkeys(
        ("create_idiv", "create_sdiv", "create_udiv"),
        lambda rest, operands, dtype: lambda a, b: (a - np.fmod(a, b)) // b,
    ),
    "create_dot": _dot,
    "create_load": _load,
    "create_masked_load": _load,
}  # fmt: skip


def reduction(op: Any, original: Function, types: Sequence[Any], operands: tuple, out: tuple) -> Function:
    """A reduction or scan of arrays."""
    known = (by for name, by in _REDUCTIONS.items() if op.combine_fn is getattr(tl.standard, name, None))
    reduce = next(known, None)
    if isinstance(op, ReduceOps) and reduce is not None and len(out) == 1 and len(operands) == 1:
        axis, keep, dtype = op.axis, op.keep_dims, out[0].seen.dtype

        def short(a: Array) -> Array:
            made = reduce(a, axis=axis, keepdims=keep)
            return made.astype(dtype, copy=False) if made.shape else np.array([made], dtype)

        if alike(short(operands[0].seen), out[0].seen):
            return short
    dtypes = [operand.dtype for operand in operands]

    def function(*arrays: Array) -> Any:
        tensors = [
            tl.core.tensor(TensorHandle(a, dtype), kind) for a, dtype, kind in zip(arrays, dtypes, types, strict=True)
        ]
        made = original(op, tuple(tensors))
        if isinstance(made, list | tuple):
            found = tuple(tensor.handle.data for tensor in made)
            return found if len(found) > 1 else found[0]
        return made.handle.data

    return function


_REDUCTIONS: dict[str, Function] = {
    "_sum_combine": np.add.reduce,
    "_elementwise_max": np.fmax.reduce,
    "_elementwise_min": np.fmin.reduce,
}
