"""The CPU that code is made for, and LLVM's part of the compilation.

`PLAYGROUND_NATIVE_CPU` names another CPU than this one, as LLVM spells it
(`x86-64`, `x86-64-v3`): code for a lesser CPU of the same family runs here too,
which is how the tests compare them.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache

import llvmlite.binding as llvm

from . import amx
from .layout import Target

_lock = threading.Lock()  # LLVM's global context takes one compilation at a time


class Cpu:
    """A target machine, and what the lowering may use on it."""

    def __init__(self, name: str | None = None):
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.name = name or llvm.get_host_cpu_name()
        self.features = "" if name else llvm.get_host_cpu_features().flatten()
        self.machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=self.name, features=self.features, opt=3, jit=True
        )
        self.target = self._describe(name)
        self._engines: list = []

    @property
    def key(self) -> str:
        return f"{self.name} {self.features} {self.target}"

    @staticmethod
    def _describe(name: str | None) -> Target:
        """The vector units of the host, or of one of the x86-64 levels."""
        host = llvm.get_host_cpu_features()
        level = {"x86-64-v2": 2, "x86-64-v3": 3, "x86-64-v4": 4}.get(name or "", 1)
        wide = level == 4 if name else bool(host.get("avx512f") and host.get("avx512bw"))
        avx2 = level >= 3 if name else bool(host.get("avx2"))
        is_arm = llvm.get_process_triple().startswith(("aarch64", "arm64"))
        return Target(
            lanes=16 if wide else 8 if avx2 else 4,
            masked_memory=wide,
            has_fma=avx2 or is_arm,
            has_f16c=avx2 or is_arm,
            has_scalef=wide,
            has_tiles=not name and bool(host.get("amx-bf16")) and amx.is_permitted(),
        )

    def object_code(self, text: str) -> bytes:
        """Optimised machine code of a module in LLVM's language."""
        with _lock:
            module = llvm.parse_assembly(text)
            module.triple = llvm.get_process_triple()
            module.data_layout = str(self.machine.target_data)
            options = llvm.create_pipeline_tuning_options(speed_level=2)
            options.loop_vectorization = options.slp_vectorization = False
            options.loop_interleaving = options.loop_unrolling = False
            builder = llvm.create_pass_builder(self.machine, options)
            builder.getModulePassManager().run(module, builder)
            return self.machine.emit_object(module)

    def load(self, code: bytes, *names: str) -> list[int]:
        """Link object code into this process; the addresses of these functions of it."""
        with _lock:
            engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.machine)
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            engine.finalize_object()
            self._engines.append(engine)  # it owns the code
            return [engine.get_function_address(name) for name in names]


@lru_cache(maxsize=1)
def host() -> Cpu:
    for library in ("libm.so.6", "libm.dylib"):
        try:
            llvm.load_library_permanently(library)
            break
        except RuntimeError:
            continue
    return Cpu(os.environ.get("PLAYGROUND_NATIVE_CPU") or None)
