"""Turn errors on strains that did not train into intervals with a stated coverage (split-conformal prediction)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import ConfigError

Values = NDArray[np.floating]


def check_coverage(coverage: float) -> None:
    """Refuse a coverage that no interval can have.

    Raises:
        ConfigError: it is not between 0 and 1.
    """
    if not 0 < coverage < 1:
        raise ConfigError(
            "intervals cannot have this coverage",
            got=f"{coverage:g}",
            expected="a share of the strains between 0 and 1, such as 0.9",
            do="write 90 % as 0.9",
        )


def fewest_strains(coverage: float) -> int:
    """Return the smallest number of calibration strains with which intervals can have a coverage: ⌈c / (1 − c)⌉."""
    return math.ceil(coverage / (1 - coverage) - 1e-9)


def conformal_quantile(scores_n: Values, coverage: float) -> float:
    """Return the score that a new strain stays below with at least a probability ``coverage``.

    It is the k-th smallest of n scores, k = ⌈(n + 1) c⌉. If the n strains and the new one are exchangeable, the
    probability is at least c, and at most c + 1/(n + 1) where no scores are equal (Vovk et al. 2005, *Algorithmic
    Learning in a Random World*; Lei et al. 2018, doi:10.1080/01621459.2017.1307116, theorem 2.1).

    Args:
        scores_n: scores of strains that did not train, in any order.
        coverage: c.

    Raises:
        ConfigError: the coverage is not between 0 and 1, or there are too few strains for it.
    """
    check_coverage(coverage)
    n = len(scores_n)
    k = math.ceil((n + 1) * coverage - 1e-9)
    if k > n:
        raise ConfigError(
            f"there are too few validation strains for intervals with a coverage of {coverage:g}",
            got=f"{n:,} strains to calibrate them with",
            expected=f"{fewest_strains(coverage):,} or more",
            do=f"ask for at most {n / (n + 1):.3g}, or train with a larger validation part (`split.fractions`)"
            if n
            else "train with a validation part that is measured (`split.kind`, `split.fractions`)",
        )
    return float(np.partition(scores_n, k - 1)[k - 1])


@dataclass(frozen=True)
class Coverage:
    """This says how intervals did on strains whose phenotype is known.

    Attributes:
        inside: share of the strains whose measured value is in their interval.
    """

    inside: float
    width: float
    n: int


def measure_coverage(predicted_S: Values, half_S: Values, measured_S: Values) -> Coverage:
    """Return how many measured values are within ``half_S`` of the predictions.

    Args:
        measured_S: measured values, NaN where missing; those strains do not count.
    """
    known = ~np.isnan(measured_S)
    n = int(known.sum())
    if not n:
        return Coverage(math.nan, math.nan, 0)
    error = np.abs(measured_S[known].astype(float) - predicted_S[known])
    return Coverage(float(np.mean(error <= half_S[known])), 2 * float(np.mean(half_S[known])), n)
