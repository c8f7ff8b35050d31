"""Genetic interactions from relative fitness.

Multiplicative model: epsilon of Costanzo et al. 2010 (Science 327:425), tau of Kuzmin et al. 2018 (Science
360:eaao1729). The same definitions as the laboratory screens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Fitness = NDArray[np.float64]

# Relative growth is known to about this much. In yeast-GEM with a solver tolerance of 1e-9, strains that cannot
# grow still reach 5e-7 of the wild type, because every mass balance may be off by the tolerance.
RESOLUTION = 1e-6


def digenic(f_ij: Fitness, f_i: Fitness, f_j: Fitness) -> Fitness:
    """epsilon_ij = f_ij − f_i f_j, elementwise. [S] each."""
    return f_ij - f_i * f_j


def trigenic(
    f_ijk: Fitness, singles: tuple[Fitness, Fitness, Fitness], pairs: tuple[Fitness, Fitness, Fitness]
) -> Fitness:
    """tau_ijk = f_ijk − f_i f_j f_k − epsilon_ij f_k − epsilon_ik f_j − epsilon_jk f_i, elementwise.

    Args:
        f_ijk: [S] fitness of the triple mutants.
        singles: f_i, f_j, f_k, each [S].
        pairs: f_ij, f_ik, f_jk, each [S].
    """
    f_i, f_j, f_k = singles
    f_ij, f_ik, f_jk = pairs
    explained = digenic(f_ij, f_i, f_j) * f_k + digenic(f_ik, f_i, f_k) * f_j + digenic(f_jk, f_j, f_k) * f_i
    return f_ijk - f_i * f_j * f_k - explained


def snap(values: Fitness, *levels: float) -> Fitness:
    """Set values within :data:`RESOLUTION` of one of ``levels`` to that level; NaN stays."""
    snapped = values.copy()
    for level in levels:
        snapped[np.abs(values - level) < RESOLUTION] = level
    return snapped


def lethal(fitness: NDArray[np.floating]) -> NDArray[np.bool_]:
    """[S] whether a strain does not grow: relative fitness below :data:`RESOLUTION`."""
    return fitness < RESOLUTION
