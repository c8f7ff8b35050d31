"""Hold the data that a report shows: predictions, embeddings, the record of a training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

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


CUT = 0.08
"""This is the usual cut on the absolute score (Costanzo et al. 2016, doi:10.1126/science.aaf1420; Kuzmin et al. 2018,
doi:10.1126/science.aao1729), there together with p < 0.05."""

EDGES = (-np.inf, -0.40, -0.32, -0.24, -0.16, -0.08, 0.0, 0.08, 0.16, 0.24, np.inf)
"""Bins of scores have these edges, multiples of the cut."""

NAMES = ("epsilon", "tau", "gene_interaction")
SUFFIXES = ("_interaction", "_interaction_score")


def is_interaction(phenotype: str) -> bool:
    """Return whether a phenotype is an epsilon or tau score, by its name.

    S-scores are not such scores: they are on a scale of their own.
    """
    name = phenotype.lower()
    return name in NAMES or name.endswith(SUFFIXES)


def is_binary(values: NDArray[np.floating]) -> bool:
    """Return whether all values are 0 or 1."""
    return len(values) > 0 and bool(np.isin(values, (0.0, 1.0)).all())


DEFAULT_POINTS = 10_000


@dataclass(frozen=True)
class Predictions:
    """Hold predictions for one part of the split and one phenotype, in original units.

    Attributes:
        measured: [S] measured phenotypes, NaN where not measured.
        predicted: [S] predicted phenotypes.
        num_deletions: [S] number of deleted genes of each strain.
    """

    measured: NDArray[np.floating]
    predicted: NDArray[np.floating]
    num_deletions: NDArray[np.integer]

    def __post_init__(self) -> None:
        shapes = {np.shape(a) for a in (self.measured, self.predicted, self.num_deletions)}
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
        return Predictions(measured[keep], predicted[keep], np.asarray(self.num_deletions)[keep])

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
class Subject:
    """Say which strains a panel shows.

    Attributes:
        unit: unit of the phenotype; dimensionless where empty.
        part: ``test`` or ``validation``.
        points: largest number of single points that are drawn, chosen at random.
    """

    predictions: Predictions
    phenotype: str
    unit: str = ""
    part: str = "test"
    points: int = DEFAULT_POINTS

    @property
    def usable(self) -> Predictions:
        """Return the strains with a measurement and a finite prediction."""
        return self.predictions.usable

    def key(self, panel: str) -> str:
        """Return the stem of a panel's files; different phenotypes never share one."""
        return f"{self.part}-{quote(self.phenotype, safe='')}-{panel}"

    @property
    def nothing(self) -> str:
        """Return why there is nothing to draw; the text is empty where there is something."""
        return "" if len(self.usable) else f"no measured {self.part} strains"


@dataclass(frozen=True)
class Embedding:
    """Hold the embeddings z_p of some strains of the test part.

    Attributes:
        strains: [S'] rows of the strains among the predictions of that part, ascending.
        vectors: [S', D] embeddings.
    """

    strains: NDArray[np.integer]
    vectors: NDArray[np.floating]


@dataclass(frozen=True)
class EmbeddingMap:
    """Hold positions of embeddings along their first two principal components.

    Attributes:
        strains: [S'] rows among the predictions of the test part.
        positions: [S', 2] positions in the plane.
        explained: shares of the variance along both axes.
    """

    strains: NDArray[np.integer]
    positions: NDArray[np.floating]
    explained: tuple[float, float]


@dataclass(frozen=True)
class NodeChanges:
    """Hold values of nodes that differ from the wild type in some test strains, by how much they do.

    Changes are in units of the standard deviation of the node over the training strains.

    Attributes:
        nodes: [n] names of the nodes.
        measured: [n] measured changes.
        predicted: [n] predicted changes.
    """

    nodes: NDArray[Any]
    measured: NDArray[np.floating]
    predicted: NDArray[np.floating]


RelationWeights = Mapping[str, tuple[Sequence[str], NDArray[np.floating]]]
"""This maps layer and node type to the names of K relations (or pairs of them) and their mean weights: [K], or [K, K]
where each relation weighs every other."""


@dataclass(frozen=True)
class ReportData:
    """Hold all data of one finished run that its report shows.

    Attributes:
        subtitle: lines below it: seed, sizes, parameters, time.
        rows: metrics of the model and of the null models.
        history: record of the training; may be empty.
        predictions: part → phenotype → predictions of the model.
        units: phenotype → unit; dimensionless where missing or empty.
        best_epoch: epoch of the checkpoint that was evaluated, counted from 1, if known.
        embedding_map: map of the test part, if the model has embeddings.
        relation_weights: weights of relations, if the model has them.
        points: largest number of single points that are drawn in one panel.
        doses: part → strengths of strains; none where strains delete their genes.
        node_changes: name of values of nodes → those that change in test strains.
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
    doses: Mapping[str, Doses] = field(default_factory=dict)
    node_changes: Mapping[str, NodeChanges] = field(default_factory=dict)

    @property
    def phenotypes(self) -> list[str]:
        """Return all phenotypes that have predictions or metrics, in the order of their first appearance."""
        predicted = [name for part in self.predictions.values() for name in part]
        return list(dict.fromkeys([*predicted, *(row.phenotype for row in self.rows)]))

    def kind(self, phenotype: str) -> str:
        """Return the kind of a phenotype's labels, as its metrics say; regression where it has none."""
        return next((row.kind for row in self.rows if row.phenotype == phenotype), REGRESSION)

    def subject(self, phenotype: str, part: str = "test") -> Subject | None:
        """Return what panels of one phenotype and part show; None where there are no predictions."""
        predictions = self.predictions.get(part, {}).get(phenotype)
        if predictions is None:
            return None
        return Subject(predictions, phenotype, self.units.get(phenotype, ""), part, self.points)
