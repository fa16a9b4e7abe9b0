"""The real handlers, and kernels whose names are faults that break a CUDA context, for workers under test."""

from __future__ import annotations

from playground.engine import handlers

start = handlers.start


def find(verb):
    return _run if verb == "run" else handlers.find(verb)


def _run(request, job):
    if request.edge in FAULTS:
        FAULTS[request.edge](job)
    return handlers.find("run")(request.model_copy(update={"edge": None}), job)


def _device_assert(job):
    import torch

    torch.zeros(4, device=job.device)[torch.tensor([9], device=job.device)].sum().item()


def _wild_pointer(job):
    """A Triton kernel that reads next to the null pointer, where nothing ever is."""
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def wild(out_ptr, where):
        tl.store(out_ptr, tl.load(where.to(tl.int64).to(tl.pointer_type(tl.float32))))

    wild[(1,)](torch.zeros(1, device=job.device), 64)
    torch.cuda.synchronize()


def _no_memory(job):
    import torch

    torch.empty(2**50, dtype=torch.int8, device=job.device)


FAULTS = {"device assert": _device_assert, "wild pointer": _wild_pointer, "no memory": _no_memory}
