"""Learn on which strains predictions err more: the scale that makes intervals wider there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dglcell.data.config import INTERVAL_COVERAGE
from dglcell.data.strains import Strains
from dglcell.uncertainty.conformal import Values, conformal_quantile

CONSTANT, SPREAD, LEARNED = "constant", "spread", "learned"
"""An error is expected to be as large everywhere, or as large as the spread over seeds, or as features of the strain
say."""

FEWEST = 200
"""With fewer measured strains nothing is learned: all intervals are equally wide, and all strains calibrate."""

MOST = 1000
"""At most so many strains learn and choose a difficulty, and at most a half of all. The others calibrate."""

KNOTS, STEPS, PRIOR = 6, 50, 1.0
"""A learned difficulty has so many hat functions, takes at most so many Newton steps, and has a ridge of this size."""

FEATURES = 6
"""`features_of` returns so many."""

TINY = float(np.finfo(np.float32).tiny)


def structure_of(strains: Strains, training_N: NDArray[np.integer]) -> Values:
    """Return what the difficulty of a strain may depend on beside predictions, [S, F].

    The columns are 0, the number of changed genes, the number of them that no training strain changes, the logarithm of
    the number of training strains of the least known one, what is lost of all genes, and 0 (`features_of`).

    Args:
        strains: strains whose targets are the genes of the cell graph; in numpy.
        training_N: number of training strains that change each gene.
    """
    counts = training_N[strains.targets].astype(float)
    changed = np.diff(strains.offsets)
    rows = np.repeat(np.arange(len(strains)), changed)
    new = np.bincount(rows, counts == 0, len(strains))
    least = np.full(len(strains), np.inf)
    np.minimum.at(least, rows, counts)
    least = np.log1p(np.where(changed > 0, least, training_N.max(initial=0)))
    lost = np.asarray(strains.design.sum(axis=1)).reshape(-1)
    none = np.zeros(len(strains))
    return np.stack([none, changed, new, least, lost, none], axis=1)


def features_of(structure_SF: Values, predicted_S: Values, spread_S: Values | None = None) -> Values:
    """Return all that the difficulty of a strain may depend on, [S, F].

    The first column is the prediction, and the last one the logarithm of the standard deviation over seeds, or 0.
    """
    features = structure_SF.astype(float)
    features[:, 0] = predicted_S
    if spread_S is not None:
        features[:, -1] = np.log(np.maximum(spread_S, TINY))
    return features


@dataclass(frozen=True)
class Difficulty:
    """A difficulty says how large an error is expected to be, up to a common factor.

    A learned one is exp(w · φ), where φ are hat functions of the prediction and the other features, standardised and
    kept within the range that they had where it was learned.

    Attributes:
        kind: ``CONSTANT``, ``SPREAD`` or ``LEARNED``.
        floor: smallest spread that counts.
        knots: predictions at which the hat functions have their peaks.
        low, high: range of the other features.
        weights: w.
    """

    kind: str = CONSTANT
    floor: float = 0.0
    knots: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def __call__(self, features_SF: Values) -> Values:
        """Return the difficulty of strains, [S], above 0."""
        if self.kind == SPREAD:
            return np.maximum(np.exp(features_SF[:, -1]), self.floor)
        if self.kind == LEARNED:
            return np.exp(np.clip(self._inputs(features_SF) @ np.array(self.weights), -30, 30))
        return np.ones(len(features_SF))

    def _inputs(self, features_SF: Values) -> Values:
        """Return φ, [S, K + F − 1], of which hat functions sum to 1, and other features are between −1 and 1."""
        predicted, knots = features_SF[:, 0], np.array(self.knots)
        hats = np.stack([np.interp(predicted, knots, peak) for peak in np.eye(len(knots))], axis=1)
        low, high = np.array(self.low), np.array(self.high)
        span = np.where(high > low, high - low, 1.0)
        others = 2 * (np.clip(features_SF[:, 1:], low, high) - low) / span - 1
        return np.concatenate([hats, np.where(high > low, others, 0.0)], axis=1)


def learn_difficulty(features_SF: Values, errors_S: Values) -> Difficulty:
    """Fit a learned difficulty by the quasi-likelihood of a mean, Σ exp(η) − (e / ē) η, with a ridge on its weights.

    Errors may be 0. The ridge counts as much as a strain, and its prior is that all strains are alike.

    Args:
        features_SF: from `features_of`.
        errors_S: absolute errors, whose mean is above 0.
    """
    knots = np.unique(np.quantile(features_SF[:, 0], np.linspace(0, 1, KNOTS)))
    others = features_SF[:, 1:]
    made = Difficulty(
        LEARNED, knots=tuple(knots.tolist()), low=tuple(others.min(0).tolist()), high=tuple(others.max(0).tolist())
    )
    inputs, target = made._inputs(features_SF), errors_S / errors_S.mean()
    weights = np.zeros(inputs.shape[1])

    def loss(w: Values) -> float:
        eta = np.clip(inputs @ w, -30, 30)
        return float(np.sum(np.exp(eta) - target * eta) + PRIOR / 2 * w @ w)

    for _ in range(STEPS):
        mean = np.exp(np.clip(inputs @ weights, -30, 30))
        gradient = inputs.T @ (mean - target) + PRIOR * weights
        step = np.linalg.solve(inputs.T @ (mean[:, None] * inputs) + PRIOR * np.eye(len(weights)), gradient)
        size = 1.0
        while loss(weights - size * step) > loss(weights) and size > 1e-6:
            size /= 2
        weights = weights - size * step
        if np.abs(size * step).max() < 1e-9:
            break
    return replace(made, weights=tuple(weights.tolist()))


def by_spread(features_SF: Values, errors_S: Values) -> Difficulty:
    """Return the difficulty that is the spread over seeds, of which a tenth of the median is the least that counts."""
    return Difficulty(SPREAD, floor=max(0.1 * float(np.median(np.exp(features_SF[:, -1]))), TINY))


def choose_difficulty(features_SF: Values, errors_S: Values, *, with_spread: bool) -> Difficulty:
    """Return the difficulty that makes intervals narrowest, on halves that it was not learned on.

    Of each way to say how difficult a strain is, the mean width is measured on either half, with intervals that are
    calibrated there.

    Args:
        features_SF: from `features_of`.
        errors_S: absolute errors.
        with_spread: whether several seeds predict.
    """
    ways: dict[str, Callable[[Values, Values], Difficulty]] = {CONSTANT: lambda features, errors: Difficulty()}
    if errors_S.any():
        ways[LEARNED] = learn_difficulty
        if with_spread:
            ways[SPREAD] = by_spread
    half = np.arange(len(errors_S)) % 2 == 0

    def width(way: Callable[[Values, Values], Difficulty], learns: NDArray[np.bool_]) -> float:
        if not errors_S[learns].any():
            return np.inf
        difficulty = way(features_SF[learns], errors_S[learns])(features_SF[~learns])
        return float(difficulty.mean() * conformal_quantile(errors_S[~learns] / difficulty, INTERVAL_COVERAGE))

    widths = {name: width(way, half) + width(way, ~half) for name, way in ways.items()}
    return ways[min(widths, key=widths.__getitem__)](features_SF, errors_S)
