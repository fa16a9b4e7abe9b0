"""The page table against a model of what each sequence must see, under random joins, forks, growth and eviction."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from playground.decoder.cache import KVStore, OutOfPages, PagePool
from playground.decoder.config import DecoderConfig

PAGES, SIZE = 7, 4
TOKENS = st.lists(st.integers(0, 2), max_size=14)  # few values, so that prefixes often meet


class Machine(RuleBasedStateMachine):
    """`memory` plays the device: what was last written to each slot. A sequence must always read its own tokens.

    Each space writes tokens of its own kind, so a page of another space would be seen.
    """

    def __init__(self):
        super().__init__()
        self.pool = PagePool(PAGES, SIZE)
        self.memory = [None] * (PAGES * SIZE)
        self.live = {}  # sequence -> the tokens it stands for

    def write(self, sequence, tokens, ahead=0):
        for source, target in self.pool.grow(sequence, len(tokens) + ahead):
            self.memory[target * SIZE : (target + 1) * SIZE] = self.memory[source * SIZE : (source + 1) * SIZE]
        for i, token in enumerate(tokens):
            self.memory[self.pool.slot(sequence, sequence.length + i)] = (sequence.space, token)
        self.pool.commit(sequence, tokens)

    @rule(tokens=TOKENS, reuse=st.booleans(), space=st.sampled_from((None, "other kernels")))
    def join(self, tokens, reuse, space):
        sequence = self.pool.open("someone", tokens, reuse, space)
        assert sequence.length <= max(0, len(tokens) - 1)
        self.live[sequence] = tokens[: sequence.length]
        try:
            self.write(sequence, tokens[sequence.length :])
            self.live[sequence] = tokens
        except OutOfPages:
            self.pool.close(sequence)
            del self.live[sequence]

    @precondition(lambda self: self.live)
    @rule(data=st.data(), tokens=TOKENS.filter(bool), ahead=st.integers(0, 3))
    def extend(self, data, tokens, ahead):
        sequence = data.draw(st.sampled_from(list(self.live)))
        available = self.pool.available
        try:
            self.write(sequence, tokens, ahead)
            self.live[sequence] = self.live[sequence] + tokens
        except OutOfPages:
            assert self.pool.available == available
            # A refusal must be a true one: the tokens do not fit beside what the others hold.
            others = {p for s in self.live if s is not sequence for p in s.pages}
            needed = -(-(sequence.length + len(tokens) + ahead) // SIZE)
            assert needed > PAGES - len(others | set(sequence.pages)) + len(set(sequence.pages) - others) - 1

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def cut(self, data):
        sequence = data.draw(st.sampled_from(list(self.live)))
        length = data.draw(st.integers(0, sequence.length))
        self.pool.truncate(sequence, length)
        self.live[sequence] = self.live[sequence][:length]

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def leave(self, data):
        sequence = data.draw(st.sampled_from(list(self.live)))
        self.pool.close(sequence)
        self.pool.close(sequence)
        del self.live[sequence]

    @rule()
    def forget(self):
        self.pool.drop_cached()

    @invariant()
    def every_sequence_reads_its_own_tokens(self):
        self.pool.check()
        for sequence, tokens in self.live.items():
            assert sequence.length == len(tokens)
            assert [self.memory[self.pool.slot(sequence, i)] for i in range(len(tokens))] == [
                (sequence.space, token) for token in tokens
            ]

    @invariant()
    def the_pages_add_up(self):
        view = self.pool.view()
        assert view.states.count("f") + view.states.count("c") == self.pool.available
        held = {page.id for sequence in self.live for page in sequence.pages}
        assert held == {i for i, state in enumerate(view.states) if state == "u"}
        assert view.holds == [("someone", tuple(page.id for page in sequence.pages)) for sequence in self.live]
        if not self.live:
            assert self.pool.available == PAGES


TestPagePool = Machine.TestCase
TestPagePool.settings = settings(
    max_examples=60, stateful_step_count=35, deadline=None, suppress_health_check=list(HealthCheck)
)


def fill(pool, owner, tokens):
    sequence = pool.open(owner, tokens)
    copies = pool.grow(sequence, len(tokens) - sequence.length)
    pool.commit(sequence, tokens[sequence.length :])
    return sequence, copies


def test_a_common_system_prompt_is_stored_once():
    pool = PagePool(16, SIZE)
    system = [1, 2, 3, 4, 5, 6, 7, 8]
    first, _ = fill(pool, "a", [*system, 20, 21])
    second, copies = fill(pool, "b", [*system, 30, 31])
    assert second.reused == 8 and copies == []
    assert [p.id for p in first.pages[:2]] == [p.id for p in second.pages[:2]]
    view = pool.view()
    (a, ours), (b, theirs) = view.holds
    assert (a, b) == ("a", "b") and ours[:2] == theirs[:2] and ours[2] != theirs[2] and view.shared == 2


def test_what_other_kernels_wrote_is_not_reused():
    pool = PagePool(16, SIZE)
    tokens = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    fill(pool, "a", tokens)
    swapped = pool.open("b", tokens, space="norm by PyTorch")
    assert swapped.reused == 0
    pool.grow(swapped, 9)
    pool.commit(swapped, tokens)
    assert pool.open("c", tokens, space="norm by PyTorch").pages == swapped.pages[:2]
    assert not set(pool.open("d", tokens).pages) & set(swapped.pages)


def test_a_page_shared_in_part_is_copied_before_it_is_written():
    pool = PagePool(16, SIZE)
    first, _ = fill(pool, "a", [1, 2, 3, 4, 5, 6, 7])
    second, copies = fill(pool, "b", [1, 2, 3, 4, 5, 9, 9])
    assert second.reused == 5
    assert copies == [(first.pages[1].id, second.pages[1].id)]
    assert second.pages[0] is first.pages[0] and second.pages[1] is not first.pages[1]


def test_a_closed_conversation_is_found_again_and_the_oldest_goes_first():
    pool = PagePool(4, SIZE)
    for start in (10, 20):
        pool.close(fill(pool, "a", list(range(start, start + 8)))[0])
    assert pool.open("b", list(range(20, 28))).reused == 7
    fill(pool, "c", list(range(30, 38)))  # needs two pages: those of 10..17 go
    assert pool.open("d", list(range(10, 18))).reused == 0


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_an_empty_cache_takes_no_memory_and_is_zero(dtype):
    """On a CPU: a start that wrote a cache of 3 GB took as many seconds for it."""
    config = DecoderConfig("any", 100, 64, 8, 4, 4, 64, 64, 8192, 1e-5, 1e4)
    before = resident()
    store = KVStore(config, 4096, 16, dtype, torch.device("cpu"))
    assert store.nbytes > 2**28 and resident() - before < store.nbytes // 8
    assert all(tensor.data_ptr() % 64 == 0 and not tensor[:, :3].any() for tensor in store.tensors)
    store.keys[:, 1] = 3
    store.copy([(1, 2)])
    assert (store.keys[:, 2] == 3).all() and not store.keys[:, 3].any()


class Watched(list):
    """A page's tokens that count how often anyone asks for their number."""

    looks = 0

    def __len__(self):
        Watched.looks += 1
        return super().__len__()


def test_a_view_looks_at_no_page_that_is_full():
    """It is made ten times a second by the thread that decodes, of a cache that may have thousands of pages."""
    pool = PagePool(1000, SIZE)
    for i in range(20):
        fill(pool, "open", list(range(100 * i, 100 * i + 81)))
        pool.close(fill(pool, "closed", list(range(5000 + 100 * i, 5000 + 100 * i + 81)))[0])
    for page in pool.pages:
        page.tokens = Watched(page.tokens)
    Watched.looks = 0
    view = pool.view()
    assert Watched.looks <= 2 * 20
    assert view.states.count("u") == view.states.count("c") == 20 * 21
    assert sorted(view.partly.values()) == [1] * 40


def test_no_slot_beyond_the_pages_held():
    pool = PagePool(4, SIZE)
    sequence, _ = fill(pool, "a", [1, 2, 3])
    with pytest.raises(IndexError):
        pool.slot(sequence, 4)
