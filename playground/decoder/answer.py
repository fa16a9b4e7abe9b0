"""An answer on its way: the batch's tokens turned into text, up to a text that ends it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from playground.decoder import stats
from playground.decoder.conversation import Conversation, Emitted
from playground.decoder.messages import Alternative, ChatRequest, ChatResult, ChatToken
from playground.decoder.tokenizer import Detokenizer

if TYPE_CHECKING:
    from playground.decoder.generate import Decoder


class Until:
    """Text up to the first of some stop texts. What may be the beginning of one is held back until it is clear."""

    def __init__(self, stops: Sequence[str]):
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.met = False

    def push(self, text: str) -> str:
        if self.met:
            return ""
        self._held += text
        found = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        self.met = bool(found)
        given = min(found) if found else len(self._held) - self._pending()
        text, self._held = self._held[:given], self._held[given:]
        return text

    def flush(self) -> str:
        """What was held back in vain."""
        return "" if self.met else self._held

    def _pending(self) -> int:
        """How many characters at the end are the beginning of a stop text."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for count in range(min(longest, len(self._held)), 0, -1):
            if any(stop.startswith(self._held[-count:]) for stop in self._stops):
                return count
        return 0


class Answer:
    """Hears of its conversation's tokens in order, and gives the result at the end."""

    def __init__(self, decoder: Decoder, request: ChatRequest, conversation: Conversation, notes: Sequence[str] = ()):
        self.conversation = conversation
        self._decoder = decoder
        self._request = request
        self._notes = tuple(notes)
        self._detokenizer = Detokenizer(decoder.tokenizer)
        self._until = Until(request.stop)
        self._text: list[str] = []
        self._count = 0  # tokens up to the stop text

    def token(self, event: Emitted) -> ChatToken:
        """What one token adds to the text. Where that completes a stop text, the conversation ends."""
        assert event.token is not None
        self._count += not self._until.met
        text = self._until.push(self._detokenizer.push(event.token))
        if self._until.met:
            self._decoder.batch.cancel(self.conversation)
        self._text.append(text)
        if event.chance is None:
            return ChatToken(id=event.token, text=text)
        piece = self._decoder.tokenizer.piece
        others = tuple(
            Alternative(id=c.token, text=piece(c.token), probability=c.own, drawn=c.drawn) for c in event.alternatives
        )
        return ChatToken(
            id=event.token,
            text=text,
            piece=piece(event.token),
            probability=event.chance.own,
            drawn=event.chance.drawn,
            alternatives=others,
        )

    def result(self) -> ChatResult:
        """After the end. Characters that were never completed are given out as U+FFFD."""
        conversation, decoder = self.conversation, self._decoder
        self._text.append(self._until.push(self._detokenizer.flush()) + self._until.flush())
        now, began = time.perf_counter(), conversation.submitted
        first = conversation.first_token or now
        model = decoder.batch.runner.model
        held = len(conversation.tokens) - bool(conversation.answer)  # the last token drawn was never read
        return ChatResult(
            text="".join(self._text),
            ids=tuple(conversation.answer[: self._count]),
            prompt_tokens=conversation.prompt_tokens,
            reused_tokens=conversation.reused,
            tokens_per_second=stats.speed(conversation.step - 1, conversation.first_token, conversation.last_token),
            first_token_ms=1e3 * (first - began),
            seconds=(conversation.last_token or now) - began,
            finish="stop" if self._until.met else conversation.finish,  # type: ignore[arg-type]
            kv_cache=stats.kv_stats(model, decoder.batch.pool.view(), held),
            backend=decoder.backend(conversation),
            model=decoder.config.name,
            seed=self._request.seed,
            source=decoder.source(),
            table=decoder.batch.table_of(conversation),
            notes=self._notes,
        )
