"""Several measurements of one strain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mean_and_sd(
    values: NDArray[np.float64], keys: NDArray[np.int64], strains: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each strain's measurements.

    Args:
        values: [rows] measurements; NaN where there is none.
        keys: [rows] strain of each row, 0 … strains − 1.
        strains: number of strains S.

    Returns:
        [S] mean, NaN without a measurement, and [S] standard deviation (n − 1), NaN with fewer than two.
    """
    present = ~np.isnan(values)
    keys, values = keys[present], values[present]
    counts = np.bincount(keys, minlength=strains)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(keys, values, minlength=strains) / counts
        squares = np.bincount(keys, (values - mean[keys]) ** 2, minlength=strains)
        sd = np.sqrt(squares / (counts - 1))
    return mean, np.where(counts > 1, sd, np.nan)


def select_single(
    values: NDArray[np.float64], first: NDArray[np.int64], single: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """[S] the values of strains with one row; NaN for the others.

    Args:
        values: [rows].
        first: [S] first row of each strain.
        single: [S] whether it is the only one.
    """
    return np.where(single, values[first], np.nan)
