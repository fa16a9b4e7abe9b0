"""The trace counts exact bytes, finds one element out of bounds, and says when it has sampled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from playground.engine.arena import Arena
from playground.engine.probe import Probe

SOURCE = (Path(__file__).parent / "traces.py").read_text().splitlines()


@pytest.fixture(scope="module")
def traces():
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.traces"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def line_of(code):
    return next(n for n, text in enumerate(SOURCE, 1) if code in text)


def test_a_copy_of_1000_floats_loads_and_stores_4000_bytes(traces):
    (launch,) = traces["copy"]["launches"]
    load, store = launch["accesses"]
    assert (load["bytes"], store["bytes"]) == (4000, 4000)
    assert (load["line"], load["tensor"]) == (line_of("value = tl.load"), "x_ptr")
    assert load["calls"] == 4  # programs
    assert load["lanes"] == 1024  # 24 of which are masked
    assert load["active"] == 1000
    assert load["sectors"] == 125  # 4,000 bytes, aligned, in pieces of 32
    assert traces["copy"]["out_of_bounds"] == []
    assert traces["copy"]["right"]  # watching changes no answer


def test_programs_keep_their_accesses_as_runs(traces):
    programs = traces["copy"]["launches"][0]["programs"]
    assert [access["runs"] for access in programs["0"]] == [[[0, 1, 256]], [[0, 1, 256]]]
    assert programs["3"][0]["runs"] == [[768, 1, 232]]


def test_one_element_past_the_end_is_found(traces):
    (miss,) = traces["one_past"]["out_of_bounds"]
    assert (miss["kind"], miss["tensor"], miss["index"]) == ("load", "x_ptr", 1000)
    assert (miss["program"], miss["lane"]) == ([3, 0, 0], 231)
    assert miss["line"] == line_of("value = tl.load")


def test_before_the_start_and_far_away_are_found(traces):
    assert traces["before"]["out_of_bounds"][0]["index"] == -3
    far = traces["far"]["out_of_bounds"]
    assert len(far) == 4 and far[0]["kind"] == "load"


def test_a_column_of_a_matrix_uses_an_eighth_of_its_sectors(traces):
    load = traces["column"]["launches"][0]["accesses"][0]
    assert (load["bytes"], load["sectors"], load["efficiency"]) == (256, 64, 0.125)


def test_a_hole_between_strided_elements_is_out_of_bounds(traces):
    miss = traces["hole"]["out_of_bounds"][0]
    assert (miss["tensor"], miss["lane"], miss["index"]) == ("x_ptr", 1, 7)


def test_add_rms_norm_reads_its_weight_once_a_row(traces):
    (launch,) = traces["norm"]["launches"]
    by_tensor = {t["name"]: t for t in launch["tensors"]}
    tensor = 5 * 300 * 2
    assert by_tensor["x_ptr"]["bytes_loaded"] == by_tensor["residual_ptr"]["bytes_loaded"] == tensor
    assert by_tensor["out_ptr"]["bytes_stored"] == by_tensor["new_residual_ptr"]["unique_stored"] == tensor
    assert by_tensor["weight_ptr"]["bytes_loaded"] == 5 * 600
    assert by_tensor["weight_ptr"]["unique_loaded"] == 600
    assert traces["norm"]["exact"]


def test_a_large_grid_is_sampled_and_scaled(traces):
    (launch,) = traces["large"]["launches"]
    assert not traces["large"]["exact"]
    assert launch["programs_traced"] < launch["programs_total"] == 48_829
    load = next(a for a in launch["accesses"] if a["tensor"] == "x_ptr")
    assert load["bytes"] == pytest.approx(200_000_000, rel=0.01)
    assert "48828" in launch["programs"]  # the last program is always among the sample


def test_an_empty_grid_loads_nothing(traces):
    assert traces["empty"]["launches"] == [] and traces["empty"]["exact"]


def test_a_program_that_waits_for_another_ends_the_trace(traces):
    assert traces["waiting"] == "waits"


def test_ptx_that_is_known_gives_its_values_and_the_sampler_its_tokens(traces):
    assert traces["sampler"] == {"exact": True, "unknown": False, "right": True}
    assert traces["unknown"] == [False, True, True]  # what is not known, alone or beside another, is said


def test_a_sample_that_leaves_out_what_steers_a_later_launch_says_so(traces):
    """Eight programs count to eight, and so many floats are read; fewer programs, fewer floats."""
    whole, sampled = traces["steered"]
    assert whole == {"steered": False, "exact": True, "read": 32}
    assert sampled["steered"] and not sampled["exact"] and sampled["read"] < 32


def test_sampled_lanes_carry_the_values_in_memory(traces):
    load, store = traces["copy"]["launches"][0]["programs"]["3"]
    assert load["samples"][0] == [0, 768, 768.0] and load["samples"][-1] == [231, 999, 999.0]
    assert [value for *_, value in store["samples"]] == [value for *_, value in load["samples"]]


def test_a_mask_of_integers_that_is_all_off_comes_back_as_one_of_booleans():
    """The interpreter takes no other; a sampler's list that nobody filled has such a mask."""
    probe = Probe(Arena({"x": torch.zeros(4)}), __file__, frozenset())
    kept = probe.access("load", np.zeros(4, np.int64), np.zeros(4, np.int32), 4)
    assert kept.dtype == bool and not kept.any() and kept.shape == (4,)


def test_what_was_written_reaches_an_expanded_tensor_once():
    expanded = torch.zeros(1, 3).expand(4, 3)
    arena = Arena({"scale": expanded})
    arena.copy_of("scale")[0].copy_(torch.tensor([1.0, 2.0, 3.0]))
    arena.copy_back({"scale": expanded})
    assert expanded.tolist() == [[1.0, 2.0, 3.0]] * 4
