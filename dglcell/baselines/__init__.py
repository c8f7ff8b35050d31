"""Null models: what a predictor without a cell graph reaches on the same split.

A result of a graph model means little without them: additive effects of genes, or the mean of a query pair,
explain much of most screens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dglcell.baselines.additive import AdditiveRidge
from dglcell.baselines.mean import TrainingMean
from dglcell.baselines.profile import LowRankProfiles
from dglcell.baselines.query_pair import QueryPairMean
from dglcell.baselines.strains import Strains

__all__ = [
    "NULL_MODELS",
    "AdditiveRidge",
    "FittedNull",
    "LowRankProfiles",
    "NullModel",
    "QueryPairMean",
    "Strains",
    "TrainingMean",
    "fit_null_models",
    "left_out_null_models",
]


class NullModel(Protocol):
    """A predictor of one phenotype from the deleted genes alone."""

    def fit(self, strains: Strains, y: NDArray[np.floating]) -> Self:
        """Learn from the labelled strains; missing labels (NaN) are ignored."""

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """[S] predictions in the units of the labels."""


ALPHAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
PSEUDO_COUNTS = (0.5, 2.0, 8.0, 32.0)
SHRINKAGES = (0.7, 1.0, 1.4, 2.0, 3.0)

NULL_MODELS: dict[str, Callable[[], list[NullModel]]] = {
    "training mean": lambda: [TrainingMean()],
    "additive ridge": lambda: [AdditiveRidge(alpha) for alpha in ALPHAS],
    "query-pair mean": lambda: [QueryPairMean(count) for count in PSEUDO_COUNTS],
    "low-rank profiles": lambda: [LowRankProfiles(shrinkage) for shrinkage in SHRINKAGES],
}
"""Name → the candidates of which the validation part chooses one."""


@dataclass(frozen=True)
class FittedNull:
    """A null model fitted to the training part.

    Attributes:
        name: key of ``NULL_MODELS``.
        model: the candidate with the least validation MSE; prints its hyperparameters.
    """

    name: str
    model: NullModel

    def predict(self, strains: Strains) -> NDArray[np.float64]:
        """[S] predictions in the units of the labels."""
        return self.model.predict(strains)


def left_out_null_models(train: Strains) -> dict[str, str]:
    """The null models that do not apply to these strains: name → reason."""
    reason = LowRankProfiles.why_not(train)
    return {"low-rank profiles": reason} if reason else {}


def fit_null_models(
    train: Strains, validation: Strains, y_train: NDArray[np.floating], y_validation: NDArray[np.floating]
) -> list[FittedNull]:
    """Fit every null model that applies to the training part; choose hyperparameters on the validation part.

    Args:
        train: training strains.
        validation: validation strains.
        y_train: [S] labels of one phenotype, NaN where missing.
        y_validation: likewise for the validation strains; if none is measured the middle candidate is taken.

    Raises:
        DataError: no training strain has a label.
    """
    skip = left_out_null_models(train)
    return [
        FittedNull(name, _best(candidates(), train, validation, y_train, y_validation))
        for name, candidates in NULL_MODELS.items()
        if name not in skip
    ]


def _best(
    candidates: Sequence[NullModel],
    train: Strains,
    validation: Strains,
    y_train: NDArray[np.floating],
    y_validation: NDArray[np.floating],
) -> NullModel:
    """The fitted candidate with the least mean squared error on the validation part."""
    measured = ~np.isnan(y_validation)
    if len(candidates) == 1 or not measured.any():
        return candidates[len(candidates) // 2].fit(train, y_train)
    fitted = [candidate.fit(train, y_train) for candidate in candidates]
    errors = [float(np.square(model.predict(validation) - y_validation)[measured].mean()) for model in fitted]
    return fitted[int(np.argmin(errors))]
