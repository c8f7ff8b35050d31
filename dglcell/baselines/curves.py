"""Fit monotone curves over how much of a gene is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dglcell.baselines.problem import MORE, Baseline, Family, Problem, each
from dglcell.baselines.simple import AdditiveRidge, not_fitness_like
from dglcell.data.strains import Strains

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Hold a monotone curve: straight lines between its places, and constant beyond them."""

    places: NDArray[np.float64]  #: [K] where the curve has been fitted, ascending
    values: NDArray[np.float64]  #: [K] its values there

    @classmethod
    def of(cls, x: Values, y: Values, weights: Values | None = None) -> Self:
        """Return the curve with the least squared error that never falls or never rises (isotonic regression).

        Args:
            x: [n] places, in any order; n is at least 1.
            y: [n] what was measured there.
            weights: [n] weights of the measurements; 1 if not given.
        """
        from sklearn.isotonic import IsotonicRegression  # is slow to import, and needed to fit only

        curves, errors = [], []
        for rises in (False, True):
            fit = IsotonicRegression(increasing=rises).fit(x, y, weights)
            curves.append(cls(fit.X_thresholds_, fit.y_thresholds_))
            errors.append(float(np.average(np.square(y - curves[-1](x)), weights=weights)))
        # The error has to be clearly smaller, so that rounding does not choose between two that fit alike.
        return curves[1] if errors[1] < (1 - 1e-9) * errors[0] else curves[0]

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the values of the curve at ``x``."""
        return np.interp(x, self.places, self.values)


GRID = 11
"""Places at which the pooled curve counts as a measurement."""
CERTAIN = 1e9
"""Weight of the wild type's value, which the curve of every gene has where nothing is lost."""


@dataclass
class GeneCurves(Baseline):
    """Predict y from a monotone curve for each gene over how much of it is lost, plus effects of covariates.

    Curves are fitted to the strains that change one gene. Genes without such strains have the curve of all. All curves
    have the wild type's value where nothing is lost. Of several genes the one with the least value counts.
    """

    #: measurements of each gene that the curve of all genes counts as, spread over the activities
    shrinkage: float = 4.0
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
        curves = {
            gene: Curve.of(
                np.concatenate([places[rows], grid]),
                np.concatenate([labels[rows], prior]),
                np.concatenate([np.ones(len(rows)), weight]),
            )
            for gene, rows in _rows_of(strains.targets, strains.owners).items()
        }
        self.genes, self.curves = np.array([*curves], np.int64), tuple(curves.values())
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        lost, values = strains.lost, np.empty(len(strains.targets))
        curves = dict(zip(self.genes.tolist(), self.curves, strict=True))
        for gene, places in _rows_of(strains.targets, np.arange(len(values))).items():
            values[places] = curves.get(gene, self.pooled)(lost[places])
        least = np.full(len(strains), np.inf)
        np.minimum.at(least, strains.owners, np.where(lost == 0, np.inf, values))
        wild = float(self.pooled(np.zeros(1))[0])
        return np.where(np.isinf(least), wild, least) + self.covariates.of_covariates(strains)


def _rows_of(genes: NDArray[np.integer], rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    return {int(gene): of.to_numpy() for gene, of in pd.Series(rows).groupby(genes)}


def _lacks(problem: Problem) -> str | None:
    if problem.train.activities is None:
        return "needs strains with activities"
    if not (problem.train.num_deletions == 1).any():
        return "needs training strains that change one gene"
    if problem.most_deletions < 2:
        return "needs strains that change several genes"
    return not_fitness_like(problem.y_train)


MINIMUM_OF_CURVES = Family(each(GeneCurves, 0.3, 1.0, 3.0, 10.0), _lacks, MORE)
