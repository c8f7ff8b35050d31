"""Turn predictions of classes into calibrated probabilities: by a logistic curve, or by steps that only rise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.uncertainty.conformal import Values

PLATT, ISOTONIC = "logistic", "isotonic"

NEWTON_STEPS, PRIOR = 25, 1.0
"""These are the number of steps of a logistic regression, and the number of strains that its prior counts as."""


def log_odds(
    predicted: NDArray[np.floating], y: NDArray[np.floating], y_train: NDArray[np.floating]
) -> tuple[float, float]:
    """Return intercept and slope that turn predictions of classes into log-odds (Platt 1999, *Probabilistic outputs*).

    A prior holds intercept and slope near the values for which a standard deviation of the training labels counts as
    one, from the log-odds of their mean. They have these values if no class is known.

    Args:
        predicted: [S] predictions in the units of the labels.
        y: [S] labels, 0 or 1, NaN where missing.
        y_train: labels that the predictions were fitted to.
    """
    mean, spread = float(np.nanmean(y_train)), float(np.nanstd(y_train))
    first = np.array([np.log(mean / (1 - mean)), 1.0])
    measured = ~np.isnan(y)
    design = np.stack([np.ones(measured.sum()), (predicted[measured] - mean) / spread], axis=1)
    found = first.copy()
    for _ in range(NEWTON_STEPS):
        p = 1 / (1 + np.exp(-np.clip(design @ found, -30, 30)))
        gradient = design.T @ (p - y[measured]) + PRIOR * (found - first)
        found = found - np.linalg.solve(design.T @ (design * (p * (1 - p))[:, None]) + PRIOR * np.eye(2), gradient)
    slope = max(float(found[1]), 1e-3) / spread  # never negative, which would reverse the predictions
    return float(found[0]) - slope * mean, slope


@dataclass(frozen=True)
class Probability:
    """This maps predictions of a class to calibrated probabilities, and never reverses their order.

    Attributes:
        kind: ``PLATT`` or ``ISOTONIC``.
        intercept, slope: of the log-odds, for ``PLATT``.
        at, values: probabilities at some predictions, and on lines between them, for ``ISOTONIC``.
    """

    kind: str
    intercept: float = 0.0
    slope: float = 1.0
    at: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def __call__(self, predicted_S: Values) -> Values:
        """Return the probability of class 1, [S]; NaN where nothing is predicted."""
        if self.kind == ISOTONIC:
            return np.interp(predicted_S, self.at, self.values)
        return 1 / (1 + np.exp(-np.clip(self.intercept + self.slope * predicted_S.astype(float), -30, 30)))


def by_logistic(predicted_S: Values, y_S: Values) -> Probability:
    """Fit a logistic curve to labels 0 and 1, of which both occur (`log_odds`)."""
    return Probability(PLATT, *log_odds(predicted_S, y_S, y_S))


def by_steps(predicted_S: Values, y_S: Values) -> Probability:
    """Fit the probabilities that rise with predictions and are nearest to the labels (Zadrozny and Elkan 2002)."""
    from scipy.optimize import isotonic_regression

    at, where, counts = np.unique(predicted_S.astype(float), return_inverse=True, return_counts=True)
    means = np.bincount(where, y_S) / counts
    found = isotonic_regression(means, weights=counts)
    ends = np.unique(np.concatenate([found.blocks[:-1], found.blocks[1:] - 1]))
    return Probability(ISOTONIC, at=tuple(at[ends].tolist()), values=tuple(found.x[ends].tolist()))


def fit_probability(predicted_S: Values, y_S: Values) -> Probability | None:
    """Return the map with the lower Brier score on halves that it was not fitted to; None without both classes in both.

    Args:
        predicted_S: predictions for strains that did not train.
        y_S: labels 0 and 1.
    """
    half = np.arange(len(y_S)) % 2 == 0
    if any(len(np.unique(y_S[part])) < 2 for part in (half, ~half)):
        return None

    def brier(way: Callable[[Values, Values], Probability]) -> float:
        errors = [(way(predicted_S[part], y_S[part])(predicted_S[~part]) - y_S[~part]) ** 2 for part in (half, ~half)]
        return float(np.concatenate(errors).mean())

    return min((by_logistic, by_steps), key=brier)(predicted_S, y_S)
