"""Fit baselines: they show what a predictor without strains' graphs reaches on the same split.

A result of a graph model means little without them: additive effects of genes, the smallest of the measured subsets, or
a kernel between pairs of genes explain much of most screens.
"""
