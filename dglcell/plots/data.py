"""Hold the data that a report shows: predictions, doses, the record of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.table import REGRESSION
from dglcell.errors import DataError
from dglcell.metrics import ResultRow, regression_metrics


@dataclass(frozen=True)
class History:
    """Hold the record of a training, one row an epoch, as in ``metrics.jsonl``.

    Attributes:
        rows: key → value; ``epoch`` counts from 0, and None stands for undefined values.
    """

    rows: Sequence[Mapping[str, float | None]] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def epochs(self) -> NDArray[np.int64]:
        """Return the epochs, counted from 1, as the log prints them."""
        return np.array([int(row["epoch"] or 0) + 1 for row in self.rows], dtype=np.int64)

    def curve(self, key: str) -> NDArray[np.float64]:
        """Return one value an epoch, NaN where there is none."""
        return np.array([_value(row.get(key)) for row in self.rows], dtype=np.float64)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys below ``prefix`` that have a value in any epoch, in the order of their first appearance."""
        found = dict.fromkeys(key for row in self.rows for key in row if key.startswith(prefix))
        return [key for key in found if np.isfinite(self.curve(key)).any()]

    @property
    def minutes(self) -> float:
        """Return how many minutes all epochs took together."""
        return float(np.nansum(self.curve("seconds"))) / 60

    @property
    def duration(self) -> str:
        """Return how long all epochs took together, in seconds where that is less than two minutes."""
        return f"{60 * self.minutes:.1f} s" if self.minutes < 2 else f"{self.minutes:.1f} min"


def _value(value: float | None) -> float:
    return math.nan if value is None else float(value)


DEFAULT_POINTS = 10_000


@dataclass(frozen=True)
class Predictions:
    """Hold predictions for one part of the split and one phenotype, in original units.

    Attributes:
        measured: [S] measured phenotypes, NaN where not measured.
        predicted: [S] predicted phenotypes.
    """

    measured: NDArray[np.floating]
    predicted: NDArray[np.floating]

    def __post_init__(self) -> None:
        shapes = {np.shape(self.measured), np.shape(self.predicted)}
        if len(shapes) != 1:
            raise DataError(
                "report: columns of the predictions differ in shape", got=sorted(shapes), expected="[S] each"
            )

    def __len__(self) -> int:
        return len(self.measured)

    @cached_property
    def usable(self) -> Predictions:
        """Return the strains with a measurement and a finite prediction, in float64."""
        measured, predicted = np.asarray(self.measured, float), np.asarray(self.predicted, float)
        keep = np.isfinite(measured) & np.isfinite(predicted)
        return Predictions(measured[keep], predicted[keep])

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Return metrics of the usable strains."""
        return regression_metrics(self.usable.predicted, self.usable.measured)


@dataclass(frozen=True)
class Doses:
    """Hold how much is left of the gene of each strain of a part that changes a single one.

    Attributes:
        genes: [S] name of the gene; empty for strains that change none or several.
        strengths: [S] what is left of it; NaN for other strains.
        media: [S] the medium of each strain; empty texts where strains have none.
        learned: whether the model has learned the strengths.
    """

    genes: NDArray[Any]
    strengths: NDArray[np.floating]
    media: NDArray[Any]
    learned: bool = False


@dataclass(frozen=True)
class ReportData:
    """Hold all data of one finished run that its picture shows.

    Attributes:
        subtitle: lines below the title: seed, sizes, parameters, time.
        rows: metrics of the model and of the null models.
        predictions: part → phenotype → predictions of the model.
        history: record of the training; may be empty.
        units: phenotype → unit; dimensionless where missing or empty.
        best_epoch: epoch of the checkpoint that was evaluated, counted from 1, if known.
        points: largest number of single points that are drawn in one panel.
        doses: part → strengths of strains; none where strains delete their genes.
    """

    title: str
    rows: Sequence[ResultRow]
    predictions: Mapping[str, Mapping[str, Predictions]]
    subtitle: Sequence[str] = ()
    history: History = field(default_factory=History)
    units: Mapping[str, str] = field(default_factory=dict)
    best_epoch: int | None = None
    points: int = DEFAULT_POINTS
    doses: Mapping[str, Doses] = field(default_factory=dict)

    @property
    def phenotypes(self) -> list[str]:
        """Return all phenotypes that have predictions or metrics, in the order of their first appearance."""
        predicted = [name for part in self.predictions.values() for name in part]
        return list(dict.fromkeys([*predicted, *(row.phenotype for row in self.rows)]))

    def kind(self, phenotype: str) -> str:
        """Return the kind of a phenotype's labels, as its metrics say; regression where it has none."""
        return next((row.kind for row in self.rows if row.phenotype == phenotype), REGRESSION)
