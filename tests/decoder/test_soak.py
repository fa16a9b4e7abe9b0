"""Conversations that come, stop, vanish and fill the cache: no page, memory or thread is left behind.

Once over the batch alone, and once through a worker and its client with tabs that are closed. The short versions run
everywhere; a thousand conversations each are `slow`.
"""

import contextlib
import gc
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from playground.decoder import stats
from playground.decoder.client import Chats
from playground.decoder.conversation import Limits
from playground.decoder.messages import ChatMessage, ChatRequest, ChatResult, ChatStats, ChatToken
from playground.decoder.sampler import Sampling
from playground.engine.engine import Engine
from tests.decoder import tiny

COUNTS = [60, pytest.param(1000, marks=pytest.mark.slow)]
MEGABYTE = 2**20


def resident(pid="self") -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def threads(pid) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def serve(batch, meter, count, seed):
    """`count` conversations, up to 40 at a time over 8 rows; some are cancelled at a random step, some are swapped."""
    choose = random.Random(seed)
    live, ends = [], []
    while count or live:
        while count and len(live) < 40:
            system = [2 + choose.randrange(2)] * choose.choice((0, 0, 12))
            tokens = system + [choose.randrange(2, 99) for _ in range(choose.randrange(1, 14))]
            full, cache = choose.choice(("stop", "slide")), choose.random() < 0.97
            limits = Limits(choose.choice((1, 1, 1, 2, 2, 2, 3, 3, 40)), full, len(system), cache)
            sampling = Sampling(choose.choice((0.0,) * 9 + (1.0,)), seed=choose.randrange(9))
            led = {"forced": tokens[:3], "watch": lambda *seen: None} if choose.random() < 0.05 else {}
            limits = Limits(len(led["forced"])) if led else limits
            live.append(batch.submit(tokens, sampling, limits, **led))
            count -= 1
        if choose.random() < 0.1:
            batch.cancel(choose.choice(live))
        batch.step()
        if choose.random() < 0.05:
            stats.chat_stats(batch, meter).model_dump_json()
        ends += [c.finish for c in live if c.finish]
        live = [c for c in live if not c.finish]
    while not batch.idle:  # a step may have been launched ahead
        batch.step()
    return ends


@pytest.mark.parametrize("count", COUNTS)
def test_a_batch_is_left_as_it_was(count):
    meter = stats.Meter()
    batch = tiny.make_batch(pages=40, max_batch=8, max_context=48, ahead=True)
    for rows in range(1, 17):  # every program there will be, so that none is taken for a leak
        batch.runner.prepare(min(rows, 8))
        for sequences in (1, 8):
            batch.runner._get("prefill", (rows, sequences))
    serve(batch, meter, count // 10, seed=0)
    gc.collect()
    running, memory, objects = threading.active_count(), resident(), len(gc.get_objects())
    ends = serve(batch, meter, count, seed=1)
    gc.collect()
    assert len(ends) == count and {"length", "cancelled", "context"} <= set(ends)
    batch.pool.check()
    assert batch.idle and batch.pool.available == 40
    batch.pool.drop_cached()
    assert batch.pool.view().states == "f" * 40
    assert threading.active_count() == running
    assert len(gc.get_objects()) - objects < 2000
    assert resident() - memory < 24 * MEGABYTE


class Visits:
    """People who ask, read, press Stop or close the tab, several at a time."""

    def __init__(self, chats):
        self._chats = chats
        self._lock = threading.Lock()
        self.ends = {"closed": 0, "empty": 0}
        self.pages_used = None

    def visit(self, number):
        choose = random.Random(number)
        words = " ".join(f"t{choose.randrange(2, 99)}" for _ in range(choose.randrange(1, 40)))
        system = (ChatMessage(role="system", content="t8 " * 20),) * (number % 3 == 0)
        request = ChatRequest(
            messages=(*system, ChatMessage(role="user", content=words)), backend="torch", owner=f"visit {number}",
            max_tokens=choose.choice((1, 2, 3, 5, 300)), full=choose.choice(("stop", "slide")), seed=number,
            temperature=1.0, alternatives=choose.random() < 0.05,
        )  # fmt: skip
        cancel, most, closes = threading.Event(), choose.randrange(1, 30), choose.random() < 0.3
        with contextlib.closing(self._chats.stream(request, cancel)) as stream:
            self._read(stream, cancel, most, closes)

    def _read(self, stream, cancel, most, closes):
        got = 0
        for event in stream:
            if isinstance(event, ChatStats):
                self.pages_used = event.kv.pages_used
            got += isinstance(event, ChatToken)
            if got >= most and closes:
                return self._count("closed")
            if got >= most:
                cancel.set()
            if isinstance(event, ChatResult):
                return self._count(event.finish)
        return self._count("empty")

    def _count(self, end):
        with self._lock:
            self.ends[end] = self.ends.get(end, 0) + 1


def rest(chats, seconds=20):
    """A last look when everyone has gone: pages in use, conversations left."""
    deadline = time.monotonic() + seconds
    while True:
        request = ChatRequest(
            messages=(ChatMessage(role="user", content="t3"),), backend="torch", max_tokens=1, owner="me"
        )
        seen = [event for event in chats.stream(request) if isinstance(event, ChatStats)]
        others = {name for stats_ in seen[-1:] for name in stats_.map.names} - {"me"}
        if seen and not others:
            return
        assert time.monotonic() < deadline, f"pages are still held by {others}"


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_worker_and_its_client_are_left_as_they_were(count):
    with Engine(gpus=()) as engine:
        chats = Chats(engine, str(tiny.folder()))
        visits = Visits(chats)
        with ThreadPoolExecutor(12) as people:
            list(people.map(visits.visit, range(count, count + max(count // 10, 12))))
            rest(chats)
            pid = chats._lanes["torch", "auto"]._worker.pid
            before = (threads(pid), threads("self"), resident(pid), resident())
            list(people.map(visits.visit, range(count)))
            rest(chats)
            after = (threads(pid), threads("self"), resident(pid), resident())
        print(f"\n{count} conversations ended {visits.ends}; threads and bytes {before} before, {after} after")
        assert chats._lanes["torch", "auto"]._worker.pid == pid and not chats._lanes["torch", "auto"]._open
        assert sum(visits.ends.values()) >= count and {"closed", "cancelled", "length"} <= set(visits.ends)
        assert after[0] <= before[0] and after[1] <= before[1]
        assert after[2] - before[2] < 48 * MEGABYTE and after[3] - before[3] < 24 * MEGABYTE
