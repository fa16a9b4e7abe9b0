"""What a kernel meets in Triton's interpreter, where that differs from what a compiled one meets.

A Python float is a float32 in a compiled kernel. The interpreter hands it over as it is: a float64, of which a kernel
can take no bits. And a scalar may end a loop: Triton 3.6 makes an int of an array of one element for that, which NumPy
2.4 refuses.
"""

from __future__ import annotations

import triton.language as tl


def as_compiled() -> None:
    """Have this process's interpreter give floats as float32 scalars, and take scalars as the ends of loops."""
    from triton.runtime import interpreter

    if interpreter._implicit_cvt.__module__ == __name__:
        return  # done before
    _give_float32(interpreter)
    _end_loops(interpreter)


def _give_float32(interpreter) -> None:
    import numpy as np

    as_given = interpreter._implicit_cvt

    def _implicit_cvt(arg):
        if not isinstance(arg, float):
            return as_given(arg)
        with np.errstate(over="ignore"):  # beyond float32 it is infinite, as it is on a GPU
            value = np.array([arg], dtype=np.float32)
        return tl.tensor(interpreter.TensorHandle(value, tl.float32), tl.float32)

    interpreter._implicit_cvt = _implicit_cvt


def _end_loops(interpreter) -> None:
    """As Triton 3.7 does it. The interpreter patches the language before each launch, and undoes it after."""
    patched = interpreter._patch_lang_tensor

    def _patch_lang_tensor(tensor, scope):
        patched(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.squeeze()))

    interpreter._patch_lang_tensor = _patch_lang_tensor
