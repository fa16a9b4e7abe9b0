"""Times the kernels of LLM inference beside their peers, on the GPU at hand, to tune by. No test.

    python -m tests.gpu.perf_inference [KERNEL ...] [--seconds 420] [--compile] [--max-autotune] [--out FILE.jsonl]

Every candidate is checked against PyTorch in float64 first, with poisoned outputs. Then it is replayed in a CUDA graph
over as many sets of inputs as make L2 cold (attention of a prompt in short bursts after a rest); median of 7. Each line
says time, share of the copy roof or TFLOP/s, and the head of a shape what the project aims at.

It ends in time: no shape is begun after --seconds, no candidate of a shape after --each. Every candidate is a line of
JSON in --out ($OUT/perf_inference.jsonl where OUT is set) as soon as it is timed; a shape that the file holds whole is
left out the next time, so the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import triton

import kernels
from kernels.attention_peers import sdpa
from kernels.spec import Target
from playground.engine import fingerprint
from tests.gpu.perf import COLD_BYTES, burst_us, copy_gbps, replay_us, surroundings

Inputs = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A shape of a kernel, what to aim at, and other implementations as functions of the same inputs."""

    kernel: str
    dims: dict[str, int]
    aim: str
    change: Callable[[Inputs], Inputs] = lambda inputs: inputs
    peers: dict[str, Callable[..., Any]] = field(default_factory=dict)
    part: Callable[[Inputs], Inputs] = lambda inputs: inputs  # what the reference is computed for
    part_of_out: Callable[[torch.Tensor], torch.Tensor] = lambda out: out
    dtype: str = "bfloat16"
    burst: bool = False


def consecutive(inputs: Inputs) -> Inputs:
    return {**inputs, "slots": torch.arange(inputs["slots"].numel(), device=inputs["slots"].device)}


def contiguous_cudnn(q, k_cache, v_cache, block_table, lengths):
    """cuDNN's attention on caches taken as if they lay in order: another answer, the same bytes."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    seqs, (_, kv_heads, _, head_dim) = q.shape[0], k_cache.shape
    k, v = (c.view(seqs, kv_heads, -1, head_dim) for c in (k_cache, v_cache))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q[:, :, None], k, v, enable_gqa=True)


def by_backend(name: str):
    def run(q, k, v, causal, **options):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, name)):
            return sdpa(q, k, v, causal)

    return run


def by_multinomial(logits, temperature, top_k, top_p, **options):
    """As PyTorch code samples; another draw."""
    if not top_k:
        return torch.multinomial(torch.softmax(logits / temperature, -1), 1)
    values, ids = torch.topk(logits, top_k)
    shares = torch.softmax(values / temperature, -1)
    shares = torch.where(shares.cumsum(-1) - shares < top_p, shares, 0.0)
    return ids.gather(1, torch.multinomial(shares, 1))


def decode_case(seqs: int, aim: str, **other: int) -> Case:
    dims = {"seqs": seqs, "context": 4096, "kv_heads": 8, "group": 4, "head_dim": 128, "page_size": 16, **other}
    return Case("decode_attention", dims, aim, peers={"cuDNN, contiguous": contiguous_cudnn})


def attention_case(causal: bool, aim: str) -> Case:
    dims = {"batch": 4, "kv_heads": 32, "group": 1, "q_len": 4096, "kv_len": 4096, "head_dim": 128}
    return Case(
        "attention", dims, aim, lambda i: {**i, "causal": causal},
        {"SDPA cuDNN": by_backend("CUDNN_ATTENTION"), "SDPA FLASH": by_backend("FLASH_ATTENTION")},
        lambda i: {**i, **{n: i[n][:1, :4] for n in ("q", "k", "v")}}, lambda out: out[:1, :4], burst=True,
    )  # fmt: skip


def sample_case(rows: int, top_k: int, aim: str, **options) -> Case:
    dims = {"rows": rows, "vocab": 128_256, "top_k": top_k}
    peers = {"multinomial": by_multinomial}
    return Case("sample", dims, aim, lambda i: {**i, **options}, peers, dtype="float32")


def gluon_case(causal: bool, aim: str) -> Case:
    return dataclasses.replace(attention_case(causal, aim), kernel="gluon_attention")


HEADS = {"kv_heads": 8, "head_dim": 128}
CASES = [
    Case("linear", {"m": 1, "n": 4096, "k": 4096}, "9.6 us, 9.0 with PDL"),
    Case("linear", {"m": 1, "n": 14_336, "k": 4096}, "97 % of copy"),
    sample_case(64, 50, "19 us"), sample_case(1, 50, "7.5 us"),
    sample_case(64, 0, "16 us, temperature alone"), sample_case(1, 0, "3.0 us, temperature alone"),
    Case("rope", {"tokens": 16_384, "heads": 32, **HEADS}, "95 % of copy"),
    Case("rope", {"tokens": 64, "heads": 32, **HEADS}, "the fastest"),
    Case("rope", {"tokens": 1, "heads": 32, **HEADS}, "the fastest"),
    Case("kv_cache_write", {"tokens": 65_536, "page_size": 16, **HEADS}, "94 % of copy, random slots"),
    Case("kv_cache_write", {"tokens": 65_536, "page_size": 16, **HEADS}, "97 % of copy, consecutive", consecutive),
    Case("kv_cache_write", {"tokens": 64, "page_size": 16, **HEADS}, "the fastest"),
    decode_case(1, "8.5 us"), decode_case(4, "the fastest"),
    decode_case(16, "cuDNN + 3 %"), decode_case(64, "cuDNN + 3 %"),
    decode_case(64, "the fastest", context=512), decode_case(64, "the fastest", context=512, head_dim=64),
    decode_case(64, "the fastest", context=512, kv_heads=3, group=3, head_dim=64),
    Case("linear", {"m": 8, "n": 4096, "k": 4096}, "the fastest"),
    Case("linear", {"m": 64, "n": 14_336, "k": 4096}, "the fastest"),
    sample_case(64, 0, "top-p alone", top_p=0.9),
    Case("quantize_int8", {"rows": 16_384, "n": 4096}, "97 % of copy"),
    Case("quantize_fp8", {"rows": 16_384, "n": 4096, "group_size": 4096}, "97 % of copy"),
    Case("quantize_fp8", {"rows": 16_384, "n": 4096, "group_size": 128}, "97 % of copy"),
    Case("dequantize", {"rows": 16_384, "n": 4096, "group_size": 4096}, "95 % of copy"),
    Case("quantize_int8", {"rows": 64, "n": 4096}, "the fastest"),
    Case("embedding", {"tokens": 16_384, "vocab": 128_256, "n": 4096}, "95 % of copy"),
    Case("prefill_attention", {"seqs": 4, "q_len": 1024, "context": 4096, "group": 4, "page_size": 16, **HEADS},
         "TFLOP/s of attention", burst=True),
    attention_case(False, "0.82 of cuDNN, full"), attention_case(True, "0.86 of cuDNN, causal"),
    gluon_case(False, "0.90 of cuDNN, full"), gluon_case(True, "0.90 of cuDNN, causal"),
]  # fmt: skip


def as_double(inputs: Inputs) -> Inputs:
    return {n: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for n, v in inputs.items()}


def tuple_of(value: Any) -> tuple[torch.Tensor, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


class Timing:
    """A case at work: its sets of inputs, the answer of the first, and its lines."""

    def __init__(self, case: Case, copy: float):
        self.case, self.copy, self.spec = case, copy, kernels.get(case.kernel)
        self.target = Target.of(torch.device("cuda:0"))
        first = case.change(self.spec.inputs(case.dims, case.dtype, "cuda"))
        self.cost = self.spec.cost(first)
        count = 1 if case.burst else max(1, min(24, math.ceil(COLD_BYTES / max(self.cost.bytes_moved, 1))))
        self.sets = [first] + [case.change(self.spec.inputs(case.dims, case.dtype, "cuda", s)) for s in range(1, count)]
        self.expected = [t.clone() for t in tuple_of(self.spec.reference(**as_double(case.part(first))))]

    def error(self, outputs: tuple[torch.Tensor, ...]) -> float:
        """Relative rms error; for ids the share of rows that differ."""
        worst = 0.0
        for got, expected in zip(outputs, self.expected, strict=True):
            got = self.case.part_of_out(got)
            if expected.is_floating_point():
                expected = expected.double()  # fp8 has no arithmetic of its own
                worst = max(worst, ((got.double() - expected).norm() / expected.norm()).item())
            else:
                worst = max(worst, (got != expected).double().mean().item())
        return worst if math.isfinite(worst) else math.inf

    def us(self, calls: list[Callable[[], Any]]) -> float:
        return burst_us(calls) if self.case.burst else replay_us(calls)

    def peers(self, compiled: Sequence[str]) -> dict[str, Callable[..., Any]]:
        peers = dict(self.case.peers)
        peers["eager"] = eager = self.spec.eager or self.spec.reference
        for mode in compiled:
            peers[f"torch.compile {mode}"] = torch.compile(eager, dynamic=False, mode=mode)
        for baseline in self.spec.baselines:
            try:
                peers.setdefault(baseline.name, baseline.load())
            except Exception as missing:  # noqa: BLE001 - not installed here
                print(f"      [{baseline.name}]: {type(missing).__name__}; {baseline.install}", flush=True)
        return peers

    def lines(self, configs: int, compiled: Sequence[str], until: float):
        """(us, label, error or None) of ours, then of the peers; none is begun after `until`."""
        for i, config in enumerate(itertools.islice(self.spec.configs(self.sets[0], self.target), configs)):
            if time.monotonic() > until:
                return
            label = "default " * (i == 0) + config.label
            try:
                plans = [self.spec.plan(inputs, config, self.target) for inputs in self.sets]
                for name, tensor in plans[0].outputs.items():
                    if name not in self.spec.in_place and tensor.is_floating_point() and tensor.element_size() > 1:
                        tensor.fill_(float("nan"))
                error = self.error(tuple(plans[0].run().values()))
                yield self.us([plan.run for plan in plans]), label, error
            except Exception as failure:  # noqa: BLE001 - a config that fails is a line of its own
                print(f"      {label}: {type(failure).__name__} {str(failure)[:200]}", flush=True)
        for name, peer in self.peers(compiled).items():
            if time.monotonic() > until:
                return
            try:
                error = self.error_of_peer(peer)
                yield self.us([lambda i=inputs, f=peer: f(**i) for inputs in self.sets]), f"[{name}]", error
            except Exception as failure:  # noqa: BLE001 - a peer that cannot is a line of its own
                print(f"      [{name}]: {type(failure).__name__} {str(failure).splitlines()[:1]}", flush=True)

    def error_of_peer(self, peer: Callable[..., Any]) -> float | None:
        """None where a peer gives another kind of answer: other scales, another draw, pages out of order."""
        found = tuple_of(peer(**self.sets[0]))
        same = len(found) == len(self.expected) and all(
            self.case.part_of_out(a).shape == b.shape for a, b in zip(found, self.expected, strict=True)
        )
        comparable = same and self.case.kernel not in ("sample", "quantize_int8", "quantize_fp8")
        return self.error(found) if comparable else None


def run_case(case: Case, copy: float, given: argparse.Namespace) -> list[dict[str, Any]]:
    shape = " ".join(f"{name}={value}" for name, value in case.dims.items())
    print(f"{case.kernel} {shape} {case.dtype}; aim: {case.aim}", flush=True)
    timing = Timing(case, copy)
    rows = []
    compiled = ["default"] * given.compile + ["max-autotune-no-cudagraphs"] * given.max_autotune
    lines = timing.lines(given.configs, compiled, time.monotonic() + given.each)
    for us, label, error in sorted(lines, key=lambda line: line[0]):
        wrong = error is not None and error > (0.0 if case.kernel == "sample" else 2e-2)
        share = timing.cost.bytes_moved / us / 1e3 / copy
        tflops = timing.cost.flops / us / 1e6
        figure = f"{tflops:7.1f} TFLOP/s" if case.burst else f"{100 * share:6.1f} % of copy"
        said = "" if error is None else f"error {error:.1e}"
        print(f"  {us:9.2f} us {figure}  {said:14s} {label}{'  *** WRONG' * wrong}", flush=True)
        rows.append({"kernel": case.kernel, "dims": case.dims, "dtype": case.dtype, "aim": case.aim, "label": label,
                     "us": us, "share_of_copy": share, "tflops": tflops, "error": error,
                     "source_hash": fingerprint.current_hash(case.kernel)})  # fmt: skip
    return rows


def warm(cases: list[Case], configs: int, first: int, step: int) -> None:
    """Fill Triton's cache on disk with every step-th launch, from tensors without values."""
    target = Target.of(torch.device("cuda:0"))
    launches = []
    for case in cases:
        spec = kernels.get(case.kernel)
        inputs = spec.inputs(case.dims, case.dtype, "meta")
        inputs = case.change(inputs)
        for config in itertools.islice(spec.configs(inputs, target), configs):
            launches += spec.plan(inputs, config, target).launches
    for launch in launches[first::step]:
        launch.kernel.warmup(**launch.args, **launch.config.meta, **launch.options, grid=launch.grid)


def compile_side_by_side(names: list[str], configs: int, seconds: float) -> None:
    began = time.monotonic()
    step = max(1, min(14, (os.cpu_count() or 2) - 2))
    command = [sys.executable, "-m", "tests.gpu.perf_inference", *names, "--configs", str(configs), "--warm"]
    children = [subprocess.Popen([*command, f"{i}/{step}"]) for i in range(step)]
    for child in children:
        try:
            child.wait(max(1.0, seconds - (time.monotonic() - began)))
        except subprocess.TimeoutExpired:
            child.kill()
    failed = sum(child.wait() != 0 for child in children)
    print(f"compiled in {time.monotonic() - began:.0f} s, {failed} of {step} compilers failed", flush=True)


def key_of(kernel: str, dims: dict[str, int], dtype: str, aim: str = "") -> str:
    return json.dumps([kernel, dims, dtype, aim], sort_keys=True)


def finished(path: str) -> set[str]:
    """The shapes that a file of JSON lines holds; none where there is no file."""
    if not os.path.exists(path):
        return set()
    rows = map(json.loads, Path(path).read_text().splitlines())
    return {key_of(row["kernel"], row["dims"], row["dtype"], row.get("aim", "")) for row in rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=420.0, help="no new shape is begun after this long")
    parser.add_argument("--each", type=float, default=40.0, help="no candidate of a shape is begun after this long")
    parser.add_argument("--configs", type=int, default=99, help="time only the first so many of each shape's configs")
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--max-autotune", action="store_true", help="torch.compile's max-autotune-no-cudagraphs too")
    parser.add_argument("--out", help="a file of JSON lines; default $OUT/perf_inference.jsonl")
    parser.add_argument("--warm", help="I/N: only compile every N-th launch; how the others do it side by side")
    given = parser.parse_args()
    known = kernels.all_kernels()
    cases = [c for c in CASES if c.kernel in (given.kernels or known) and c.kernel in known]
    done = finished(given.out or os.path.join(os.environ.get("OUT", ""), "perf_inference.jsonl"))
    cases = [c for c in cases if key_of(c.kernel, c.dims, c.dtype, c.aim) not in done]
    if given.warm:
        return warm(cases, given.configs, *map(int, given.warm.split("/")))
    began = time.monotonic()
    compile_side_by_side(given.kernels, given.configs, 90.0)
    copy = copy_gbps()
    print(f"{torch.cuda.get_device_name()} torch {torch.__version__} triton {triton.__version__} copy {copy:.0f} GB/s")
    out = given.out or (os.environ.get("OUT") and str(Path(os.environ["OUT"]) / "perf_inference.jsonl"))
    with torch.no_grad():
        for case in cases:
            if time.monotonic() - began > given.seconds:
                print("out of time before", case.kernel, case.dims)
                continue
            try:
                rows = run_case(case, copy, given)
                if out:
                    with open(out, "a") as lines:
                        lines.writelines(json.dumps({**row, **surroundings(copy)}) + "\n" for row in rows)
            except Exception as failure:  # noqa: BLE001 - the other cases are still worth their time
                print(f"      FAILED {type(failure).__name__}: {str(failure)[:300]}", flush=True)
            torch.cuda.empty_cache()
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
