"""Made-up requests and results for tests of what the page shows."""

import threading
from dataclasses import replace

from playground.engine.messages import Request
from playground.ui.answer import Answer, answers
from tests.ui.fake_engine import FakeEngine

REQUEST = Request(kernel="add_rms_norm", dims={"rows": 64, "n": 3000}, dtype="float32", baselines=())


def every_answer(engine: FakeEngine | None = None, **choice) -> list[Answer]:
    """Each step of an answer as the page gets it."""
    engine = engine or FakeEngine()
    return list(answers(engine, REQUEST.model_copy(update=choice), engine.host(), threading.Event()))


def answer(engine: FakeEngine | None = None, **choice) -> Answer:
    return every_answer(engine, **choice)[-1]


def faster(known: Answer, times: float) -> Answer:
    """The same answer, with Triton so many times as fast as eager."""
    own = known.bench.providers["triton"].model_copy(update={"speedup": times})
    bench = known.bench.model_copy(update={"providers": {**known.bench.providers, "triton": own}})
    return replace(known, bench=bench)
