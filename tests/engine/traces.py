"""Traces some launches in the interpreter and prints the results as JSON; run by test_trace.py in a child process."""

import json

import torch
import triton
import triton.language as tl

import kernels
from kernels.spec import Config, Launch, Plan, Target
from playground.engine import interpreter
from playground.engine.probe import ProgramsWait
from playground.engine.trace import trace_plan


@triton.jit
def copy_shifted(x_ptr, out_ptr, n, shift, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + i + shift, mask=i < n)
    tl.store(out_ptr + i, value, mask=i < n)


@triton.jit
def copy_column(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i * stride, mask=i < n), mask=i < n)


def shifted(shift, n=1000):
    out = torch.zeros(n)
    launch = Launch(
        copy_shifted,
        (triton.cdiv(n, 256),),
        {"x_ptr": torch.arange(float(n)), "out_ptr": out, "n": n, "shift": shift},
        Config({"BLOCK": 256}),
    )
    return Plan((launch,), {"out": out}), out


def of_kernel(name, dims, dtype, config=None, **how):
    spec = kernels.get(name)
    inputs = spec.inputs(dims, dtype, "cpu")
    target = Target.named("sm_90")
    plan = spec.plan(inputs, config or spec.default_config(inputs, target), target)
    return trace_plan(plan, **how), plan


@triton.jit
def wait_for_each_other(count_ptr, out_ptr):
    tl.atomic_add(count_ptr, 1)
    while tl.atomic_add(count_ptr, 0) < tl.num_programs(0):
        pass
    tl.store(out_ptr + tl.program_id(0), 1)


@triton.jit
def count_up(count_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(count_ptr + tl.arange(0, BLOCK), tl.zeros([BLOCK], tl.int32) + 1)


@triton.jit
def read_as_many(count_ptr, x_ptr, out_ptr):
    for i in range(tl.load(count_ptr)):
        tl.store(out_ptr + i, tl.load(x_ptr + i))


def steered(programs):
    """The second launch reads an element for each program of the first."""
    count, x, out = torch.zeros(1, dtype=torch.int32), torch.zeros(8), torch.zeros(8)
    launches = (
        Launch(count_up, (8,), {"count_ptr": count}, Config({"BLOCK": 1})),
        Launch(read_as_many, (1,), {"count_ptr": count, "x_ptr": x, "out_ptr": out}, Config()),
    )
    traced = trace_plan(Plan(launches, {"out": out}), **programs)
    return {"steered": traced.steered, "exact": traced.exact, "read": traced.launches[1].accesses[1].bytes}


def waiting():
    count, out = torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    launch = Launch(wait_for_each_other, (2,), {"count_ptr": count, "out_ptr": out}, Config())
    try:
        trace_plan(Plan((launch,), {"out": out}), programs=())
    except ProgramsWait:
        return "waits"
    return "ended"


@triton.jit
def negate(out_ptr, asm: tl.constexpr):
    x = tl.arange(0, 4).to(tl.float32)
    x = tl.inline_asm_elementwise(asm, "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out_ptr + tl.arange(0, 4), x)


def unknown(asm):
    out = torch.zeros(4)
    launch = Launch(negate, (1,), {"out_ptr": out, "asm": asm}, Config())
    return trace_plan(Plan((launch,), {"out": out})).assembly


def sampler():
    """For a GPU its kernels take 2^x and log2 x by PTX; a token's share and its noise are made of them."""
    traced, plan = of_kernel("sample", {"rows": 3, "vocab": 3000, "top_k": 50}, "float32", seconds=60)
    spec = kernels.get("sample")
    expected = spec.reference(**spec.inputs({"rows": 3, "vocab": 3000, "top_k": 50}, "float32", "cpu"))
    return {
        "exact": traced.exact,
        "unknown": traced.assembly,
        "right": plan.outputs["ids"].tolist() == expected.tolist(),
    }


def as_json(traced):
    return {
        "exact": traced.exact,
        "launches": [launch.model_dump(mode="json") for launch in traced.launches],
        "out_of_bounds": [miss.model_dump(mode="json") for miss in traced.out_of_bounds],
    }


def main():
    interpreter.patch_once()  # as the worker does
    results = {}
    plan, out = shifted(0)
    results["copy"] = as_json(trace_plan(plan)) | {"right": bool((out == torch.arange(1000.0)).all())}
    results["one_past"] = as_json(trace_plan(shifted(1)[0]))
    results["before"] = as_json(trace_plan(shifted(-3)[0]))
    results["far"] = as_json(trace_plan(shifted(10**9)[0]))
    x, out = torch.randn(64, 8), torch.zeros(64)
    column = Launch(copy_column, (1,), {"x_ptr": x[:, 2], "out_ptr": out, "n": 64, "stride": 8}, Config({"BLOCK": 64}))
    results["column"] = as_json(trace_plan(Plan((column,), {"out": out})))
    into_a_hole = Launch(
        copy_column, (1,), {"x_ptr": x[:, 2], "out_ptr": out, "n": 64, "stride": 7}, Config({"BLOCK": 64})
    )
    results["hole"] = as_json(trace_plan(Plan((into_a_hole,), {"out": out})))
    results["norm"] = as_json(of_kernel("add_rms_norm", {"rows": 5, "n": 300}, "bfloat16")[0])
    large = of_kernel("vector_add", {"n": 50_000_000}, "float32", Config({"BLOCK": 1024}), seconds=0.3)
    results["large"] = as_json(large[0])
    results["steered"] = [steered({}), steered({"programs": (), "seconds": 1e-9})]
    results["waiting"] = waiting()
    results["sampler"] = sampler()
    copies = "mov.b32 $0, $1;"
    results["unknown"] = [unknown(asm) for asm in (copies, "neg.f32 $0, $1;", f"{copies} neg.f32 $0, $0;")]
    results["empty"] = as_json(of_kernel("vector_add", {"n": 0}, "float32")[0])
    print(json.dumps(results))


if __name__ == "__main__":
    main()
