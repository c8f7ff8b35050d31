"""Compute sparse products and related sums, each by a function of its own for every device."""

KERNEL_NAMES = ("reference", "dgl", "csr", "tiled", "dense", "triton")
"""Ways to compute a sparse product; ``auto`` takes one of them. See ``dglcell.kernels.spmm``."""
