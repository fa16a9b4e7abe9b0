"""From the arguments of a launch to a compiled kernel's signature and values.

Triton specialises on types and on the value 1; so does this, and on nothing
else (divisibility by 16, which a GPU's code wants, a CPU's does not need).
"""

from __future__ import annotations

import struct

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from .ir import Type

TENSOR_TYPES = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.float16: "*fp16",
    torch.bfloat16: "*bf16", torch.int8: "*i8", torch.uint8: "*u8", torch.int16: "*i16",
    torch.int32: "*i32", torch.int64: "*i64", torch.bool: "*i1", torch.uint16: "*u16",
    torch.uint32: "*u32", torch.uint64: "*u64",
    torch.float8_e4m3fn: "*fp8e4nv", torch.float8_e5m2: "*fp8e5",
}  # fmt: skip
HEADER = "=qqqiiQ"
_PACK = {"f32": "f4x", "f64": "d", "f16": "e6x", "i1": "?7x"}


def tensor_type(dtype) -> str:
    """Triton's name for a pointer to this dtype (PyTorch's, or Triton's own)."""
    if dtype in TENSOR_TYPES:
        return TENSOR_TYPES[dtype]
    if isinstance(dtype, torch.dtype):
        raise TypeError(f"a kernel cannot take a tensor of {dtype}")
    return f"*{dtype}"


def integer_type(value: int) -> str:
    if -(1 << 31) <= value < 1 << 31:
        return "i32"
    return "i64" if value < 1 << 63 else "u64"


def key_of(value, values: list):
    """What of an argument the code depends on; its run-time values are appended."""
    if isinstance(value, bool):
        values.append(value)
        return "i1"
    if isinstance(value, int):
        if value == 1:
            return 1
        values.append(value if value < 1 << 63 else value - (1 << 64))
        return integer_type(value)
    if isinstance(value, float):
        values.append(value)
        return "fp32"
    if value is None:
        return None
    if isinstance(value, tuple | list):
        return tuple(key_of(v, values) for v in value)
    if isinstance(value, TensorDescriptor):
        return _descriptor_key(value, values)
    if hasattr(value, "data_ptr"):
        values.append(value.data_ptr())
        return tensor_type(value.dtype)
    return ("constexpr", getattr(value, "value", value))


def _descriptor_key(value: TensorDescriptor, values: list) -> str:
    """The descriptor's pointer, then what the rewriting pass makes of the rest."""
    values.append(value)
    element = tensor_type(value.base.dtype)[1:]
    return f"tensordesc<{element}[{','.join(map(str, value.block_shape))}]>"


def signature_of(names, keys, is_constexpr) -> tuple[dict, dict]:
    """Triton's signature and constexprs (by path), from a launch's key."""
    signature, constexprs = {}, {}

    def describe(key, path):
        if key is None or (key == 1 and not isinstance(key, str)):
            constexprs[path] = key
            return "constexpr"
        if isinstance(key, tuple) and key[:1] == ("constexpr",):
            constexprs[path] = key[1]
            return "constexpr"
        if isinstance(key, tuple):
            return tuple(describe(k, (*path, i)) for i, k in enumerate(key))
        return key if isinstance(key, str) else tensor_type(key)

    for i, (name, key, fixed) in enumerate(zip(names, keys, is_constexpr, strict=True)):
        if fixed:
            constexprs[(i,)] = key
            signature[name] = "constexpr"
        else:
            signature[name] = describe(key, (i,))
    return signature, constexprs


def packing(types: list[Type], checked: bool = False) -> str:
    """How `struct` lays out a job: five words, a word an argument, two a checked pointer."""
    words = ["Q" if t.is_pointer else _PACK.get(t.element, "q") for t in types]
    bounds = "QQ" * sum(t.is_pointer for t in types) if checked else ""
    return HEADER + "".join(words) + bounds


def expand_descriptors(values: list, types: str) -> list:
    """Replace each descriptor by the arguments that the rewriting pass gave it.

    They are: pointer, shape and strides (i64), some flags (i1), and shape (i32)
    and strides (i64) again. `types` has a letter of `packing` for each argument.
    """
    out: list = []
    for value in values:
        if not isinstance(value, TensorDescriptor):
            out.append(value)
            continue
        shape, strides = list(value.shape), list(value.strides)
        out += [value.base.data_ptr(), *shape, *strides]
        flags = [value.padding == "nan", bool(getattr(value, "round_f32_to_tf32", False))]
        while flags and types[len(out) : len(out) + 1] == "?":
            out.append(flags.pop(0))
        out += [*shape, *strides]
    return out


def letters(fmt: str) -> str:
    """One letter an argument of a format made by `packing`."""
    return "".join(c for c in fmt[len(HEADER) :] if (c.isalpha() and c != "x") or c == "?")


def packer(fmt: str):
    return struct.Struct(fmt).pack
