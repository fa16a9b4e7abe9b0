"""From facts to what the Memory tab's charts are given: flows, points, roofs and trends. Pure."""

from __future__ import annotations

import plotly.graph_objects as go

from playground.engine.gpus import CATALOGUE, listed
from playground.engine.messages import BenchResult, HostResult
from playground.ui import words
from playground.ui.tabs.memory import charts
from playground.ui.tabs.memory.charts import Link, Point, Roof, Trend
from playground.ui.tabs.memory.facts import Facts, fresh_bytes
from playground.ui.tabs.memory.journey import short

OTHERS = ("B200", "MI300X", "A100", "L4")  # whose datasheet roofs stand behind the chosen GPU's
LEAST = 0.002  # of the widest flow: thinner ones are not drawn
NAMES = {"triton": "Triton"}


def flows(facts: Facts) -> go.Figure | None:
    """Both flows through memory; None where nothing moves."""
    fused, kernels = _own_links(facts)
    eager, chain = _chain_links(facts)
    return charts.flows(_visible(fused), _visible(eager), [*kernels, *chain]) if fused else None


def _visible(links: list[Link]) -> list[Link]:
    widest = max((size for *_, size in links), default=0.0)
    return [link for link in links if link[2] >= LEAST * widest]


def _own_links(facts: Facts) -> tuple[list[Link], list[str]]:
    links: list[Link] = []
    kernels = []
    for i, launch in enumerate(facts.trace.launches):
        kernel = f"{launch.kernel}\0{i}"  # what follows the zero byte parts nodes of one name
        kernels.append(kernel)
        for t in launch.tensors:
            for kind in ("load", "store"):
                size = fresh_bytes(launch, t, kind)
                if size:
                    # A tensor that one launch both reads and writes would close a circle, which a flow cannot draw.
                    after = f"{short(t.name)}\0after {i}" if kind == "store" and t.bytes_loaded else short(t.name)
                    links.append((after, kernel, size) if kind == "load" else (kernel, after, size))
    return links, kernels


def _chain_links(facts: Facts) -> tuple[list[Link], list[str]]:
    links: list[Link] = []
    kernels = []
    for i, step in enumerate(facts.trace.chain):
        kernel = f"{step.kernel}\0{i}"
        kernels.append(kernel)
        read = {name for name, _ in step.reads}
        links += [(name, kernel, float(size)) for name, size in step.reads]
        links += [(kernel, f"{name}\0after {i}" if name in read else name, float(size)) for name, size in step.writes]
    return links, kernels


def roofline(facts: Facts) -> go.Figure | None:
    """None where the kernel computes nothing, or no rate is known."""
    rates, gpu = facts.rates, facts.gpu
    if not facts.trace.flops or not rates.memory or not rates.matrix:
        return None
    roofs = [Roof(gpu.memory_kind, "hbm", rates.memory)]
    roofs += [Roof("L2", "l2", rates.l2)] if rates.l2 else []
    roofs += [Roof("L1", "sram", rates.l1)] if rates.l1 else []
    dtype = facts.trace.choice.dtype
    peaks = {f"products, {dtype}": rates.matrix}
    if 0 < rates.vector < 0.95 * rates.matrix:
        peaks["vector, float32"] = rates.vector
    others = {n: (CATALOGUE[n].memory_rate, CATALOGUE[n].matrix_rate(dtype)) for n in OTHERS if n != gpu.name}
    here = facts.trace.flops / max(facts.trace.compulsory_bytes, 1)
    return charts.roofline(roofs, peaks, points(facts), others, here, rates.source is None)


def points(facts: Facts) -> list[Point]:
    """The kernel and its baselines at each recorded shape of the chosen GPU."""
    found = []
    for result in of_gpu(facts):
        intensity = result.flops / max(result.bytes_moved, 1)
        for name, provider in result.providers.items():
            if provider.ok and provider.us and result.flops and result.roofs:
                tflops = result.flops / provider.us.p50 / 1e6
                over = result.bytes_moved / provider.us.p50 / 1e3 > 1.02 * result.roofs.copy_gbps
                found.append(Point(NAMES.get(name, name), words.shape(result.choice.dims), intensity, tflops, over))
    return found


def of_gpu(facts: Facts) -> list[BenchResult]:
    return [r for r in facts.recorded if same_gpu(r.source.device, facts.gpu.name)]


def same_gpu(device: str, name: str) -> bool:
    """Whether a device of this name is the GPU that goes by `name` here."""
    known = listed(device)
    return device == name or (known is not None and known.name == name)


def bandwidth(facts: Facts) -> go.Figure | None:
    """The chosen GPU's recorded or measured copy over sizes, and the kernel's rates; None where there are none."""
    device = facts.devices.get(facts.gpu.name)
    trends = copy_trends(device)
    results = sorted(of_gpu(facts), key=lambda r: r.bytes_moved)
    for name in ("triton", "eager"):
        pairs = [
            (r.bytes_moved, r.providers[name].gbps)
            for r in results
            if name in r.providers and r.providers[name].ok and r.providers[name].gbps
        ]
        if pairs:
            trends.append(Trend(NAMES.get(name, name), [b for b, _ in pairs], [float(g or 0) for _, g in pairs]))
    if not trends:
        return None
    caches = device.caches if device else {"L2": facts.gpu.l2_bytes}
    ceiling = facts.rates.memory / 1e9 if facts.rates.source else 0.0
    return charts.bandwidth(trends, caches, ceiling)


def copy_trends(device: HostResult | None) -> list[Trend]:
    if device is None or device.curve is None:
        return []
    return [Trend("copy", device.curve.bytes, device.curve.gbps, copy=True)]


def here(host: HostResult, results: list[BenchResult]) -> go.Figure | None:
    """This device's copy over sizes, and the kernel's measured sizes so far."""
    trends = copy_trends(host)
    done = sorted((r for r in results if r.providers["triton"].gbps), key=lambda r: r.bytes_moved)
    for name in ("triton", "eager"):
        rows = [(r.bytes_moved, r.providers[name].gbps or 0.0) for r in done if name in r.providers]
        if rows:
            trends.append(Trend(NAMES.get(name, name), [b for b, _ in rows], [g for _, g in rows]))
    if not trends:
        return None
    return charts.bandwidth(trends, host.caches, host.roofs.copy_gbps if host.roofs else 0.0)
