"""Regression metrics of one phenotype."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from dglcell.data.kinds import REGRESSION
from dglcell.errors import DataError

METRICS = ("mse", "rmse", "mae", "pearson", "spearman", "r2", "n")
# Below this spread relative to its size an array is a constant with rounding errors.
CONSTANT = 1e-13


def regression_metrics(prediction: ArrayLike, target: ArrayLike) -> dict[str, float]:
    """Compare predictions with measurements, in float64.

    Args:
        prediction: [S] predicted values. One that is not finite is not masked: it makes the metrics NaN.
        target: [S] measured values; NaN where missing, those strains are left out.

    Returns:
        ``mse``, ``rmse``, ``mae``, ``pearson``, ``spearman`` (average ranks for ties), ``r2`` (1 − SSE/SST,
        negative for a model worse than the mean of the target) and ``n``, the number of measured strains.
        What is undefined is NaN: everything but ``n`` for no strain, the correlations for fewer than two
        strains or where either side is constant, ``r2`` where the target is constant. JSON has no NaN: write
        the result through :func:`json_safe`.

    Raises:
        DataError: the shapes differ or are not one-dimensional.
    """
    p, t = measured_pairs(prediction, target)
    if len(t) == 0:
        return {name: math.nan for name in METRICS[:-1]} | {"n": 0}
    if not np.isfinite(p).all():
        return {name: math.nan for name in METRICS[:-1]} | {"n": len(t)}
    error = p - t
    mse = float(np.mean(error**2))
    spread = float(np.sum((t - t.mean()) ** 2))
    return {
        "mse": mse,
        "rmse": math.sqrt(mse),
        "mae": float(np.mean(np.abs(error))),
        "pearson": pearson(p, t),
        "spearman": pearson(rankdata(p), rankdata(t)),
        "r2": math.nan if is_constant(t) else 1.0 - float(np.sum(error**2)) / spread,
        "n": len(t),
    }


def measured_pairs(prediction: ArrayLike, target: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Predictions and targets of the strains that have a target, in float64.

    Raises:
        DataError: the shapes differ or are not one-dimensional.
    """
    p = np.asarray(prediction, dtype=np.float64)
    t = np.asarray(target, dtype=np.float64)
    if p.ndim != 1 or p.shape != t.shape:
        raise DataError(
            "metrics: predictions and targets differ in shape",
            got=f"{p.shape} and {t.shape}",
            expected="two arrays of shape [S]",
        )
    measured = ~np.isnan(t)
    return p[measured], t[measured]


def is_constant(x: NDArray[np.float64]) -> bool:
    """Whether all values are equal up to rounding; true for fewer than two values."""
    return len(x) < 2 or bool(np.ptp(x) <= CONSTANT * np.abs(x).max())


def pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Pearson correlation of two arrays without missing values; NaN where either is constant."""
    if is_constant(x) or is_constant(y):
        return math.nan
    # Scaling first keeps the sums of squares of very small or very large values in range.
    x, y = (x - x.mean()) / np.ptp(x), (y - y.mean()) / np.ptp(y)
    r = float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))
    return min(1.0, max(-1.0, r))


def json_safe(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """The same metrics with None in place of NaN and infinities, which JSON does not have."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


@dataclass(frozen=True)
class ResultRow:
    """Metrics of one model on one part of a split, for one phenotype.

    Attributes:
        model: name shown, e.g. ``additive ridge``.
        part: ``train``, ``validation`` or ``test``.
        phenotype: label column.
        metrics: from :func:`regression_metrics`, in the original units of the phenotype; for a phenotype of 0 and 1
            also those of :func:`~dglcell.training.ranking.classification_metrics`.
        is_null: whether it is a null model.
        kind: of the phenotype's labels, ``regression`` or ``classification``; see ``StrainDataset.kinds``.
    """

    model: str
    part: str
    phenotype: str
    metrics: Mapping[str, float]
    is_null: bool = False
    kind: str = REGRESSION
