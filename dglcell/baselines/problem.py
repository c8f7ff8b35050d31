"""Define what a baseline is and what it is fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.features import GeneSimilarity, Reactions
from dglcell.data.strains import Strains
from dglcell.errors import DataError

FOLDS = 5
"""A fifth of the training part chooses hyperparameters where there is no validation part."""
MOST_STRAINS = 20_000
"""Training strains at most; of more, a sample is taken, which is always the same."""


class Baseline:
    """Predict one phenotype of strains.

    A subclass is a dataclass. Its fields are what `save_models` keeps: numbers, texts, arrays, sparse
    matrices, `Reactions`, other dataclasses and tuples of them, each with its type as the annotation.
    """

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""
        raise NotImplementedError


@dataclass(frozen=True)
class Problem:
    """Hold one phenotype of the strains of a split."""

    train: Strains
    validation: Strains
    y_train: NDArray[np.float64]  #: [S] labels, NaN where missing; of a problem that is `labelled` none is missing
    y_validation: NDArray[np.floating]  #: [S] labels of the validation strains, NaN where missing
    #: returns how similar all genes are to those of the training part; called if it is needed
    similarity: Callable[[], GeneSimilarity]
    reactions: Reactions | None = None  #: tells which reactions a strain loses; None where the cell graph has none

    @property
    def beyond_deletions(self) -> str | None:
        """Return words for what strains have beyond deleted genes: activities, covariates or both; None if nothing.

        Covariates that a simulator has computed of the strains themselves do not count.
        """
        words = [] if self.train.activities is self.validation.activities is None else ["activities"]
        if self.train.covariates.keys() - {*self.train.computed}:
            words.append("covariates")
        return " and ".join(words) or None

    def of(self, rows: NDArray[np.int64]) -> Problem:
        """Return the problem with some of the training strains."""
        return replace(self, train=self.train.take(rows), y_train=self.y_train[rows])

    def labelled(self) -> Problem:
        """Return the problem without training strains that have no label; that none has one is refused."""
        y = np.asarray(self.y_train, dtype=np.float64)
        rows = np.flatnonzero(~np.isnan(y))
        if len(rows) == 0:
            what = "baselines: no training strain has a label"
            raise DataError(what, got=f"{len(y):,} missing labels", do="choose another phenotype or another split")
        same = replace(self, y_train=y)
        return same if len(rows) == len(y) else same.of(rows)

    def with_validation(self) -> Problem:
        """Return the problem with a validation part: a fold of the training part where nothing is measured there."""
        count = len(self.y_train)
        if count < 2 or not np.isnan(self.y_validation).all():
            return self
        order = np.random.default_rng(0).permutation(count)
        held_out, rest = (np.sort(rows) for rows in np.split(order, [max(1, count // FOLDS)]))
        fold = self.of(held_out)
        return replace(self.of(rest), validation=fold.train, y_validation=fold.y_train)

    def sampled(self, most: int) -> tuple[Problem, str]:
        """Return the problem with at most ``most`` training strains, drawn always alike, and words for that."""
        count = len(self.y_train)
        if count <= most:
            return self, ""
        rows = np.sort(np.random.default_rng(0).permutation(count)[:most])
        return self.of(rows), f"a sample of {most:,} of {count:,} strains"

    def error(self, model: Baseline) -> float:
        """Return the mean squared error on the validation part; NaN where nothing is measured there."""
        measured = ~np.isnan(self.y_validation)
        missed = model.predict(self.validation) - self.y_validation
        return float(np.square(missed[measured]).mean()) if measured.any() else float("nan")


DELETIONS, ANY, MORE, SIMULATED = "deletions", "any", "more", "simulated"


@dataclass(frozen=True)
class Family:
    """Hold baselines of one form, of which the validation part chooses one."""

    #: yields them, fitted to the training part, with different hyperparameters
    fitted: Callable[[Problem], Iterator[Baseline]]
    #: what a problem lacks for them, or why they do not apply; None if they do
    lacks: Callable[[Problem], str | None] = lambda problem: None
    #: ``DELETIONS`` where they know nothing of strains but the deleted genes, ``MORE`` where they say nothing new of
    #: strains that only delete genes, ``SIMULATED`` where they are about a column that a simulator has computed, else
    #: ``ANY``
    about: str = DELETIONS

    def why_not(self, problem: Problem) -> str | None:
        """Say why they do not apply; None if they do."""
        if self.about == DELETIONS and problem.beyond_deletions:
            return f"knows deletions only, and the strains have {problem.beyond_deletions}"
        return self.lacks(problem)


def each(kind: Callable[[float], Any], *values: float) -> Callable[[Problem], Iterator[Baseline]]:
    """Return a function that fits a baseline for each value of its only hyperparameter."""
    return lambda problem: (kind(value).fit(problem.train, problem.y_train) for value in values)


def in_words(name: str, model: Baseline) -> str:
    """Describe a baseline, and what was chosen and learned for it, in a line of text."""
    shown = {part.name.replace("_", " "): getattr(model, part.name) for part in fields(model) if part.repr}  # type: ignore[arg-type]
    known = {key: of for key, of in shown.items() if of != "" and of == of}  # NaN is of what these strains do not have
    said = [of if isinstance(of, str) else f"{key} {of:.4g}" for key, of in known.items()]
    return f"{name} ({', '.join(said)})" if said else name
