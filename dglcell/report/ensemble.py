"""Treat runs of one experiment as one model: score the mean of their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import CheckpointError
from dglcell.metrics import ResultRow, rows_of
from dglcell.report.run_files import PARTS, RunFiles
from dglcell.report.run_tables import read_predictions
from dglcell.runs.directory import MEND


@dataclass(frozen=True)
class Joined:
    """Hold the predictions of several runs for the strains of one part and one phenotype.

    Attributes:
        measured: [S] labels, NaN where missing.
        mean: [S] mean of the runs' predictions.
    """

    measured: NDArray[np.floating]
    mean: NDArray[np.floating]


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
    own = [row for row in runs[0].rows if row.is_network]
    kinds = {row.phenotype: row.kind for row in own}
    joined: dict[str, dict[str, Joined]] = {phenotype: {} for phenotype in kinds}
    for part in (part for part in PARTS if any(row.part == part for row in own)):
        tables = [read_predictions(run.directory, part, of_network=True) for run in runs]
        for phenotype, parts in joined.items():
            found = [table[phenotype] for table in tables if phenotype in table]
            labels = [each.measured for each in found]
            if len(found) < len(runs) or not all(np.array_equal(own, labels[0], equal_nan=True) for own in labels):
                raise CheckpointError(
                    f"the runs of {name} have the same split, but not predictions of the same strains", do=MEND
                )
            predicted_RS = np.stack([each.predicted for each in found])
            parts[part] = Joined(labels[0], predicted_RS.mean(0))
    return Ensemble(name, own[0].model, len(runs), kinds, joined)
