"""The command line in this process, with an engine that answers as a test tells it to."""

from __future__ import annotations

import json
import math

import pytest

from playground import cli
from playground.cli import verbs
from playground.engine.engine import Engine
from playground.engine.messages import (
    BenchResult,
    Choice,
    ConfigChoice,
    OutputVerdict,
    Progress,
    ProviderBench,
    ProviderRun,
    Roofs,
    RunResult,
    Source,
    Times,
    Wrong,
)

CHOICE = Choice(
    kernel="softmax", dims={"rows": 4, "n": 8}, dtype="float32", seed=0, config=ConfigChoice(), config_origin="spec"
)
HERE = Source(kind="measured", device="a CPU", date="2026-01-02T03:04:05", versions={"torch": "2.13.0"})
H200 = Source(kind="recorded", device="NVIDIA H200", date="2026-01-01")
TIMES = Times(p20=1, p50=2, p80=3)


def strict(text):
    """The one JSON value of a text. NaN and Infinity as bare words are no JSON."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def verdict(ok=True, error=1e-7):
    wrong = None if ok else Wrong(index=(1, 2), got=math.nan, expected=1.0, count=3, total=32)
    return OutputVerdict(ok=ok, error=error, bar=4e-7, rms_error=0, rms_bar=0, ulps=1, ulps_bar=1, wrong=wrong)


def run_result(ok=True, **rest):
    outputs = {"out": verdict(ok)}
    provider = ProviderRun(ok=ok, outputs=outputs)
    return RunResult(ok=ok, choice=CHOICE, outputs=outputs, providers={"triton": provider}, source=HERE, **rest)


def bench_result(ok=True, source=HERE, **rest):
    providers = {
        "triton": ProviderBench(ok=ok, us=TIMES if ok else None, gbps=math.inf, ulps=1.0, method="warm cache"),
        "Liger": ProviderBench(ok=False, missing="not installed: pip install liger-kernel"),
    }
    roofs = Roofs(copy_gbps=10, source=source)
    return BenchResult(
        ok=ok, choice=CHOICE, providers=providers, bytes_moved=1, flops=1, roofs=roofs, bound="memory", floor_us=1,
        source=source, **rest,
    )  # fmt: skip


class Stage(Engine):
    """An engine that answers as told: `answer` is a result, an exception, or a function of the request."""

    answer: object = None
    found: tuple = ()
    asked: list = []  # noqa: RUF012 - the fixture makes a new one

    def __init__(self, settings=None):
        super().__init__(settings, gpus=())

    def warm(self, device="auto"):
        return None

    def stream(self, request, cancel=None):
        self.validate(request)
        Stage.asked.append(request)
        yield Progress(what="at work", done=1, total=2)
        answer = Stage.answer(request) if callable(Stage.answer) else Stage.answer
        if isinstance(answer, BaseException):
            raise answer
        yield answer

    def recorded(self, request):
        return Stage.found


@pytest.fixture
def stage(monkeypatch):
    """Answers from a Stage; its checks of a request are the real ones."""
    monkeypatch.setattr(verbs, "Engine", Stage)
    Stage.answer, Stage.found, Stage.asked = None, (), []
    return Stage


def call(capsys, *words):
    """Exit code, JSON, and what went to stderr."""
    code = cli.main([*words, "--json"])
    captured = capsys.readouterr()
    return code, strict(captured.out), captured.err
