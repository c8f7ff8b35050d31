"""Fit the null models that apply to a split to the training part, and choose them on the validation part."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.composition import LARGEST_SUBSET, Multiplicative, SmallestSubset, not_fitness_like
from dglcell.baselines.curves import (
    MINIMUM,
    PRODUCT,
    GeneCurves,
    why_not_together,
)
from dglcell.baselines.kernel_ridge import fit_kernel_ridge, why_not
from dglcell.baselines.low_rank import LowRankProfiles, fit_ridge_and_low_rank
from dglcell.baselines.reactions import (
    LostSetKernel,
    Reactions,
    UntrainedBound,
    fit_reaction_kernels,
    why_no_bound,
    why_no_kernel,
)
from dglcell.baselines.similarity import GeneSimilarity
from dglcell.baselines.simple import (
    AdditiveRidge,
    QueryPairMean,
    SameStrain,
    TrainingMean,
    labelled,
    why_one_medium,
)
from dglcell.baselines.strain_kernel import fit_strain_kernels, why_no_strain_kernel
from dglcell.data.strains import Strains

log = logging.getLogger("dglcell")

ALPHAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
PSEUDO_COUNTS = (0.5, 2.0, 8.0, 32.0)
OWN_PSEUDO_COUNTS = (0.0, 0.5, 2.0)
PROFILES = (0.0, 1.0)
PENALTIES = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
SPREADS = (0.0, 1.0)
RESIDUAL_PENALTIES = (3.0, 1.0, 0.3)
RESIDUAL_SHRINKAGES = (0.7, 1.0)
OWN_SHARES = (0.1, 0.5)
CURVE_SHRINKAGES = (0.3, 1.0, 3.0, 10.0)
REACTION_PENALTIES = (3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)

FOLDS = 5
"""A fifth of the training part chooses hyperparameters where there is no validation part."""

MEAN_OF_TWO = "mean of the best two"


@dataclass(frozen=True)
class Problem:
    """Hold one phenotype of the strains of a split.

    Attributes:
        y_train: [S] labels, NaN where missing.
        y_validation: likewise for the validation strains.
        similarity: returns how similar all genes are to those of the training part; called if it is needed.
        most_deletions: most deletions of any strain that is to be predicted.
        reactions: tells which reactions a strain loses; None where the cell graph has none.
        others: strains outside of the split that are to be predicted, too.
    """

    train: Strains
    validation: Strains
    y_train: NDArray[np.floating]
    y_validation: NDArray[np.floating]
    similarity: Callable[[], GeneSimilarity]
    most_deletions: int
    reactions: Reactions | None = None
    others: Strains | None = None

    @property
    def beyond_deletions(self) -> str | None:
        """Return words for what strains have beyond deleted genes: strengths, conditions or both; None if nothing."""
        parts = [part for part in (self.train, self.validation, self.others) if part is not None]
        strengths = ["strengths"] if any(part.strengths is not None for part in parts) else []
        return " and ".join(strengths + (["conditions"] if self.train.conditions else [])) or None

    def labelled(self) -> Problem:
        """Return the problem without training strains that have no label.

        Raises:
            DataError: none has one.
        """
        train, y_train = labelled(self.train, self.y_train)
        return replace(self, train=train, y_train=y_train)

    def with_validation(self) -> Problem:
        """Return the problem with a validation part.

        Where nothing is measured in the validation part, a fold of the training part takes its place.
        """
        count = len(self.y_train)
        if count < 2 or not np.isnan(self.y_validation).all():
            return self
        order = np.random.default_rng(0).permutation(count)
        return self.without(np.sort(order[: max(1, count // FOLDS)]))

    def without(self, held_out: NDArray[np.int64]) -> Problem:
        """Return the problem in which some training strains are the validation part, and only the others train."""
        rest = np.setdiff1d(np.arange(len(self.y_train)), held_out)
        return replace(
            self,
            train=self.train.take(rest),
            validation=self.train.take(held_out),
            y_train=self.y_train[rest],
            y_validation=self.y_train[held_out],
        )

    def error(self, model: NullModel) -> float:
        """Return the mean squared error on the validation part; NaN where nothing is measured there."""
        return squared_error(model, self.validation, self.y_validation)


class NullModel(Protocol):
    """Predict one phenotype from the deleted genes."""

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""


def squared_error(model: NullModel, strains: Strains, y: NDArray[np.floating]) -> float:
    """Return the mean squared error of predictions, NaN where no label is measured."""
    measured = ~np.isnan(y)
    return float(np.square(model.predict(strains) - y)[measured].mean()) if measured.any() else float("nan")


@dataclass(frozen=True)
class Family:
    """Hold null models of one form, of which the validation part chooses one.

    Attributes:
        fitted: yields them, fitted to the training part, with different hyperparameters.
        lacks: what a problem lacks for them, or why they do not apply; None if they do.
        only_deletions: whether they know nothing of strains but the deleted genes.
    """

    fitted: Callable[[Problem], Iterator[NullModel]]
    lacks: Callable[[Problem], str | None] = lambda problem: None
    only_deletions: bool = True

    def why_not(self, problem: Problem) -> str | None:
        """Say why they do not apply; None if they do."""
        if self.only_deletions and problem.beyond_deletions:
            return f"knows deletions only, and the strains have {problem.beyond_deletions}"
        return self.lacks(problem)


def _kernel_ridges(problem: Problem) -> Iterator[NullModel]:
    for profiles in PROFILES:
        similarity = problem.similarity()
        yield from fit_kernel_ridge(problem.train, problem.y_train, similarity, profiles, PENALTIES, SPREADS)


def _ridges_and_low_rank(problem: Problem) -> Iterator[NullModel]:
    yield from fit_ridge_and_low_rank(
        problem.train, problem.y_train, problem.similarity(), RESIDUAL_PENALTIES, RESIDUAL_SHRINKAGES
    )


def _reaction_kernels(problem: Problem) -> Iterator[NullModel]:
    assert problem.reactions is not None
    for own in OWN_SHARES:
        kernel = LostSetKernel(own, problem.reactions)
        yield from fit_reaction_kernels(problem.train, problem.y_train, kernel, REACTION_PENALTIES)


def _bounds(problem: Problem) -> Iterator[NullModel]:
    assert problem.reactions is not None
    yield UntrainedBound(problem.reactions).fit(problem.train, problem.y_train)


def _gene_curves(problem: Problem, combined: str) -> Iterator[NullModel]:
    return (GeneCurves(value, combined).fit(problem.train, problem.y_train) for value in CURVE_SHRINKAGES)


def _why_not_together(problem: Problem) -> str | None:
    return why_not_together(problem.train, problem.y_train, problem.most_deletions)


def _strain_kernels(problem: Problem) -> Iterator[NullModel]:
    yield from fit_strain_kernels(problem.train, problem.y_train, problem.similarity())


def _no_subset(problem: Problem) -> str | None:
    fewest = problem.train.num_deletions[problem.train.num_deletions > 0]
    if len(fewest) and fewest.min() < problem.most_deletions and fewest.min() <= LARGEST_SUBSET:
        return not_fitness_like(problem.y_train)
    fewer = min(problem.most_deletions, LARGEST_SUBSET + 1)
    return f"needs measured subsets, and no training strain has fewer than {fewer} deletions"


NULL_MODELS = {
    "training mean": Family(
        lambda problem: iter([TrainingMean().fit(problem.train, problem.y_train)]), only_deletions=False
    ),
    "additive ridge": Family(
        lambda problem: (AdditiveRidge(alpha).fit(problem.train, problem.y_train) for alpha in ALPHAS),
        only_deletions=False,
    ),
    "query-pair mean": Family(
        lambda problem: (QueryPairMean(count).fit(problem.train, problem.y_train) for count in PSEUDO_COUNTS)
    ),
    "multiplicative": Family(
        lambda problem: (Multiplicative(alpha).fit(problem.train, problem.y_train) for alpha in (0.01, 0.1, 1.0, 10.0)),
        lambda problem: not_fitness_like(problem.y_train),
    ),
    "smallest subset": Family(lambda problem: iter([SmallestSubset().fit(problem.train, problem.y_train)]), _no_subset),
    "untrained bound": Family(_bounds, lambda problem: why_no_bound(problem.train, problem.y_train, problem.reactions)),
    "reaction kernel ridge": Family(
        _reaction_kernels, lambda problem: why_no_kernel(problem.train, problem.reactions, len(OWN_SHARES))
    ),
    "kernel ridge": Family(_kernel_ridges, lambda problem: why_not(problem.train, len(PROFILES))),
    "kernel ridge and low rank": Family(
        _ridges_and_low_rank,
        lambda problem: LowRankProfiles.why_not(problem.train) or why_not(problem.train, 1),
    ),
}
"""Families by name; the validation part chooses one null model of each."""

STRENGTH_MODELS = {
    "product of curves": Family(
        lambda problem: _gene_curves(problem, PRODUCT), _why_not_together, only_deletions=False
    ),
    "minimum of curves": Family(
        lambda problem: _gene_curves(problem, MINIMUM), _why_not_together, only_deletions=False
    ),
    "same strain in other media": Family(
        lambda problem: (SameStrain(count).fit(problem.train, problem.y_train) for count in OWN_PSEUDO_COUNTS),
        lambda problem: why_one_medium(problem.train),
        only_deletions=False,
    ),
    "kernel ridge over strains": Family(
        _strain_kernels, lambda problem: why_no_strain_kernel(problem.train), only_deletions=False
    ),
}
"""Families of strains with strengths or conditions; they say nothing new of deletions."""

ALL_NULL_MODELS = {**NULL_MODELS, **STRENGTH_MODELS}


@dataclass(frozen=True)
class MeanOfTwo:
    """Predict the mean of two null models' predictions.

    Attributes:
        names: keys of ``ALL_NULL_MODELS``.
    """

    names: tuple[str, str]
    models: tuple[NullModel, NullModel] = field(repr=False)

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return predictions in the units of the labels, [S]."""
        return (self.models[0].predict(strains) + self.models[1].predict(strains)) / 2


def in_words(name: str, model: Any) -> str:
    """Describe a null model, and what was chosen and learned for it, in a line of text."""
    shown = {part.name.replace("_", " "): getattr(model, part.name) for part in fields(model) if part.repr}
    said = [
        of if isinstance(of, str) else " and ".join(of) if isinstance(of, tuple) else f"{key} {of:.4g}"
        for key, of in shown.items()
        if not (isinstance(of, float) and np.isnan(of))  # is of something that these strains do not have
    ]
    return f"{name} ({', '.join(said)})" if said else name


def families_of(problem: Problem) -> dict[str, Family]:
    """Return the families that are about strains such as a problem's."""
    return ALL_NULL_MODELS if problem.beyond_deletions else NULL_MODELS


def left_out_null_models(problem: Problem) -> dict[str, str]:
    """Return the null models that do not apply to a split: name → reason."""
    problem = problem.labelled()
    reasons = {name: family.why_not(problem) for name, family in families_of(problem).items()}
    return {name: reason for name, reason in reasons.items() if reason}


def fit_null_models(problem: Problem) -> dict[str, NullModel]:
    """Fit every null model that applies to the training part; choose hyperparameters on the validation part.

    Where no validation strain has a label, a fifth of the training part takes its place while hyperparameters are
    chosen. Then the models are fitted to all of it.

    Returns:
        name → the model with the least mean squared error on the validation part.

    Raises:
        DataError: no training strain has a label.
    """
    problem = problem.labelled()
    skip = left_out_null_models(problem)
    errors, models = {}, {}
    for name, family in families_of(problem).items():
        if name not in skip:
            log.debug("fitting null model '%s'", name)
            errors[name], models[name] = best_of(family, problem)
    measured = {name: error for name, error in errors.items() if not np.isnan(error)}
    if len(measured) > 1:
        first, second = sorted(measured, key=measured.__getitem__)[:2]
        models[MEAN_OF_TWO] = MeanOfTwo((first, second), (models[first], models[second]))
    return models


def best_of(family: Family, problem: Problem) -> tuple[float, NullModel]:
    """Return the least mean squared error on the validation part, or on the fold that stands for it, and its model.

    Args:
        family: applies to the problem.
        problem: whose training strains all have a label.
    """
    judged = problem.with_validation()
    found = list(family.fitted(judged))
    errors = [judged.error(model) for model in found]
    best = 0 if np.isnan(errors).any() else int(np.argmin(errors))
    if judged is not problem:
        found = list(family.fitted(problem))
    return errors[best], found[best]
