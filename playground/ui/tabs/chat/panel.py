"""The decoder's instruments as HTML, from what its worker reports ten times a second: so they stay small.

Pure: figures in, HTML out. Whose pages others hold is not told, only that they are others'.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import chain

from playground.decoder.looks import ProfileResult
from playground.decoder.messages import ChatResult, ChatStats, ConversationStats, KvStats, PageMap
from playground.engine.messages import HostResult, Progress
from playground.ui import panels, words

MOST_PAGES = 120  # drawn one by one; what is more is counted
KINDS = {"you": "this chat", "system": "shared", "other": "other chats", "cached": "kept for reuse", "free": "free"}
LEAST_SHARE = 0.01  # of a step: kernels below it stand together in one line
EMPTY = (
    '<p class="quiet">Send a message: speed, first token, the KV cache with its equation, and each of its pages '
    "appear here while the answer is written.</p>"
)


@dataclass
class Seen:
    """What one conversation's panel shows. mass: the share of attention of each page, by its number."""

    owner: str
    host: HostResult | None = None
    stats: ChatStats | None = None
    mine: ConversationStats | None = None
    result: ChatResult | None = None
    mass: Mapping[int, float] = field(default_factory=dict)

    def take(self, stats: ChatStats) -> None:
        """Keeps the last figures in which the conversation still held its pages."""
        mine = next((c for c in stats.conversations if c.owner == self.owner), None)
        if mine is not None or self.mine is None:
            self.stats, self.mine = stats, mine


def head(seen: Seen | None, busy: bool = False) -> str:
    """The section's head: measured, where, and how many talk at once. busy: marked so, for Stop stands only then."""
    return f'<div class="talking">{_head(seen)}</div>' if busy else _head(seen)


def _head(seen: Seen | None) -> str:
    if seen is None or (seen.stats is None and seen.result is None):
        return panels.section("While it talks")
    batch = seen.stats.batch if seen.stats else 1
    others = f", {words.count(batch, 'conversation')} at once" if batch > 1 else ""
    if seen.result:
        return panels.section("While it talked", seen.result.source, seen.result.source.device + others)
    where = seen.host.device if seen.host else "this device"
    return panels.section("While it talks", "measured", f"{where}{others}")


def live(seen: Seen | None) -> str:
    """The whole panel. An answer that ended between two reports has its own figures, and the map as last reported."""
    if seen is None or (seen.mine is None and seen.result is None):
        return EMPTY
    stats, mine, result = seen.stats, seen.mine, seen.result
    kv = stats.kv if stats else result.kv_cache if result else None
    assert kv is not None
    tokens = mine.tokens if mine else result.kv_cache.tokens if result else 0
    reused, read = (mine.reused, mine.prefilled) if mine else (0, 0)
    pages = f"<h3>Pages{', and the attention they get' if seen.mass else ''}</h3>"
    return (
        f"{_figures(seen)}{_step(stats) if stats else ''}<h3>KV cache</h3>{_equation(kv, tokens, reused, read)}"
        f"{pages + page_map(stats.map, stats.kv, seen) if stats else ''}"
    )


def _figures(seen: Seen) -> str:
    stats, mine, result = seen.stats, seen.mine, seen.result
    average = result.tokens_per_second if result else mine.tokens_per_second if mine else 0.0
    first = result.first_token_ms if result else mine.first_token_ms if mine else None
    written = len(result.ids) if result else mine.answer if mine else 0
    now = stats.tokens_per_second if stats and mine else average
    items = (
        ("now" if stats is None or stats.batch < 2 else "now, all", words.digits(now) if now else "…", "tok/s"),
        ("average", words.digits(average) if average else "…", "tok/s"),
        ("first token", *(words.quantity(1e3 * first, words.MICROSECONDS) if first is not None else ("…", "ms"))),
        ("written", f"{written:,}", "token" if written == 1 else "tokens"),
    )
    return '<dl class="stats four">' + "".join(
        f'<div class="stat"><dt>{name}</dt><dd><b>{value}</b> {unit}</dd></div>' for name, value, unit in items
    ) + "</dl>"  # fmt: skip


def _step(stats: ChatStats) -> str:
    """What a decode step reads, how long it takes, and so how fast it reads."""
    parts = []
    if stats.decode_ms:
        took = words.text(1e3 * stats.decode_ms, words.MICROSECONDS)
        rate = stats.bytes_per_step / (stats.decode_ms * 1e-3) / 1e9
        parts.append(
            f"A decode step reads {words.text(stats.bytes_per_step, words.BYTES)} "
            f"({words.text(stats.weight_bytes, words.BYTES)} of it weights) in {took}: "
            f"{words.text(rate, words.GIGABYTES)}."
        )
    if stats.prefill_ms:
        tokens = words.count(stats.prefill_tokens, "token")
        took = words.text(1e3 * stats.prefill_ms, words.MICROSECONDS)
        parts.append(f"The last prefill took {took} for {tokens}.")
    if stats.waiting:
        parts.append(f"{words.count(stats.waiting, 'conversation')} waiting.")
    return f'<p class="sub">{" ".join(parts)}</p>'


def _equation(kv: KvStats, tokens: int, found: int, read: int) -> str:
    per_token = kv.bytes_per_token
    used = per_token * tokens
    group = kv.mha_bytes // kv.bytes_used if kv.bytes_used else 1
    heads = kv.kv_heads * group
    mha = f"With a key-value head for each of the {heads} query heads (MHA) it would be " + words.text(
        used * group, words.BYTES
    )
    reused = f" {words.count(found, 'token')} of the prompt found in the cache, {read:,} read." if found else ""
    return (
        f'<p class="eq"><b>{words.text(used, words.BYTES)}</b> = 2 × {kv.layers} layers × {kv.kv_heads} KV heads × '
        f"{kv.per_head} B × {tokens:,} tokens</p>"
        f'<p class="sub">{mha if group > 1 else ""}{"." * (group > 1)}{reused}</p>'
    )


def page_map(pages: PageMap, kv: KvStats, seen: Seen) -> str:
    """This chat's pages first, then the others that are in use or kept; each filled as far as it is used."""
    size = kv.page_size
    holders = Counter(chain.from_iterable(pages.holds))
    mine = {page for name, held in zip(pages.names, pages.holds, strict=True) if name == seen.owner for page in held}
    cells = [(page, "system" if holders[page] > 1 else "you") for page in sorted(mine)]
    cells.sort(key=lambda cell: -pages.fill(cell[0], size))  # the one that is being filled last
    rest = [(page, "other") for page in sorted(holders.keys() - mine)]
    rest += [(page, "cached") for page, state in enumerate(pages.states) if state == "c"]
    free = [(page, "free") for page, state in enumerate(pages.states) if state == "f"]
    all_cells = [*cells, *rest, *free[:12]][:MOST_PAGES]
    top = max(seen.mass.values(), default=0.0)
    drawn = "".join(_cell(page, kind, pages.fill(page, size), size, seen.mass, top) for page, kind in all_cells)
    key = "".join(
        f'<span class="pg {kind}"><span class="slot"><i style="height:100%"></i></span>{name}</span>'
        for kind, name in KINDS.items()
    )
    per_page = kv.bytes_reserved / kv.pages if kv.pages else 0
    said = (
        f"{words.count(kv.pages_used, 'page')} in use, {kv.pages_shared:,} of them shared, {kv.pages_cached:,} kept "
        f"for reuse, {kv.pages_free:,} free; a page is {kv.page_size} tokens, "
        f"{words.text(per_page, words.BYTES)}. {words.text(kv.bytes_reserved, words.BYTES)} reserved in all."
    )
    return (
        f'<div class="pages" role="img" aria-label="{escape(said)}">{drawn}</div><div class="key">{key}</div>'
        f'<p class="sub">{escape(said)}</p>'
    )


def _cell(page: int, kind: str, fill: int, size: int, mass: Mapping[int, float], top: float) -> str:
    share = mass.get(page)
    bar = f'<i class="mass" style="height:{round(36 * share / top)}px"></i>' if share is not None and top else ""
    seen = f", {share:.0%} of attention" if share is not None else ""
    full = f"page {page}: {KINDS[kind]}, {fill} of {size} slots{seen}" if kind != "free" else f"page {page}: free"
    return f'<div class="pg {kind}" title="{full}">{bar}<div class="slot"><i style="height:{100 * fill // size}%"></i></div></div>'  # noqa: E501


def shares(result: ProfileResult) -> str:
    """The time of each kernel in one step, the longest first, against the undivided step; the shortest are joined."""
    total = sum(result.kernels.values()) or 1.0
    order = sorted(result.kernels.items(), key=lambda item: -item[1])
    shown = [(name.removesuffix("_kernel"), seconds) for name, seconds in order if seconds >= LEAST_SHARE * total]
    rest = [seconds for _, seconds in order[len(shown) :]]
    shown += [(words.count(len(rest), "other"), sum(rest))] if rest else []
    longest = order[0][1] if order else 1.0
    rows = "".join(
        f'<li><span>{escape(name)}</span><div><i style="width:{seconds / longest:.0%}"></i></div>'
        f"<b>{escape(words.percent(seconds / total))} %</b></li>"
        for name, seconds in shown
    )
    said = (
        f"Timed one by one, they take {words.digits(1e3 * total)} ms together; the undivided step of "
        f"{words.count(result.batch, 'row')} takes {words.digits(1e3 * result.step_seconds)} ms."
    )
    return f'<ul class="share">{rows}</ul><p class="sub">{said} {panels.badge(result.source)}</p>'


def waits(seen: Seen) -> str:
    """Why there is no token yet: others are before this conversation, or its prompt is being read."""
    stats, mine = seen.stats, seen.mine
    if stats is None or mine is None or mine.state == "decode":
        return ""
    if mine.state == "prefill":
        left = mine.tokens - mine.reused
        return panels.working(Progress(what="reading the prompt", done=mine.prefilled, total=left, unit="tokens"))
    waiting = [c.owner for c in stats.conversations if c.state == "waiting"]
    before = waiting.index(seen.owner)
    others = f"{words.count(stats.batch, 'conversation')} being answered" + (
        f", {before:,} before yours" * bool(before)
    )
    return panels.working(Progress(what=f"waiting for a place: {others}"))


def ended(result: ChatResult, wanted: int | None) -> str:
    """One line under the chat once an answer is there: how it ended, and what it took."""
    why = {
        "stop": "",
        "length": f" It stopped at max tokens ({wanted}); raise it for more." if wanted else "",
        "context": " The context is full: clear the chat, or let old turns slide out.",
        "cache": " The cache is full: others hold its pages; try again when they are done.",
        "cancelled": " Stopped.",
    }[result.finish]
    notes = "".join(f" {note[:1].upper()}{note[1:].rstrip('.')}." for note in result.notes)
    found = f", {result.reused_tokens:,} of them found in the cache" if result.reused_tokens else ""
    speed = f" at {words.digits(result.tokens_per_second)} tok/s" if result.tokens_per_second else ""
    return (
        f'<p class="sub" role="status">{words.count(len(result.ids), "token")}{speed} on {_backend(result)}; the '
        f"prompt had {result.prompt_tokens:,} tokens{found}. {panels.badge(result.source)}{escape(notes or why)}</p>"
    )


def _backend(result: ChatResult) -> str:
    native = not {"cuda", "hip"} & result.source.versions.keys()
    return {
        "triton": "our Triton kernels, compiled natively for this CPU" if native else "our Triton kernels",
        "torch": "PyTorch",
        "interpreter": "our Triton kernels in the interpreter",
        "mixed": "a mix of Triton and PyTorch kernels",
    }.get(result.backend, escape(result.backend))
