"""A fixed small cell with everything that is special: self-loops, multi-edges, an empty relation, isolated nodes."""

from __future__ import annotations

import numpy as np

from tests.random_cells import EDGES, WEIGHTED, RandomCell

SIZES = {"gene": 60, "reaction": 25, "metabolite": 20}
STRAINS = [[], [3], [0, 59], [7, 7, 8], list(range(20, 30))]


def make_cell() -> RandomCell:
    """Return the same cell every time."""
    rng = np.random.default_rng(0)
    edges, weights = {}, {}
    for relation, (source, destination) in EDGES.items():
        number = 0 if relation[1] == "empty" else 90
        u, v = rng.integers(0, SIZES[source] - 2, number), rng.integers(0, SIZES[destination] - 2, number)
        if relation[1] == "physical":
            u[1], v[1] = u[0], v[0]
            v[2] = u[2]
        edges[relation] = u, v
        if relation[1] in WEIGHTED:
            weights[relation] = rng.normal(size=number)
    return RandomCell(SIZES, edges, weights)
