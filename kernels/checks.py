"""Checks that a kernel makes of its inputs before anything is launched.

Each failure is an `InputError`: one line that says what was given, what is needed and how to mend it. These are
for what a person passes in; `assert` is for what we promise ourselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


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


def need_no_grad(**tensors: torch.Tensor) -> None:
    """These kernels are for inference: a silent missing gradient would be worse than a refusal."""
    if not torch.is_grad_enabled():
        return
    for name, tensor in tensors.items():
        if tensor.requires_grad:
            raise InputError(
                f"{name} requires a gradient and this kernel has none; call it under torch.no_grad()", name
            )


FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """[..., n] as [rows, n]: a view wherever strides allow it (sliced, expanded, transposed), else a copy."""
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.numel() else tensor.reshape(0, tensor.shape[-1])
