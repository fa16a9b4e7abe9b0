"""How the Code tab's code and figures come about, one click beside them. Pure text."""

from __future__ import annotations

from playground.engine.code_messages import CodeResult
from playground.ui.tabs.run.method import details

COMPILED = (
    "Compiled without the GPU",
    "Triton's own compiler, given this target and the launch that a GPU would be given: the same constants, and of "
    "each argument the same alignment, divisibility by 16 and equality to 1. A GPU of this kind runs the same code.",
)
LINES = (
    "Lines",
    "Each stage tells places in its own way: MLIR by loc, LLVM IR by !dbg, PTX and AMD's assembly by .loc. All of a "
    "chain of inlined calls that lie in this file count. What Triton's library became belongs to the line that calls "
    "it; what compilers move or merge goes by the place that they leave it, often a loop's.",
)
SASS = (
    "SASS",
    "ptxas makes a cubin of the PTX as Triton does, and nvdisasm reads it. A cubin knows one place for an instruction, "
    "so the PTX is assembled with each chain of calls numbered in its stead, which changes no instruction.",
)
NVIDIA = (
    "Registers, spills, shared memory",
    "ptxas -v on this PTX; shared memory as Triton asks for it. Occupancy by the limits of the CUDA programming guide: "
    "the least that registers, shared memory, warps and blocks allow.",
)
AMD = (
    "Registers, spills, shared memory",
    "The metadata of the assembly; occupancy by the limits of AMD's ISA guides.",
)
FOUND = ("What to look at", "Counted in the text of the stage that is named: instructions as they are written, not as "
         "often as they run.")  # fmt: skip


def how(result: CodeResult) -> str:
    """For this target."""
    amd = result.target.startswith("gfx")
    return details("How the code is made and read", [COMPILED, LINES, *(() if amd else (SASS,)), AMD if amd else NVIDIA,
                                                     FOUND])  # fmt: skip
