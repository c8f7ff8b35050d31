"""Treat runs of one experiment as one model: score the mean of their predictions, and use their spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.data.table import REGRESSION
from dglcell.errors import CheckpointError
from dglcell.metrics import ResultRow, mean_ranks, pearson, rows_of
from dglcell.report.page import UNDEFINED, Grid, number
from dglcell.report.run_files import PARTS, RunFiles
from dglcell.report.run_tables import read_predictions
from dglcell.runs.directory import MEND

ONE_SD = 0.6827
"""This share of a normal distribution is within one standard deviation."""

SPREAD_NOTE = (
    "Shares of the strains whose measured value is within one or two standard deviations (sd) of the runs' mean. They "
    "would be 68 % and 95 % if runs differed as much as predictions err. Runs have errors in common, "
    "so the shares are usually smaller. The factor makes the share within one sd 68 % on the validation part. "
    "The columns “scaled” use the sd times this factor. Spearman is the rank correlation of sd and absolute error: "
    "above 0, predictions on which the runs disagree err more."
)


@dataclass(frozen=True)
class Joined:
    """Hold the predictions of several runs for the strains of one part and one phenotype.

    Attributes:
        measured: [S] labels, NaN where missing.
        mean: [S] mean of the runs' predictions.
        sd: [S] standard deviation over the runs.
    """

    measured: NDArray[np.floating]
    mean: NDArray[np.floating]
    sd: NDArray[np.floating]

    @property
    def errors(self) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
        """Return absolute error and standard deviation of the measured strains."""
        keep = ~np.isnan(self.measured)
        return np.abs(self.mean - self.measured)[keep], self.sd[keep]

    def within(self, width: float) -> float:
        """Return the share of the measured strains whose error is at most ``width`` standard deviations.

        It is NaN without any measured strain.
        """
        error, sd = self.errors
        return float(np.mean(error <= width * sd)) if len(error) else float("nan")

    @property
    def factor(self) -> float:
        """Return the number of standard deviations within which ``ONE_SD`` of the measured strains are.

        It is NaN where no such number exists.
        """
        error, sd = self.errors
        if not len(error):
            return math.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            needed = np.where(error == 0, 0.0, error / sd)
        factor = float(np.quantile(needed, ONE_SD, method="higher"))
        return factor if math.isfinite(factor) else math.nan


@dataclass(frozen=True)
class Ensemble:
    """Hold several runs of one experiment on one split.

    Attributes:
        kinds: phenotype → kind of its labels.
        joined: phenotype → part → predictions.
    """

    name: str
    model: str
    runs: int
    kinds: dict[str, str]
    joined: dict[str, dict[str, Joined]]

    @property
    def rows(self) -> list[ResultRow]:
        """Return metrics of the mean prediction."""
        return [
            row
            for phenotype, parts in self.joined.items()
            for row in rows_of(
                self.model,
                phenotype,
                self.kinds[phenotype],
                {part: found.mean for part, found in parts.items()},
                {part: found.measured for part, found in parts.items()},
            )
        ]


def find_ensembles(runs: Sequence[RunFiles]) -> list[Ensemble]:
    """Return an ensemble for each experiment of which several runs share a split that has a test part.

    Raises:
        CheckpointError: predictions of a run are missing or damaged.
    """
    groups: dict[str, list[RunFiles]] = {}
    for run in runs:
        if run.rows:
            groups.setdefault(run.name, []).append(run)
    return [
        _ensemble(name, own)
        for name, own in groups.items()
        if len(own) > 1 and len({run.environment["hashes"]["split"] for run in own}) == 1
    ]


def _ensemble(name: str, runs: Sequence[RunFiles]) -> Ensemble:
    own = [row for row in runs[0].rows if not row.is_null]
    kinds = {row.phenotype: row.kind for row in own}
    joined: dict[str, dict[str, Joined]] = {phenotype: {} for phenotype in kinds}
    for part in (part for part in PARTS if any(row.part == part for row in own)):
        tables = [read_predictions(run.directory, part) for run in runs]
        for phenotype, parts in joined.items():
            found = [table[phenotype] for table in tables if phenotype in table]
            labels = [each.measured for each in found]
            if len(found) < len(runs) or not all(np.array_equal(own, labels[0], equal_nan=True) for own in labels):
                raise CheckpointError(
                    f"the runs of {name} have the same split, but not predictions of the same strains", do=MEND
                )
            predicted_RS = np.stack([each.predicted for each in found])
            parts[part] = Joined(labels[0], predicted_RS.mean(0), predicted_RS.std(0, ddof=1))
    return Ensemble(name, own[0].model, len(runs), kinds, joined)


def spread_table(ensembles: Sequence[Ensemble]) -> Grid:
    """Make a table of how much of the error on the test part the spread over runs explains.

    It is for phenotypes that are numbers.
    """
    rows = []
    for ensemble in ensembles:
        for phenotype, parts in ensemble.joined.items():
            if ensemble.kinds[phenotype] != REGRESSION or "test" not in parts:
                continue
            test = parts["test"]
            factor = parts["validation"].factor if "validation" in parts else float("nan")
            shares = [test.within(width) for width in (1, 2, factor, 2 * factor)]
            ranks = [mean_ranks(np.asarray(values, np.float64)) for values in test.errors]
            cells = [*(_percent(share) for share in shares[:2]), number(factor, 3)]
            cells += [*(_percent(share) for share in shares[2:]), number(pearson(*ranks), 2)]
            rows.append([ensemble.name, phenotype, str(ensemble.runs), *cells])
    heads = ["runs", "1 sd", "2 sd", "factor", "1 sd, scaled", "2 sd, scaled", "Spearman"]
    return Grid(["experiment", "phenotype", *heads], rows, texts=2)


def _percent(share: float) -> str:
    return UNDEFINED if np.isnan(share) else f"{100 * share:.0f} %"
