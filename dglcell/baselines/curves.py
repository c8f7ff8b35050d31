"""Fit monotone curves: over how much of a gene is lost, and over the growth by flux balance analysis."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.problem import MORE, SIMULATED, Baseline, Family, Problem, each
from dglcell.baselines.simple import AdditiveRidge, not_fitness_like
from dglcell.data.columns import COMPUTED, COVARIATE, Column
from dglcell.data.strains import Strains
from dglcell.errors import DataError

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Hold a monotone curve: straight lines between its places, and constant beyond them."""

    places: NDArray[np.float64]  #: [K] where the curve has been fitted, ascending
    values: NDArray[np.float64]  #: [K] its values there

    @classmethod
    def monotone(cls, x: Values, y: Values, weights: Values | None = None, *, rises: bool = True) -> Self:
        """Return the curve with the least squared error that never falls, or else never rises (isotonic regression).

        Args:
            x: [n] places, in any order; n is at least 1.
            y: [n] what was measured there.
            weights: [n] weights of the measurements; 1 if not given.
            rises: whether it may rise, and not fall.
        """
        from sklearn.isotonic import IsotonicRegression  # is slow to import, and needed to fit only

        fit = IsotonicRegression(increasing=rises).fit(x, y, weights)
        return cls(fit.X_thresholds_, fit.y_thresholds_)

    @classmethod
    def of(cls, x: Values, y: Values, weights: Values | None = None) -> Self:
        """Return the one of both curves with the smaller error; arguments are those of ``monotone``."""
        falling, rising = (cls.monotone(x, y, weights, rises=rises) for rises in (False, True))
        errors = [float(np.average(np.square(y - one(x)), weights=weights)) for one in (falling, rising)]
        # Its error has to be clearly smaller, so that rounding does not choose between two that fit alike.
        return rising if errors[1] < (1 - 1e-9) * errors[0] else falling

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values of the curve at ``x``."""
        return np.interp(x, self.places, self.values)


PRODUCT, MINIMUM = "product", "minimum"
GRID = 11
"""Places at which the pooled curve counts as a measurement."""
CERTAIN = 1e9
"""Weight of the wild type's value, which the curve of every gene has where nothing is lost."""


@dataclass
class GeneCurves(Baseline):
    """Predict y from a monotone curve for each gene over how much of it is lost, plus effects of covariates.

    Curves are fitted to the strains that change one gene. Genes without such strains have the curve of all. All curves
    have the wild type's value where nothing is lost.
    """

    #: measurements of each gene that the curve of all genes counts as, spread over the activities
    shrinkage: float = 4.0
    #: the values of several genes relative to the wild type multiply (``PRODUCT``), or the least of them counts
    #: (``MINIMUM``)
    combined: str = field(default=PRODUCT, repr=False)
    pooled: Curve = field(init=False, repr=False)
    genes: NDArray[np.int64] = field(init=False, repr=False)
    curves: tuple[Curve, ...] = field(init=False, repr=False)
    covariates: AdditiveRidge = field(init=False, repr=False)

    def fit(self, strains: Strains, y: NDArray[np.float64]) -> Self:
        self.covariates = AdditiveRidge(1.0).fit(strains, y)
        labels = y - self.covariates.of_covariates(strains)
        few = np.flatnonzero(strains.num_deletions <= 1)
        strains, labels = strains.take(few), labels[few]
        places = strains.total(strains.lost)
        self.pooled = Curve.of(places, labels)
        grid = np.append(np.linspace(places.min(), places.max(), GRID), 0.0)
        prior, weight = self.pooled(grid), np.append(np.full(GRID, self.shrinkage / GRID), CERTAIN)
        rows = np.flatnonzero(strains.num_deletions == 1)
        each = _by_gene(strains.targets)
        self.genes = np.array([gene for gene, _ in each], np.int64)
        self.curves = tuple(
            Curve.of(
                np.concatenate([places[rows[of]], grid]),
                np.concatenate([labels[rows[of]], prior]),
                np.concatenate([np.ones(len(of)), weight]),
            )
            for _, of in each
        )
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        amounts, values = strains.lost, np.empty(len(strains.targets))
        curves = dict(zip(self.genes.tolist(), self.curves, strict=True))
        for gene, of in _by_gene(strains.targets):
            values[of] = curves.get(gene, self.pooled)(amounts[of])
        return self._together(values, amounts, strains) + self.covariates.of_covariates(strains)

    def _together(self, values: Values, amounts: Values, strains: Strains) -> Values:
        """Combine the values of all targets, [P], into one value for each strain, [S]; ``amounts`` are lost, [P]."""
        wild = float(self.pooled(np.zeros(1))[0])
        if self.combined == PRODUCT:
            unit = wild if wild > 0 else 1.0  # fitness is relative to the wild type, and that is never negative
            product = np.full(len(strains), unit)
            np.multiply.at(product, strains.owners, values / unit)
            return product
        least = np.full(len(strains), np.inf)
        np.minimum.at(least, strains.owners, np.where(amounts == 0, np.inf, values))
        return np.where(np.isinf(least), wild, least)


def _by_gene(targets: NDArray[np.integer]) -> list[tuple[int, NDArray[np.int64]]]:
    order = np.argsort(targets, kind="stable")
    genes, first = np.unique(targets[order], return_index=True)
    return list(zip(genes.tolist(), np.split(order, first[1:]), strict=True)) if len(genes) else []


def _lacks(problem: Problem) -> str | None:
    if problem.train.activities is None:
        return "needs strains with activities"
    if not (problem.train.num_deletions == 1).any():
        return "needs training strains that change one gene"
    if problem.most_deletions < 2:
        return "needs strains that change several genes"
    return not_fitness_like(problem.y_train)


SHRINKAGES = (0.3, 1.0, 3.0, 10.0)
PRODUCT_OF_CURVES = Family(each(partial(GeneCurves, combined=PRODUCT), *SHRINKAGES), _lacks, MORE)
MINIMUM_OF_CURVES = Family(each(partial(GeneCurves, combined=MINIMUM), *SHRINKAGES), _lacks, MORE)

SIMULATOR = "FbaGrowth"
"""This simulator (`dglcell.data.sources.fba_growth`) computes the columns."""


@dataclass
class AsComputed(Baseline):
    """Predict y = the growth that was computed. Its unit need not be that of the labels: the correlation counts."""

    column: str  #: name of the covariate

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return the column, [S]; strains without it are refused."""
        found = strains.columns.get(Column(COVARIATE, self.column))
        if found is None:
            raise DataError(
                f"FBA: the strains have no column '{self.column}'",
                expected="strains as the store of a run has them, or as `predict` completes them",
                do="set `data.fba`",
            )
        return np.asarray(found, dtype=np.float64)


@dataclass
class RisingCurve(Baseline):
    """Predict y = f(growth that was computed), where f never falls."""

    column: str  #: name of the covariate
    curve: Curve = field(repr=False)  #: f

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        return self.curve(AsComputed(self.column).predict(strains))


def _columns(problem: Problem) -> list[str]:
    made = problem.train.provenance.parameters.get(COMPUTED, {})
    return [name for name in problem.train.computed if made[name].get("simulator") == SIMULATOR]


def _rising_curves(problem: Problem) -> Iterator[Baseline]:
    for name in _columns(problem):
        growth = AsComputed(name).predict(problem.train)
        yield RisingCurve(name, Curve.monotone(growth, problem.y_train.astype(np.float64)))


def _no_growth(problem: Problem) -> str | None:
    return None if _columns(problem) else "needs the growth that `data.fba` computes"


FBA = Family(lambda problem: map(AsComputed, _columns(problem)), _no_growth, about=SIMULATED)
FBA_CURVE = Family(_rising_curves, _no_growth, about=SIMULATED)
