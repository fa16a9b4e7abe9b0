"""Runs launches as Triton's interpreter does and from tapes, beside each other, and prints what differs as JSON; run
by test_tape.py in a child process, in the interpreter.

Each row is run on three draws of the inputs: the first makes the tapes, the others play them on other tensors.
"""

import json

import torch
import triton
import triton.language as tl
from triton.experimental.gluon._runtime import GluonJITFunction

import kernels
from kernels.spec import Config, Launch, Plan, Target
from playground.decoder import interpreted
from playground.engine import tape_player
from playground.engine.tape import Recorder
from tests.engine.traced_by_hand import BY_HAND


@triton.jit
def two_ways(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Doubles or negates, as the first element says; a loop as long as the second says."""
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    x = x * 2 if tl.load(x_ptr) > 0 else -x
    for _ in range(tl.load(x_ptr + 1).to(tl.int32)):
        x += 1
    tl.store(out_ptr + tl.program_id(0) * n + i, x, mask=i < n)


@triton.jit
def branch_after_store(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)
    if tl.load(x_ptr) > 1:
        tl.store(out_ptr, 7.0)


@triton.jit
def odd_places(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Backwards, in steps, through a table, no lane at all, and every lane to one place (the last one stays)."""
    i = tl.arange(0, BLOCK)
    backwards = tl.load(x_ptr + n - 1 - i, mask=i < n, other=float("nan"))
    steps = tl.load(x_ptr + i * 2, mask=i * 2 < n, other=-1.0)
    none = tl.load(x_ptr + i, mask=i > BLOCK, other=3.0)
    table = tl.load(x_ptr + (steps.to(tl.int32) & 3))
    tl.store(
        out_ptr + i, tl.where(i < n, backwards, 0.0) + steps + none + table + x_ptr.to(tl.int64).to(tl.float32) * 0
    )
    tl.store(out_ptr + BLOCK + (i & 1), steps, mask=i < n)
    tl.store(out_ptr + BLOCK + 2 + (i * 5 % 8), tl.cumsum(steps, 0), mask=(i & 1) == 0)


def by_hand(kernel, values):
    """A function that plans the launch on x = values."""

    def plan():
        args = {"x_ptr": torch.tensor(values), "out_ptr": torch.zeros(64), "n": len(values)}
        return Plan((Launch(kernel, (2,), args, Config({"BLOCK": 8})),), {})

    return plan


OWN = {
    "two ways": (two_ways, ([1.0, 2.0, 3.0], [-1.0, 2.0, 5.0], [2.0, 3.0, 4.0], [0.0, 2.0, 1.0])),
    "a branch after a store": (branch_after_store, ([0.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.5, 1.0, 1.0])),
    "odd places": (odd_places, ([0.0, 1.0, 2.0, 3.0, 1.0], [3.0, 2.0, 1.0, 0.0, 2.0])),
}
SAMPLED = {"temperature": 0.8, "seed": 3, "step": 1}


def of_spec(name, dims, dtype, config, draw, **more):
    """A function that plans the kernel on copies of the same inputs, its fresh tensors zero."""
    spec, target = kernels.get(name), Target.named("cpu")
    given = spec.inputs(dims, dtype, "cpu", draw) | more

    def plan():
        copies = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in given.items()}
        made = spec.plan(copies, config or spec.default_config(copies, target), target)
        held = {v.untyped_storage().data_ptr() for v in copies.values() if isinstance(v, torch.Tensor)}
        for tensor in (v for launch in made.launches for v in launch.args.values() if isinstance(v, torch.Tensor)):
            if tensor.untyped_storage().data_ptr() not in held:
                tensor.zero_()
        return made

    return plan


def compare(draws):
    """Whether every tensor of every draw comes out alike; the reasons why something was not taped; tapes made."""
    voids, tapes, alike = [], 0, True
    learn = tape_player._Known.learn

    def told(known, recorder: Recorder):
        nonlocal tapes
        learn(known, recorder)
        voids.append(recorder.void)
        tapes += not recorder.void

    tape_player._Known.learn = told
    try:
        for plan in draws:
            theirs, ours = plan(), plan()
            for launch in theirs.launches:
                launch.kernel[launch.grid](**launch.args, **launch.config.meta)
            players = [tape_player.Player(x.kernel, x.grid, {**x.args, **x.config.meta}) for x in ours.launches]
            for player in players:
                player()
            for a, b in zip(theirs.launches, ours.launches, strict=True):
                alike &= all(same(value, b.args[name]) for name, value in a.args.items())
    finally:
        tape_player._Known.learn = learn
    return {"alike": alike, "tapes": tapes, "void": sorted({v for v in voids if v})}


def same(a, b):
    """Bit for bit, NaNs included."""
    if not isinstance(a, torch.Tensor):
        return True
    flat = [t.contiguous().view(-1).view(torch.uint8) if t.numel() else t for t in (a, b)]
    return torch.equal(*flat)


def rows():
    for name, (kernel, draws) in OWN.items():
        yield name, [by_hand(kernel, values) for values in draws]
    for name, dims, dtype, config, _ in BY_HAND:
        spec, target = kernels.get(name), Target.named("cpu")
        inputs = spec.inputs(dims, dtype, "meta")
        launches = spec.plan(inputs, spec.default_config(inputs, target), target).launches
        if not any(isinstance(launch.kernel, GluonJITFunction) for launch in launches):
            label = f"{name} {dtype} {config.label if config else ''}"
            yield label, [of_spec(name, dims, dtype, config, seed) for seed in range(3)]
    dims = {"rows": 2, "vocab": 1500, "top_k": 0}
    yield "sample at temperature 0.8", [of_spec("sample", dims, "float32", None, seed, **SAMPLED) for seed in range(3)]


if __name__ == "__main__":
    interpreted.wake()
    print(json.dumps({name: compare(draws) for name, draws in rows()}))
