"""How `chat` is read: the answer, then what it took, and what else was asked for."""

from __future__ import annotations

from playground.cli import show
from playground.cli.answers import ChatAnswer
from playground.decoder.looks import AttentionResult, ProfileResult, ReplayResult
from playground.decoder.messages import ChatToken


class Streamed(ChatAnswer):
    """An answer that has been printed as it came."""


@show.text.register
def _chat(result: ChatAnswer) -> str:
    return f"{result.text}\n\n{_took(result)}"


@show.text.register
def _streamed(result: Streamed) -> str:
    return f"\n{_took(result)}"


def _took(result: ChatAnswer) -> str:
    kv = result.kv_cache
    lines = [
        f"{result.model}: {len(result.ids)} tokens, {result.tokens_per_second:.1f} tok/s, first after "
        f"{result.first_token_ms:.0f} ms, on {result.backend}; ended by {result.finish}.",
        f"KV cache: {kv.equation}, in {kv.pages_used} pages.",
        f"{result.source.kind} on {result.source.device}.",
    ]
    lines += [f"Note: {note}." for note in result.notes]
    lines += [_chances(token) for token in result.tokens]
    lines += _compared(result.comparison) if result.comparison else []
    lines += _looked(result.attention) if result.attention else []
    lines += _profiled(result.profile) if result.profile else []
    return "\n".join(lines)


def _chances(token: ChatToken) -> str:
    others = ", ".join(f"{other.text!r} {other.probability:.1%}" for other in token.alternatives)
    return f"{token.piece!r}: {token.probability:.1%}, drawn with {token.drawn:.1%}; likeliest {others}"


def _compared(found: ReplayResult) -> list[str]:
    changed = [group for group, who in found.swapped.items() if found.table[group] != who]
    lines = [
        f"With {', '.join(f'{group} by {found.swapped[group]}' for group in changed) or 'nothing changed'}, over "
        f"{len(found.steps)} tokens: logits differ by {found.largest:.3g} at most, KL {found.kl:.3g} at most."
    ]
    at = found.first_difference
    if at is None:
        return [*lines, "No token would have been another."]
    mine, other = found.steps[at].drawn_text
    return [*lines, f"Token {at + 1} would have been {other!r} instead of {mine!r}."]


def _looked(found: AttentionResult) -> list[str]:
    shares = ", ".join(f"{page}: {share:.0%}" for page, share in zip(found.pages, found.mean, strict=True))
    return [f"Attention of the last token by page, mean of {len(found.layers)} layers: {shares}."]


def _profiled(found: ProfileResult) -> list[str]:
    lines = [f"A decode step takes {1e3 * found.step_seconds:.2f} ms; by kernel ({found.how}):"]
    for box in found.boxes:
        shapes = " ".join("x".join(map(str, operand.shape)) for operand in box.inputs)
        lines.append(f"  {box.box:28} {1e3 * box.seconds:7.3f} ms {box.share:6.1%}  {box.kernel}, {shapes}")
    return lines
