"""Compute metrics of predictions for numbers and classes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dglcell.data.table import CLASSIFICATION, REGRESSION
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
        What is undefined is NaN: everything but ``n`` for no strain, the correlations for fewer than three
        strains or where either side is constant, ``r2`` where the target is constant.

    Raises:
        DataError: the shapes differ or are not one-dimensional.
    """
    p, t = measured_pairs(prediction, target)
    errors = error_metrics(p, t)
    if math.isnan(errors["mse"]):
        return {name: math.nan for name in METRICS[:-1]} | {"n": len(t)}
    import pandas as pd

    # scipy.stats takes a second to import.
    ranks = [np.asarray(pd.Series(values).rank(), dtype=np.float64) for values in (p, t)]
    # Scaling first keeps the sums of squares of very small or very large values in range.
    scale, r2 = np.ptp(t), math.nan
    if not is_constant(t):
        r2 = 1.0 - float(np.sum(((p - t) / scale) ** 2) / np.sum(((t - t.mean()) / scale) ** 2))
    return {
        **errors,
        "pearson": pearson(p, t) if len(t) > 2 else math.nan,
        "spearman": math.nan if len(t) < 3 or is_constant(p) or is_constant(t) else pearson(*ranks),
        "r2": r2,
        "n": len(t),
    }


def error_metrics(prediction: ArrayLike, target: ArrayLike) -> dict[str, float]:
    """Return ``mse``, ``rmse`` and ``mae`` as :func:`regression_metrics` does, without ranking the strains."""
    p, t = measured_pairs(prediction, target)
    if len(t) == 0 or not np.isfinite(p).all():
        return dict.fromkeys(METRICS[:3], math.nan)
    mse = float(np.mean((p - t) ** 2))
    return {"mse": mse, "rmse": math.sqrt(mse), "mae": float(np.mean(np.abs(p - t)))}


def measured_pairs(prediction: ArrayLike, target: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return predictions and targets of the strains that have a target, in float64."""
    p = np.asarray(prediction, dtype=np.float64)
    t = np.asarray(target, dtype=np.float64)
    if p.ndim != 1 or p.shape != t.shape:
        what, got = "metrics: predictions and targets differ in shape", f"{p.shape} and {t.shape}"
        raise DataError(what, got=got, expected="two arrays of shape [S]")
    measured = ~np.isnan(t)
    return p[measured], t[measured]


def is_constant(x: NDArray[np.float64]) -> bool:
    """Return whether all values are equal up to rounding; true for fewer than two values."""
    return len(x) < 2 or bool(np.ptp(x) <= CONSTANT * np.abs(x).max())


def pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the Pearson correlation of two arrays without missing values; NaN where either is constant."""
    if is_constant(x) or is_constant(y):
        return math.nan
    x, y = (x - x.mean()) / np.ptp(x), (y - y.mean()) / np.ptp(y)
    r = float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))
    return min(1.0, max(-1.0, r))


FEWEST_WITHIN = 10  # measured strains that a group needs for a correlation within it to count


def pearson_within(prediction: ArrayLike, target: ArrayLike, groups: NDArray[np.integer]) -> float:
    """Return the mean over groups of strains of Pearson's r within each group; NaN with fewer than two groups.

    Differences between the means of groups do not count, such as growth in a rich and in a poor medium.

    Args:
        prediction: [S] predicted values.
        target: [S] measured values; NaN where missing, those strains are left out.
        groups: [S] number of the group of each strain. A group counts if ``FEWEST_WITHIN`` strains are measured, and
            neither side is constant.
    """
    p, t = measured_pairs(prediction, target)
    of_strain = groups[~np.isnan(np.asarray(target, dtype=np.float64))]
    inside = (of_strain == group for group in np.unique(of_strain))
    found = [pearson(p[one], t[one]) for one in inside if one.sum() >= FEWEST_WITHIN]
    found = [r for r in found if math.isfinite(r)]
    return float(np.mean(found)) if len(found) > 1 else math.nan


LOWEST = 0.02  # share of a group's strains that are to be found as its lowest


def lowest_auroc(prediction: ArrayLike, target: ArrayLike, groups: NDArray[np.integer]) -> float:
    """Return the mean over groups of the AUROC with which low predictions find the lowest ``LOWEST`` of each group.

    Arguments are those of :func:`pearson_within`. A group counts if two strains or more are to be found. NaN without
    such a group, or where a prediction is not finite.
    """
    p, t = measured_pairs(prediction, target)
    of_strain, found = groups[~np.isnan(np.asarray(target, dtype=np.float64))], []
    for group in np.unique(of_strain) if np.isfinite(p).all() else ():
        one = of_strain == group
        if (number := round(LOWEST * one.sum())) >= 2:
            lowest = t[one] <= np.partition(t[one], number - 1)[number - 1]
            found.append(classification_metrics(-p[one], lowest)["auroc"])
    return float(np.mean(found)) if found else math.nan


ENSEMBLE_OF = "network + "
"""Names of ensembles of a network and a baseline begin with this text."""


@dataclass(frozen=True)
class ResultRow:
    """Hold the metrics of one model on one part of a split, for one phenotype."""

    model: str  #: name shown, e.g. ``additive ridge``.
    part: str  #: ``train``, ``validation`` or ``test``
    phenotype: str  #: label column
    #: from :func:`regression_metrics`, in the original units of the phenotype; for a phenotype of 0 and 1 also those of
    #: :func:`~dglcell.metrics.classification_metrics`
    metrics: Mapping[str, float]
    is_baseline: bool = False  #: whether it is a baseline
    #: kind of the phenotype's labels, ``regression`` or ``classification``; see ``Strains.kinds``
    kind: str = REGRESSION

    @property
    def is_ensemble(self) -> bool:
        """Return whether it is an ensemble of the network and a baseline."""
        return self.model.startswith(ENSEMBLE_OF)

    @property
    def is_network(self) -> bool:
        """Return whether it is of what the network learned, alone."""
        return not (self.is_baseline or self.is_ensemble)

    def with_metrics(self, more: Mapping[str, float]) -> ResultRow:
        """Return the row with more metrics."""
        return replace(self, metrics={**self.metrics, **more})


def classification_metrics(prediction: ArrayLike, target: ArrayLike) -> dict[str, float]:
    """Compare predictions with labels 0 and 1, in float64.

    Args:
        prediction: [S] scores, higher for 1; probabilities for ``brier``. One that is not finite makes the metrics NaN.
        target: [S] 0 or 1; NaN where missing, those strains are left out.

    Returns:
        ``average_precision``, ``auroc``, ``brier`` (mean squared error), ``prevalence`` (share of 1, what a random
        ranking has as average precision) and ``n``; strains of equal score are found together. What is undefined is
        NaN: everything but ``n`` for no strain, ``average_precision`` without a label 1, ``auroc`` without both labels.

    Raises:
        DataError: the shapes differ or are not one-dimensional, or a label is neither 0 nor 1.
    """
    p, t = measured_pairs(prediction, target)
    positive = t == 1
    if not (positive | (t == 0)).all():
        what, got = "classification metrics: a label is neither 0 nor 1", float(t[~positive & (t != 0)][0])
        raise DataError(what, got=got, expected="0, 1, or NaN where nothing was measured")
    if len(t) == 0 or not np.isfinite(p).all():
        return dict.fromkeys(("average_precision", "auroc", "brier", "prevalence"), math.nan) | {"n": len(t)}
    from sklearn.metrics import average_precision_score, roc_auc_score  # here, because it takes a second to import

    return {
        "average_precision": float(average_precision_score(positive, p)) if positive.any() else math.nan,
        "auroc": float(roc_auc_score(positive, p)) if 0 < positive.sum() < len(t) else math.nan,
        "brier": float(np.mean((p - t) ** 2)),
        "prevalence": float(positive.mean()),
        "n": len(t),
    }


def f1(prediction: ArrayLike, target: ArrayLike, threshold: float) -> float:
    """Return the harmonic mean of precision and recall where predictions from ``threshold`` on count as 1.

    NaN without a label 1 or a threshold, or if a prediction is not finite.
    """
    p, t = measured_pairs(prediction, target)
    if math.isnan(threshold) or not (t == 1).any() or not np.isfinite(p).all():
        return math.nan
    called, positive = p >= threshold, t == 1
    return float(2 * (called & positive).sum() / (called.sum() + positive.sum()))


def best_threshold(prediction: ArrayLike, target: ArrayLike) -> float:
    """Return the prediction from which on F1 is highest, the highest of several; NaN without a label 1."""
    p, t = measured_pairs(prediction, target)
    if not (t == 1).any() or not np.isfinite(p).all():
        return math.nan
    scores, found = np.unique(p, return_inverse=True)
    called, right = (np.cumsum(np.bincount(found, of)[::-1])[::-1] for of in (np.ones(len(t)), t == 1))
    of_each = right / (called + right[0])
    return float(scores[len(scores) - 1 - np.argmax(of_each[::-1])])


def rows_of(
    model: str,
    phenotype: str,
    kind: str | None,
    predicted: Mapping[str, NDArray[np.floating]],
    measured: Mapping[str, NDArray[np.floating]],
    *,
    is_baseline: bool = False,
    groups: Mapping[str, NDArray[np.integer]] | None = None,
) -> list[ResultRow]:
    """Compute the metrics of a model for one phenotype, a row per part.

    Args:
        kind: kind of its labels; None where the labels of the part say it. Classes are told apart at the threshold that
            is best on the validation part, and by none without this part.
        predicted: part → [S] predictions.
        measured: part → [S] labels.
        groups: part → [S] group of each strain, such as its medium. Rows of numbers have the metrics ``pearson_within``
            and ``lowest_auroc`` (functions of the same names) where they are defined.
    """
    rows, threshold = [], math.nan
    if kind == CLASSIFICATION and "validation" in predicted:
        threshold = best_threshold(predicted["validation"], measured["validation"])
    for part, values in predicted.items():
        labels = measured[part]
        is_class = kind == CLASSIFICATION or (kind is None and np.isin(labels[~np.isnan(labels)], (0, 1)).all())
        metrics = regression_metrics(values, labels) | (classification_metrics(values, labels) if is_class else {})
        if kind == CLASSIFICATION:
            metrics |= {"f1": f1(values, labels, threshold), "threshold": threshold}
        elif groups:
            within = {of.__name__: of(values, labels, groups[part]) for of in (pearson_within, lowest_auroc)}
            metrics |= {name: number for name, number in within.items() if math.isfinite(number)}
        rows.append(ResultRow(model, part, phenotype, metrics, is_baseline, CLASSIFICATION if is_class else REGRESSION))
    return rows


COLUMNS = {
    REGRESSION: {"n": "n", "pearson": "Pearson", "spearman": "Spearman", "r2": "R²", "mse": "MSE", "mae": "MAE"},
    CLASSIFICATION: dict(n="n", prevalence="positive", average_precision="AP", auroc="AUROC", f1="F1", brier="Brier"),
}
"""This maps the kind of labels and a metric to the title of its column."""

HEADLINE = {REGRESSION: "pearson", CLASSIFICATION: "average_precision"}
"""This maps the kind of labels to the metric that comes first where models are compared."""

UNRANKED = frozenset({"n", "prevalence"})
LOWER_IS_BETTER = frozenset({"mse", "rmse", "mae", "brier"})


def best_row(rows: Iterable[ResultRow], metric: str) -> ResultRow | None:
    """Return the first of the rows with the best value of a metric; None where none is defined."""
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    known = (row for row in rows if math.isfinite(row.metrics.get(metric, math.nan)))
    return max(known, key=lambda row: sign * row.metrics[metric], default=None)


def format_metric(metric: str, value: float) -> str:
    """Format one value as the tables show it; errors have three digits, correlations three decimals."""
    if not math.isfinite(value):
        return "-"
    if metric == "n":
        return f"{int(value):,}"
    if metric in LOWER_IS_BETTER:
        return f"{value:.0f}" if 100 <= value < 1e6 else f"{value:#.3g}"
    return f"{round(value, 3) + 0.0:.3f}"  # adding zero turns a rounded −0.000 into 0.000
