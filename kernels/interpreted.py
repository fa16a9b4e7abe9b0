"""What a kernel is given in Triton's interpreter, where that differs from what a compiled one gets.

A Python float is a float32 in a compiled kernel. The interpreter hands it over as it is: a float64, of which a kernel
can take no bits.
"""

from __future__ import annotations

import triton.language as tl


def float32_arguments() -> None:
    """Have this process's interpreter give floats as float32 scalars, as a compiled kernel gets them."""
    import numpy as np
    from triton.runtime import interpreter

    as_given = interpreter._implicit_cvt
    if as_given.__module__ == __name__:
        return  # done before

    def _implicit_cvt(arg):
        if not isinstance(arg, float):
            return as_given(arg)
        with np.errstate(over="ignore"):  # beyond float32 it is infinite, as it is on a GPU
            value = np.array([arg], dtype=np.float32)
        return tl.tensor(interpreter.TensorHandle(value, tl.float32), tl.float32)

    interpreter._implicit_cvt = _implicit_cvt
