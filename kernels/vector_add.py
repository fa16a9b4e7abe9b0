"""Vector addition: the smallest kernel that has everything.

Each program adds one block of BLOCK elements: it loads a block of x and of y, adds, and stores. Three bytes move
for every byte of answer and one addition is made for each element, so nothing but memory bandwidth matters: a
good kernel is as fast as a copy, and no fusion can help until there is a second operation to fuse with.

What to look at: the mask on the last block (forget it and the kernel writes past the end), and in the generated
code that each lane loads 16 bytes at once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.checks import FLOATS, need_dtype, need_no_grad, need_same_device, need_same_dtype, need_shape
from kernels.spec import Bug, Config, Cost, Dim, Edge, KernelSpec, Launch, Output, Plan, nbytes


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    # int64 first: pid * BLOCK wraps in int32 beyond 2^31 elements.
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    # In float32, so that every backend rounds once, at the store.
    tl.store(out_ptr + offsets, x.to(tl.float32) + y.to(tl.float32), mask=mask)


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """x + y for tensors of one shape.

    x, y: any shape, the same for both; float32, float16 or bfloat16. Other strides than a contiguous tensor's
    are honoured by a copy. Returns a new contiguous tensor. Raises InputError.
    """
    return SPEC.run(x=x, y=y)


def reference(x, y):
    return x + y


def make_inputs(dims, draw):
    return {"x": draw.normal(dims["n"]), "y": draw.normal(dims["n"])}


def check(inputs):
    x, y = inputs["x"], inputs["y"]
    need_dtype(x, "x", FLOATS)
    need_shape(y, "y", x.shape, "x")
    need_same_dtype(y, "y", x, "x")
    need_same_device(x=x, y=y)
    need_no_grad(x=x, y=y)


def plan(inputs, config, target):
    x, y = inputs["x"], inputs["y"]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    launch = Launch(
        vector_add_kernel,
        (triton.cdiv(x.numel(), config.meta["BLOCK"]),),
        {"x_ptr": x.contiguous(), "y_ptr": y.contiguous(), "out_ptr": out, "n_elements": x.numel()},
        config,
    )
    return Plan((launch,), {"out": out})


def configs(inputs, target):
    # 16 bytes to a lane; a small vector is rather spread over more programs.
    x = inputs["x"]
    first = 1024 if x.element_size() == 2 and x.numel() > 2**20 else 512
    yield Config({"BLOCK": first}, num_warps=4)
    yield Config({"BLOCK": 1536 - first}, num_warps=4)
    for block in (2048, 4096, 8192):
        for num_warps in (4, 8):
            yield Config({"BLOCK": block}, num_warps=num_warps)


def cost(inputs):
    x, y = inputs["x"], inputs["y"]
    return Cost(nbytes(x, y), x.numel() * x.element_size(), x.numel())


def _strided(inputs):
    return {name: t.repeat_interleave(2)[::2] for name, t in inputs.items()}


def _expanded(inputs):
    return {**inputs, "y": inputs["y"][:1].expand_as(inputs["x"])}


def _not_finite(inputs):
    inputs["x"][:3] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    inputs["y"][2] = float("inf")
    return inputs


SPEC = KernelSpec(
    name="vector_add",
    title="Vector add",
    doc="Adds two vectors, block by block. The hello-world of Triton, and a pure test of memory bandwidth: "
    "two reads and one write for one addition. Look at the mask of the last block, and at the 16-byte loads.",
    function=vector_add,
    reference=reference,
    dims=(Dim("n", "elements in each vector"),),
    presets={
        "decode": {"n": 4096},
        "prefill": {"n": 16_777_216},
        "odd": {"n": 1_000_003},
        "largest": {"n": 268_435_456},
    },
    default={"n": 1_000_003},
    dtypes=("float32", "bfloat16", "float16"),
    outputs=(Output("out"),),
    make_inputs=make_inputs,
    check=check,
    plan=plan,
    configs=configs,
    cost=cost,
    sweep_dim="n",
    shrinks="n",
    edges=(
        Edge("One element", "n=1: a block with one live lane", {"n": 1}),
        Edge("One past a block", "n=1025: the mask of the last block", {"n": 1025}),
        Edge("Empty", "n=0: a grid of no programs", {"n": 0}),
        Edge("Every second element", "x[::2]: neighbours are not adjacent", {"n": 5000}, _strided),
        Edge("Expanded", "y is one value, stride 0", {"n": 5000}, _expanded),
        Edge("NaN and infinity", "inf - inf is NaN, and stays where it is", {"n": 5000}, _not_finite),
    ),
    bugs=(
        Bug(
            "Forgotten mask",
            find="tl.store(out_ptr + offsets, x.to(tl.float32) + y.to(tl.float32), mask=mask)",
            replace="tl.store(out_ptr + offsets, x.to(tl.float32) + y.to(tl.float32))",
            hint="What does the last program do with the lanes beyond n?",
            symptom="the last block writes past the end of out",
            dims={"n": 1025},
        ),
        Bug(
            "Wrong offset",
            find="tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
            replace="tl.program_id(0).to(tl.int64) * (BLOCK - 1) + tl.arange(0, BLOCK)",
            hint="Where should program 1 begin, and where does it?",
            symptom="blocks overlap, and the tail is never written",
            dims={"n": 1_048_576},
        ),
    ),
)
