"""Bytes that each kernel asks for at one odd shape, counted by hand, and what its trace says; run by
test_traced_by_hand.py in a child process, in the interpreter.

A row: (kernel, dims, dtype, config or None for the default of sm_90, {tensor: (bytes loaded, bytes stored)}). The
arithmetic stands in the row. A float32 has 4 bytes, a bfloat16 2, an index of a slot or position 8, of a page 4.
"""

import json
import math

import kernels
from kernels.spec import Config, Target
from playground.engine import interpreter
from playground.engine.trace import trace_plan

ATTENTION = {"batch": 1, "kv_heads": 1, "group": 2, "head_dim": 8}

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
    # 7 tokens in two splits of 4: for 2 sequences 4 programs, each with its length, 4 page ids and 2 query heads. Their
    # sums [4 rows x 2 splits, 8] and two statistics each go out and come back, with the length, for each of 4 rows.
    ("decode_attention",
     {"seqs": 2, "context": 7, "kv_heads": 1, "group": 2, "head_dim": 8, "page_size": 4}, "bfloat16",
     Config({"BLOCK_G": 2, "BLOCK_N": 4, "SPLIT_KV": 4}), {
        "q_ptr": (4 * 2 * 8 * 2, 0), "block_table_ptr": (4 * 4 * 4, 0), "lengths_ptr": (4 * 4 + 4 * 4, 0),
        "k_ptr": (2 * 7 * 8 * 2, 0), "v_ptr": (2 * 7 * 8 * 2, 0), "acc_ptr": (8 * 8 * 4, 8 * 8 * 4),
        "stats_ptr": (8 * 2 * 4, 8 * 2 * 4), "out_ptr": (0, 4 * 8 * 2),
    }),
    # 2 heads on one kv head. Queries 0 to 15 meet keys 0 to 15, queries 16 to 18 meet all 19: 35 rows a head.
    ("attention", ATTENTION | {"q_len": 19, "kv_len": 19}, "bfloat16", Config({"BLOCK_M": 16, "BLOCK_N": 16}), {
        "q_ptr": (2 * 19 * 8 * 2, 0), "k_ptr": (2 * 35 * 8 * 2, 0), "v_ptr": (2 * 35 * 8 * 2, 0),
        "out_ptr": (0, 2 * 19 * 8 * 2),
    }),
    # The same by the copy engine, which leaves out what lies outside a tensor.
    ("attention", ATTENTION | {"q_len": 19, "kv_len": 19}, "bfloat16",
     Config({"BLOCK_M": 16, "BLOCK_N": 16, "TMA": 1}), {
        "q_ptr": (2 * 19 * 8 * 2, 0), "k_ptr": (2 * 35 * 8 * 2, 0), "v_ptr": (2 * 35 * 8 * 2, 0),
        "out_ptr": (0, 2 * 19 * 8 * 2),
    }),
    # As attention, and each of the 4 programs reads its head's slope (float32).
    ("alibi_attention", ATTENTION | {"q_len": 19, "kv_len": 19}, "bfloat16", Config({"BLOCK_M": 16, "BLOCK_N": 16}), {
        "q_ptr": (2 * 19 * 8 * 2, 0), "k_ptr": (2 * 35 * 8 * 2, 0), "v_ptr": (2 * 35 * 8 * 2, 0),
        "slopes_ptr": (4 * 4, 0), "out_ptr": (0, 2 * 19 * 8 * 2),
    }),
    # Scores of 17 x 18 in tiles of 16 x 16, two by two for each of 2 heads: q is read for both tiles across, k for both
    # down. They are float32: stored, then loaded and stored by the softmax, then loaded. v comes once for 16 queries.
    ("naive_attention", ATTENTION | {"q_len": 17, "kv_len": 18}, "bfloat16", Config({"BLOCK_M": 16, "BLOCK_N": 16}), {
        "q_ptr": (2 * 2 * 17 * 8 * 2, 0), "k_ptr": (2 * 2 * 18 * 8 * 2, 0), "v_ptr": (2 * 2 * 18 * 8 * 2, 0),
        "scores_ptr": (2 * 2 * 17 * 18 * 4, 2 * 2 * 17 * 18 * 4), "out_ptr": (0, 2 * 17 * 8 * 2),
    }),
    # 6 tokens: 3 blocks of queries x 2 heads = 6 programs, of which the last block finds no query of its own. All read
    # q_starts[1], q_starts[2] and their own first token (4 bytes each); 4 programs also their last one, their length,
    # 5 page ids, 3 queries and 5 keys and values.
    ("prefill_attention",
     {"seqs": 2, "q_len": 3, "context": 5, "kv_heads": 1, "group": 2, "head_dim": 8, "page_size": 4}, "bfloat16",
     Config({"BLOCK_M": 16, "BLOCK_N": 16}), {
        "q_starts_ptr": (6 * (2 + 1) * 4 + 4 * 4, 0), "lengths_ptr": (4 * 4, 0), "block_table_ptr": (4 * 5 * 4, 0),
        "q_ptr": (4 * 3 * 8 * 2, 0), "k_ptr": (4 * 5 * 8 * 2, 0), "v_ptr": (4 * 5 * 8 * 2, 0),
        "out_ptr": (0, 6 * 2 * 8 * 2),
    }),
    # 3 x 6 in tiles of 2 x 4. The scale is asked for by each value's lane, though two share it.
    ("dequantize", {"rows": 3, "n": 6, "group_size": 2}, "bfloat16", Config({"BLOCK_M": 2, "BLOCK_N": 4}), {
        "q_ptr": (18, 0), "scale_ptr": (18 * 4, 0), "out_ptr": (0, 18 * 2),
    }),
    # Rows of 5 in two blocks of 4: each of the two reads the 3 ids.
    ("embedding", {"tokens": 3, "vocab": 10, "n": 5}, "float32", Config({"BLOCK_T": 2, "BLOCK_N": 4}), {
        "ids_ptr": (2 * 3 * 8, 0), "table_ptr": (15 * 4, 0), "out_ptr": (0, 15 * 4),
    }),
    ("matmul_ungrouped", {"m": 17, "n": 19, "k": 7}, "bfloat16",
     Config({"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16}), {
        "a_ptr": (2 * 17 * 7 * 2, 0), "b_ptr": (2 * 7 * 19 * 2, 0), "out_ptr": (0, 17 * 19 * 2),
    }),
    # Groups of 2: nine rows of two values and a scale, two rows a program, the last program with one.
    ("quantize_fp8", {"rows": 3, "n": 6, "group_size": 2}, "bfloat16", Config({"BLOCK_M": 2, "BLOCK_N": 2}), {
        "x_ptr": (18 * 2, 0), "q_ptr": (0, 18), "scale_ptr": (0, 9 * 4),
    }),
    ("quantize_int8", {"rows": 3, "n": 5}, "float32", Config({"BLOCK_M": 2, "BLOCK_N": 8}), {
        "x_ptr": (15 * 4, 0), "q_ptr": (0, 15), "scale_ptr": (0, 3 * 4),
    }),
    # A row wider than the block is read twice: for its maximum, and for its codes.
    ("quantize_int8", {"rows": 3, "n": 5}, "bfloat16", Config({"BLOCK_M": 1, "BLOCK_N": 4}), {
        "x_ptr": (2 * 15 * 2, 0), "q_ptr": (0, 15), "scale_ptr": (0, 3 * 4),
    }),
    # Squares and scaled values are float32 and go out and come back; a row's mean and the weight come for each value.
    ("rms_norm_unfused", {"rows": 3, "n": 5}, "bfloat16", Config({"BLOCK": 4}), {
        "x_ptr": (2 * 15 * 2, 0), "squares_ptr": (15 * 4, 15 * 4), "means_ptr": (15 * 4, 3 * 4),
        "scaled_ptr": (15 * 4, 15 * 4), "weight_ptr": (15 * 2, 0), "out_ptr": (0, 15 * 2),
    }),
    # Without top-k: a race of 3 rows in 2 parts of 1,024 each, whose 6 maxima and sums (4 bytes each) go out and come
    # back, and of whose parts the winner is read again; each program counts itself among those of its row.
    ("sample", {"rows": 3, "vocab": 2048, "top_k": 0}, "float32", Config({"PARTS": 1}), {
        "logits_ptr": (3 * (2048 + 1024) * 4, 0), "part_max_ptr": (6 * 4, 6 * 4), "part_value_ptr": (6 * 4, 6 * 4),
        "arrived_ptr": (6 * 4, 6 * 4), "out_ptr": (0, 3 * 8),
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
    interpreter.patch_once()  # as the worker does
    print(json.dumps([traced(name, dims, dtype, config) for name, dims, dtype, config, _ in BY_HAND]))


if __name__ == "__main__":
    main()
