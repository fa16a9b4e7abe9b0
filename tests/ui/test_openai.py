"""OpenAI's chat completions over HTTP: the published shapes, what is refused and how, and clients that go away."""

import asyncio
import contextlib
import json
import shlex
import shutil
import socket
import subprocess
import threading
import time
from types import SimpleNamespace
from typing import Literal

import httpx
import pytest
import uvicorn
from pydantic import BaseModel, ConfigDict

from playground.decoder.messages import Alternative, ChatToken
from playground.engine.messages import EngineError, Failure, Progress
from playground.settings import ROOT
from playground.ui.api import openai
from tests.ui import loops
from tests.ui.test_chat import result

NAME = "SmolLM2-135M-Instruct"
HELLO = {"model": NAME, "messages": [{"role": "user", "content": "Hello"}]}


# As OpenAI publishes them; a field that is not theirs fails.


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TopLogprob(Strict):
    token: str
    logprob: float
    bytes: list[int] | None


class Logprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class Logprobs(Strict):
    content: list[Logprob] | None
    refusal: None


class Said(Strict):
    role: Literal["assistant"]
    content: str | None
    refusal: None


class Choice(Strict):
    index: Literal[0]
    message: Said
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"]


class Cached(Strict):
    cached_tokens: int


class Usage(Strict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: Cached


class Completion(Strict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    system_fingerprint: str


class Delta(Strict):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(Strict):
    index: Literal[0]
    delta: Delta
    logprobs: Logprobs | None
    finish_reason: Literal["stop", "length"] | None


class Chunk(Strict):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None


class Script:
    """Stands for Chats: gives these events. `hold`: then waits, until the answer is cancelled."""

    def __init__(self):
        self.events, self.hold, self.asked, self.cancelled = [], False, [], threading.Event()

    def stream(self, request, cancel):
        self.asked.append(request)
        for event in self.events:
            if isinstance(event, Exception):
                raise event
            yield event
        if self.hold:
            assert cancel.wait(20)
            self.cancelled.set()
            raise EngineError(Failure(kind="cancelled", message="stopped"))


def token(text, probability=None):
    others = (Alternative(id=7, text="Yo", probability=0.25),) if probability else ()
    return ChatToken(id=1, text=text, probability=probability, alternatives=others)


@pytest.fixture(scope="module")
def served():
    script = Script()
    context = SimpleNamespace(chats=script, settings=SimpleNamespace(model=""))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(openai.app(context), port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.02)
    yield script, f"http://127.0.0.1:{port}/v1"
    server.should_exit = True
    thread.join(10)


@pytest.fixture
def ask(served):
    """Ask after the events have been set; the answer is httpx's."""
    script, base = served
    script.events, script.hold, script.asked = (
        [Progress(what="starting"), token("Hi"), token(" there"), result()],
        False,
        [],
    )
    script.cancelled.clear()

    def post(body=None, **fields):
        return httpx.post(f"{base}/chat/completions", json={**HELLO, **fields} if body is None else body, timeout=20)

    post.script, post.base = script, base
    return post


def chunks(answer):
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]" and answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line) for line in lines[:-1]]


def test_an_answer_has_the_published_shape(ask):
    answer = ask(temperature=0.5, top_p=0.9, max_tokens=7, seed=-3, stop="x", user="me")
    found = Completion.model_validate(answer.json())
    assert answer.status_code == 200 and found.choices[0].message.content == "Hi there"
    assert found.usage.model_dump() == {
        "prompt_tokens": 15,
        "completion_tokens": 2,
        "total_tokens": 17,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    asked = ask.script.asked[0]
    assert (asked.temperature, asked.top_p, asked.max_tokens, asked.stop) == (0.5, 0.9, 7, ("x",))
    assert asked.seed == 2**31 - 3 and not asked.alternatives


def test_openais_defaults_stand(ask):
    ask(max_tokens=5, max_completion_tokens=6)
    asked = ask.script.asked[0]
    assert (asked.temperature, asked.top_p, asked.max_tokens, asked.backend) == (1.0, 1.0, 6, "auto")
    ask()
    assert ask.script.asked[1].max_tokens is None and ask.script.asked[1].seed != asked.seed  # drawn anew each time


def test_a_stream_is_chunks_that_join_to_the_answer(ask):
    found = [Chunk.model_validate(c) for c in chunks(ask(stream=True))]
    deltas = [c.choices[0].delta for c in found]
    assert deltas[0].role == "assistant" and "".join(d.content or "" for d in deltas) == "Hi there"
    assert [c.choices[0].finish_reason for c in found] == [None] * (len(found) - 1) + ["stop"]
    assert len({c.id for c in found}) == 1


def test_usage_comes_last_where_it_is_asked_for(ask):
    found = chunks(ask(stream=True, stream_options={"include_usage": True}))
    assert found[-1]["choices"] == [] and found[-1]["usage"]["total_tokens"] == 17
    assert all(c["usage"] is None for c in found[:-1])


@pytest.mark.parametrize(("finish", "word"), [("length", "length"), ("context", "length"), ("cache", "length")])
def test_an_answer_that_was_cut_says_so(ask, finish, word):
    ask.script.events = [token("Hi"), result("Hi", finish)]
    assert ask().json()["choices"][0]["finish_reason"] == word


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_of_tokens_and_their_alternatives(ask, stream):
    """A character over two tokens: both are there with its text. The end token, which has none, is not."""
    ask.script.events = [token("Hi", 0.5), token("", 0.25), token("é", 0.125), token("", 1.0), result("Hié")]
    answer = ask(logprobs=True, top_logprobs=1, stream=stream)
    if stream:
        found = [entry for c in chunks(answer) for entry in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
    else:
        found = answer.json()["choices"][0]["logprobs"]["content"]
    entries = [Logprob.model_validate(entry) for entry in found]
    assert [e.logprob for e in entries] == pytest.approx([-0.693147, -1.386294, -2.079442], abs=1e-5)
    assert entries[2].bytes == [0xC3, 0xA9] and entries[0].top_logprobs[0].token == "Yo"
    assert ask.script.asked[0].alternatives


@pytest.mark.parametrize(
    ("fields", "status", "said", "param"),
    [
        ({"model": "gpt-4"}, 404, "model 'gpt-4' is not here; choose one of 'SmolLM2-135M-Instruct'", "model"),
        ({"messages": []}, 400, "messages is []", "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, 400, 'messages.0.role is "nobody"', "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "it needs text",
         "messages.0.content"),
        ({"temperature": -1}, 400, "temperature is -1; it needs to be greater than or equal to 0", "temperature"),
        ({"temperature": "hot"}, 400, 'temperature is "hot"', "temperature"),
        ({"max_tokens": 0}, 400, "max_tokens is 0", "max_tokens"),
        ({"n": 2}, 400, "n is 2, which this decoder does not do; leave it at 1", "n"),
        ({"tools": [{"type": "function"}]}, 400, "tools is", "tools"),
        ({"max_token": 5}, 400, "'max_token' is no field of this endpoint; use model, messages", "max_token"),
        ({"stop": ["a", ""]}, 400, "each needs to be a string", "stop"),
        ({"stop": list("abcde")}, 400, "it needs to have at most 4 items, and not 5", "stop"),
        ({"messages": ["x"]}, 400, 'messages.0 is "x"; it needs to be an object', "messages.0"),
        ({"top_k": 2**31}, 400, "top_k is 2147483648; it needs to be less than 2147483648", "top_k"),
        ({"top_logprobs": 2}, 400, "set logprobs to true", "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 20}, 400, "less than or equal to 5", "top_logprobs"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line_that_names_the_field(ask, fields, status, said, param):
    answer = ask(**fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["type"]) == (status, param, "invalid_request_error")
    assert said in error["message"] and "\n" not in error["message"]
    assert ask.script.asked == []


def test_what_changes_nothing_is_let_pass(ask):
    assert ask(n=1, tools=None, presence_penalty=0, response_format={"type": "text"}, store=False).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"), [(b"{", 400), (b"[]", 400), (b'{"messages": [{"role": "user", "content": "x"}]}', 400),
                         (b" " * 1_000_001, 413), (b"[" * 100_000, 400), (b'{"\\ud800": 1}', 400)],
)  # fmt: skip
def test_a_body_that_is_none(ask, body, status):
    answer = httpx.post(f"{ask.base}/chat/completions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status and answer.json()["error"]["message"]


def test_only_json_is_taken(ask):
    """A form of any page may post here as text, without asking first."""
    answer = httpx.post(
        f"{ask.base}/chat/completions", content=json.dumps(HELLO), headers={"content-type": "text/plain"}
    )
    assert answer.status_code == 415 and "application/json" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "status"), [("input", 400), ("unavailable", 503), ("crashed", 500), ("failed", 500), ("timeout", 504)]
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_fails_has_a_status_and_one_line(ask, kind, status, stream):
    ask.script.events = [EngineError(Failure(kind=kind, message="the prompt is too long; shorten it"))]
    answer = ask(stream=stream)
    assert answer.status_code == status and answer.json()["error"]["message"] == "the prompt is too long; shorten it"


def test_a_failure_in_mid_stream_is_an_event(ask):
    ask.script.events = [token("Hi"), EngineError(Failure(kind="crashed", message="the chat worker crashed"))]
    found = chunks(ask(stream=True))
    assert (
        found[-1]["error"]["message"] == "the chat worker crashed"
        and found[1]["choices"][0]["delta"]["content"] == "Hi"
    )


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_has_its_answer_cancelled(ask, stream):
    ask.script.events, ask.script.hold = [token("Hi")], True
    with contextlib.suppress(httpx.ReadTimeout), httpx.Client(timeout=1) as client:
        body = {**HELLO, "stream": stream}
        with client.stream("POST", f"{ask.base}/chat/completions", json=body) as answer:
            for line in answer.iter_lines():
                if "Hi" in line:
                    break
    assert ask.script.cancelled.wait(10)


def test_more_than_the_most_at_a_time_are_told_to_come_again(ask, monkeypatch):
    ask.script.events, ask.script.hold = [token("Hi")], True
    monkeypatch.setattr(openai, "MOST_OPEN", 1)
    app = openai.app(SimpleNamespace(chats=ask.script, settings=SimpleNamespace(model="")))
    transport = httpx.ASGITransport(app)

    async def both():
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            first = asyncio.create_task(client.post("/v1/chat/completions", json=HELLO))
            while not ask.script.asked:
                await asyncio.sleep(0.01)
            second = await client.post("/v1/chat/completions", json=HELLO)
            first.cancel()
            return second

    answer = loops.run(both())
    assert answer.status_code == 429 and answer.headers["retry-after"] == "5"
    assert answer.json()["error"]["type"] == "rate_limit_error"
    assert ask.script.cancelled.wait(10)


def test_models_are_listed_one_for_each_backend(ask):
    found = httpx.get(f"{ask.base}/models").json()
    assert found["object"] == "list" and [m["id"] for m in found["data"]] == [
        NAME,
        f"{NAME}:torch",
        f"{NAME}:interpreter",
    ]
    assert set(found["data"][0]) == {"id", "object", "created", "owned_by"}
    ask(model=f"{NAME}:torch")
    assert ask.script.asked[0].backend == "torch"
    assert httpx.get(f"{ask.base}/models/{NAME}").json()["id"] == NAME
    assert httpx.get(f"{ask.base}/models/gpt-4").status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/chat/completions", 405), ("POST", "/embeddings", 404)]
)
def test_other_paths_and_methods_are_named(ask, method, path, status):
    answer = httpx.request(method, ask.base + path)
    assert answer.status_code == status and f"{method} /v1{path} is not here" in answer.json()["error"]["message"]


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl here")
def test_the_readmes_command_streams_an_answer(ask):
    (command,) = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("curl ")]
    url, *rest = shlex.split(command)[1:]
    done = subprocess.run(
        ["curl", "-sN", url.replace("http://127.0.0.1:7860/v1", ask.base), *rest],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert '"content": "Hi"' in done.stdout and done.stdout.endswith("data: [DONE]\n\n"), done.stderr
