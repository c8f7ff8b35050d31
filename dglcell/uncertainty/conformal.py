"""Turn errors on strains that did not train into intervals with a stated coverage (split-conformal prediction)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dglcell.data.config import INTERVAL_COVERAGE
from dglcell.data.strains import Strains
from dglcell.errors import ConfigError

Values = NDArray[np.floating]


def check_coverage(coverage: float) -> None:
    """Refuse a coverage that no interval can have."""
    if not 0 < coverage < 1:
        expected = "a share of the strains between 0 and 1, such as 0.9"
        raise ConfigError("intervals cannot have this coverage", got=f"{coverage:g}", expected=expected)


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
        do = f"ask for at most {n / (n + 1):.3g}, or train with a larger validation part (`split.fractions`)"
        raise ConfigError(
            f"there are too few validation strains for intervals with a coverage of {coverage:g}",
            got=f"{n:,} strains to calibrate them with",
            expected=f"{fewest_strains(coverage):,} or more",
            do=do if n else "train with a validation part that is measured (`split.kind`, `split.fractions`)",
        )
    return float(np.partition(scores_n, k - 1)[k - 1])


CONSTANT, SPREAD, LEARNED = "constant", "spread", "learned"
"""An error is expected to be as large everywhere, or as large as the spread over seeds, or as features of the strain
say."""

FEWEST = 200
"""With fewer measured strains nothing is learned: all intervals are equally wide, and all strains calibrate."""

MOST = 1000
"""The most strains that learn and choose a difficulty, and at most a half of all. The others calibrate."""

KNOTS, PRIOR = 6, 1.0
"""Number of hat functions of a learned difficulty. The second is its ridge, and that of a logistic regression."""

FEATURES = 6
"""Number of features that `features_of` returns."""

TINY = float(np.finfo(np.float32).tiny)


def structure_of(strains: Strains, training_N: NDArray[np.integer]) -> Values:
    """Return what the difficulty of a strain may depend on beside predictions, [S, F].

    The columns are 0, the number of changed genes, the number of them that no training strain changes, the logarithm of
    the number of training strains of the least known one, what is lost of all genes, and 0 (`features_of`).

    Args:
        strains: strains whose targets are the genes of the cell graph; in numpy.
        training_N: number of training strains that change each gene.
    """
    counts, changed = training_N[strains.targets].astype(float), strains.num_deletions
    least, none = np.full(len(strains), np.inf), np.zeros(len(strains))
    np.minimum.at(least, strains.owners, counts)
    least = np.log1p(np.where(changed > 0, least, training_N.max(initial=0)))
    return np.stack([none, changed, strains.total(counts == 0), least, strains.total(strains.lost), none], axis=1)


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

    A learned one is exp(w · φ), where φ are hat functions of the prediction and the other features. They are
    standardised, and kept within the range that they had where it was learned.
    """

    kind: str = CONSTANT  #: ``CONSTANT``, ``SPREAD`` or ``LEARNED``
    floor: float = 0.0  #: smallest spread that counts
    knots: tuple[float, ...] = ()  #: predictions at which the hat functions have their peaks
    low: tuple[float, ...] = ()  #: range of the other features
    high: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()  #: w

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
    from sklearn.linear_model import PoissonRegressor  # is slow to import, and needed to fit only

    knots = np.unique(np.quantile(features_SF[:, 0], np.linspace(0, 1, KNOTS)))
    others = features_SF[:, 1:]
    made = Difficulty(
        LEARNED, knots=tuple(knots.tolist()), low=tuple(others.min(0).tolist()), high=tuple(others.max(0).tolist())
    )
    found = PoissonRegressor(alpha=PRIOR / len(errors_S), fit_intercept=False, solver="newton-cholesky", tol=1e-9)
    found.fit(made._inputs(features_SF), errors_S / errors_S.mean())
    return replace(made, weights=tuple(found.coef_.tolist()))


def choose_difficulty(features_SF: Values, errors_S: Values, *, with_spread: bool) -> Difficulty:
    """Return the difficulty that makes intervals narrowest, on halves that it was not learned on.

    Of each way to say how difficult a strain is, the mean width is measured on either half, with intervals that are
    calibrated there. Arguments are as of `learn_difficulty`; ``with_spread`` says that several seeds predict.
    """
    ways: dict[str, Callable[[Values, Values], Difficulty]] = {CONSTANT: lambda features, errors: Difficulty()}
    if errors_S.any():
        ways[LEARNED] = learn_difficulty
        if with_spread:
            # Of the spread over seeds, a tenth of the median is the least that counts.
            ways[SPREAD] = lambda features, errors: Difficulty(
                SPREAD, floor=max(0.1 * float(np.median(np.exp(features[:, -1]))), TINY)
            )
    half = np.arange(len(errors_S)) % 2 == 0

    def width(way: Callable[[Values, Values], Difficulty], learns: NDArray[np.bool_]) -> float:
        if not errors_S[learns].any():
            return np.inf
        difficulty = way(features_SF[learns], errors_S[learns])(features_SF[~learns])
        return float(difficulty.mean() * conformal_quantile(errors_S[~learns] / difficulty, INTERVAL_COVERAGE))

    widths = {name: width(way, half) + width(way, ~half) for name, way in ways.items()}
    return ways[min(widths, key=widths.__getitem__)](features_SF, errors_S)


PLATT, ISOTONIC = "logistic", "isotonic"


@dataclass(frozen=True)
class Probability:
    """This maps predictions of a class to calibrated probabilities, and never reverses their order."""

    kind: str  #: ``PLATT`` or ``ISOTONIC``
    intercept: float = 0.0  #: of the log-odds, for ``PLATT``
    slope: float = 1.0
    at: tuple[float, ...] = ()  #: probabilities at some predictions, and on lines between them, for ``ISOTONIC``
    values: tuple[float, ...] = ()

    def __call__(self, predicted_S: Values) -> Values:
        """Return the probability of class 1, [S]; NaN where nothing is predicted."""
        if self.kind == ISOTONIC:
            return np.interp(predicted_S, self.at, self.values)
        return 1 / (1 + np.exp(-np.clip(self.intercept + self.slope * predicted_S.astype(float), -30, 30)))


def by_logistic(predicted_S: Values, y_S: Values) -> Probability:
    """Fit a logistic curve to labels 0 and 1, of which both occur (Platt 1999, *Probabilistic outputs*)."""
    from sklearn.linear_model import LogisticRegression  # is slow to import, and needed to fit only

    mean, spread = float(predicted_S.mean()), float(predicted_S.std()) or 1.0
    found = LogisticRegression(C=1 / PRIOR).fit((predicted_S.astype(float)[:, None] - mean) / spread, y_S)
    slope = max(float(found.coef_[0, 0]), 1e-3) / spread  # never negative, which would reverse the predictions
    return Probability(PLATT, float(found.intercept_[0]) - slope * mean, slope)


def by_steps(predicted_S: Values, y_S: Values) -> Probability:
    """Fit the probabilities that rise with predictions and are nearest to the labels (Zadrozny and Elkan 2002)."""
    from sklearn.isotonic import IsotonicRegression  # is slow to import, and needed to fit only

    found = IsotonicRegression().fit(predicted_S.astype(float), y_S)
    return Probability(ISOTONIC, at=tuple(found.X_thresholds_.tolist()), values=tuple(found.y_thresholds_.tolist()))


def fit_probability(predicted_S: Values, y_S: Values) -> Probability | None:
    """Return the map with the lower Brier score on halves that it was not fitted to; None if one lacks a class."""
    half = np.arange(len(y_S)) % 2 == 0
    if any(len(np.unique(y_S[part])) < 2 for part in (half, ~half)):
        return None

    def brier(way: Callable[[Values, Values], Probability]) -> float:
        errors = [(way(predicted_S[part], y_S[part])(predicted_S[~part]) - y_S[~part]) ** 2 for part in (half, ~half)]
        return float(np.concatenate(errors).mean())

    return min((by_logistic, by_steps), key=brier)(predicted_S, y_S)
