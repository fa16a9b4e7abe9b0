"""A call of a program is stopped when the program has gone, and only then."""

import dataclasses
import threading
import time

from gradio_client import Client

from playground.settings import Settings
from playground.ui import server
from playground.ui.api.call import as_call, stop
from playground.ui.jobs import Jobs
from tests.ui.fake_engine import FakeEngine
from tests.ui.test_server import free_port


class Telling(FakeEngine):
    """Says when a request was stopped."""

    def __init__(self):
        super().__init__(pause=threading.Event())
        self.stopped = threading.Event()

    def run(self, request, cancel=None):
        try:
            return super().run(request, cancel)
        finally:
            if cancel is not None and cancel.is_set():
                self.stopped.set()


def test_a_program_that_goes_away_stops_its_call(monkeypatch):
    monkeypatch.setenv("GRADIO_HEARTBEAT_INTERVAL", "1")  # Gradio looks only then whether a program is still there
    engine, port = Telling(), free_port()
    demo = server.serve(engine, dataclasses.replace(Settings(), port=port))
    try:
        client = Client(f"http://127.0.0.1:{port}", verbose=False, analytics_enabled=False)
        client.submit("vector_add", {"n": 100}, api_name="/bench_kernel")
        for _ in range(500):
            if engine.asked:
                break
            time.sleep(0.02)
        assert engine.asked and not engine.stopped.wait(0.5)
        client.close()
        assert engine.stopped.wait(20)
    finally:
        engine.pause.set()
        demo.close(verbose=False)


def test_calls_of_one_program_run_beside_each_other():
    jobs, told = Jobs(), []
    first = as_call(stop, jobs, told.append)
    both = as_call(lambda: (stop(), first()), jobs, told.append)
    outer, inner = both()
    assert outer is not inner and not outer.is_set() and not inner.is_set() and told == ["", ""]
