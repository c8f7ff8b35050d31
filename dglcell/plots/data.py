"""What a report shows, and the numbers derived from it."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError
from dglcell.files import atomic_file
from dglcell.training.metrics import ResultRow, regression_metrics

MAX_BINS = 12
MIN_BIN_SIZE = 5
MIN_GROUP_SIZE = 3
CSV_COLUMNS = ("panel", "phenotype", "series", "x", "value", "standard_error", "n")


@dataclass(frozen=True)
class EpochRecord:
    """One epoch of training; NaN where a value was not computed.

    Attributes:
        epoch: counted from 1, as the log prints them.
        train_loss: mean over the steps of the epoch, normalised units.
        validation_loss: likewise on the validation part.
        validation_pearson: phenotype → Pearson correlation on the validation part.
    """

    epoch: int
    train_loss: float = math.nan
    validation_loss: float = math.nan
    validation_pearson: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Predictions:
    """Test part of one phenotype, in original units.

    Attributes:
        measured: [S], NaN where not measured.
        predicted: [S].
        num_deletions: [S] deleted genes of each strain.
    """

    measured: NDArray[np.floating]
    predicted: NDArray[np.floating]
    num_deletions: NDArray[np.integer]

    def __post_init__(self) -> None:
        shapes = {np.shape(a) for a in (self.measured, self.predicted, self.num_deletions)}
        if len(shapes) != 1:
            raise DataError("report: columns of the predictions differ in shape", got=sorted(shapes))

    def usable(self) -> Predictions:
        """The strains with a measurement and a finite prediction, in float64."""
        measured, predicted = np.asarray(self.measured, float), np.asarray(self.predicted, float)
        keep = np.isfinite(measured) & np.isfinite(predicted)
        return Predictions(measured[keep], predicted[keep], np.asarray(self.num_deletions)[keep])


@dataclass(frozen=True)
class ReportData:
    """One finished run.

    Attributes:
        title: name of the experiment.
        subtitle: lines below it: seed, sizes, parameters, time.
        rows: metrics of the model and of the null models.
        history: one record an epoch; may be empty.
        predictions: phenotype → predictions of the model on the test part.
        units: phenotype → unit; dimensionless where missing or empty.
        best_epoch: epoch of the checkpoint that was evaluated, if known.
    """

    title: str
    rows: Sequence[ResultRow]
    predictions: Mapping[str, Predictions]
    subtitle: Sequence[str] = ()
    history: Sequence[EpochRecord] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    best_epoch: int | None = None

    @property
    def phenotypes(self) -> list[str]:
        """All phenotypes that have predictions or metrics, in the order of their first appearance."""
        return list(dict.fromkeys([*self.predictions, *(row.phenotype for row in self.rows)]))


@dataclass(frozen=True)
class CalibrationBin:
    """Strains with similar predictions.

    Attributes:
        predicted: mean prediction.
        measured: mean measurement.
        standard_error: of the mean measurement.
        n: strains in the bin.
    """

    predicted: float
    measured: float
    standard_error: float
    n: int


def calibration(predictions: Predictions) -> list[CalibrationBin]:
    """Mean measurement in bins of equally many strains, ordered by prediction.

    Strains with the same prediction stay in one bin, so that a constant prediction makes a single bin.
    """
    p = predictions.usable()
    if len(p.measured) < 2 * MIN_BIN_SIZE:
        return []
    count = min(MAX_BINS, len(p.measured) // MIN_BIN_SIZE)
    edges = np.unique(np.quantile(p.predicted, np.linspace(0, 1, count + 1)[1:-1]))
    bin_of = np.searchsorted(edges, p.predicted, side="left")
    bins = []
    for index in np.unique(bin_of):
        inside = bin_of == index
        y, n = p.measured[inside], int(inside.sum())
        error = float(y.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
        bins.append(CalibrationBin(float(p.predicted[inside].mean()), float(y.mean()), error, n))
    return bins


def pearson_by_deletions(predictions: Predictions) -> list[tuple[int, float, int]]:
    """Number of deletions, Pearson correlation and n of each group of strains that has one."""
    p = predictions.usable()
    groups = []
    for number in np.unique(p.num_deletions):
        inside = p.num_deletions == number
        r = regression_metrics(p.predicted[inside], p.measured[inside])["pearson"]
        if inside.sum() >= MIN_GROUP_SIZE and math.isfinite(r):
            groups.append((int(number), r, int(inside.sum())))
    return groups


def write_numbers(run: ReportData, path: Path) -> None:
    """Write the numbers behind the picture, one value a line: panel, phenotype, series, x, value, error, n."""
    with atomic_file(path) as partial, open(partial, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_COLUMNS)
        for line in _numbers(run):
            writer.writerow(["" if isinstance(v, float) and not math.isfinite(v) else v for v in line])


def _numbers(run: ReportData) -> Iterator[tuple[object, ...]]:
    for row in run.rows:
        n = row.metrics.get("n", math.nan)
        for metric, value in row.metrics.items():
            if metric != "n":
                yield (metric, row.phenotype, row.model, row.part, value, "", n)
    for phenotype, predictions in run.predictions.items():
        for group in calibration(predictions):
            yield (
                "calibration", phenotype, "mean measured", group.predicted, group.measured,
                group.standard_error, group.n,
            )  # fmt: skip
        for number, r, n in pearson_by_deletions(predictions):
            yield ("pearson by number of deletions", phenotype, "model", number, r, "", n)
    for record in run.history:
        yield ("learning", "", "train loss", record.epoch, record.train_loss, "", "")
        yield ("learning", "", "validation loss", record.epoch, record.validation_loss, "", "")
        for phenotype, r in record.validation_pearson.items():
            yield ("learning", phenotype, "validation pearson", record.epoch, r, "", "")
