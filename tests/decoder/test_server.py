"""What serves a decoder, in this process and with a parent that only plays one: what is done before what."""

import contextlib
import itertools
import queue

from playground.decoder.generate import Decoder, Setup
from playground.decoder.messages import ChatMessage, ChatRequest, WarmRequest
from playground.decoder.protocol import Answered, Ask, Loading
from playground.decoder.server import Server
from tests.decoder import tiny

WARM, QUESTION, AGAIN = 1, 2, 3


class Leaves(Exception):
    """The parent has what it came for."""


class Parent:
    """Asks at fixed points of what it is sent, so that no host is too slow or too busy for the order it looks for."""

    def __init__(self):
        self.inbox, self.seen = queue.SimpleQueue(), []

    def ask(self, id, request):
        self.inbox.put(Ask(id=id, request=request))

    def send(self, event):
        first_line = isinstance(event, Loading) and not any(isinstance(e, Loading) for e in self.seen)
        self.seen.append(event)
        if first_line:
            self.ask(QUESTION, ChatRequest(messages=(ChatMessage(role="user", content="t5 t6"),), max_tokens=4))
        if isinstance(event, Answered) and event.id == WARM:
            self.ask(AGAIN, WarmRequest())
        if isinstance(event, Answered) and event.id == AGAIN:
            raise Leaves


def test_a_question_goes_before_the_rest_of_a_warm_up():
    parent = Parent()
    parent.ask(WARM, WarmRequest())
    decoder = Decoder.load(Setup(model=str(tiny.folder()), device="cpu", backend="torch"), say=lambda line: None)
    with contextlib.suppress(Leaves):
        Server(decoder, parent, parent.inbox).serve()
    ends = [e for e in parent.seen if isinstance(e, Answered)]
    assert [e.id for e in ends] == [QUESTION, WARM, AGAIN]
    before, rest, again = ([e.what for e in events if isinstance(e, Loading)] for events in split(parent.seen, ends))
    assert len(before) == 1 and len(rest) > 10 and not again, "made ready once, and but one before the question"
    assert len({*before, *rest}) == 1 + len(rest) and ends[1].result.model.layers == 2


def split(events, ends):
    """The events up to each of `ends`."""
    marks = [0, *(events.index(end) for end in ends)]
    return [events[begin:end] for begin, end in itertools.pairwise(marks)]
