"""How a figure came about, one click beside it: how an answer is judged, what was timed, and where the roof stands.

Pure text. docs/decisions says why; here it is said what, for whoever doubts the figure they look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from playground.engine.messages import BenchResult

JUDGED = (
    "Right or wrong",
    "Each output is compared with PyTorch's in float64. An element's error is |got − ref| / (|ref| + rms(ref)). The "
    "worst element and the rms over all elements have a bar each: four times what PyTorch eager reaches in this dtype, "
    "or four eps of the dtype where that is more (half an eps for the rms of 16 bits), or what K float32 products "
    "added in turn may be off by, where K is large (an eps times √K, a quarter of it for the rms). NaN and infinities "
    "must stand where the reference has them; integers and copies are compared exactly. Outputs hold NaN before the "
    "run, so what nobody wrote fails. A ulp is a unit in the last place of the output's dtype at the reference, or at "
    "its rms where that is larger.",
)
AGAIN = "Each implementation is judged before its times are taken and again afterwards. "
# By the method's name in a result (playground/engine/bench.py).
TIMED = {
    "cold L2": "Before each call a buffer four times as large as L2 is written, as often as the host needs to enqueue "
    "the call; CUDA events stand around the call alone. What the flush left in L2 is written back meanwhile, as with "
    "triton.testing.do_bench.",
    "CUDA graph, rotating inputs": "20 calls or more in one CUDA graph, through copies of the inputs that together are "
    "more than twice L2, so that each call finds its own in DRAM. The replay's time is divided by the calls; the gaps "
    "between them count.",
    "CUDA graph, warm L2": "20 calls or more in one CUDA graph on the same inputs, which come from L2: too many copies "
    "would be needed to fill it. The replay's time is divided by the calls; the gaps between them count.",
    "warm cache": "Calls in a row by the host's clock, each from before it until its result is there, one call before "
    "them left out. What fits into this CPU's caches comes from there.",
}
SPREAD = "The figure is the median; p20–p80 leave a fifth of the calls out on either side."
SPEEDUP = "Speed-up: eager's median over this one's, both by this method on the same inputs."
COPY = {
    True: "PyTorch's copy and a plain Triton copy of 0.5 to 2 GiB, the best median",
    False: "PyTorch's copy of 256 and 512 MiB, the best call",
}
MATMUL = {True: "PyTorch's products of 4,096 and 8,192 squared", False: "PyTorch's products of 1,024 squared"}


def judged() -> str:
    return details("How it is judged", [JUDGED])


def timed(bench: BenchResult) -> str:
    """What stands under a table of times: judging, timing and roof, as they were for these figures."""
    own = bench.providers.get("triton")
    method = own.method if own and own.method else next((p.method for p in bench.providers.values() if p.method), "")
    if method not in TIMED:
        return judged()
    return details(
        "How it is judged and timed",
        [JUDGED, (method[0].upper() + method[1:], f"{AGAIN}{TIMED[method]} {SPREAD} {SPEEDUP}"), _roof(bench, method)],
    )


def _roof(bench: BenchResult, method: str) -> tuple[str, str]:
    gpu = method != "warm cache"
    if bench.bound == "compute":
        dtype = bench.choice.dtype if bench.roofs and bench.choice.dtype in bench.roofs.matmul_tflops else "float32"
        roof = f"{MATMUL[gpu]} in {dtype}, the best of short bursts"
        return "Of matmul", f"100 % is the kernel's arithmetic at the rate of {roof}, measured on the same device."
    return (
        "Of copy",
        "100 % is each input read once and each output written once, at the rate of "
        f"{COPY[gpu]}, bytes read and written both counted, measured on the same device with caches cold. A kernel "
        "can be above it where it reads more than it writes, or where caches serve it.",
    )


def details(title: str, parts: Sequence[tuple[str, str]]) -> str:
    body = "".join(f"<dt>{escape(name)}</dt><dd>{escape(said)}</dd>" for name, said in parts)
    return f'<details class="how"><summary>{escape(title)}</summary><dl>{body}</dl></details>'
