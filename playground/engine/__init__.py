"""What runs, judges and times kernels, in workers of its own. It knows kernels and no UI."""
