"""Triton Playground: run, see and understand Triton kernels in a browser."""
