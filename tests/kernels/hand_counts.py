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
}
