"""A thousand conversations that come, stop, vanish and fill the cache: no page, memory or thread is left behind."""

import gc
import os
import random
import threading
from pathlib import Path

from playground.decoder import stats
from playground.decoder.conversation import Limits
from playground.decoder.sampler import Sampling
from tests.decoder import tiny


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def serve(batch, meter, count, seed):
    """`count` conversations, up to 40 at a time over 16 rows; some are cancelled at a random step."""
    choose = random.Random(seed)
    live, ends = [], []
    while count or live:
        while count and len(live) < 40:
            system = [2 + choose.randrange(2)] * choose.choice((0, 0, 12))
            tokens = system + [choose.randrange(2, 99) for _ in range(choose.randrange(1, 14))]
            full, cache = choose.choice(("stop", "slide")), choose.random() < 0.97
            limits = Limits(choose.choice((1, 1, 1, 2, 2, 2, 3, 3, 40)), full, len(system), cache)
            sampling = Sampling(choose.choice((0.0,) * 9 + (1.0,)), seed=choose.randrange(9))
            live.append(batch.submit(tokens, sampling, limits))
            count -= 1
        if choose.random() < 0.1:
            batch.cancel(choose.choice(live))
        batch.step()
        if choose.random() < 0.05:
            stats.chat_stats(batch, meter).model_dump_json()
        ends += [c.finish for c in live if c.finish]
        live = [c for c in live if not c.finish]
    return ends


def test_a_thousand_conversations_leave_nothing_behind():
    meter = stats.Meter()
    batch = tiny.make_batch(pages=40, max_batch=16, max_context=48, ahead=True)
    for count in range(1, 17):  # every program there will be, so that none is taken for a leak
        batch.runner.prepare(count)
        for rows in (1, 8):
            batch.runner._get("prefill", (count, rows))
    serve(batch, meter, 100, seed=0)
    gc.collect()
    threads, memory, objects = threading.active_count(), resident(), len(gc.get_objects())
    ends = serve(batch, meter, 1000, seed=1)
    gc.collect()
    assert len(ends) == 1000 and {"length", "cancelled", "context"} <= set(ends)
    batch.pool.check()
    assert batch.idle and batch.pool.available == 40
    batch.pool.drop_cached()
    assert batch.pool.view().states == "f" * 40
    assert threading.active_count() == threads
    assert len(gc.get_objects()) - objects < 2000
    assert resident() - memory < 24 * 2**20
