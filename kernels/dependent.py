"""Programmatic dependent launch, as the kernels use it; a part of them, no kernel of its own.

On Hopper and later a kernel may begin before the one in front of it in the stream has ended: its launch, its first
addresses and whatever else does not depend on that one then cost nothing. Two instructions keep it right. Each kernel
says early that the next one may begin, and waits for the end of the one before ahead of the first access that could
meet it. Where a launch was not asked for like this (Launch.pdl), both do nothing; the interpreter has neither.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.codes import INTERPRETED


@triton.jit
def let_next_begin(PDL: tl.constexpr):
    if PDL:  # noqa: SIM102 - constexprs, which Triton takes one at a time
        if not INTERPRETED:
            gdc_launch_dependents()


@triton.jit
def wait_for_last(PDL: tl.constexpr):
    """After this, everything that the kernel before has written can be read; a second time it costs nothing."""
    if PDL:  # noqa: SIM102
        if not INTERPRETED:
            gdc_wait()
