"""compute-sanitizer on every kernel, and how its findings are read (which needs neither the tool nor a GPU)."""

import time

import pytest

from tests.gpu import sanitize

CLEAN = """========= COMPUTE-SANITIZER
sanitize: begin softmax small: 4 warps
sanitize: end
========= ERROR SUMMARY: 0 errors
"""
BAD = """========= COMPUTE-SANITIZER
sanitize: begin softmax small: 4 warps
sanitize: begin rope small: 4 warps
========= Invalid __global__ read of size 4 bytes
=========     at rope_kernel+0x100
========= ERROR SUMMARY: 1 error
"""


def test_findings_belong_to_the_kernel_that_was_running():
    report = sanitize.Report("memcheck")
    assert sanitize._sort(BAD, report) == "rope"
    assert report.found == {"rope": ["Invalid __global__ read of size 4 bytes", "ERROR SUMMARY: 1 error"]}
    clean = sanitize.Report("memcheck")
    assert sanitize._sort(CLEAN, clean) == "softmax" and not clean.found


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("tool", ("memcheck", "racecheck"))
def test_every_kernel_is_clean(tool):
    reason = sanitize.why_not()
    if reason:
        pytest.skip(reason)
    report = sanitize.check(tool, sanitize.names(), time.monotonic() + 280)
    assert not report.found, report.found
    if report.left:
        pytest.skip(f"no time was left for {', '.join(report.left)}; the others are clean")
