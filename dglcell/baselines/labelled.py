"""The strains that null models learn from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dglcell.data.strains import Strains
from dglcell.errors import DataError


def labelled(strains: Strains, y: NDArray[np.floating]) -> tuple[Strains, NDArray[np.float64]]:
    """The strains whose label is not NaN, with their labels in float64.

    Raises:
        DataError: the lengths differ, or no strain has a label.
    """
    if len(y) != len(strains):
        raise DataError("null models: labels do not match the strains", got=len(y), expected=len(strains))
    rows = np.flatnonzero(~np.isnan(y))
    if len(rows) == 0:
        raise DataError(
            "null models: no training strain has a label",
            got=f"{len(y):,} missing labels",
            expected="at least one measured value",
            do="choose another phenotype or another split",
        )
    labels = np.asarray(y, dtype=np.float64)
    return (strains, labels) if len(rows) == len(labels) else (strains.take(rows), labels[rows])
