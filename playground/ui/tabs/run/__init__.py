"""The Run tab: pick a kernel and a shape, see whether it is right and how fast."""
