"""Winners are kept on disk for their device, dtype and class of shape, and a broken file costs nothing."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import kernels
from kernels.spec import Target
from playground.engine import choose, host, tuned
from playground.engine.messages import ConfigChoice, RunRequest

DIMS = {"rows": 64, "n": 3000}
WON = ConfigChoice(meta={"BLOCK_M": 2, "BLOCK_N": 4096}, num_warps=16)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PLAYGROUND_CACHE", str(tmp_path))
    return tmp_path


def keep(device="A GPU", **changes):
    return tuned.keep("softmax", "float32", {**DIMS, **changes}, device, WON, 3.0, 4.0)


def test_a_winner_holds_for_its_class_of_shape():
    keep()
    assert tuned.lookup("softmax", "float32", {"rows": 40, "n": 4096}, "A GPU") == WON
    assert tuned.lookup("softmax", "float32", {"rows": 40, "n": 4097}, "A GPU") is None


def test_it_holds_for_its_device_and_dtype_alone():
    keep()
    assert tuned.lookup("softmax", "float32", DIMS, "Another") is None
    assert tuned.lookup("softmax", "float16", DIMS, "A GPU") is None


def test_a_new_winner_takes_the_old_ones_place():
    keep()
    other = WON.model_copy(update={"num_warps": 4})
    tuned.keep("softmax", "float32", DIMS, "A GPU", other, 2.0)
    assert tuned.lookup("softmax", "float32", DIMS, "A GPU") == other
    assert len(tuned.winners()) == 1


def test_two_people_who_keep_at_once_both_keep(monkeypatch):
    write = tuned._write

    def slowly(*given):
        time.sleep(0.2)
        write(*given)

    monkeypatch.setattr(tuned, "_write", slowly)
    with ThreadPoolExecutor(4) as people:
        list(people.map(keep, ["One", "Two", "Three", "Four"]))
    assert {w.device for w in tuned.winners()} == {"One", "Two", "Three", "Four"}


def test_a_winner_of_an_older_kernel_or_triton_is_no_winner(cache):
    keep()
    text = (cache / "tuned.json").read_text()
    for old in (tuned.winners()[0].source_hash, tuned.winners()[0].triton):
        (cache / "tuned.json").write_text(text.replace(old, "0.0.0"))
        assert tuned.winners() == []


def test_a_broken_file_counts_as_empty(cache):
    (cache / "tuned.json").write_text("{ not json")
    assert tuned.winners() == []
    keep()
    assert len(tuned.winners()) == 1


def test_forgetting():
    keep()
    assert tuned.forget("matmul") == 0
    assert tuned.forget("softmax") == 1
    assert tuned.winners() == []


def test_a_run_on_this_device_takes_the_winner_and_says_so():
    spec = kernels.get("softmax")
    inputs = spec.inputs(DIMS, "float32", "meta")
    request = RunRequest(kernel="softmax", dims=DIMS, dtype="float32")
    cpu = Target.named("cpu")
    before, origin = choose.choose_config(spec, request, inputs, cpu, DIMS, "float32")
    assert origin == "spec"
    keep(device=host.name(torch.device("cpu")))
    config, origin = choose.choose_config(spec, request, inputs, cpu, DIMS, "float32")
    assert origin == "tuned" and dict(config.meta) == WON.meta and config.num_warps == 16 and config != before
    _, origin = choose.choose_config(spec, request, inputs, Target.named("sm_90"), DIMS, "float32")
    assert origin == "spec"


def test_tensors_alone_find_the_winner_of_their_class():
    spec = kernels.get("softmax")
    keep()
    x = torch.empty(40, 4000)
    assert tuned.for_inputs(spec, {"x": x}, "A GPU") == WON
    assert tuned.for_inputs(spec, {"x": x.half()}, "A GPU") is None
    assert tuned.for_inputs(spec, {"x": torch.empty(40, 5000)}, "A GPU") is None
    assert tuned.for_inputs(spec, {"x": x}, "Another") is None


def test_an_optional_input_may_be_left_out(cache):
    config = ConfigChoice(meta={"BLOCK_M": 16}, num_warps=2)
    tuned.keep("linear", "float32", {"m": 1, "n": 64, "k": 32}, "A GPU", config, 1.0)
    given = {"x": torch.empty(1, 32), "weight": torch.empty(64, 32)}
    assert tuned.for_inputs(kernels.get("linear"), given, "A GPU") == config


def test_the_decoder_plans_with_the_winner(monkeypatch):
    from playground.decoder import launches

    monkeypatch.setattr(launches, "INTERPRETED", False)
    cpu = Target.named("cpu")
    inputs = {"x": torch.empty(40, 4000)}
    keep(device=host.name(torch.device("cpu")))
    (launch,) = launches.by_spec("softmax")(inputs, cpu).launches
    assert dict(launch.config.meta) == WON.meta and launch.config.num_warps == 16
