"""`chat` on the command line: the answer of a real worker with a tiny model, as words and as JSON, and its mistakes."""

import pytest

from playground import cli
from playground.cli import show, show_chat
from playground.cli.answers import ChatAnswer
from tests.cli.conftest import call
from tests.decoder import tiny

ASK = ("chat", "--prompt", "t5 t6 t7", "--backend", "torch", "--max-tokens", "6")


def test_an_answer_as_json(capsys):
    code, said, _ = call(capsys, *ASK, "--model", str(tiny.folder()))
    expected = tiny.expected_answer([1, 5, 6, 7, 1], 6, eos=True)
    assert code == 0
    assert said["ids"] == expected[: len(said["ids"])] and len(said["ids"]) == 6
    assert said["verb"] == "chat" and said["backend"] == "torch" and said["source"]["kind"] == "measured"
    kv = said["kv_cache"]
    assert kv["bytes_used"] == 2 * 2 * 2 * 16 * 4 * kv["tokens"]  # layers, key-value heads, head_dim, float32
    result = ChatAnswer.model_validate(said)
    assert said["text"] in show.text(result) and "ended by length" in show.text(result)
    streamed = show_chat.Streamed(**{name: getattr(result, name) for name in ChatAnswer.model_fields})
    assert said["text"] not in show.text(streamed) and "ended by length" in show.text(streamed)


def test_everything_that_looks_inside_at_once(capsys):
    words = (*ASK, "--model", str(tiny.folder()), "--kv-cache", "int8", "--swap", "rope=triton")
    looks = ("--probabilities", "--compare", "norm=triton", "--attention", "--profile")
    code, said, _ = call(capsys, *words, *looks)
    assert code == 0 and said["backend"] == "mixed" and said["table"]["rope"] == "triton"
    assert said["kv_cache"]["element_bytes"] == 1
    assert [token["id"] for token in said["tokens"]] == said["ids"]
    assert all(len(token["alternatives"]) == 5 and token["drawn"] == 1 for token in said["tokens"])
    found = said["comparison"]
    assert len(found["steps"]) == 6 and found["first_difference"] is None and 0 <= found["largest"] < 1e-3
    assert (found["table"]["norm"], found["swapped"]["norm"], found["swapped"]["rope"]) == ("torch", "triton", "triton")
    assert sum(said["attention"]["mean"]) == pytest.approx(1, abs=1e-4)
    assert sum(box["share"] for box in said["profile"]["boxes"]) == pytest.approx(1)
    read = show.text(ChatAnswer.model_validate(said))
    for part in ("No token would have been another", "Attention of the last token", "rope_kernel", "drawn with 100.0%"):
        assert part in read


@pytest.mark.parametrize(
    ("words", "argument", "message"),
    [
        (("--prompt", "hi", "--temperature", "hot"), "temperature", "needs a number"),
        (("--prompt", "hi", "--top-p", "0"), "top-p", "greater than 0"),
        (("--prompt", "hi", "--backend", "cuda"), "backend", "'triton'"),
        (("--prompt", "hi", "--max-tokens", "0"), "max-tokens", "greater than or equal to 1"),
        (("--prompt", "hi", "--kv-cache", "int4"), "kv-cache", "'int8'"),
        (("--prompt", "hi", "--swap", "norm"), "swap", "such as norm=torch"),
        (("--prompt", "hi", "--compare", "norm=numpy"), "compare", "such as norm=torch"),
        ((), "prompt", "--prompt is missing"),
    ],
)
def test_a_mistake_is_one_line(capsys, words, argument, message):
    code, said, _ = call(capsys, "chat", *words)
    assert code == 2
    assert said["error"]["argument"].lstrip("-") == argument
    assert message in said["error"]["message"]


def test_a_model_that_is_not_there(capsys):
    code, said, _ = call(capsys, *ASK, "--model", "./no-such-model")
    assert code == 3 and "no-such-model" in said["error"]["message"]
    assert cli.EXIT_CODES["unavailable"] == 3
