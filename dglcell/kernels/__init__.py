"""Sparse products and what is computed beside them, each by a function of its own for every device."""
