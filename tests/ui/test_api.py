"""The API's answers: compact, strict JSON, and one clear line for what cannot be done."""

import json

import gradio as gr
import pytest

from playground.settings import Settings
from playground.ui.api import endpoints
from playground.ui.context import Context
from tests.ui.fake_engine import FakeEngine

LONG = "x" * 3000


@pytest.fixture(scope="module")
def functions():
    with gr.Blocks() as demo:
        endpoints.add(Context(FakeEngine(), Settings()))
    return {fn.api_name: fn.fn for fn in demo.fns.values()}


def test_every_verb_has_an_endpoint(functions):
    verbs = ("run", "bench", "trace", "compile", "sweep")
    assert set(functions) == {"list_kernels", "chat", *(f"{verb}_kernel" for verb in verbs)}


def test_list_kernels(functions):
    found = {k["name"]: k for k in functions["list_kernels"]()}
    assert found["add_rms_norm"]["dims"] == {"rows": "tokens", "n": "hidden size"}
    assert "Forgotten mask" in found["add_rms_norm"]["bugs"]


def test_run_kernel(functions):
    right = functions["run_kernel"]("add_rms_norm", {"rows": 8, "n": 100}, "float32")
    assert right["ok"] and right["outputs"]["out"]["ulps"] == 0.81 and right["source"]["kind"] == "measured"
    wrong = functions["run_kernel"]("add_rms_norm", '{"rows": 64}', bug="Mean over the block")
    assert not wrong["ok"] and wrong["outputs"]["out"]["first_wrong"]["index"] == [0, 3000]
    json.dumps([right, wrong], allow_nan=False)


def test_bench_kernel(functions):
    found = functions["bench_kernel"]("vector_add", {"n": 1000.0})
    assert found["providers"]["triton"]["us"]["p50"] > 0 and found["source"]["kind"] == "measured"
    assert found["providers"]["FlagGems"] == {"ok": False, "missing": "not installed: pip install flag-gems"}


def test_trace_kernel(functions):
    found = functions["trace_kernel"]("add_rms_norm", {"rows": 4, "n": 6})
    assert (found["bytes_loaded"], found["bytes_stored"], found["masked_share"]) == (144, 96, 0.25)
    assert [a["tensor"] for a in found["accesses"]][2] == "weight_ptr" and found["out_of_bounds"] == []
    assert "launches" not in found and found["source"]["kind"] == "interpreted"
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("given", "argument", "says"),
    [
        ({"kernel": "nope"}, "kernel", "no kernel is named 'nope'"),
        ({"kernel": "vector_add", "dims": {"n": -1}}, "n", "n must be 1 or more, and it is -1"),
        ({"kernel": "vector_add", "dims": {"n": 3.5}}, "n", "n must be whole"),
        ({"kernel": "vector_add", "dims": {"n": "x"}}, "n", "n is 'x'"),
        ({"kernel": "vector_add", "dims": {"n": 10**30}}, "n", "n must be"),
        ({"kernel": "vector_add", "dims": {"m": 3}}, "m", "vector_add has no dim 'm'"),
        ({"kernel": "vector_add", "dims": "[1]"}, "dims", "dims is '[1]'"),
        ({"kernel": "vector_add", "dims": 7}, "dims", "dims is '7'"),
        ({"kernel": "vector_add", "dtype": "int3"}, "dtype", "vector_add has no dtype 'int3'"),
        ({"kernel": "vector_add", "config": "BLOCK"}, "config", "config is 'BLOCK'"),
        ({"kernel": "vector_add", "dtype": ["float32"]}, "dtype", "vector_add has no dtype \"['float32']\""),
        ({"kernel": "vector_add", "config": 5}, "config", "config is '5'"),
        ({"kernel": "vector_add", "bug": {"a": 1}}, "bug", "no bug is named \"{'a': 1}\""),
        ({"kernel": None}, "kernel", "no kernel is named 'None'"),
        ({"kernel": "vector_add", "seed": "soon"}, "seed", "seed is 'soon'"),
        ({"kernel": "vector_add", "edge": "nope"}, "edge", "no edge is named 'nope'"),
        ({"kernel": "vector_add", "dims": "[" * 100_000}, "dims", "dims is '[[["),
        ({"kernel": "vector_add", "config": f"BLOCK={10**20}"}, "config", "config is 'BLOCK=1000"),
        ({"kernel": "vector_add", "dtype": LONG}, "dtype", "vector_add has no dtype 'xxx"),
        ({"kernel": "vector_add", "edge": LONG}, "edge", "no edge is named 'xxx"),
        ({"kernel": "vector_add", "bug": LONG}, "bug", "no bug is named 'xxx"),
        ({"kernel": "vector_add", "dims": {LONG: 1}}, LONG, "vector_add has no dim 'xxx"),
        ({"kernel": "vector_add", "config": f"{LONG}=1"}, "config", "config has no 'xxx"),
    ],
)
def test_bad_input_gives_one_clear_line(functions, given, argument, says):
    error = functions["run_kernel"](**given)["error"]
    assert (error["kind"], error["argument"]) == ("input", argument)
    assert error["message"].startswith(says) and "; " in error["message"] and "\n" not in error["message"]
    assert len(error["message"]) < 500  # however long what was given


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"prompt": 5}, "prompt is '5'; it needs to be a text"),
        ({"prompt": "Hi", "system": ["a"]}, "system is \"['a']\"; it needs to be a text"),
        ({"prompt": "Hi", "history": "x"}, "history is 'x'; it needs to be a list of turns"),
        ({"prompt": "Hi", "history": [1]}, "history is '1'; it needs to be an object"),
        ({"prompt": "Hi", "history": [{"role": "user"}]}, "history is \"{'role': 'user'}\"; Field required"),
        ({"prompt": "Hi", "top_k": 2**31}, "top_k is '2147483648'; it needs to be less than 2147483648"),
    ],
)
def test_what_a_chat_cannot_take_is_named(functions, given, says):
    error = functions["chat"](**given)["error"]
    assert (error["message"], error["argument"]) == (says, says.split(" ")[0])
