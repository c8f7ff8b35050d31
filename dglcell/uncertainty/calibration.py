"""Calibrate the predictions of a run on its validation part, and keep what predictions need of it in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dglcell.data.config import INTERVAL_COVERAGE
from dglcell.data.strains import Strains
from dglcell.data.table import CLASSIFICATION
from dglcell.errors import CheckpointError
from dglcell.files.atomic import atomic_file
from dglcell.files.untrusted import UnreadableError, damaged, read_npz
from dglcell.runs import MEND
from dglcell.uncertainty.conformal import (
    FEATURES,
    FEWEST,
    MOST,
    Difficulty,
    Probability,
    Values,
    choose_difficulty,
    conformal_quantile,
    features_of,
    fewest_strains,
    fit_probability,
    structure_of,
)

ROUNDING = 1e-5
"""Predictions of two machines may differ by this share of the largest label, so that no interval is narrower."""

SEED = 0
"""This seed of the calibration shuffles the validation strains before they are divided."""


OF_INTERVALS, OF_CLASSES = ("covered", "width", "constant_covered", "constant_width"), "calibrated_brier"
"""These are the metrics of `Calibrated.measure`."""


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
        cls,
        kind: str,
        features_SF: Values,
        predicted_S: Values,
        measured_S: Values,
        *,
        with_spread: bool,
        constant: bool = False,
    ) -> Self:
        """Calibrate on strains that did not train.

        Some of them choose and learn the difficulty, and the others alone calibrate, so that the theorem holds for the
        choice (Papadopoulos 2008, *Inductive Conformal Prediction*, on scores that are divided by a scale).

        Args:
            features_SF: from `features_of`.
            measured_S: labels, NaN where missing.
            with_spread: whether several seeds predict.
            constant: whether all intervals are equally wide, so that all strains calibrate.
        """
        measured = np.flatnonzero(~np.isnan(measured_S))
        order = np.random.default_rng(SEED).permutation(measured)
        empty = np.zeros(0, np.float32)
        if kind == CLASSIFICATION:
            found = fit_probability(predicted_S[order].astype(float), measured_S[order].astype(float))
            return cls(kind, Difficulty(), empty, empty, found)
        errors = np.abs(measured_S.astype(float) - predicted_S)
        errors = np.maximum(errors, ROUNDING * np.abs(measured_S[order]).max(initial=0))
        learns = order[: min(MOST, len(order) // 2)] if len(order) >= FEWEST and not constant else order[:0]
        calibrates = order[len(learns) :]
        difficulty = Difficulty()
        if len(learns):
            difficulty = choose_difficulty(features_SF[learns], errors[learns], with_spread=with_spread)
        scores = errors[calibrates] / difficulty(features_SF[calibrates])
        return cls(kind, difficulty, errors[calibrates].astype(np.float32), scores.astype(np.float32))

    def half_width(self, features_SF: Values, coverage: float) -> Values:
        """Return half the width of the interval of each strain, [S]; errors are those of `conformal_quantile`."""
        return self.difficulty(features_SF) * conformal_quantile(self.scores, coverage)

    def measure(self, features_SF: Values, predicted_S: Values, measured_S: Values) -> dict[str, float]:
        """Return metrics of what the calibration is worth on other strains; none where there are too few strains.

        They are ``covered``, the share of strains whose measured value is in an interval with the coverage
        ``INTERVAL_COVERAGE``, ``width``, the mean width, and the same of intervals that are equally wide everywhere; of
        classes ``calibrated_brier``, the mean squared error of probabilities.
        """
        if self.kind == CLASSIFICATION:
            known = ~np.isnan(measured_S)
            if self.probability is None or not known.any():
                return {}
            errors = self.probability(predicted_S[known]) - measured_S[known]
            return {OF_CLASSES: float(np.mean(errors.astype(float) ** 2))}
        if len(self.scores) < fewest_strains(INTERVAL_COVERAGE):
            return {}
        known = ~np.isnan(measured_S)
        errors = np.abs(measured_S[known].astype(float) - predicted_S[known])
        same_S = np.full(len(predicted_S), conformal_quantile(self.errors, INTERVAL_COVERAGE))
        of_both = (half_S[known] for half_S in (self.half_width(features_SF, INTERVAL_COVERAGE), same_S))
        found = [value for half in of_both for value in (np.mean(errors <= half), 2 * np.mean(half))]
        return dict(zip(OF_INTERVALS, map(float, found), strict=True)) if known.any() else {}


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
        """Calibrate one run.

        Args:
            strains: validation strains with their phenotypes, in numpy.
            training: number of training strains that change each gene, [N].
            predicted_ST: predictions in original units.
            kinds: kind of the labels of each phenotype.
            checkpoint, epoch: what predicted.
            constant: whether all intervals are equally wide, as in `Calibrated.of`.
        """
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
        """Return the calibration of other predictions for the same validation strains, each by the phenotype.

        Args:
            kinds: kind of the labels.
            predicted, measured: [S] values.
            spread: standard deviation over seeds, if several predict.
            constant: whether all intervals are equally wide, as in `Calibrated.of`.
        """
        found = {}
        for name, kind in kinds.items():
            features = features_of(self.structure, predicted[name], None if spread is None else spread[name])
            of = kind, features, predicted[name], measured[name]
            found[name] = Calibrated.of(*of, with_spread=spread is not None, constant=constant)
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

        Args:
            strains: strains whose targets are the genes of the cell graph; in numpy.
            predicted: columns with predictions and, where several seeds predict, their standard deviations.
            coverage: share of the strains whose measured value shall be between low and high.

        Raises:
            ConfigError: the coverage is not between 0 and 1, or there are too few validation strains for it.
        """
        found: dict[str, NDArray[Any]] = {}
        structure = structure_of(strains, self.training)
        for name, calibrated in self.phenotypes.items():
            values = predicted[predicted_column(name)].astype(float)
            if calibrated.kind == CLASSIFICATION:
                chance = calibrated.probability(values) if calibrated.probability else np.full(len(values), np.nan)
                found[probability_column(name)] = chance.astype(np.float32)
                continue
            half = calibrated.half_width(features_of(structure, values, predicted.get(spread_column(name))), coverage)
            low, high = interval_columns(name)
            found[low], found[high] = (values - half).astype(np.float32), (values + half).astype(np.float32)
        return found

    def save(self, path: Path) -> None:
        """Write the calibration into a file, whole or not at all."""
        phenotypes = [
            {"name": name, "kind": one.kind, "difficulty": vars(one.difficulty)}
            | {"probability": vars(one.probability) if one.probability else {}}
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
        """Read a calibration.

        Raises:
            CheckpointError: there is none, or it is damaged.
        """
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
                probability = Probability(**_tuples(one["probability"])) if one["probability"] else None
                difficulty = Difficulty(**_tuples(one["difficulty"]))
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


def _tuples(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(map(float, value)) if isinstance(value, list) else value for name, value in content.items()}


def predicted_column(phenotype: str) -> str:
    """Return the name of the column with predictions of a phenotype."""
    return f"predicted_{phenotype}"


def spread_column(phenotype: str) -> str:
    """Return the name of the column with the standard deviation over several models."""
    return f"sd_{phenotype}"


def interval_columns(phenotype: str) -> tuple[str, str]:
    """Return the names of the columns with the ends of the interval of a phenotype."""
    return f"low_{phenotype}", f"high_{phenotype}"


def probability_column(phenotype: str) -> str:
    """Return the name of the column with calibrated probabilities of a phenotype that is a class."""
    return f"probability_{phenotype}"
