"""Explain predicted changes: which parts of a model, and which nodes of a cell graph, they come from."""
