"""Triton's own front end, without a GPU: a `@triton.jit` function to TTIR text.

The front end wants to know a GPU. It gets Hopper's description, whose dialect
of the language is the widest (fp8, tensor descriptors); nothing of it is left in
the TTIR but what the kernel itself asks for.
"""

from __future__ import annotations

from triton._C.libtriton import ir, passes
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend

TARGET = GPUTarget("cuda", 90, 32)
# In order; some are named or placed differently from one Triton to the next.
PASSES = (
    "inliner", "rewrite_tensor_pointer", "rewrite_tensor_descriptor_to_pointer", "canonicalizer",
    "combine", "reorder_broadcast", "cse", "symbol_dce", "loop_unroll", "triton_licm",
    "canonicalizer", "cse",
)  # fmt: skip


def ttir(fn, signature: dict, constexprs: dict, debug: bool = False) -> str:
    """TTIR with locations. Raises what Triton's compiler raises."""
    backend = make_backend(TARGET)
    source = ASTSource(fn, signature=signature, constexprs=constexprs)
    options = backend.parse_options({"debug": True} if debug else {})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = source.make_ir(
        TARGET, options, backend.get_codegen_implementation(options),
        backend.get_module_map(), context,
    )  # fmt: skip
    manager = ir.pass_manager(context)
    for name in PASSES:
        add = getattr(passes.common, f"add_{name}", None) or getattr(passes.ttir, f"add_{name}", None)
        if add is not None:
            add(manager)
    manager.run(module, "native")
    return str(module)
