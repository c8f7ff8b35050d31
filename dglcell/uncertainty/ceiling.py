"""Say what correlation a model without error would have, because measurements themselves have errors."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import PHENOTYPE, REPLICATES, SD, Column
from dglcell.data.strains import Strains

FEWEST = 30
"""With fewer strains that were measured several times, the correlation of replicates is not known well enough."""

Values = NDArray[np.floating]


def replicate_correlation(mean_S: Values, sd_S: Values, replicates_S: Values) -> float:
    """Return the correlation of two measurements of a strain, over the strains that were measured several times.

    It is the intraclass correlation of a one-way analysis of variance (Shrout and Fleiss 1979, *Intraclass
    correlations: uses in assessing rater reliability*, Psychol Bull 86:420), with strains of different numbers of
    measurements.

    Args:
        mean_S: mean of the measurements of each strain.
        sd_S: their standard deviation, NaN where there is none.
        replicates_S: their number.

    Returns:
        The correlation, at least 0; NaN if fewer than ``FEWEST`` strains were measured several times.
    """
    several = (replicates_S > 1) & np.isfinite(sd_S) & np.isfinite(mean_S)
    strains = int(several.sum())
    if strains < FEWEST:
        return math.nan
    n, mean, sd = (values[several].astype(float) for values in (replicates_S, mean_S, sd_S))
    within = float(((n - 1) * sd**2).sum() / (n - 1).sum())
    between = float((n * (mean - np.average(mean, weights=n)) ** 2).sum() / (strains - 1))
    size = float(n.sum() - (n**2).sum() / n.sum()) / (strains - 1)
    of_strains = max((between - within) / size, 0.0)
    return of_strains / (of_strains + within) if of_strains + within > 0 else math.nan


def ceiling(replicates_S: Values, correlation: float) -> float:
    """Return the correlation of labels with the values that they would have without errors of measurement.

    It is √r, where r is the correlation of two independent sets of such labels (Spearman 1904, *The proof and
    measurement of association between two things*, Am J Psychol 15:72). Strains that were measured once are taken to
    be as repeatable as the others, and the mean of n measurements has 1/n of the errors' variance.

    Args:
        replicates_S: number of measurements behind each label; 0 where there is none.
        correlation: what `replicate_correlation` returns.

    Returns:
        The correlation; NaN where nothing is known of errors.
    """
    measured = replicates_S[replicates_S > 0].astype(float)
    if math.isnan(correlation) or not len(measured):
        return math.nan
    if correlation == 0:
        return 0.0
    return 1 / math.sqrt(1 + (1 - correlation) / correlation * float(np.mean(1 / measured)))


def ceilings(strains: Strains, tested: NDArray[np.integer]) -> dict[str, float]:
    """Return the ceiling of each phenotype that was measured several times.

    Args:
        strains: all strains, in numpy, which say how well measurements agree.
        tested: [n] numbers of the strains of the test part.

    Returns:
        Phenotype → `ceiling` on these strains.
    """
    found = {}
    for (kind, name, *_), times in strains.columns.items():
        spread = strains.columns.get(Column(SD, name))
        if kind == REPLICATES and spread is not None and len(tested):
            mean = strains.columns[Column(PHENOTYPE, name)]
            found[name] = ceiling(times[tested], replicate_correlation(mean, spread, times))
    return found
