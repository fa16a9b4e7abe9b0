"""Times the native CPU path beside PyTorch on the same tensors, in the same process, turn by turn.

    python -m tests.native.speed [decode large step start ...] [--threads N] [--seconds S] [--cpu-time]

`make speed` runs all of it. A row says: median of ours, median of PyTorch's, and how many times as fast ours is. A
round in which other processes used more than a twentieth of the machine is left out and counted. --cpu-time compares
one thread's CPU seconds instead, which a busy host disturbs less. No test; nothing is judged here. The figures in
docs/native.md come from this.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import time
from collections.abc import Callable, Iterable
from statistics import median

import torch

from playground import native

from . import speed_cases, speed_start

GROUPS = (*speed_cases.GROUPS, "start")
NOISE = 0.05  # of one CPU, used by others
ROUND = 0.06  # seconds that each side has in a round
_clock = time.perf_counter


def _busy() -> float:
    """CPU seconds that the whole machine has spent at work, and stolen by its host."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def _turn(run: Callable[[], object], seconds: float) -> float:
    """The median of as many calls as fit."""
    times = []
    end = _clock() + seconds
    while True:
        began = _clock()
        run()
        now = _clock()
        times.append(now - began)
        if now > end:
            return median(times)


def compare(sides: list[Callable[[], object]], seconds: float, turn: float = ROUND) -> tuple[list[float], int, int]:
    """Each side's median over the quiet rounds (over all, where none was), and how many were quiet and noisy."""
    for run in sides:
        run()
        run()
    quiet: list[list[float]] = []
    noisy: list[list[float]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not quiet + noisy:
        busy, own, began = _busy(), _own(), time.perf_counter()
        found = [_turn(run, turn) for run in sides]
        others = (_busy() - busy) - (_own() - own)
        loud = others > NOISE * (time.perf_counter() - began) + 0.02  # the clock of /proc/stat is coarse
        (noisy if loud else quiet).append(found)
    rounds = quiet or noisy
    return [median(side) for side in zip(*rounds, strict=True)], len(quiet), len(noisy)


def show(name: str, times: list[float], quiet: int, noisy: int) -> None:
    ours, theirs = times
    print(
        f"| {name} | {_spell(ours)} | {_spell(theirs)} | {theirs / ours:.2f} | {quiet} of {quiet + noisy} |",
        flush=True,
    )


def _spell(seconds: float) -> str:
    unit, factor = ("us", 1e6) if seconds < 1e-3 else ("ms", 1e3)
    value = seconds * factor
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def run(cases: Iterable[speed_cases.Case], seconds: float) -> None:
    print("| | Triton | PyTorch | times as fast | quiet rounds |\n|---|---|---|---|---|")
    for case in cases:
        show(case.name, *compare([case.ours, case.theirs], seconds, case.turn))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", choices=[*GROUPS, []], help="all of them where none is named")
    parser.add_argument("--threads", type=int, help="of both sides; by default this host's CPUs")
    parser.add_argument("--cpu-time", action="store_true", help="one thread, its CPU seconds")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each row")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    arguments = parser.parse_args()
    native.enable()
    torch.set_grad_enabled(False)
    if arguments.cpu_time:
        global _clock
        _clock, arguments.threads = time.process_time, 1
    if arguments.threads:
        native.set_threads(arguments.threads)
        torch.set_num_threads(arguments.threads)
    now = datetime.datetime.now(datetime.UTC)
    print(
        f"{now:%Y-%m-%d %H:%M} UTC, {speed_cases.cpu_name()}, {native.threads()} threads, "
        f"{'CPU time, ' if arguments.cpu_time else ''}load {os.getloadavg()[0]:.1f}, torch {torch.__version__}"
    )
    for name in arguments.what or GROUPS:
        print(f"\n{name}\n")
        if name == "start":
            speed_start.report()
            continue
        run(speed_cases.GROUPS[name](arguments.only), arguments.seconds)


if __name__ == "__main__":
    main()
