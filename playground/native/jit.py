"""Compiles a kernel for one specialisation, from the cache on disk if it is there."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import threading
import time
from dataclasses import dataclass

import llvmlite
import triton
from torch._C._dynamo import eval_frame

from . import cache, cpu, frontend
from .arguments import letters, packer, packing, signature_of
from .errors import Unsupported
from .lowerings import lower_module
from .parse import parse_module

_lock = threading.Lock()
_stats = {"cold": 0, "cached": 0, "cold_seconds": 0.0, "cached_seconds": 0.0}


def stats() -> dict:
    """Kernels compiled (`cold`) and read from disk (`cached`), and the seconds each took."""
    return dict(_stats)


@dataclass
class Kernel:
    """Machine code for one specialisation of one `@triton.jit` function."""

    name: str
    address: int
    about: dict  # what the cache keeps beside the code

    def __post_init__(self):
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(self.address)
        self.pack = packer(self.about["format"])
        self.letters = letters(self.about["format"])
        self.work = self.about["work"]
        self.prints = self.about["prints"]
        self.is_watched = self.prints or any(self.about[k] for k in ("sites", "checked", "descriptors"))


@contextlib.contextmanager
def _out_of_dynamo():
    """Not traced by torch.compile, which would follow a first launch through the whole compiler."""
    before = eval_frame.set_eval_frame(None)
    try:
        yield
    finally:
        eval_frame.set_eval_frame(before)


def compiled(fn, names, keys, is_constexpr, *, checked: bool, debug: bool) -> Kernel:
    """The kernel for these argument keys. Raises Unsupported, or Triton's errors."""
    signature, constexprs = signature_of(names, keys, is_constexpr)
    takes_descriptors = any(str(t).startswith("tensordesc") for t in signature.values())
    with _lock, _out_of_dynamo():
        start = time.perf_counter()
        host = cpu.host()
        key = _cache_key(fn, signature, constexprs, host.key, checked, debug)
        found = cache.read(key)
        if found is None:
            text = frontend.ttir(fn, signature, constexprs, debug)
            about, code = compile_ttir(text, host, checked)
            about["descriptors"] = takes_descriptors
            cache.write(key, about, code)
        else:
            about, code = found
        (address,) = host.load(code, "run")
        kernel = Kernel(fn.__name__, address, about)
        how = "cold" if found is None else "cached"
        _stats[how] += 1
        _stats[f"{how}_seconds"] += time.perf_counter() - start
        return kernel


def compile_ttir(text: str, host: cpu.Cpu, checked: bool = False) -> tuple[dict, bytes]:
    """Machine code for a kernel in TTIR, and what its launches must know. Raises Unsupported."""
    try:
        module = parse_module(text)
    except (KeyError, ValueError) as error:
        raise Unsupported(f"this kernel's TTIR is not understood: {str(error).splitlines()[0]}") from error
    types = [v.type for v in module.entry.args]
    llvm_text, program = lower_module(module, host.target, checked)
    about = {
        "format": packing(types, checked),
        "pointers": [i for i, t in enumerate(types) if t.is_pointer],
        "work": program.work,
        "sites": program.sites,
        "prints": program.prints,
        "checked": checked,
    }
    try:
        return about, host.object_code(llvm_text)
    except RuntimeError as error:
        raise Unsupported(f"LLVM does not take what this kernel became: {str(error).splitlines()[0]}") from error


def _cache_key(fn, signature, constexprs, cpu_key: str, checked: bool, debug: bool) -> str:
    fixed = [(path, _name_of(value)) for path, value in constexprs.items()]
    versions = (triton.__version__, llvmlite.__version__, cache.source_digest())
    # Reports name the file, which Triton's own key leaves out.
    file = fn.fn.__code__.co_filename if checked or debug else ""
    parts = (fn.cache_key, file, signature, sorted(fixed), cpu_key, versions, checked, debug)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _name_of(value) -> str:
    """A function passed as a constant is known by its source."""
    return getattr(value, "cache_key", None) or f"{type(value).__name__} {value!r}"
