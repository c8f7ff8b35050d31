"""Predict tables and designs with finished runs.

The command line needs these names before it imports what takes long.
"""

KINDS = {1: "singles", 2: "pairs", 3: "triples"}
"""This maps the number of genes that each strain of a design changes to what the design is called."""

PRECISIONS = ("32-true", "bf16")
"""These are the precisions of predictions: that of the weights, or bfloat16 for differences of strains, as in
``trainer.precision``."""

UNKNOWN = ("refuse", "empty")
"""Rows with genes that the cell graph lacks are treated in one of these ways."""

RANKINGS = EFFECT, UNCERTAIN = "effect", "uncertain"
"""A ranking of predictions is by one of these."""
