"""Metrics of phenotypes that are there or not: how well predictions rank, and how well they are calibrated."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from dglcell.errors import DataError
from dglcell.training.metrics import measured_pairs

RANKING_METRICS = ("average_precision", "auroc", "brier", "prevalence", "n")


def classification_metrics(prediction: ArrayLike, target: ArrayLike) -> dict[str, float]:
    """Compare predictions with labels 0 and 1, in float64.

    Args:
        prediction: [S] scores, higher for 1; probabilities for ``brier``. One that is not finite makes the metrics NaN.
        target: [S] 0 or 1; NaN where missing, those strains are left out.

    Returns:
        ``average_precision`` (see :func:`average_precision`), ``auroc``, ``brier`` (mean squared error), ``prevalence``
        (share of 1, what a random ranking has as average precision) and ``n``. What is undefined is NaN: everything
        but ``n`` for no strain, ``average_precision`` without a label 1, ``auroc`` without both labels.

    Raises:
        DataError: the shapes differ or are not one-dimensional, or a label is neither 0 nor 1.
    """
    p, t = measured_pairs(prediction, target)
    positive = t == 1
    if not (positive | (t == 0)).all():
        raise DataError("classification metrics: a label is neither 0 nor 1", got=float(t[~positive & (t != 0)][0]))
    if len(t) == 0 or not np.isfinite(p).all():
        return {name: math.nan for name in RANKING_METRICS[:-1]} | {"n": len(t)}
    return {
        "average_precision": average_precision(p, positive),
        "auroc": auroc(p, positive),
        "brier": float(np.mean((p - t) ** 2)),
        "prevalence": float(positive.mean()),
        "n": len(t),
    }


def average_precision(score: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Mean over the positives of the precision among all strains that score at least as high; NaN without positives.

    Strains of equal score are found together, so that their order does not matter. It is the area under the
    precision–recall curve as a step function, Σ (recall_k − recall_{k−1}) precision_k.
    """
    if not positive.any():
        return math.nan
    _, found, taken = ranked(score, positive)
    return float(np.sum(np.diff(found, prepend=0) * (found / taken)) / positive.sum())


def auroc(score: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Chance that a positive scores higher than a negative, ties counted half; NaN without both.

    Mann and Whitney 1947: from the sum of the positives' ranks, equal scores having their mean rank.
    """
    positives = int(positive.sum())
    pairs = positives * (len(positive) - positives)
    if not pairs:
        return math.nan
    ranks = float(rankdata(score)[positive].sum())
    return (ranks - positives * (positives + 1) / 2) / pairs


def f1(prediction: ArrayLike, target: ArrayLike, threshold: float) -> float:
    """Harmonic mean of precision and recall where predictions from ``threshold`` on count as 1.

    NaN without a label 1 or a threshold, or if a prediction is not finite. Arguments as of `best_threshold`.
    """
    p, t = measured_pairs(prediction, target)
    if math.isnan(threshold) or not (t == 1).any() or not np.isfinite(p).all():
        return math.nan
    called, positive = p >= threshold, t == 1
    return float(2 * (called & positive).sum() / (called.sum() + positive.sum()))


def best_threshold(prediction: ArrayLike, target: ArrayLike) -> float:
    """The prediction from which on F1 is highest, the highest of several; NaN without a label 1.

    Args:
        prediction: [S] scores.
        target: [S] 0 or 1; NaN where missing.
    """
    p, t = measured_pairs(prediction, target)
    positive = t == 1
    if not positive.any() or not np.isfinite(p).all():
        return math.nan
    scores, found, taken = ranked(p, positive)
    return float(scores[np.argmax(found / (taken + positive.sum()))])


def ranked(
    score: NDArray[np.float64], positive: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Distinct scores from the highest down; positives, and all strains, that score at least as high."""
    order = np.argsort(-score, kind="stable")
    last = np.flatnonzero(np.append(np.diff(score[order]) != 0, True))
    return score[order][last], np.cumsum(positive[order], dtype=np.int64)[last], last + 1
