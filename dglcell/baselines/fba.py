"""Predict by what flux balance analysis says of strains: as it is, or through a curve that never falls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.problem import SIMULATED, Family, NullModel, Problem
from dglcell.data.columns import COMPUTED, CONDITION, Column
from dglcell.data.strains import Strains
from dglcell.errors import DataError

SIMULATOR = "FbaGrowth"
"""This simulator (`dglcell.data.sources.fba_growth`) computes the columns."""


@dataclass
class AsComputed(NullModel):
    """Predict y = the growth that was computed. Its unit need not be that of the labels: the correlation counts.

    Attributes:
        column: name of the covariate.
    """

    column: str

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """Return the column, [S].

        Raises:
            DataError: the strains do not have it.
        """
        found = strains.columns.get(Column(CONDITION, self.column))
        if found is None:
            raise DataError(
                f"FBA: the strains have no column '{self.column}'",
                expected="strains as the store of a run has them, or as `predict` completes them",
                do="set `data.fba`",
            )
        return np.asarray(found, dtype=np.float64)


@dataclass
class RisingCurve(NullModel):
    """Predict y = f(growth that was computed), where f never falls: isotonic regression, constant beyond its ends.

    Attributes:
        column: name of the covariate.
        growth: [K] growth at which f bends, ascending; and f there.
    """

    column: str
    growth: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False)
    value: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0), repr=False)

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from strains that all have a label."""
        from sklearn.isotonic import IsotonicRegression  # is slow to import, and needed to fit only

        curve = IsotonicRegression().fit(AsComputed(self.column).predict(strains), y.astype(np.float64))
        self.growth = np.asarray(curve.X_thresholds_, dtype=np.float64)
        self.value = np.asarray(curve.y_thresholds_, dtype=np.float64)
        return self

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        return np.interp(AsComputed(self.column).predict(strains), self.growth, self.value)


def _columns(problem: Problem) -> list[str]:
    made = problem.train.provenance.parameters.get(COMPUTED, {})
    return [name for name in problem.train.computed if made[name].get("simulator") == SIMULATOR]


def _as_computed(problem: Problem) -> Iterator[NullModel]:
    return (AsComputed(name) for name in _columns(problem))


def _rising_curves(problem: Problem) -> Iterator[NullModel]:
    return (RisingCurve(name).fit(problem.train, problem.y_train) for name in _columns(problem))


def _lacks(problem: Problem) -> str | None:
    return None if _columns(problem) else "needs the growth that `data.fba` computes"


FBA = Family(_as_computed, _lacks, about=SIMULATED)
FBA_CURVE = Family(_rising_curves, _lacks, about=SIMULATED)
