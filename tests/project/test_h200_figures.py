"""The figures in docs/h200.md are those of the recordings, digit for digit, and of kernels that passed."""

import json
import re

import pytest

import kernels
from playground.decoder import recorded
from playground.engine import choose, fingerprint, recordings
from playground.engine.messages import RunRequest
from playground.settings import Settings
from playground.ui import words
from tests.project.documents import text

HERE = Settings().recordings
ROWS = (
    ("softmax", "float32", {"rows": 4096, "n": 32768}),
    ("add_rms_norm", "bfloat16", {"rows": 16384, "n": 8192}),
    ("silu_mul", "bfloat16", {"rows": 8192, "n": 28672}),
    ("matmul", "bfloat16", {"m": 4096, "n": 4096, "k": 4096}),
    ("decode_attention", "bfloat16", kernels.get("decode_attention").presets["prefill"]),
)


def changed_since() -> list[str]:
    """What the document owns to have changed since it was measured."""
    said = re.findall(r"Changed since: (.*?)\.", " ".join(text("docs/h200.md").split()))
    assert len(said) < 2
    return re.split(", | and ", said[0]) if said else []


def cell(provider) -> str:
    return f"{words.digits(provider.us.p50)} µs"


@pytest.mark.parametrize("name, dtype, dims", ROWS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_row_for_each_kernel_shown(name, dtype, dims):
    found = recordings.find(HERE, choose.validate(RunRequest(kernel=name, dims=dict(dims), dtype=dtype)))[0]
    assert dict(found.choice.dims) == dict(dims) and found.ok and found.stale == (f"`{name}`" in changed_since())
    own = found.providers["triton"]
    assert own.ok and own.share_of_peak is not None
    peers = {n: p for n, p in found.providers.items() if n not in ("triton", "eager", "torch.compile") and p.us}
    best = min(peers, key=lambda n: peers[n].us.p50) if peers else None
    row = (
        f"| `{name}` {words.shape(dims)}, {dtype} | **{cell(own)}** | {words.percent(own.share_of_peak)} % | "
        f"{cell(found.providers['eager'])} | {cell(found.providers['torch.compile'])} | "
        f"{f'{best} {cell(peers[best])}' if best else '–'} |"
    )
    assert row in text("docs/h200.md"), row


def test_the_decoders_sentence():
    runs = {run.shape: run for run in recorded.runs(HERE)}
    small, large = runs["smollm2-135m"], runs["llama-1b"]
    said = (
        f"SmolLM2-135M answers at {words.digits(small.tokens_per_second)} tokens a second in one conversation and "
        f"{words.digits(small.batches[64])} in 64, a Llama of 1B at {words.digits(large.tokens_per_second)} in one. "
        f"transformers, beside SmolLM2-135M in one run: {words.digits(small.peers['eager'])} by eager decoding, "
        f"{words.digits(small.peers['static cache'])} with a static cache and torch.compile."
    )
    assert said in " ".join(text("docs/h200.md").split()), said


def test_attentions_shares_of_cudnn():
    lines = (HERE / "nvidia-h200" / "peers.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]

    def share(kernel: str, kind: str, label: str = "") -> str:
        run = [r for r in rows if r["kernel"] == kernel and r["aim"].endswith(kind)]
        cudnn = next(r["us"] for r in run if r["label"] == "[SDPA cuDNN]")
        ours = min(r["us"] for r in run if r["label"] == label or (not label and not r["label"].startswith("[")))
        return f"{cudnn / ours:.2f}"

    said = " ".join(text("docs/h200.md").split())
    for begin, kernel, label in (
        ("`attention` reaches", "attention", ""),
        ("written by hand for Hopper,", "gluon_attention", ""),
        ("FlexAttention reaches", "attention", "[FlexAttention]"),
        ("FlashAttention-2", "attention", "[SDPA FLASH]"),
    ):
        full, causal = share(kernel, "full", label), share(kernel, "causal", label)
        assert re.search(rf"{begin} {full}( of its speed)? \(causal {causal}\)", said), (begin, full, causal)


BESIDE = (
    ("linear", {"m": 1, "n": 4096}, ""),
    ("linear", {"m": 1, "n": 14_336}, ""),
    ("sample", {"rows": 1, "top_k": 50}, ""),
    ("sample", {"rows": 64, "top_k": 50}, ""),
    ("sample", {"rows": 1, "top_k": 0}, ""),
    ("sample", {"rows": 64, "top_k": 0}, "temperature alone"),
    ("rope", {"tokens": 16_384}, ""),
    ("kv_cache_write", {"tokens": 65_536}, "random slots"),
    ("kv_cache_write", {"tokens": 65_536}, "consecutive"),
    ("decode_attention", {"seqs": 1}, ""),
    ("decode_attention", {"seqs": 16}, ""),
    ("decode_attention", {"seqs": 64, "context": 4096}, ""),
    ("decode_attention", {"seqs": 64, "context": 512, "head_dim": 128}, ""),
    ("decode_attention", {"seqs": 64, "context": 512, "head_dim": 64, "kv_heads": 8}, ""),
    ("decode_attention", {"seqs": 64, "context": 512, "kv_heads": 3}, ""),
    ("rms_norm", {"rows": 16_384}, ""),
    ("layer_norm", {"rows": 16_384}, ""),
)


@pytest.mark.parametrize("name, dims, kind", BESIDE, ids=lambda v: v if isinstance(v, str) else "")
def test_a_row_beside_the_best_peer(name, dims, kind):
    lines = (HERE / "nvidia-h200" / "peers.jsonl").read_text().splitlines()
    rows = [r for r in map(json.loads, lines) if r["kernel"] == name and dims.items() <= r["dims"].items()]
    rows = [r for r in rows if r.get("aim", "").endswith(kind)]
    own = next(r for r in rows if r["label"].startswith("default"))
    peer = min((r for r in rows if r["label"].startswith("[")), key=lambda r: r["us"])
    assert own["error"] < 0.02
    row = (
        f"| `{name}` {words.shape(own['dims'])}{f', {kind}' if kind else ''} | **{words.digits(own['us'])} µs** | "
        f"{words.percent(own['share_of_copy'])} % | {peer['label'][1:-1]} {words.digits(peer['us'])} µs |"
    )
    assert row in text("docs/h200.md"), row


def test_what_has_changed_since_is_said():
    lines = (HERE / "nvidia-h200" / "peers.jsonl").read_text().splitlines()
    found = {(r["kernel"], r["source_hash"]) for r in map(json.loads, lines)}
    changed = [f"`{name}`" for name, was in sorted(found) if was != fingerprint.current_hash(name)]
    changed += ["the decoder's step"] * any(run.stale for run in recorded.runs(HERE))
    assert changed_since() == changed
