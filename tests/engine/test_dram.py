"""ncu's CSV is read as it is printed, and what DRAM saw is found again by shape."""

from pathlib import Path

import pytest

import kernels
from playground.engine import dram, fingerprint
from playground.engine.choose import validate
from playground.engine.messages import Request, Source
from tests.gpu import ncu_bytes

# The form of ncu 2024/2025 with --csv --page raw --print-units base: notes, a header, a row of units, a row a launch.
PRINTED = """==PROF== Connected to process 4711 (/usr/bin/python3.12)
==PROF== Profiling "add_rms_norm_kernel" - 0: 0%....50%....100% - 3 passes
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","lts__t_bytes.sum"
"","","","","byte","byte","byte"
"0","4711","python3.12","add_rms_norm_kernel","67,125,248","41,943,040","170,000,000"
"1","4711","python3.12","second_kernel","1,000","24","96.0"
"""
REFUSED = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
SOURCE = Source(kind="recorded", device="NVIDIA H200", date="2026-11-29")


def test_the_counters_of_all_launches_are_added_up():
    assert ncu_bytes.parse(PRINTED) == {"read": 67126248, "written": 41943064, "l2_bytes": 170000096}


def test_a_refusal_is_told_in_ncus_own_words():
    with pytest.raises(ValueError, match="ERR_NVGPUCTRPERM"):
        ncu_bytes.parse(REFUSED)


def saved(folder: Path, source_hash: str) -> None:
    shapes = tuple(
        dram.DramBytes(dims={"rows": rows, "n": 4096}, dtype="bfloat16", read=rows, written=1) for rows in (64, 4096)
    )
    kept = dram.DramRecording(kernel="softmax", source_hash=source_hash, shapes=shapes, source=SOURCE)
    dram.save(folder, "NVIDIA H200", kept)


def find(folder, **asked):
    return dram.find(folder, validate(Request(kernel="softmax", **asked)))


def test_the_nearest_shape_of_the_dtype_is_found(tmp_path):
    saved(tmp_path, fingerprint.source_hash(kernels.get("softmax")))
    _, shape, stale = find(tmp_path, dims={"rows": 3000, "n": 4096}, dtype="bfloat16")
    assert (shape.dims["rows"], shape.moved, stale) == (4096, 4097, False)
    assert find(tmp_path, dtype="float16") is None
    assert find(tmp_path, edge="No rows", dtype="bfloat16") is None


def test_an_older_kernel_is_said_to_be_one(tmp_path):
    saved(tmp_path, "0")
    assert find(tmp_path, dtype="bfloat16")[2]


def test_a_file_that_cannot_be_read_counts_as_none(tmp_path):
    path = dram.path_of(tmp_path, "NVIDIA H200", "softmax")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    assert find(tmp_path, dtype="bfloat16") is None
