"""How a matrix must lie in memory for the copy engine of Hopper and later, and how to bring it there. No kernel.

The copy engine (TMA) takes a tile by a descriptor: base, shape, strides. One dimension must have no gaps, and the
base and the other stride must be multiples of 16 bytes. A row of 1,001 float16 is not; read without descriptors, such
rows come in 2 bytes at a time, for each tile anew. Copying the matrix once into rows that do is the better bargain.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.spec import Config, Launch

LANES = 16  # a row of the copy is a multiple of this many elements


@triton.jit
def copy_rows_kernel(
    x_ptr, out_ptr, n_rows, n_cols, stride_xm, stride_xn, stride_om, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):  # fmt: skip
    n_blocks = tl.cdiv(n_cols, BLOCK_N)
    pid = tl.program_id(0)
    rows = (pid // n_blocks).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]  # [BLOCK_M, 1]
    cols = (pid % n_blocks).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]  # [1, BLOCK_N]
    mask = (rows < n_rows) & (cols < n_cols)
    tl.store(
        out_ptr + rows * stride_om + cols, tl.load(x_ptr + rows * stride_xm + cols * stride_xn, mask=mask), mask=mask
    )


def describe(
    tensor: torch.Tensor, block: tuple[int, int], along: int | None = None
) -> tuple[bool, TensorDescriptor] | None:
    """(whether it is described transposed, the descriptor); None where the copy engine cannot address this tensor.

    along: the dimension that must be the one without gaps, where it matters which.
    """
    for transposed in (False, True) if along is None else (along == 0,):
        view, shape = (tensor.t(), block[::-1]) if transposed else (tensor, block)
        step = view.stride(0) * view.element_size()
        fits = view.stride(1) == 1 and view.stride(0) >= view.shape[1] > 0 and view.shape[0] and step % 16 == 0
        if fits and view.data_ptr() % 16 == 0:
            return transposed, TensorDescriptor.from_tensor(view, list(shape))
    return None


def describe_tiles(tensor: torch.Tensor, block: tuple[int, ...]) -> TensorDescriptor | None:
    """A descriptor of a tensor of any rank as it lies; None where the copy engine cannot address it."""
    *outer, last = tensor.stride()
    # The stride of a dimension of one is never used, but must be a legal one all the same.
    legal = all(stride > 0 and stride * tensor.element_size() % 16 == 0 for stride in outer)
    if not tensor.numel() or last != 1 or not legal or tensor.data_ptr() % 16:
        return None
    return TensorDescriptor.from_tensor(tensor, list(block))


def copy_to_aligned(tensor: torch.Tensor, along: int | None = None) -> tuple[Launch, torch.Tensor]:
    """(the launch that makes it, a copy of the matrix that `describe` takes).

    along: the dimension that is to have no gaps; None keeps the one that has none.
    """
    if along is None:
        along = 0 if tensor.stride(0) == 1 else 1
    view = tensor.t() if along == 0 else tensor
    rows, cols = view.shape
    width = triton.cdiv(cols, LANES) * LANES
    copy = torch.empty(rows, width, dtype=view.dtype, device=view.device)[:, :cols]
    args = {
        "x_ptr": view,
        "out_ptr": copy,
        "n_rows": rows,
        "n_cols": cols,
        "stride_xm": view.stride(0),
        "stride_xn": view.stride(1),
        "stride_om": width,
    }
    config = Config({"BLOCK_M": 4, "BLOCK_N": 256}, num_warps=4)
    launch = Launch(copy_rows_kernel, (triton.cdiv(rows, 4) * triton.cdiv(cols, 256),), args, config)
    return launch, copy.t() if view is not tensor else copy
