"""Which phenotypes are genetic interaction scores, and from where on a score counts as an interaction."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CUT = 0.08
"""Usual cut on the absolute score (Costanzo et al. 2016, doi:10.1126/science.aaf1420; Kuzmin et al. 2018,
doi:10.1126/science.aao1729), there together with p < 0.05."""

EDGES = (-np.inf, -0.40, -0.32, -0.24, -0.16, -0.08, 0.0, 0.08, 0.16, 0.24, np.inf)
"""Bins of scores: multiples of the cut."""

NAMES = ("epsilon", "tau", "gene_interaction")
SUFFIXES = ("_interaction", "_interaction_score")


def is_interaction(phenotype: str) -> bool:
    """Whether a phenotype is an epsilon or tau score, by its name.

    S-scores are not: they are on a scale of their own.
    """
    name = phenotype.lower()
    return name in NAMES or name.endswith(SUFFIXES)


def is_binary(values: NDArray[np.floating]) -> bool:
    """Whether all values are 0 or 1."""
    return len(values) > 0 and bool(np.isin(values, (0.0, 1.0)).all())
