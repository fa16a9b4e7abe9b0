"""A made-up trace, compiled resources and facts, for tests of what the Memory tab shows.

add_rms_norm over 4 rows of 6 columns in bfloat16: a block of 8 columns, so a quarter of the lanes is masked, and the
weight (12 bytes) is read once a row.
"""

from __future__ import annotations

from typing import Any

from playground.engine.code_messages import CodeResult, LaunchCode
from playground.engine.gpus import CATALOGUE
from playground.engine.messages import Choice, ConfigChoice, HostResult, OutOfBounds, Request, Resources, Roofs, Source
from playground.engine.residency import residency
from playground.engine.trace_messages import Access, ChainStep, ProgramAccess, TracedLaunch, TracedTensor, TraceResult
from playground.ui.tabs.memory.facts import Facts, rates_of

HERE = Source(kind="interpreted", device="Test CPU", date="2026-11-29T12:00:00+00:00")
H200 = Source(kind="recorded", device="NVIDIA H200", date="2026-11-20T12:00:00+00:00")
CHOICE = Choice(
    kernel="add_rms_norm", dims={"rows": 4, "n": 6}, dtype="bfloat16", seed=0,
    config=ConfigChoice(meta={"BLOCK_M": 1, "BLOCK_N": 8}, num_warps=1), config_origin="spec",
)  # fmt: skip
REQUEST = Request(kernel="add_rms_norm", dims={"rows": 4, "n": 6}, dtype="bfloat16")
TENSOR, WEIGHT = 4 * 6 * 2, 6 * 2  # bytes
LINES = {"x_ptr": 52, "residual_ptr": 53, "weight_ptr": 54, "new_residual_ptr": 56, "out_ptr": 59}
STORED = ("new_residual_ptr", "out_ptr")


def access(name: str) -> Access:
    kind = "store" if name in STORED else "load"
    return Access(
        kind=kind, line=LINES[name], code=f"tl.{kind}({name})", tensor=name, itemsize=2, calls=4, lanes=32, active=24,
        bytes=TENSOR, sectors=4, efficiency=0.375,
    )  # fmt: skip


def tensor(name: str) -> TracedTensor:
    size = WEIGHT if name == "weight_ptr" else TENSOR
    loaded, stored = (0, TENSOR) if name in STORED else (TENSOR, 0)
    return TracedTensor(
        name=name, itemsize=2, bytes_total=size, bytes_loaded=loaded, bytes_stored=stored,
        unique_loaded=min(loaded, size), unique_stored=min(stored, size),
    )  # fmt: skip


def program(row: int) -> tuple[ProgramAccess, ...]:
    found = []
    for name, line in LINES.items():
        first = 0 if name == "weight_ptr" else 6 * row
        samples = tuple((lane, first + lane, 0.5 * lane) for lane in range(6))
        found.append(
            ProgramAccess(kind=access(name).kind, line=line, tensor=name, lanes=8, active=6, runs=((first, 1, 6),),
                          samples=samples)
        )  # fmt: skip
    return tuple(found)


def trace(choice: Choice = CHOICE, misses: tuple[OutOfBounds, ...] = (), **more: Any) -> TraceResult:
    accesses = tuple(access(name) for name in LINES)
    launch = TracedLaunch(
        kernel="add_rms_norm_kernel", grid=(4,), programs_traced=4, programs_total=4, accesses=accesses,
        tensors=tuple(tensor(name) for name in LINES), programs={row: program(row) for row in range(4)},
    )  # fmt: skip
    chain = (
        ChainStep(kernel="add", reads=(("x", TENSOR), ("residual", TENSOR)), writes=(("new_residual", TENSOR),)),
        ChainStep(kernel="norm", reads=(("new_residual", TENSOR), ("weight", WEIGHT)), writes=(("out", TENSOR),)),
    )
    given = {
        "choice": choice, "exact": True, "bytes_loaded": 3 * TENSOR, "bytes_stored": 2 * TENSOR,
        "unique_bytes": 4 * TENSOR + WEIGHT, "compulsory_bytes": 4 * TENSOR + WEIGHT, "flops": 5 * 24, "sectors": 20,
        "masked_share": 0.25, "out_of_bounds": misses, "accesses": accesses, "launches": (launch,), "chain": chain,
        "source": HERE,
    }  # fmt: skip
    return TraceResult(**(given | more))


def code(choice: Choice = CHOICE, target: str = "sm_90") -> CodeResult:
    used = Resources(kernel="add_rms_norm_kernel", target=target, registers=64, spills=0, shared_bytes=2048,
                     num_warps=choice.config.num_warps)  # fmt: skip
    launch = LaunchCode(
        kernel="add_rms_norm_kernel", file="add_rms_norm.py", python=("def kernel():", "    pass"), first_line=1,
        stages={}, findings=(), resources=used, occupancy=0.5, programs_per_sm=32, limit="programs", grid=(4,),
    )  # fmt: skip
    return CodeResult(
        choice=choice, target=target, launches=(launch,), source=HERE.model_copy(update={"kind": "compiled"})
    )


def facts(**change: Any) -> Facts:
    """The made-up kernel on an H200 whose rates were recorded."""
    gpu = CATALOGUE["H200"]
    roofs = Roofs(copy_gbps=4245.0, matmul_tflops={"bfloat16": 800.0, "float32": 51.0},
                  levels_gbps={"l2": 7900.0, "l1": 29000.0}, source=H200)  # fmt: skip
    known = {"H200": roofs}
    compiled = code()
    host = HostResult(kind="cpu", device="Test CPU", detail="2 cores", arch="cpu", memory_bytes=8 * 10**9, versions={},
                      units=2, caches={"L1": 49152, "L2": 2**21})  # fmt: skip
    given: dict[str, Any] = {
        "request": REQUEST, "trace": trace(), "gpu": gpu, "host": host, "rates": rates_of(gpu, "bfloat16", known),
        "code": compiled, "residents": (residency(compiled.launches[0].resources, (4,), gpu),), "roofs": known,
    }  # fmt: skip
    return Facts(**(given | change))
