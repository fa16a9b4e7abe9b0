"""Checks that a kernel makes of its inputs before anything is launched.

Each failure is an `InputError`: one line that says what was given, what is needed and how to mend it. These are
for what a person passes in; `assert` is for what we promise ourselves.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad


class InputError(ValueError):
    """Input that a kernel cannot take. `argument` names it, so that a form can point at it."""

    def __init__(self, message: str, argument: str = ""):
        super().__init__(message)
        self.argument = argument


def _shape(tensor: torch.Tensor) -> str:
    return "[" + ", ".join(map(str, tensor.shape)) + "]"


def need_tensor(value: object, name: str) -> None:
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{name} is a {type(value).__name__}; pass a torch.Tensor", name)
    if value.layout != torch.strided or value.is_nested:
        kind = "nested" if value.is_nested else str(value.layout).removeprefix("torch.").removeprefix("_")
        raise InputError(f"{name} is a {kind} tensor; kernels read dense ones: convert it with .to_dense()", name)


def need_rank(tensor: torch.Tensor, name: str, rank: int) -> None:
    need_tensor(tensor, name)
    if tensor.ndim != rank:
        raise InputError(f"{name} has shape {_shape(tensor)}; it needs {rank} dimensions: reshape it", name)


def need_min_rank(tensor: torch.Tensor, name: str, rank: int) -> None:
    need_tensor(tensor, name)
    if tensor.ndim < rank:
        raise InputError(f"{name} has shape {_shape(tensor)}; it needs {rank} or more dimensions", name)


def need_shape(tensor: torch.Tensor, name: str, shape: Sequence[int], like: str) -> None:
    """`like` says where the shape comes from, e.g. "x"."""
    need_tensor(tensor, name)
    if tuple(tensor.shape) != tuple(shape):
        wanted = "[" + ", ".join(map(str, shape)) + "]"
        raise InputError(f"{name} has shape {_shape(tensor)}; {like} asks for {wanted}", name)


def need_dtype(tensor: torch.Tensor, name: str, dtypes: Sequence[torch.dtype]) -> None:
    need_tensor(tensor, name)
    if tensor.dtype not in dtypes:
        wanted = ", ".join(str(d).removeprefix("torch.") for d in dtypes)
        given = str(tensor.dtype).removeprefix("torch.")
        raise InputError(f"{name} is {given}; this kernel takes {wanted}: convert it with .to()", name)


def need_same_dtype(tensor: torch.Tensor, name: str, other: torch.Tensor, other_name: str) -> None:
    if tensor.dtype != other.dtype:
        raise InputError(
            f"{name} is {tensor.dtype} and {other_name} is {other.dtype}; convert {name} with .to({other.dtype})", name
        )


def need_same_device(**tensors: torch.Tensor) -> None:
    """All tensors on one device that kernels can run on; the first one names it."""
    (first, lead), *rest = tensors.items()
    if lead.device.type not in ("cuda", "cpu", "meta"):
        raise InputError(f"{first} is on {lead.device}; kernels run on CUDA, ROCm and CPU tensors: move it", first)
    for name, tensor in rest:
        if tensor.device != lead.device:
            raise InputError(
                f"{name} is on {tensor.device} and {first} on {lead.device}; move {name} with .to('{lead.device}')",
                name,
            )


def need_no_grad(**tensors: torch.Tensor | None) -> None:
    """These kernels are for inference: a silent missing gradient would be worse than a refusal."""
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if tensor.requires_grad and torch.is_grad_enabled():
            raise InputError(
                f"{name} requires a gradient and this kernel has none; call it under torch.no_grad()", name
            )
        if forward_ad.unpack_dual(tensor).tangent is not None:
            raise InputError(f"{name} has a tangent and this kernel gives none; pass its primal", name)


def need_number(value: object, name: str, positive: bool = False, whole: bool = False) -> None:
    """A number as an option, which `as_passed` has made one of Python's own."""
    fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    fits = fits and not (isinstance(value, int) and abs(value) > sys.float_info.max)
    if not fits or (positive and not value > 0):  # type: ignore[operator]
        kind = "an integer" if whole else "a number"
        raise InputError(f"{name} is {repr(value)[:60]}; it needs {kind}{' above 0' if positive else ''}", name)


def need_near(tensor: torch.Tensor, name: str, *dims: int) -> None:
    """Along these dimensions a kernel multiplies a stride that fits 32 bits in 32 bits; along all others in 64."""
    for dim in dims:
        reach = (tensor.shape[dim] - 1) * tensor.stride(dim)
        if tensor.stride(dim) < 2**31 <= reach:
            raise InputError(
                f"{name} reaches over {reach:,} elements along dimension {dim}; it needs less than 2^31: "
                "lay it out with .contiguous()", name,
            )  # fmt: skip


def as_passed(inputs: Mapping[str, Any], in_place: Sequence[str]) -> dict[str, Any]:
    """What a person passed, as kernels read it: NumPy's numbers become Python's, and what PyTorch negates on reading
    is negated. `in_place` names what is written. Raises InputError where that has no memory of its own.
    """
    return {name: _as_read(value, name, name in in_place) for name, value in inputs.items()}


def need_values(inputs: Mapping[str, Any]) -> None:
    """For a launch, after the check, which has seen that all tensors are on one device."""
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.is_meta:
            raise InputError(f"{name} is a meta tensor, which holds no values; make it on a device", name)


def _as_read(value: Any, name: str, written: bool) -> Any:
    if not isinstance(value, torch.Tensor):
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return value
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if value.layout != torch.strided or value.is_nested:
        return value
    if written and any(n > 1 and not step for n, step in zip(value.shape, value.stride(), strict=True)):
        raise InputError(f"{name} is to be written and some of its elements share memory; pass a .clone()", name)
    if written and value.is_neg():
        raise InputError(f"{name} is to be written and is a negated view; pass .resolve_neg() of it", name)
    return value.resolve_neg()  # a copy where the sign is still to be turned, as that of z.conj().imag is


FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """[..., n] as [rows, n]: a view wherever strides allow it (sliced, expanded, transposed), else a copy."""
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.numel() else tensor.reshape(0, tensor.shape[-1])
