"""Whose answer goes on: the order of the asking counts, whatever order the beginnings come in."""

from types import SimpleNamespace

import gradio as gr
import pytest

from playground.ui.jobs import Jobs
from playground.ui.tabs.chat import tab, talk


def test_a_job_is_claimed_once_and_only_the_newest():
    jobs = Jobs()
    first, second = jobs.announce("me"), jobs.announce("me")
    event = jobs.claim("me", second)
    assert event is not None and not event.is_set() and jobs.owns("me", event)
    assert jobs.claim("me", first) is None and jobs.claim("me", second) is None
    assert not event.is_set() and jobs.owns("me", event)  # who came late has stopped nobody


def test_what_is_asked_stops_what_runs_and_can_be_stopped_before_it_begins():
    jobs = Jobs()
    running = jobs.start("me")
    ticket = jobs.announce("me")
    assert running.is_set()
    jobs.stop("me")
    assert jobs.claim("me", ticket).is_set()


def test_what_was_announced_gives_way_to_a_start_and_goes_with_its_visit():
    jobs = Jobs()
    ticket = jobs.announce("chat me")
    jobs.end("chat me", jobs.start("chat me"))  # as Clear does
    assert jobs.claim("chat me", ticket) is None and not jobs.running("chat me")
    ticket, other = jobs.announce("chat me"), jobs.announce("chat you")
    jobs.stop_visit("me")
    assert jobs.claim("chat me", ticket) is None and not jobs.running("chat me")
    assert jobs.claim("chat you", other) is not None


def test_a_job_ends_with_a_drawing_of_nothing_which_is_what_gradio_sends_again():
    jobs = Jobs()
    mine = jobs.start("me")
    nothing = [gr.skip(), gr.skip()]
    assert list(jobs.newest("me", mine, iter([["code", "chosen"]]))) == [["code", "chosen"], nothing]
    assert not jobs.running("me")
    late = jobs.newest("me", jobs.start("me"), iter([["old", "old"], ["older", "older"]]))
    next(late)
    jobs.start("me")
    assert list(late) == [nothing, nothing] and jobs.running("me")
    assert list(jobs.newest("me", mine, iter([]))) == []


@pytest.fixture
def said(monkeypatch):
    """The questions that were answered, each by two drawings."""
    said = []

    def answer(chats, talk, wishes, key, cancel, host):
        said.append(talk[-1]["content"])
        yield SimpleNamespace(came=(), seen=None, busy=True, talk=talk, note="", tokens="", ended=None)
        yield SimpleNamespace(came=(), seen=None, busy=True, talk=talk, note="", tokens="", ended=None)

    monkeypatch.setattr(talk, "answer", answer)
    return said


def test_an_answer_that_begins_late_does_not_stop_the_newer_one(said):
    jobs = Jobs()
    context = SimpleNamespace(jobs=jobs, chats=None, known_host=None)
    old, new = (tab.Asked(jobs.announce("me"), [{"role": "user", "content": text}]) for text in ("old", "new"))
    newer = tab._stream(context, "me", new, {}, talk.Wishes())
    next(newer)
    for late in (old, new):  # a question overtaken, and a second click on Send
        assert list(tab._stream(context, "me", late, {}, talk.Wishes())) == []
    assert len(list(newer)) == 2 and said == ["new"] and not jobs.running("me")


def test_an_answer_draws_nothing_over_a_newer_question(said):
    jobs = Jobs()
    context = SimpleNamespace(jobs=jobs, chats=None, known_host=None)
    asked = tab.Asked(jobs.announce("me"), [{"role": "user", "content": "old"}])
    older = tab._stream(context, "me", asked, {}, talk.Wishes())
    drawn = next(older)
    jobs.announce("me")
    assert list(older) == [[gr.skip()] * len(drawn)] * 2
