"""Explain predicted changes: which parts of a model, and which nodes of a cell graph, they come from."""

NODES = 20
"""So many nodes of each layer are in a table for each strain; the command line needs it before it imports torch."""
