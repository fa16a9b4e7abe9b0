"""Recorded figures of the decoder: read as they were written, and marked as old where a kernel changed."""

import json

from playground.decoder import recorded
from playground.settings import Settings
from playground.ui.tabs.chat import elsewhere

SETUP = {
    "what": "setup", "shape": "tiny", "device": "NVIDIA H200", "dtype": "bfloat16", "weights": "random",
    "date": "2026-11-30T00:00:00+00:00", "versions": {"torch": "2.11.0"},
}  # fmt: skip
LINES = [
    {"what": "decode", "tokens_per_second": 1960.9, "context": 512},
    {"what": "prefill", "ms": 2.835},
    {"what": "batch", "batch": 64, "tokens_per_second": 39487.0},
    {"what": "panel", "batch": 1, "cost": 0.0135},
    {"what": "transformers", "how": "eager", "tokens_per_second": 38.8},
]


def written(folder, source_hash):
    file = folder / "nvidia-h200" / "decoder.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(line) + "\n" for line in [{**SETUP, "source_hash": source_hash}, *LINES]))
    return file


def test_lines_of_a_run_become_its_figures(tmp_path):
    written(tmp_path, recorded.source_hash())
    (run,) = recorded.runs(tmp_path)
    assert run.tokens_per_second == 1960.9 and run.prefill_ms == 2.835 and run.batches == {64: 39487.0}
    assert run.peers == {"eager": 38.8} and not run.stale
    assert run.source.kind == "recorded" and run.source.device == "NVIDIA H200"


def test_another_hash_is_told(tmp_path):
    written(tmp_path, "0" * 16)
    runs = recorded.runs(tmp_path)
    assert runs[0].stale and elsewhere.OLDER in elsewhere.sheet(runs)
    (line,) = recorded.check(tmp_path)
    assert line == "NVIDIA H200, the decoder as tiny: recorded with older kernels on 2026-11-30; record it again"


def test_half_a_file_counts_as_none_and_is_named(tmp_path, capsys):
    written(tmp_path, "0" * 16).write_text('{"what": "setup"')
    assert recorded.runs(tmp_path) == [] and "decoder.jsonl" in capsys.readouterr().err


def test_what_is_kept_here_can_be_shown():
    html = elsewhere.sheet(recorded.runs(Settings().recordings))
    assert "tok/s" in html and "transformers" in html and "random weights" in html
