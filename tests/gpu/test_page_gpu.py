"""The whole page on a GPU host, driven through its API as a program does."""

from __future__ import annotations

import dataclasses
import socket

import pytest

pytestmark = pytest.mark.gpu
gradio_client = pytest.importorskip("gradio_client")
pytest.importorskip("gradio")


@pytest.fixture(scope="module")
def client():
    from playground.engine.engine import Engine
    from playground.settings import Settings
    from playground.ui import server

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    engine = Engine(dataclasses.replace(Settings.from_env(), host="127.0.0.1", port=port))
    demo = server.serve(engine, engine.settings)
    yield gradio_client.Client(f"http://127.0.0.1:{port}", verbose=False)
    demo.close(verbose=False)
    engine.close()


def test_run_and_bench_are_measured_on_the_gpu(client):
    ran = client.predict("add_rms_norm", {"rows": 64, "n": 3000}, "bfloat16", api_name="/run_kernel")
    assert ran["ok"], ran
    assert ran["source"]["kind"] == "measured" and "NVIDIA" in ran["source"]["device"]
    timed = client.predict("add_rms_norm", {"rows": 4096, "n": 4096}, "bfloat16", api_name="/bench_kernel")
    own = timed["providers"]["triton"]
    assert timed["ok"] and own["us"]["p50"] > 0 and own["speedup"] > 1, timed


def test_a_mistake_and_then_a_planted_bug(client):
    wrong = client.predict("softmax", {"rows": -1}, api_name="/run_kernel")
    assert wrong["error"]["argument"] == "rows"
    ran = client.predict(
        "softmax", {"rows": 64, "n": 3000}, "float32", bug="Row stride forgotten", api_name="/run_kernel"
    )
    assert not ran["ok"], ran
