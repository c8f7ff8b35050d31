"""What a report shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from dglcell.data.kinds import REGRESSION
from dglcell.errors import DataError
from dglcell.plots.history import History
from dglcell.training.metrics import ResultRow, regression_metrics

DEFAULT_POINTS = 10_000


@dataclass(frozen=True)
class Predictions:
    """One part of the split and one phenotype, in original units.

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

    def __len__(self) -> int:
        return len(self.measured)

    @cached_property
    def usable(self) -> Predictions:
        """The strains with a measurement and a finite prediction, in float64."""
        measured, predicted = np.asarray(self.measured, float), np.asarray(self.predicted, float)
        keep = np.isfinite(measured) & np.isfinite(predicted)
        return Predictions(measured[keep], predicted[keep], np.asarray(self.num_deletions)[keep])

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics of the usable strains."""
        return regression_metrics(self.usable.predicted, self.usable.measured)


@dataclass(frozen=True)
class Subject:
    """Which strains a panel shows.

    Attributes:
        predictions: of the model.
        phenotype: its name.
        unit: dimensionless where empty.
        part: ``test`` or ``validation``.
        points: single points drawn at most, chosen at random.
    """

    predictions: Predictions
    phenotype: str
    unit: str = ""
    part: str = "test"
    points: int = DEFAULT_POINTS

    @property
    def usable(self) -> Predictions:
        """The strains with a measurement and a finite prediction."""
        return self.predictions.usable

    def key(self, panel: str) -> str:
        """Stem of a panel's files; different phenotypes never share one."""
        return f"{self.part}-{quote(self.phenotype, safe='')}-{panel}"

    @property
    def nothing(self) -> str:
        """Why there is nothing to draw; empty where there is something."""
        return "" if len(self.usable) else f"no measured {self.part} strains"


@dataclass(frozen=True)
class Embedding:
    """z_p of some strains of the test part.

    Attributes:
        strains: [S'] their rows among the predictions of that part, ascending.
        vectors: [S', D].
    """

    strains: NDArray[np.integer]
    vectors: NDArray[np.floating]


@dataclass(frozen=True)
class EmbeddingMap:
    """Embeddings in the plane.

    Attributes:
        method: ``UMAP`` or ``PCA``.
        strains: [S'] rows among the predictions of the test part.
        positions: [S', 2].
        explained: shares of the variance along both axes of a PCA.
        missing: whether UMAP would have been drawn if it were installed.
    """

    method: str
    strains: NDArray[np.integer]
    positions: NDArray[np.floating]
    explained: tuple[float, float] | None = None
    missing: bool = False


RelationWeights = Mapping[str, tuple[Sequence[str], NDArray[np.floating]]]
"""Layer and node type → names of K relations (or pairs of them) and their mean weights: [K], or [K, K] where each
relation weighs every other."""


@dataclass(frozen=True)
class ReportData:
    """One finished run.

    Attributes:
        title: name of the experiment.
        subtitle: lines below it: seed, sizes, parameters, time.
        rows: metrics of the model and of the null models.
        history: may be empty.
        predictions: part → phenotype → predictions of the model.
        units: phenotype → unit; dimensionless where missing or empty.
        best_epoch: epoch of the checkpoint that was evaluated, counted from 1, if known.
        embedding_map: of the test part, if the model has embeddings.
        relation_weights: if the model has them.
        points: single points drawn at most in one panel.
    """

    title: str
    rows: Sequence[ResultRow]
    predictions: Mapping[str, Mapping[str, Predictions]]
    subtitle: Sequence[str] = ()
    history: History = field(default_factory=History)
    units: Mapping[str, str] = field(default_factory=dict)
    best_epoch: int | None = None
    embedding_map: EmbeddingMap | None = None
    relation_weights: RelationWeights = field(default_factory=dict)
    points: int = DEFAULT_POINTS

    @property
    def phenotypes(self) -> list[str]:
        """All phenotypes that have predictions or metrics, in the order of their first appearance."""
        predicted = [name for part in self.predictions.values() for name in part]
        return list(dict.fromkeys([*predicted, *(row.phenotype for row in self.rows)]))

    def kind(self, phenotype: str) -> str:
        """Of its labels, as its metrics say; regression where it has none."""
        return next((row.kind for row in self.rows if row.phenotype == phenotype), REGRESSION)

    def subject(self, phenotype: str, part: str = "test") -> Subject | None:
        """What panels of one phenotype and part show; None where there are no predictions."""
        predictions = self.predictions.get(part, {}).get(phenotype)
        if predictions is None:
            return None
        return Subject(predictions, phenotype, self.units.get(phenotype, ""), part, self.points)
