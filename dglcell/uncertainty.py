"""Calibrate predictions on strains that did not train: intervals with a stated coverage, probabilities of classes.

Intervals are those of split-conformal prediction. What predictions need of a calibration is one file of the run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dglcell.data.config import INTERVAL_COVERAGE
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION
from dglcell.errors import CheckpointError, ConfigError
from dglcell.files.atomic import atomic_file
from dglcell.files.untrusted import UnreadableError, damaged, read_npz
from dglcell.runs import MEND

Values = NDArray[np.floating]

FEWEST, MOST = 200, 1000
"""With fewer measured strains nothing is learned. At most so many, and at most a half of all, learn the difficulty."""

KNOTS, PRIOR = 6, 1.0
"""Number of hat functions of a learned difficulty. The second is its ridge, and that of a logistic regression."""

FEATURES = 6  # number of features that `features_of` returns

ROUNDING = 1e-5
"""Predictions of two machines may differ by this share of the largest label, so that no interval is narrower."""

OF_INTERVALS, OF_CLASSES = ("covered", "width", "constant_covered", "constant_width"), "calibrated_brier"
"""These are the metrics of `Calibrated.measure`."""


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
        what = f"there are too few validation strains for intervals with a coverage of {coverage:g}"
        got, expected = f"{n:,} strains to calibrate them with", f"{fewest_strains(coverage):,} or more"
        do = f"ask for at most {n / (n + 1):.3g}, or train with a larger validation part (`split.fractions`)"
        do = do if n else "train with a validation part that is measured (`split.kind`, `split.fractions`)"
        raise ConfigError(what, got=got, expected=expected, do=do)
    return float(np.partition(scores_n, k - 1)[k - 1])


def structure_of(strains: Strains, training_N: NDArray[np.integer]) -> Values:
    """Return what the difficulty of a strain may depend on beside predictions, [S, F].

    The columns are 0, the number of changed genes, the number of them that no training strain changes, the logarithm of
    the number of training strains of the least known one, what is lost of all genes, and 0 (`features_of`). Strains are
    in numpy; ``training_N`` is the number of training strains that change each gene.
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
        features[:, -1] = np.log(np.maximum(spread_S, np.finfo(np.float32).tiny))
    return features


@dataclass(frozen=True)
class Difficulty:
    """A difficulty says how large an error is expected to be, up to a common factor.

    It is the same everywhere, or learned: then it is exp(w · φ), where φ are hat functions of the prediction and the
    other features. They are standardised, and kept within the range that they had where it was learned.
    """

    knots: tuple[float, ...] = ()  #: predictions at which the hat functions have their peaks
    low: tuple[float, ...] = ()  #: range of the other features
    high: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()  #: w; none where it is the same everywhere

    @classmethod
    def learn(cls, features_SF: Values, errors_S: Values) -> Self:
        """Fit by the quasi-likelihood of a mean, Σ exp(η) − (e / ē) η, of absolute errors, not all of which are 0.

        The ridge on the weights counts as much as a strain, and its prior is that all strains are alike.
        """
        from sklearn.linear_model import PoissonRegressor  # is slow to import, and needed to fit only

        knots, others = np.unique(np.quantile(features_SF[:, 0], np.linspace(0, 1, KNOTS))), features_SF[:, 1:]
        made = cls(tuple(knots.tolist()), tuple(others.min(0).tolist()), tuple(others.max(0).tolist()))
        found = PoissonRegressor(alpha=PRIOR / len(errors_S), fit_intercept=False, solver="newton-cholesky", tol=1e-9)
        found.fit(made._inputs(features_SF), errors_S / errors_S.mean())
        return replace(made, weights=tuple(found.coef_.tolist()))

    def __call__(self, features_SF: Values) -> Values:
        """Return the difficulty of strains, [S], above 0."""
        if not self.weights:
            return np.ones(len(features_SF))
        return np.exp(np.clip(self._inputs(features_SF) @ np.array(self.weights), -30, 30))

    def _inputs(self, features_SF: Values) -> Values:
        """Return φ, [S, K + F − 1], of which hat functions sum to 1, and other features are between −1 and 1."""
        predicted, knots = features_SF[:, 0], np.array(self.knots)
        hats = np.stack([np.interp(predicted, knots, peak) for peak in np.eye(len(knots))], axis=1)
        low, high = np.array(self.low), np.array(self.high)
        span = np.where(high > low, high - low, 1.0)
        others = 2 * (np.clip(features_SF[:, 1:], low, high) - low) / span - 1
        return np.concatenate([hats, np.where(high > low, others, 0.0)], axis=1)


def choose_difficulty(features_SF: Values, errors_S: Values) -> Difficulty:
    """Return a learned difficulty where it makes intervals narrower on halves that it was not learned on.

    The mean width is measured on either half, with intervals that are calibrated there.
    """
    half = np.arange(len(errors_S)) % 2 == 0
    if not (errors_S[half].any() and errors_S[~half].any()):
        return Difficulty()

    def width(way: Callable[[Values, Values], Difficulty]) -> float:
        found = 0.0
        for learns in (half, ~half):
            difficulty = way(features_SF[learns], errors_S[learns])(features_SF[~learns])
            found += difficulty.mean() * conformal_quantile(errors_S[~learns] / difficulty, INTERVAL_COVERAGE)
        return found

    is_narrower = width(Difficulty.learn) < width(lambda features, errors: Difficulty())
    return Difficulty.learn(features_SF, errors_S) if is_narrower else Difficulty()


@dataclass(frozen=True)
class Probability:
    """This maps predictions of a class to calibrated probabilities, and never reverses their order.

    It is a logistic curve, or steps with lines between them.
    """

    intercept: float = 0.0  #: of the log-odds
    slope: float = 1.0
    at: tuple[float, ...] = ()  #: predictions at which steps have the probabilities ``values``; none of a curve
    values: tuple[float, ...] = ()

    def __call__(self, predicted_S: Values) -> Values:
        """Return the probability of class 1, [S]; NaN where nothing is predicted."""
        if self.at:
            return np.interp(predicted_S, self.at, self.values)
        return 1 / (1 + np.exp(-np.clip(self.intercept + self.slope * predicted_S.astype(float), -30, 30)))


def by_logistic(predicted_S: Values, y_S: Values) -> Probability:
    """Fit a logistic curve to labels 0 and 1, of which both occur (Platt 1999, *Probabilistic outputs*)."""
    from sklearn.linear_model import LogisticRegression  # is slow to import, and needed to fit only

    mean, spread = float(predicted_S.mean()), float(predicted_S.std()) or 1.0
    found = LogisticRegression(C=1 / PRIOR).fit((predicted_S.astype(float)[:, None] - mean) / spread, y_S)
    slope = max(float(found.coef_[0, 0]), 1e-3) / spread  # never negative, which would reverse the predictions
    return Probability(float(found.intercept_[0]) - slope * mean, slope)


def by_steps(predicted_S: Values, y_S: Values) -> Probability:
    """Fit the probabilities that rise with predictions and are nearest to the labels (Zadrozny and Elkan 2002)."""
    from sklearn.isotonic import IsotonicRegression  # is slow to import, and needed to fit only

    found = IsotonicRegression().fit(predicted_S.astype(float), y_S)
    return Probability(at=tuple(found.X_thresholds_.tolist()), values=tuple(found.y_thresholds_.tolist()))


def fit_probability(predicted_S: Values, y_S: Values) -> Probability | None:
    """Return the map with the lower Brier score on halves that it was not fitted to; None if one lacks a class."""
    half = np.arange(len(y_S)) % 2 == 0
    if any(len(np.unique(y_S[part])) < 2 for part in (half, ~half)):
        return None

    def brier(way: Callable[[Values, Values], Probability]) -> float:
        errors = [(way(predicted_S[part], y_S[part])(predicted_S[~part]) - y_S[~part]) ** 2 for part in (half, ~half)]
        return float(np.concatenate(errors).mean())

    return min((by_logistic, by_steps), key=brier)(predicted_S, y_S)


@dataclass(frozen=True)
class Calibrated:
    """This is the calibration of one phenotype."""

    kind: str
    difficulty: Difficulty  #: how large an error is expected to be; for numbers
    errors: NDArray[np.float32]  #: [n] absolute errors of the strains that calibrate
    scores: NDArray[np.float32]  #: [n] the same, divided by their difficulty
    #: what makes probabilities of predictions; for classes, None where there were too few labels
    probability: Probability | None = None

    @classmethod
    def of(
        cls, kind: str, features_SF: Values, predicted_S: Values, measured_S: Values, *, constant: bool = False
    ) -> Self:
        """Calibrate on strains that did not train.

        Some of them choose and learn the difficulty, and the others alone calibrate, so that the theorem holds for the
        choice (Papadopoulos 2008, *Inductive Conformal Prediction*, on scores that are divided by a scale). With
        ``constant`` all intervals are equally wide, so that all strains calibrate. Missing labels are NaN.
        """
        order = np.random.default_rng(0).permutation(np.flatnonzero(~np.isnan(measured_S)))
        if kind == CLASSIFICATION:
            found = fit_probability(predicted_S[order].astype(float), measured_S[order].astype(float))
            return cls(kind, Difficulty(), np.zeros(0, np.float32), np.zeros(0, np.float32), found)
        errors = np.abs(measured_S.astype(float) - predicted_S)
        errors = np.maximum(errors, ROUNDING * np.abs(measured_S[order]).max(initial=0))
        learns = order[: min(MOST, len(order) // 2)] if len(order) >= FEWEST and not constant else order[:0]
        calibrates = order[len(learns) :]
        difficulty = choose_difficulty(features_SF[learns], errors[learns])
        scores = errors[calibrates] / difficulty(features_SF[calibrates])
        return cls(kind, difficulty, errors[calibrates].astype(np.float32), scores.astype(np.float32))

    def half_width(self, features_SF: Values, coverage: float) -> Values:
        """Return half the width of the interval of each strain, [S]."""
        return self.difficulty(features_SF) * conformal_quantile(self.scores, coverage)

    def measure(self, features_SF: Values, predicted_S: Values, measured_S: Values) -> dict[str, float]:
        """Return metrics of what the calibration is worth on other strains; none where there are too few strains.

        They are ``covered``, the share of strains whose measured value is in an interval with the coverage
        ``INTERVAL_COVERAGE``, ``width``, the mean width, and the same of intervals that are equally wide everywhere; of
        classes ``calibrated_brier``, the mean squared error of probabilities.
        """
        known = ~np.isnan(measured_S)
        if not known.any():
            return {}
        if self.kind == CLASSIFICATION:
            if self.probability is None:
                return {}
            errors = self.probability(predicted_S[known]) - measured_S[known]
            return {OF_CLASSES: float(np.mean(errors.astype(float) ** 2))}
        if len(self.scores) < fewest_strains(INTERVAL_COVERAGE):
            return {}
        errors = np.abs(measured_S[known].astype(float) - predicted_S[known])
        same_S = np.full(len(errors), conformal_quantile(self.errors, INTERVAL_COVERAGE))
        of_both = self.half_width(features_SF[known], INTERVAL_COVERAGE), same_S
        found = [float(value) for half in of_both for value in (np.mean(errors <= half), 2 * np.mean(half))]
        return dict(zip(OF_INTERVALS, found, strict=True))


@dataclass(frozen=True)
class Calibration:
    """This is the calibration of a run, or of several runs that predict together."""

    phenotypes: Mapping[str, Calibrated]  #: phenotype → its calibration
    training: NDArray[np.int32]  #: [N] number of training strains that change each gene of the cell graph
    structure: NDArray[np.float32]  #: [S, F] features of the validation strains, as `structure_of` returns them
    checkpoint: str  #: name of the checkpoint that predicted
    epoch: int  #: its epoch

    @classmethod
    def of_run(
        cls,
        strains: Strains,
        training: NDArray[np.integer],
        predicted_ST: Values,
        kinds: Sequence[str],
        checkpoint: str,
        epoch: int,
        *,
        constant: bool = False,
    ) -> Self:
        """Calibrate one run by its validation strains, in numpy, whose labels have the given kinds."""
        structure, names = structure_of(strains, training).astype(np.float32), tuple(strains.phenotypes)
        made = cls({}, training.astype(np.int32), structure, checkpoint, epoch)
        predicted = dict(zip(names, predicted_ST.T, strict=True))
        return made.fitted(dict(zip(names, kinds, strict=True)), predicted, strains.phenotypes, constant=constant)

    def fitted(
        self,
        kinds: Mapping[str, str],
        predicted: Mapping[str, Values],
        measured: Mapping[str, Values],
        spread: Mapping[str, Values] | None = None,
        *,
        constant: bool = False,
    ) -> Self:
        """Return the calibration of other predictions for the same validation strains.

        All are by the phenotype: kinds of labels, values [S], and the standard deviation over seeds if several predict.
        """
        found = {}
        for name, kind in kinds.items():
            features = features_of(self.structure, predicted[name], None if spread is None else spread[name])
            found[name] = Calibrated.of(kind, features, predicted[name], measured[name], constant=constant)
        return replace(self, phenotypes=found)

    @property
    def most_new(self) -> int:
        """Return the largest number of genes of a validation strain that no training strain changes."""
        return int(self.structure[:, 2].max(initial=0))

    def measure(self, strains: Strains, predicted_ST: Values) -> dict[str, dict[str, float]]:
        """Return phenotype → metrics of what the calibration is worth on other strains (`Calibrated.measure`)."""
        structure = structure_of(strains, self.training)
        pairs = zip(self.phenotypes.items(), predicted_ST.T, strict=True)
        return {
            name: one.measure(features_of(structure, of), of, strains.phenotypes[name]) for (name, one), of in pairs
        }

    def columns(self, strains: Strains, predicted: Mapping[str, Values], coverage: float) -> dict[str, NDArray[Any]]:
        """Return the columns that say how sure predictions are, [S] each.

        They are ``low_<phenotype>`` and ``high_<phenotype>`` for numbers, ``probability_<phenotype>`` for classes.
        Strains are in numpy. The columns ``predicted`` have standard deviations, too, where several seeds predict.
        """
        found: dict[str, NDArray[Any]] = {}
        structure = structure_of(strains, self.training)
        for name, calibrated in self.phenotypes.items():
            values = predicted[predicted_column(name)].astype(float)
            if calibrated.kind == CLASSIFICATION:
                chance = calibrated.probability(values) if calibrated.probability else np.full(len(values), np.nan)
                found[f"probability_{name}"] = chance.astype(np.float32)
                continue
            half = calibrated.half_width(features_of(structure, values, predicted.get(spread_column(name))), coverage)
            low, high = interval_columns(name)
            found[low], found[high] = (values - half).astype(np.float32), (values + half).astype(np.float32)
        return found

    def save(self, path: Path) -> None:
        """Write the calibration into a file, whole or not at all."""
        phenotypes = [
            {"name": name, "kind": one.kind, "difficulty": asdict(one.difficulty)}
            | {"probability": asdict(one.probability) if one.probability else {}}
            for name, one in self.phenotypes.items()
        ]
        about = {"checkpoint": self.checkpoint, "epoch": self.epoch, "phenotypes": phenotypes}
        arrays: dict[str, Any] = {"training": self.training, "structure": self.structure}
        for t, one in enumerate(self.phenotypes.values()):
            arrays |= {f"errors_{t}": one.errors, f"scores_{t}": one.scores}
        with atomic_file(path) as partial, open(partial, "wb") as file:
            np.savez_compressed(file, about=np.array(json.dumps(about)), **arrays)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a calibration; a CheckpointError says that there is none, or that it is damaged."""
        if not path.is_file():
            what, expected = f"the run '{path.parent}' has no intervals", "a finished run with a validation part"
            do = "run its `dglcell train` command again, which evaluates a finished run anew; a run with "
            do += "`split.kind: none` has no strains to calibrate intervals with"
            raise CheckpointError(what, got=f"no {path.name}", expected=expected, do=do)
        try:
            arrays = read_npz(path)
            about, found, vectors = json.loads(str(arrays["about"])), dict[str, Calibrated](), [arrays["training"]]
            for t, one in enumerate(about["phenotypes"]):
                errors, scores = arrays[f"errors_{t}"], arrays[f"scores_{t}"]
                vectors += [errors, scores]
                chance = one["probability"]
                probability = Probability(**_fields(Probability, chance)) if chance else None
                difficulty = Difficulty(**_fields(Difficulty, one["difficulty"]))
                found[one["name"]] = Calibrated(one["kind"], difficulty, errors, scores, probability)
            made = cls(found, arrays["training"], arrays["structure"], about["checkpoint"], about["epoch"])
            if any(of.ndim != 1 or of.dtype.kind not in "fi" or not np.isfinite(of).all() for of in vectors):
                raise ValueError("arrays")
            if made.structure.shape[1:] != (FEATURES,) or not np.isfinite(made.structure).all():
                raise ValueError("structure")
            for calibrated in found.values():  # lists of other lengths fail here
                calibrated.difficulty(made.structure)
                if calibrated.probability:
                    calibrated.probability(made.structure[:, 0])
        except (UnreadableError, KeyError, TypeError, ValueError) as error:
            reason = error if isinstance(error, UnreadableError) else "other fields"
            expected = "the file as `dglcell train` wrote it"
            raise damaged(path, reason, CheckpointError, expected=expected, do=MEND) from error
        return made


def _fields(kind: type[Difficulty | Probability], content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a part of a calibration; earlier versions wrote more of them."""
    found = {name: content[name] for name in kind.__dataclass_fields__}
    return {name: tuple(map(float, value)) if isinstance(value, list) else value for name, value in found.items()}


def predicted_column(phenotype: str) -> str:
    """Return the name of the column with predictions of a phenotype."""
    return f"predicted_{phenotype}"


def spread_column(phenotype: str) -> str:
    """Return the name of the column with the standard deviation over several models."""
    return f"sd_{phenotype}"


def interval_columns(phenotype: str) -> tuple[str, str]:
    """Return the names of the columns with the ends of the interval of a phenotype."""
    return f"low_{phenotype}", f"high_{phenotype}"
