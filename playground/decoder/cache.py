"""The paged KV cache: which page holds which tokens, who shares it, and the tensors themselves.

`PagePool` is bookkeeping alone and knows no tensor. Pages form a tree: a page's parent holds the tokens before its
own, so a path from the root is a prefix, and two conversations that begin alike walk the same path. Each space has a
tree of its own: what other kernels have written is not read as if it were ours. A page is

    used    by one or several sequences (refs > 0),
    cached  by none, but its keys are still there for whoever begins with the same tokens, or
    free.

What holds at any time: a used page's parent is used; nothing is written to a page that another sequence can see
(it is copied first); a sequence never gets a slot in a page that it does not hold. `KVStore` holds the tensors.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from playground.decoder.config import DecoderConfig

USED, CACHED, FREE = b"ucf"
ALIGN = 64  # bytes of a cache line
RESERVED = 1 << 20  # bytes of each layer: some 80 pages of a small model
MADV_POPULATE_WRITE = 23  # of Linux, which Python does not name


class OutOfPages(Exception):
    """Every page is used by some sequence; nothing was changed."""


@dataclass(eq=False)
class Page:
    """tokens: those whose keys and values have been written; refs: how many sequences hold the page."""

    id: int
    space: Hashable = None
    parent: Page | None = None
    tokens: list[int] = field(default_factory=list)
    refs: int = 0
    children: list[Page] = field(default_factory=list)


@dataclass(eq=False)
class CachedSequence:
    """A conversation's hold on the cache. length: tokens whose keys are in; reused: those that were found there."""

    owner: str
    space: Hashable = None
    pages: list[Page] = field(default_factory=list)
    length: int = 0
    reused: int = 0


@dataclass(frozen=True)
class PoolView:
    """The pages for the panel, each by its number.

    states: a letter each, "u" used, "c" cached, "f" free. partly: the tokens in each used or cached page that is not
    full. holds: who holds which pages, an entry for each open sequence. shared: pages that several hold.
    """

    states: str
    partly: dict[int, int]
    holds: list[tuple[str, tuple[int, ...]]]
    shared: int


class PagePool:
    """`pages` pages of `page_size` tokens each. Not thread-safe: the decoder's one thread owns it."""

    def __init__(self, pages: int, page_size: int):
        self.page_size = page_size
        self.pages = [Page(i) for i in range(pages)]
        self._free = list(reversed(self.pages))
        self._roots: dict[Hashable, list[Page]] = {}  # the pages that stand first, by space
        # Cached pages, the longest unused first. Children always stand before their parents (see _release).
        self._cached: dict[Page, None] = {}
        self._open: dict[CachedSequence, None] = {}
        # Kept for view(), so that it need not look at every page
        self._states = bytearray(b"f" * pages)
        self._cached_partly: dict[int, int] = {}
        self._shared = 0

    @property
    def available(self) -> int:
        """Pages that could be had now, cached ones included."""
        return len(self._free) + len(self._cached)

    def open(
        self, owner: str, tokens: Sequence[int] = (), reuse: bool = True, space: Hashable = None
    ) -> CachedSequence:
        """A sequence that begins with what its space already holds of `tokens`; the last one is never taken.

        The last token must be computed anyway, since its logits are what the next token is drawn from.
        """
        sequence = CachedSequence(owner, space)
        self._open[sequence] = None
        if reuse:
            self._match(sequence, tokens[:-1])
        sequence.reused = sequence.length
        return sequence

    def _match(self, sequence: CachedSequence, tokens: Sequence[int]) -> None:
        children = self._roots.get(sequence.space, [])
        while sequence.length < len(tokens):
            wanted = tokens[sequence.length : sequence.length + self.page_size]
            best = max(children, key=lambda page: _common(page.tokens, wanted), default=None)
            common = _common(best.tokens, wanted) if best else 0
            if best is None or common == 0:
                return
            self._hold(best)
            sequence.pages.append(best)
            sequence.length += common
            if common < self.page_size:
                return
            children = best.children

    def grow(self, sequence: CachedSequence, count: int) -> list[tuple[int, int]]:
        """Room for `count` more tokens. Returns page copies (from, to) to be made before anything is written.

        Raises OutOfPages, having changed nothing.
        """
        at, inside = divmod(sequence.length, self.page_size)
        last = sequence.pages[at] if inside else None
        shared = last is not None and self._is_shared(sequence, at, inside)
        needed = max(0, -(-(sequence.length + count) // self.page_size) - len(sequence.pages))
        if needed + shared > self.available:
            raise OutOfPages
        copies = []
        if shared and last is not None:
            fresh = self._take(last.parent, sequence.space)
            fresh.tokens = last.tokens[:inside]
            for ours in sequence.pages[at + 1 : at + 2]:  # room made earlier and not used yet follows the copy
                last.children.remove(ours)
                fresh.children.append(ours)
                ours.parent = fresh
            sequence.pages[at] = fresh
            self._release(last)
            copies.append((last.id, fresh.id))
        for _ in range(needed):
            sequence.pages.append(self._take(sequence.pages[-1] if sequence.pages else None, sequence.space))
        return copies

    def _is_shared(self, sequence: CachedSequence, at: int, inside: int) -> bool:
        """Whether writing behind the first `inside` tokens of a page would change what somebody else may read."""
        page, ours = sequence.pages[at], sequence.pages[at + 1 : at + 2]
        return page.refs > 1 or len(page.tokens) > inside or any(child not in ours for child in page.children)

    def commit(self, sequence: CachedSequence, tokens: Iterable[int]) -> None:
        """The keys of these tokens have been written, in order, after those already there."""
        for token in tokens:
            page = sequence.pages[sequence.length // self.page_size]
            page.tokens.append(token)
            sequence.length += 1

    def slot(self, sequence: CachedSequence, position: int) -> int:
        """Where a position's keys lie: page * page_size + offset. IndexError beyond the pages held."""
        return sequence.pages[position // self.page_size].id * self.page_size + position % self.page_size

    def truncate(self, sequence: CachedSequence, length: int, forget: bool = False) -> None:
        """Drop all but the first `length` tokens. What is dropped stays cached, unless it is to be forgotten."""
        kept = -(-length // self.page_size)
        while len(sequence.pages) > kept:
            self._release(sequence.pages.pop(), forget)
        sequence.length = min(sequence.length, length)

    def close(self, sequence: CachedSequence) -> None:
        """Let go of every page; a second time does nothing."""
        self.truncate(sequence, 0)
        self._open.pop(sequence, None)

    def drop_cached(self) -> None:
        """Forget every page that nobody uses."""
        while self._cached:
            self._set_free(self._evict())

    def view(self) -> PoolView:
        """For the panel, ten times a second, from the decoder's own thread: it looks at no page but the last ones.

        A sequence's pages are full as far as its tokens go; those that follow are filled in part or not yet.
        """
        partly, size = dict(self._cached_partly), self.page_size
        for sequence in self._open:
            for page in sequence.pages[sequence.length // size :]:
                if len(page.tokens) < size:
                    partly[page.id] = len(page.tokens)
        holds = [(sequence.owner, tuple([page.id for page in sequence.pages])) for sequence in self._open]
        return PoolView(self._states.decode(), partly, holds, self._shared)

    def check(self) -> None:
        """Our own invariants, for the tests: no leak, no double use, no page that is in two places."""
        held: dict[Page, int] = {}
        for sequence in self._open:
            assert len(set(sequence.pages)) == len(sequence.pages)
            assert sequence.length <= len(sequence.pages) * self.page_size
            for before, page in zip([None, *sequence.pages], sequence.pages, strict=False):
                assert page.parent is before and page.space == sequence.space
                held[page] = held.get(page, 0) + 1
        view = self.view()
        assert view.shared == sum(count > 1 for count in held.values())
        for page in self.pages:
            state = "u" if page.refs else "c" if page in self._cached else "f"
            assert view.states[page.id] == state
            full = self.page_size if state != "f" else 0
            assert len(page.tokens) == view.partly.get(page.id, full)
            assert page.refs == held.get(page, 0)
            assert len(page.tokens) <= self.page_size
            assert (page in self._free) + (page in self._cached) + (page.refs > 0) == 1
            if page not in self._free:
                assert page in self._siblings(page)
                assert page.parent is None or page.refs == 0 or page.parent.refs >= page.refs
        assert len(self._free) == len(set(self._free))

    # Pages change hands

    def _take(self, parent: Page | None, space: Hashable) -> Page:
        page = self._free.pop() if self._free else self._evict()
        page.parent, page.space, page.refs = parent, space, 1
        self._states[page.id] = USED
        self._siblings(page).append(page)
        return page

    def _hold(self, page: Page) -> None:
        self._cached.pop(page, None)
        self._cached_partly.pop(page.id, None)
        page.refs += 1
        self._shared += page.refs == 2
        self._states[page.id] = USED

    def _release(self, page: Page, forget: bool = False) -> None:
        """One holder less. Sequences let go from their end, so a child comes to rest before its parent does."""
        page.refs -= 1
        self._shared -= page.refs == 1
        if page.refs:
            return
        if page.tokens and not (forget and not page.children):
            self._cached[page] = None
            self._states[page.id] = CACHED
            if len(page.tokens) < self.page_size:
                self._cached_partly[page.id] = len(page.tokens)
        else:
            self._detach(page)
            self._set_free(page)

    def _evict(self) -> Page:
        page = next(iter(self._cached))
        del self._cached[page]
        self._cached_partly.pop(page.id, None)
        self._detach(page)
        return page

    def _set_free(self, page: Page) -> None:
        self._free.append(page)
        self._states[page.id] = FREE

    def _detach(self, page: Page) -> None:
        self._siblings(page).remove(page)
        assert not page.children, "a page goes only after those that follow it"
        page.parent, page.tokens = None, []

    def _siblings(self, page: Page) -> list[Page]:
        return page.parent.children if page.parent else self._roots.setdefault(page.space, [])


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens the two begin with alike."""
    for n, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return n
    return min(len(a), len(b))


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Zeros that on a CPU take memory, and the time to get it, only as pages come to be written.

    torch.zeros writes them all: seconds for a cache of gigabytes of which most stays empty.
    """
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    memory = np.zeros(size + ALIGN, np.uint8)  # calloc: the system's own zeros
    begin = -memory.ctypes.data % ALIGN
    return torch.from_numpy(memory[begin : begin + size]).view(dtype).view(shape)


class KVStore:
    """Keys and values of every layer: [layers, pages, kv_heads, page_size, head_dim].

    In an 8-bit dtype each token's key and value of a head has a float32 scale: [layers, pages, kv_heads, page_size].
    """

    def __init__(self, config: DecoderConfig, pages: int, page_size: int, dtype: torch.dtype, device: torch.device):
        shape = (config.layers, pages, config.kv_heads, page_size, config.head_dim)
        self.keys = _zeros(shape, dtype, device)
        self.values = _zeros(shape, dtype, device)
        self.key_scales: torch.Tensor | None = None
        self.value_scales: torch.Tensor | None = None
        if dtype.itemsize == 1:
            self.key_scales = _zeros(shape[:-1], torch.float32, device)
            self.value_scales = _zeros(shape[:-1], torch.float32, device)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [t for t in (self.keys, self.values, self.key_scales, self.value_scales) if t is not None]

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in self.tensors)

    def reserve(self) -> None:
        """Have Linux hand out the memory of each layer's first pages now, contents untouched.

        It does so at the first write else: at the first token of the first prompt, layer by layer, in huge pages that
        take a virtual machine ten milliseconds each. Elsewhere, and before Linux 5.14, nothing happens.
        """
        if not self.keys.is_cpu or sys.platform != "linux":
            return
        libc = ctypes.CDLL(None)
        for layer in (layer for tensor in self.tensors for layer in tensor):
            first = layer.data_ptr() // mmap.PAGESIZE * mmap.PAGESIZE
            size = min(layer.nbytes, RESERVED)
            libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(size), MADV_POPULATE_WRITE)

    def copy(self, copies: Sequence[tuple[int, int]]) -> None:
        """Whole pages, (from, to), in every layer."""
        for source, target in copies:
            for tensor in self.tensors:
                tensor[:, target].copy_(tensor[:, source])
