"""`host`: the worker's device, as it says itself and, on request, as it is measured."""

from __future__ import annotations

from kernels.spec import Target
from playground.engine import bandwidth_curve, host, roofs
from playground.engine.job import Job
from playground.engine.messages import HostRequest, HostResult


def device(request: HostRequest, job: Job) -> HostResult:
    """The handler of `host`: what is known of the job's device, and what it measures on request."""
    return HostResult(
        kind="gpu" if job.device.type == "cuda" else "interpreter" if job.interpreted else "cpu",
        device=host.name(job.device), detail=host.detail(job.device), arch=Target.of(job.device).arch,
        memory_bytes=host.total_bytes(job.device), versions=host.versions(),
        units=host.units(job.device), caches=host.caches(job.device),
        roofs=roofs.roofs(job) if request.roofs else None,
        curve=bandwidth_curve.curve(job) if request.curve else None,
    )  # fmt: skip
