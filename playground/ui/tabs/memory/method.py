"""How the figures of the Memory tab come about, one click beside them. Pure text."""

from __future__ import annotations

from playground.engine.gpus import Gpu
from playground.ui.tabs.memory.facts import Facts
from playground.ui.tabs.run.method import COPY, MATMUL, details

COUNTED = (
    ("Compulsory", "The kernel's cost model: each input read once and each output written once, whatever the program."),
    (
        "Asked for",
        "The kernel runs in Triton's interpreter as it would be launched on an sm_90, and every lane of every load and "
        "store that its mask leaves on counts its bytes. Lanes that ask for one address count each. A grid that takes "
        "more than two seconds is sampled evenly, the first and the last program always among the sample, and the sums "
        "are scaled and said to be.",
    ),
    ("Distinct bytes", "Each byte of a tensor is marked as it is loaded or stored; what is marked is counted once."),
    (
        "Sectors",
        "The 32-byte pieces that one access of a whole block touches, each once. A GPU counts them for each warp, and "
        "so may count more.",
    ),
    ("DRAM saw", "Nsight Compute's dram__bytes_read.sum and dram__bytes_write.sum over the launches of one call, "
     "recorded with caches flushed before."),
)  # fmt: skip
FLOWED = (
    (
        "Triton",
        "Through memory goes each distinct byte once a launch and direction; what is asked for again comes from L2. "
        "That is the least: a GPU whose L2 is too small moves more.",
    ),
    (
        "eager",
        "PyTorch's operations for the same answer, found by running them on tensors without data. Each reads its "
        "inputs once and writes its outputs once; views cost nothing. What a library's kernel reads again is not "
        "known, and left out.",
    ),
    (
        "The clock",
        "A step lasts its bytes over the rate of their level, or its FLOPs over the rate of the units that compute "
        "them, one step after the other. So it is a floor for each step and no forecast of a time.",
    ),
)


def counted() -> str:
    return details("How bytes are counted", COUNTED)


def flowed() -> str:
    return details("How both are counted and clocked", FLOWED)


def levels(facts: Facts) -> str:
    """Where the rates and capacities of the levels come from."""
    gpu, measured = facts.gpu, facts.rates.source is not None
    own = gpu.source == "read from the device"
    parts = [("Capacities", "As the device reports them." if own else f"{gpu.source}.")]
    if measured:
        parts.append(("Memory, measured", f"{_upper(COPY[not facts.cpu])}, bytes read and written both counted."))
    if facts.rates.l2:
        parts.append((
            "L2 and L1, measured",
            "A Triton kernel that reads 16 MB shared by all programs (L2), or 32 KB of its own in each (L1), 1,024 "
            "chunks a program.",
        ))  # fmt: skip
    if gpu.clock_hz:
        parts.append(_on_chip(gpu))
    return details("Where the rates come from", parts)


def _on_chip(gpu: Gpu) -> tuple[str, str]:
    lanes = round(gpu.register_rate / (12 * gpu.sms * gpu.clock_hz))
    at = f"{gpu.sms} {gpu.unit}s at {gpu.clock_hz / 1e9:.2f} GHz"
    return (
        "On chip, modelled",
        f"{at}, the boost clock. Shared memory: 128 bytes a clock in each. Registers: three operands of 4 bytes for "
        f"each of {lanes} lanes a clock.",
    )


def roofs(facts: Facts) -> str:
    """What the lines and marks of the roofline are."""
    trace, gpu = facts.trace, facts.gpu
    if facts.rates.source is None:
        peaks = f"{gpu.source}, dense. TF32 counts half of 16 bits, float32 the rate of the vector units."
    else:
        peaks = f"{_upper(MATMUL[not facts.cpu])}, the best of short bursts."
    return details(
        "How the roofline is drawn",
        [
            ("This shape", f"{trace.flops:,} FLOP of the cost model over {trace.compulsory_bytes:,} compulsory bytes."),
            ("Products, vector", peaks),
            (
                "Which roof counts",
                f"This kernel's compiled code {'has' if facts.products else 'has no'} matrix products, so "
                f"its arithmetic is held against {'products' if facts.products else 'float32 on the vector units'}.",
            ),
            ("Marks", "Each is a recorded shape: its FLOPs over its median time, at its own FLOP per compulsory byte. "
             "One above the memory's roof was served from L2."),
        ],
    )  # fmt: skip


def sizes(facts: Facts) -> str:
    """How the lines of bandwidth against size were taken."""
    copy = (
        "PyTorch's copy, bytes read and written both counted, again and again on the same data: what fits into a cache "
        "is served from there. "
    )
    copy += "The best of a few bursts." if facts.cpu else "20 in a CUDA graph, the median over the replays."
    return details(
        "How it is measured",
        [
            ("Copy", copy),
            (
                "The kernel and eager",
                "Each mark is a shape: its compulsory bytes over its median time, as Run quotes it.",
            ),
        ],
    )


def occupied(gpu: Gpu) -> str:
    """How the programs on an SM are reckoned."""
    if gpu.unit == "CU":
        limits = (
            "Vector registers of a SIMD over those of a wave, in the unit they are given out in; LDS over the "
            "program's; the waves of a SIMD. AMD's ISA guides give the limits."
        )
    else:
        limits = (
            "65,536 registers over those of a warp (32 lanes, rounded up to 256), in fours of warps; shared memory "
            "over the program's, rounded up to 128 bytes, with the 1 KB that CUDA keeps back for each from sm_80 on; "
            "the warps and blocks that the CUDA programming guide allows. The least of these decides."
        )
    return details(
        "How occupancy is reckoned",
        [
            ("Registers and shared memory", "Of the kernel compiled for this GPU, as its assembler reports them."),
            ("Programs", limits),
            ("Occupancy", "Warps of the resident programs over the most warps that fit. No clock is involved."),
        ],
    )


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
