"""The Chat tab: a decoder on these kernels, its KV cache shown live."""
