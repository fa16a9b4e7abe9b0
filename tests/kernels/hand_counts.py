"""What each kernel must move and compute for one odd shape, counted by hand: the arithmetic stands in the row.

A float32 is 4 bytes, a bfloat16 2. name: (dims, dtype, bytes read, bytes written, flops).
"""

HAND_COUNTS = {
    # x and y, 7 values each; 7 sums.
    "vector_add": ({"n": 7}, "float32", 2 * 7 * 4, 7 * 4, 7),
    # 3 x 5 values; each is shifted by the maximum, raised, added to the sum and scaled.
    "softmax": ({"rows": 3, "n": 5}, "bfloat16", 3 * 5 * 2, 3 * 5 * 2, 4 * 15),
    # x and residual of 3 x 5 and 5 weights; two outputs; add, square, add up, scale, weight.
    "add_rms_norm": ({"rows": 3, "n": 5}, "bfloat16", (15 + 15 + 5) * 2, 2 * 15 * 2, 5 * 15),
    # x of 3 x 5 and 5 weights; square, add up, scale, weight.
    "rms_norm": ({"rows": 3, "n": 5}, "float32", (15 + 5) * 4, 15 * 4, 4 * 15),
    # x of 3 x 5, 5 weights, 5 biases; add up, shift, square, add up, scale, weight, bias.
    "layer_norm": ({"rows": 3, "n": 5}, "float32", (15 + 5 + 5) * 4, 15 * 4, 7 * 15),
    # gate and up of 3 x 5; negate, exp, add 1, divide, multiply.
    "silu_mul": ({"rows": 3, "n": 5}, "bfloat16", 2 * 15 * 2, 15 * 2, 5 * 15),
    # 3 x 7 times 7 x 5; 3 * 5 answers of 7 products and 7 sums.
    "matmul": ({"m": 3, "n": 5, "k": 7}, "bfloat16", (21 + 35) * 2, 15 * 2, 3 * 5 * 7 * 2),
    # q of 3 x 4 heads and k of 3 x 2 heads, 8 wide; 3 int64 positions; 3 of 64 rows of two tables, 4 wide. A pair takes
    # four products and two sums, so an element takes three.
    "rope": (
        {"tokens": 3, "heads": 4, "kv_heads": 2, "head_dim": 8},
        "bfloat16",
        (96 + 48) * 2 + 3 * 8 + 2 * 3 * 4 * 2,
        (96 + 48) * 2,
        3 * (96 + 48),
    ),
    # k and v of 3 tokens x 2 heads x 8, and 3 int64 slots; the same k and v written.
    "kv_cache_write": (
        {"tokens": 3, "kv_heads": 2, "head_dim": 8, "page_size": 4},
        "float32",
        2 * 48 * 4 + 3 * 8,
        2 * 48 * 4,
        0,
    ),
    # q of 2 x 6 heads x 8; k and v of 2 sequences x 2 pages of 4 slots x 2 heads x 8; 2 x 2 page ids and 2 lengths in
    # int32. Each query head meets 8 slots: 8 products and 8 sums for the score and for the value.
    "decode_attention": (
        {"seqs": 2, "context": 8, "kv_heads": 2, "group": 3, "head_dim": 8, "page_size": 4},
        "bfloat16",
        96 * 2 + 2 * (2 * 2 * 4 * 2 * 8) * 2 + (4 + 2) * 4,
        96 * 2,
        12 * 8 * (2 * 8 + 2 * 8),
    ),
    # x of 3 x 7, a weight of 5 x 7, 5 biases; 3 x 5 answers of 7 products and 7 sums (the bias being one of them).
    "linear": ({"m": 3, "n": 5, "k": 7}, "float32", (21 + 35 + 5) * 4, 15 * 4, 15 * 7 * 2),
    # 3 rows of 5 logits; an int64 id each; a difference, an exponential and a product for each logit.
    "sample": ({"rows": 3, "vocab": 5, "top_k": 2}, "float32", 15 * 4, 3 * 8, 3 * 15),
    # q of 2 x 2 heads x 3 queries x 8, k and v of 2 x 1 head x 5 keys x 8; query i meets keys up to i + 2: 3 + 4 + 5.
    # A key met costs 8 products and 8 sums for its score and as many for its value, for each of 2 x 2 heads.
    "attention": (
        {"batch": 2, "kv_heads": 1, "group": 2, "q_len": 3, "kv_len": 5, "head_dim": 8},
        "bfloat16",
        (96 + 2 * 80) * 2,
        96 * 2,
        4 * (3 + 4 + 5) * (4 * 8),
    ),
    # x of 3 x 5; 15 codes of a byte, 3 float32 scales; magnitude, comparison, division, rounding.
    "quantize_int8": ({"rows": 3, "n": 5}, "bfloat16", 15 * 2, 15 + 3 * 4, 4 * 15),
    # x of 3 x 6; 18 codes of a byte, 3 x 3 scales of groups of 2.
    "quantize_fp8": ({"rows": 3, "n": 6, "group_size": 2}, "float32", 18 * 4, 18 + 9 * 4, 4 * 18),
    # 18 int8 codes, 3 x 3 float32 scales; 18 bfloat16; a product each.
    "dequantize": ({"rows": 3, "n": 6, "group_size": 2}, "bfloat16", 18 + 9 * 4, 18 * 2, 18),
    # 3 int64 ids and 3 of 10 rows of 6; 3 rows written; a copy computes nothing.
    "embedding": ({"tokens": 3, "vocab": 10, "n": 6}, "bfloat16", 3 * 8 + 3 * 6 * 2, 3 * 6 * 2, 0),
    # q of 2 x 3 tokens x 2 heads x 8; k and v of 2 sequences x 2 pages of 4 slots x 1 head x 8; 2 x 2 page ids, 3
    # starts and 2 lengths in int32. The 3 queries of a sequence meet 6, 7 and 8 keys, 2 x 8 products and sums each.
    "prefill_attention": (
        {"seqs": 2, "q_len": 3, "context": 8, "kv_heads": 1, "group": 2, "head_dim": 8, "page_size": 4},
        "bfloat16",
        96 * 2 + 2 * 128 * 2 + (4 + 3 + 2) * 4,
        96 * 2,
        2 * 2 * (6 + 7 + 8) * 4 * 8,
    ),
    # As attention: what any way of computing it must move, not what this one does.
    "naive_attention": (
        {"batch": 2, "kv_heads": 1, "group": 2, "q_len": 3, "kv_len": 5, "head_dim": 8},
        "bfloat16",
        (96 + 2 * 80) * 2,
        96 * 2,
        4 * (3 + 4 + 5) * (4 * 8),
    ),
    # As attention, and a float32 slope for each of 2 heads.
    "alibi_attention": (
        {"batch": 2, "kv_heads": 1, "group": 2, "q_len": 3, "kv_len": 5, "head_dim": 8},
        "bfloat16",
        (96 + 2 * 80) * 2 + 2 * 4,
        96 * 2,
        4 * (3 + 4 + 5) * (4 * 8),
    ),
    "gluon_attention": (
        {"batch": 2, "kv_heads": 1, "group": 2, "q_len": 3, "kv_len": 5, "head_dim": 64},
        "bfloat16",
        (12 * 64 + 2 * 10 * 64) * 2,
        12 * 64 * 2,
        4 * (3 + 4 + 5) * (4 * 64),
    ),
    # As rms_norm and matmul: what any way of computing them must move.
    "rms_norm_unfused": ({"rows": 3, "n": 5}, "float32", (15 + 5) * 4, 15 * 4, 4 * 15),
    "matmul_ungrouped": ({"m": 3, "n": 5, "k": 7}, "bfloat16", (21 + 35) * 2, 15 * 2, 3 * 5 * 7 * 2),
}
