"""Compiles a launch for a GPU that need not be here, just as that GPU's own launch would be compiled.

The launch's arguments (meta tensors will do) go through Triton's own binder, so the code is specialised as it would
be on the device: divisibility by 16, integers equal to 1, 32-bit pointer ranges on AMD. Registers and spills are
those that ptxas -v tells Triton; shared memory is Triton's metadata; AMD's figures are the metadata of the assembly.
Nothing is launched and nothing is timed.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend
from triton.compiler.errors import CompilationError
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.jit import create_function_from_signature

from kernels.spec import KernelSpec, Launch, Target
from playground.engine import chain, choose, edits, host, ptxas
from playground.engine.errors import describe
from playground.engine.job import Job
from playground.engine.messages import EngineError, Failure, Resources, ResourcesRequest, ResourcesResult, Source

# What is worth counting in the assembly: how memory is read and written, matrix units, exchanges, waits.
_COUNTED = {
    "cuda": r"(?:ld|st)\.(?:global|shared|local)(?:\.\w+)*?(?:\.v[248])?(?=\.[bfsu]\d)|cp\.async(?:\.\w+)*|"
    r"(?:mma\.sync|wgmma\.mma_async|tcgen05\.mma)|shfl\.sync|bar\.sync|atom(?:\.\w+)*|red(?:\.\w+)*",
    "hip": r"(?:global|buffer|flat|scratch)_(?:load|store|atomic)_\w+|ds_(?:read|write|bpermute)\w*|v_w?mfma_\w+|"
    r"v_wmma_\w+|s_barrier",
}


@dataclass(frozen=True)
class Compiled:
    """stages: text by name (ttir, ttgir, llir, ptx or amdgcn). binary: the cubin or hsaco. spills in bytes a thread."""

    name: str
    stages: Mapping[str, str]
    binary: bytes
    registers: int
    spills: int
    shared_bytes: int
    num_warps: int
    instructions: Mapping[str, int]
    source_file: str
    fuses: bool  # whether a product and a sum may become one rounding


def resources(request: ResourcesRequest, job: Job) -> ResourcesResult:
    """The handler of `resources`. Raises InputError, and EngineError where the target refuses the kernel."""
    target = choose.target_named(request.target)
    chosen = choose.validate(request, gpu=True)
    with edits.edited(chosen.spec, chosen.bug, request.source) as spec:
        inputs = choose.meta_inputs(spec, chosen)
        choose.need_support(spec, chosen.dtype, target)
        config, origin = choose.choose_config(spec, request, inputs, target, chosen.dims, chosen.dtype)
        plan, config = choose.planned(spec, inputs, config, target)
        found = []
        for launch in plan.launches:
            job.progress(f"compiling {kernel_name(launch)} for {target.arch}")
            found.append(
                resources_of(compile_or_explain(launch, target, spec, edited=request.source is not None), target)
            )
        steps = chain.eager_chain(spec, inputs) if request.chain else ()
        return ResourcesResult(
            choice=choose.as_choice(request, chosen, config, origin), launches=tuple(found),
            source=source(target), eager_kernels=tuple(step.kernel for step in steps),
            eager_bytes=sum(step.bytes for step in steps),
        )  # fmt: skip


def compile_or_explain(
    launch: Launch, target: Target, spec: KernelSpec | None = None, edited: bool = False
) -> Compiled:
    """compile_launch, whose failures become an EngineError of one line, with the line of the spec's file."""
    try:
        return compile_launch(launch, target)
    except CompilationError as error:
        message = describe(error, spec)
        if edited:
            raise EngineError(Failure(kind="input", message=message, argument="source")) from error
        raise EngineError(Failure(kind="unavailable", message=message)) from error
    except (RuntimeError, ValueError, AssertionError, NotImplementedError) as error:  # the backends' own refusals
        message = f"{kernel_name(launch)} does not compile for {target.arch}: {edits.first_line(error)}"
        raise EngineError(Failure(kind="unavailable", message=message)) from error


def compile_launch(launch: Launch, target: Target) -> Compiled:
    """The launch's code for the target. Raises what Triton's compiler raises."""
    gpu = gpu_target(target)
    backend = make_backend(gpu)
    src, options = specialised(launch, backend)
    with ptxas.listening():
        built = triton.compile(src, target=gpu, options=options)
    # The binary's text would be its bytes; everything else is text.
    binary_stage = "cubin" if target.kind == "cuda" else "hsaco"
    stages = {name: code for name, code in built.asm.items() if isinstance(code, str) and name != "source"}
    assembly = stages["ptx" if target.kind == "cuda" else "amdgcn"]
    registers, spills = ptxas.figures(built) if target.kind == "cuda" else amd_figures(assembly)
    return Compiled(
        name=kernel_name(launch), stages=stages, binary=built.asm.get(binary_stage, b""), registers=registers,
        spills=spills, shared_bytes=built.metadata.shared, num_warps=built.metadata.num_warps,
        instructions=_instructions(assembly, target.kind), source_file=launch.kernel.fn.__code__.co_filename,
        fuses=bool(built.metadata.enable_fp_fusion),
    )  # fmt: skip


def gpu_target(target: Target) -> GPUTarget:
    """Triton's own name of the target."""
    arch = target.capability if target.kind == "cuda" else target.arch
    return GPUTarget(target.kind, arch, target.warp_size)


class _Tensor:
    """What Triton's binder asks of a tensor that is not there: dtype, alignment, and how far its pointers reach."""

    def __init__(self, tensor: torch.Tensor):
        self.dtype, self.shape = tensor.dtype, tensor.shape
        self._address = int(tensor.storage_offset()) * tensor.element_size()  # allocations themselves are aligned
        self._range = tensor.untyped_storage().nbytes()

    def data_ptr(self) -> int:
        return self._address

    def ptr_range(self) -> int:
        return self._range


def specialised(launch: Launch, backend: Any) -> tuple[ASTSource, dict[str, Any]]:
    """The launch as the compiler's source: signature, constants and attributes as Triton's own launch makes them."""
    kernel = launch.kernel
    if not hasattr(kernel, "_pack_args"):
        raise TypeError("this process interprets its kernels (TRITON_INTERPRET=1): compile in another")
    args = {name: _Tensor(v) if isinstance(v, torch.Tensor) else v for name, v in launch.args.items()}
    options = dict(launch.options)
    options["debug"] = kernel.debug or knobs.runtime.debug
    if hasattr(knobs.compilation, "instrumentation_mode"):
        options["instrumentation_mode"] = knobs.compilation.instrumentation_mode
    binder = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, rest = binder(**args, **launch.config.meta, **options)
    parsed, signature, constants, attributes = kernel._pack_args(backend, rest, bound, specialization, rest)
    source = GluonASTSource if kernel.is_gluon() else ASTSource
    return source(kernel, signature, constants, attributes), parsed.__dict__


def kernel_name(launch: Launch) -> str:
    return launch.kernel.fn.__name__


def check_shared(compiled: Compiled, target: Target) -> None:
    """Raises EngineError where one program needs more shared memory than the target has."""
    if compiled.shared_bytes > target.shared_bytes:
        raise EngineError(
            Failure(
                kind="unavailable",
                message=f"{compiled.name} needs {compiled.shared_bytes:,} bytes of shared memory, and {target.arch} "
                f"has {target.shared_bytes:,} for a program: use smaller blocks or fewer stages",
                argument="config",
            )
        )


def resources_of(compiled: Compiled, target: Target) -> Resources:
    check_shared(compiled, target)
    return Resources(
        kernel=compiled.name, target=target.arch, registers=compiled.registers, spills=compiled.spills,
        shared_bytes=compiled.shared_bytes, num_warps=compiled.num_warps, instructions=dict(compiled.instructions),
    )  # fmt: skip


def amd_figures(amdgcn: str) -> tuple[int, int]:
    """(vector registers, bytes spilled a lane) from the metadata at the assembly's end."""

    def field(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", amdgcn)
        return int(found[1]) if found else 0

    return field("vgpr_count"), 4 * field("vgpr_spill_count")


def _instructions(assembly: str, kind: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for line in assembly.splitlines():
        found = re.match(rf"\s+(?:@!?%p\d+\s+)?({_COUNTED[kind]})\b", line)
        if found:
            counts[found[1]] = counts.get(found[1], 0) + 1
    return dict(sorted(counts.items()))


def source(target: Target) -> Source:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Source(kind="compiled", device=target.arch, date=now, versions=host.versions())
