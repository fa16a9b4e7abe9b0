"""Visits that were closed are forgotten but for the last few, and a page that came back is not."""

import dataclasses
import datetime
import json
import socket
import time
import urllib.request

import pytest
from gradio.state_holder import StateHolder

from playground.settings import Settings
from playground.ui import server
from playground.ui.closed import BACK, KEPT, Closed
from tests.ui.fake_engine import FakeEngine


class Page:
    """What StateHolder asks of Blocks."""

    class default_config:
        blocks, config_for_block = {}, None

    blocks, state_session_capacity = {}, 100


def holder(*sessions):
    made = StateHolder()
    made.set_blocks(Page())
    for session in sessions:
        made[session]
    return made


def test_the_longest_gone_are_forgotten():
    visits = holder("a", "b", "c", "open")
    closed = Closed(most=2)
    for session in ("a", "b", "a", "c", "d"):  # "a" comes back and goes again
        closed.add(visits, session)
    assert set(visits.session_data) == set(visits.time_last_used) == {"c", "open"}


def test_a_page_that_came_back_is_not_forgotten():
    visits = holder("a", "b")
    closed = Closed(most=0)
    visits.time_last_used["a"] = datetime.datetime.now() + 2 * BACK
    closed.add(visits, "a")
    closed.add(visits, "b")
    assert set(visits.session_data) == {"a"}


@pytest.fixture
def served():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    demo = server.serve(FakeEngine(), dataclasses.replace(Settings(), port=port))
    yield demo, port
    demo.close(verbose=False)


def leave(demo, port, visit):
    """A heartbeat that begins and breaks off."""
    demo.state_holder[visit]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as browser:
        browser.sendall(f"GET /gradio_api/heartbeat/{visit} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        browser.recv(100)


def test_a_browser_that_goes_is_noticed(served):
    """A heartbeat that ends is what a closed tab looks like to the server."""
    demo, port = served
    for i in range(KEPT + 5):
        leave(demo, port, f"visit{i}")
    until = datetime.datetime.now() + datetime.timedelta(seconds=20)
    while len(demo.state_holder.session_data) > KEPT and datetime.datetime.now() < until:
        time.sleep(0.1)
    assert len(demo.state_holder.session_data) == KEPT


def test_calls_of_programs_push_out_no_page(served):
    demo, port = served
    leave(demo, port, "page")  # it may come back
    url = f"http://127.0.0.1:{port}/gradio_api/call/list_kernels"
    for _ in range(KEPT + 5):
        asked = urllib.request.Request(url, b'{"data": []}', {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=20) as answer:
            event = json.load(answer)["event_id"]
        with urllib.request.urlopen(f"{url}/{event}", timeout=20) as answer:
            assert b"add_rms_norm" in answer.read()
    assert "page" in demo.state_holder and len(demo.state_holder.session_data) <= KEPT + 1
