"""Bytes that each kernel asks for at one odd shape, counted by hand, and what its trace says; run by
test_traced_by_hand.py in a child process, in the interpreter.

A row: (kernel, dims, dtype, config or None for the default of sm_90, {tensor: (bytes loaded, bytes stored)}). The
arithmetic stands in the row. A float32 has 4 bytes, a bfloat16 2, an index of a slot or position 8, of a page 4.
"""

import json
import math

import kernels
from kernels.spec import Config, Target
from playground.engine.trace import trace_plan

BY_HAND = [
    # Two programs of 4; the second has 3 values left.
    ("vector_add", {"n": 7}, "float32", Config({"BLOCK": 4}), {
        "x_ptr": (7 * 4, 0), "y_ptr": (7 * 4, 0), "out_ptr": (0, 7 * 4),
    }),
    # Two programs of 2 rows; the second has one row. 5 of 8 columns.
    ("softmax", {"rows": 3, "n": 5}, "bfloat16", Config({"BLOCK_M": 2, "BLOCK_N": 8}), {
        "x_ptr": (15 * 2, 0), "out_ptr": (0, 15 * 2),
    }),
    # The weight's 5 values once for each of the two programs.
    ("add_rms_norm", {"rows": 3, "n": 5}, "bfloat16", Config({"BLOCK_M": 2, "BLOCK_N": 8}), {
        "x_ptr": (15 * 2, 0), "residual_ptr": (15 * 2, 0), "weight_ptr": (2 * 5 * 2, 0),
        "out_ptr": (0, 15 * 2), "new_residual_ptr": (0, 15 * 2),
    }),
    # A row wider than the block: a program a row, which reads the sum back that it has written.
    ("add_rms_norm", {"rows": 3, "n": 5}, "bfloat16", Config({"BLOCK_M": 1, "BLOCK_N": 4}), {
        "x_ptr": (15 * 2, 0), "residual_ptr": (15 * 2, 0), "weight_ptr": (3 * 5 * 2, 0),
        "out_ptr": (0, 15 * 2), "new_residual_ptr": (15 * 2, 15 * 2),
    }),
    ("rms_norm", {"rows": 3, "n": 5}, "float32", Config({"BLOCK_M": 2, "BLOCK_N": 8}), {
        "x_ptr": (15 * 4, 0), "weight_ptr": (2 * 5 * 4, 0), "out_ptr": (0, 15 * 4),
    }),
    ("layer_norm", {"rows": 3, "n": 5}, "float32", Config({"BLOCK_M": 2, "BLOCK_N": 8}), {
        "x_ptr": (15 * 4, 0), "weight_ptr": (2 * 5 * 4, 0), "bias_ptr": (2 * 5 * 4, 0), "out_ptr": (0, 15 * 4),
    }),
    ("silu_mul", {"rows": 3, "n": 5}, "bfloat16", Config({"BLOCK": 8}), {
        "gate_ptr": (15 * 2, 0), "up_ptr": (15 * 2, 0), "out_ptr": (0, 15 * 2),
    }),
    # 17 x 19 in tiles of 16 x 16: two by two programs. Each half of a is read for both halves of b, and the reverse.
    ("matmul", {"m": 17, "n": 19, "k": 7}, "bfloat16",
     Config({"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 1}), {
        "a_ptr": (2 * 17 * 7 * 2, 0), "b_ptr": (2 * 7 * 19 * 2, 0), "out_ptr": (0, 17 * 19 * 2),
    }),
    # One program holds all: m, n and k fit into a block.
    ("linear", {"m": 3, "n": 5, "k": 7}, "float32", None, {
        "x_ptr": (21 * 4, 0), "weight_ptr": (35 * 4, 0), "bias_ptr": (5 * 4, 0), "out_ptr": (0, 15 * 4),
    }),
    # A program for a token and two heads: 3 tokens x (4 + 2) / 2 pairs of heads = 9; each reads its position (8 bytes)
    # and 4 bfloat16 values of either table.
    ("rope", {"tokens": 3, "heads": 4, "kv_heads": 2, "head_dim": 8}, "bfloat16",
     Config({"BLOCK_T": 1, "BLOCK_H": 2}), {
        "q_ptr": (3 * 4 * 8 * 2, 0), "k_ptr": (3 * 2 * 8 * 2, 0), "q_out_ptr": (0, 3 * 4 * 8 * 2),
        "k_out_ptr": (0, 3 * 2 * 8 * 2), "cos_ptr": (9 * 4 * 2, 0), "sin_ptr": (9 * 4 * 2, 0),
        "positions_ptr": (9 * 8, 0),
    }),
    ("kv_cache_write", {"tokens": 3, "kv_heads": 2, "head_dim": 8, "page_size": 4}, "float32",
     Config({"BLOCK_T": 1, "BLOCK_H": 2}), {
        "k_ptr": (3 * 2 * 8 * 4, 0), "v_ptr": (3 * 2 * 8 * 4, 0), "k_cache_ptr": (0, 3 * 2 * 8 * 4),
        "v_cache_ptr": (0, 3 * 2 * 8 * 4), "slots_ptr": (3 * 8, 0),
    }),
    # A program for each of 2 sequences x 2 kv heads. Each reads its length, a page id for each of its 8 slots, its 3
    # query heads, and 8 slots of k and of v.
    ("decode_attention",
     {"seqs": 2, "context": 8, "kv_heads": 2, "group": 3, "head_dim": 8, "page_size": 4}, "bfloat16", None, {
        "q_ptr": (4 * 3 * 8 * 2, 0), "block_table_ptr": (4 * 8 * 4, 0), "lengths_ptr": (4 * 4, 0),
        "k_ptr": (4 * 8 * 8 * 2, 0), "v_ptr": (4 * 8 * 8 * 2, 0), "out_ptr": (0, 4 * 3 * 8 * 2),
    }),
]  # fmt: skip


def traced(name, dims, dtype, config):
    """Bytes loaded and stored by tensor, over all launches; tensors that are not touched are left out."""
    target = Target.named("sm_90")
    spec = kernels.get(name)
    inputs = spec.inputs(dims, dtype, "cpu")
    found = trace_plan(spec.plan(inputs, config or spec.default_config(inputs, target), target), seconds=30)
    assert found.exact and not found.out_of_bounds
    sums: dict[str, tuple[int, int]] = {}
    for tensor in (t for launch in found.launches for t in launch.tensors):
        loaded, stored = sums.get(tensor.name, (0, 0))
        sums[tensor.name] = (loaded + tensor.bytes_loaded, stored + tensor.bytes_stored)
    programs = sum(math.prod(launch.grid) for launch in found.launches)
    return {"tensors": {k: v for k, v in sums.items() if v != (0, 0)}, "programs": programs}


def main():
    print(json.dumps([traced(name, dims, dtype, config) for name, dims, dtype, config, _ in BY_HAND]))


if __name__ == "__main__":
    main()
