"""Compute sparse products and related sums, each by a function of its own for every device."""

KERNEL_NAMES = ("csr", "tiled", "triton")
"""A sparse product can be computed in these ways, of which ``auto`` takes one. See ``dglcell.kernels.spmm``."""
