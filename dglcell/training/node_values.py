"""Give heads of values of nodes, such as fluxes, what they start from, and evaluate them beside null models."""

from __future__ import annotations

import csv
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from dglcell.baselines.nodes import MOST_VALUES, NodeProblem, fit_node_nulls
from dglcell.baselines.reactions import Reactions
from dglcell.config.experiment import Config
from dglcell.data.node_values import CellValues
from dglcell.data.strains import Strains
from dglcell.errors import DataError, count
from dglcell.files.atomic import atomic_file, no_formula
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.metabolism import whole_reactions
from dglcell.graph.schema import CATALYSES, CONVERTS, GENE, METABOLITE, REACTION
from dglcell.metrics import NODES, ResultRow
from dglcell.models.model import Prediction
from dglcell.nn.node_head import NodeHead
from dglcell.plots.style import sample
from dglcell.report.run_tables import NODE_CHANGES
from dglcell.training.null_problems import strains_by_part
from dglcell.training.prepare import Prepared
from dglcell.uncertainty.paired_nodes import DrawnNodes, correlations, node_draws, terms

log = logging.getLogger("dglcell")

TOGETHER = 2048
"""Null models predict so many strains at a time."""

MOST_SAMPLED = 200_000
"""So many values of nodes of a part are looked through for the picture of the report, those of random strains."""

CHANGED = 1e-3
"""A value of a node changes if it differs from the wild type by this share of its standard deviation."""

Floats = NDArray[np.float64]


BALANCED, VECTORS = 1e-3, 64
"""Values of reactions are fluxes if so many vectors leave less than this share of all amounts unbalanced. The vector of
the wild type alone does not tell, because its ranges of fluxes are often a single value each."""


@dataclass(frozen=True)
class MassBalance:
    """This tells how far fluxes make and use metabolites in different amounts, which no cell does at steady state.

    Attributes:
        stoichiometry: [K, M] amount of each metabolite that a flux of 1 makes, negative where it is used.
        wild_type, scale: [M] what turns predictions into fluxes.
    """

    stoichiometry: sparse.csr_array
    wild_type: Floats
    scale: Floats

    @classmethod
    def of(cls, head: NodeHead, values: CellValues, cell: CellGraph) -> MassBalance | None:
        """Return the balance of fluxes, or None where the values are not fluxes of all reactions."""
        if values.values.type != REACTION or CONVERTS not in cell.relations or (values.columns < 0).any():
            return None
        names, edges = cell.vocabularies[REACTION].names, cell.edges(CONVERTS)
        reactions, of_nodes = whole_reactions(names)
        one_of_each = np.isin(edges.src, np.unique(of_nodes, return_index=True)[1])
        source, amount = edges.src[one_of_each], np.ones(len(edges)) if edges.weight is None else edges.weight
        signed = amount[one_of_each] * np.where([names[node].endswith("-") for node in source], -1, 1)
        shape = cell.num_nodes[METABOLITE], len(reactions)
        made = sparse.csr_array((signed, (edges.dst[one_of_each], of_nodes[source])), shape=shape, dtype=np.float64)
        balance = cls(made, values.wild_type.astype(np.float64), _scale(head))
        vectors = np.asarray(values.values.values[:VECTORS])[:, values.columns].astype(np.float64)
        open_amount, whole = balance.of_fluxes(vectors[np.isfinite(vectors).all(axis=1)])
        return balance if open_amount < BALANCED * whole else None

    def amounts(self, predicted_BM: NDArray[np.floating]) -> tuple[float, float]:
        """Return the amounts of metabolites that predicted fluxes leave unbalanced, and all amounts made and used."""
        return self.of_fluxes(self.wild_type + self.scale * predicted_BM)

    def of_fluxes(self, fluxes_BM: Floats) -> tuple[float, float]:
        """Return the amounts of metabolites that fluxes leave unbalanced, and all amounts made and used."""
        fluxes_MB = fluxes_BM.T
        unbalanced = np.abs(self.stoichiometry @ fluxes_MB).sum()
        return float(unbalanced), float((abs(self.stoichiometry) @ np.abs(fluxes_MB)).sum())


READ_TOGETHER = 2**20
"""So many values are read at a time, in 4 MB."""

SMALLEST = 1e-6
"""A value changes if its standard deviation is a larger share of its mean, and of the largest one of any node."""


def fit_node_heads(heads: Mapping[str, NodeHead], prepared: Prepared, zero_if_lost: Mapping[str, bool]) -> None:
    """Store in each head the values of the wild type, and the spread and largest changes of the training strains.

    Values that never change in training are left out of loss and metrics.

    Args:
        zero_if_lost: name → whether what a strain loses has the value 0.

    Raises:
        DataError: no training strain has a value, or none changes; or values are to be balanced and are no fluxes.
    """
    for name, head in heads.items():
        values, train = prepared.nodes[name], prepared.parts["train"].numpy()
        mean, sd, number, largest = spread(values, train)
        changes = sd > SMALLEST * np.maximum(np.abs(mean), sd.max(initial=0))
        kind = values.values.type
        if not changes.any():
            raise DataError(
                f"`data.nodes.{name}`: no value changes among the training strains",
                got=f"{int((number > 0).sum()):,} of {len(values):,} values are measured in training strains",
                expected="values that differ between strains",
                do="choose another split, or leave these values out",
            )
        log.info(
            "%s: %s of %s values of the type %s change among training strains; the others are left out",
            *(name, f"{int(changes.sum()):,}", f"{len(values):,}", kind),
        )
        known = values.columns >= 0
        head.zero_if_lost.fill_(zero_if_lost[name])
        head.take(*(torch.from_numpy(of) for of in (values.wild_type, sd.astype(np.float32), changes, known)))
        head.largest.copy_(torch.from_numpy(largest))
        if head.projection is not None:
            head.balance(_stoichiometry(name, head, values, prepared))


def _stoichiometry(name: str, head: NodeHead, values: CellValues, prepared: Prepared) -> Tensor:
    """Return how much of each metabolite the fluxes of reactions make, [K, M]."""
    balance = MassBalance.of(head, values, prepared.cell)
    if balance is None:
        raise DataError(
            f"`model.balanced_values`: the values '{name}' are no fluxes of all reactions at a steady state",
            got=f"{int((values.columns >= 0).sum()):,} of {len(values):,} reactions with values",
            expected="a flux of each reaction, which in the wild type make as much of every metabolite as they use",
            do=f"leave '{name}' out of `model.balanced_values`",
        )
    return torch.from_numpy(balance.stoichiometry.toarray())


def limit_node_heads(heads: Mapping[str, NodeHead], prepared: Prepared) -> None:
    """Let each head of a continued run know how far its values go in training, which checkpoints do not have."""
    for name, head in heads.items():
        *_, largest = spread(prepared.nodes[name], prepared.parts["train"].numpy())
        head.largest.copy_(torch.from_numpy(largest))


def bare_node_heads(config: Config, prepared: Prepared) -> dict[str, NodeHead]:
    """Return heads that know values of the wild type and their spread, and have nothing to predict with.

    Null models of values of nodes need no more.

    Raises:
        DataError: no training strain has a value, or none changes.
    """
    heads = {
        name: NodeHead(
            torch.arange(len(values)),
            len(values),
            width=1,
            strain_width=1,
            hidden=1,
            activation="identity",
            dropout=0.0,
        )
        for name, values in prepared.nodes.items()
    }
    fit_node_heads(heads, prepared, {name: of.zero_if_lost for name, of in config.data.nodes.items()})
    return heads


def spread(
    values: CellValues, strains: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Return mean, standard deviation and number of the measured values of some strains, [M] each.

    The last array has their largest difference from the wild type, as an absolute value; it is 0 without a measurement.
    """
    wild_type = values.wild_type.astype(np.float64)
    number, total, squares, largest = np.zeros((4, len(values)))
    size = max(1, READ_TOGETHER // len(values))
    for start in range(0, len(strains), size):
        # Differences from the wild type keep their digits where they are small.
        changes = values.of_strains(strains[start : start + size]).astype(np.float64) - wild_type
        measured = ~np.isnan(changes)
        number += measured.sum(axis=0)
        changes[~measured] = 0
        total += changes.sum(axis=0)
        squares += np.square(changes).sum(axis=0)
        largest = np.maximum(largest, np.abs(changes).max(axis=0))
    mean = total / np.maximum(number, 1)
    variance = squares / np.maximum(number, 1) - np.square(mean)
    return mean + wild_type, np.sqrt(np.maximum(variance, 0)), number.astype(np.int64), largest


@dataclass
class NodeScores:
    """Add up errors of predictions batch by batch, so that no table of all strains and nodes is held.

    Attributes:
        scale: [M] standard deviations of the training strains, in original units.
        sums: [8, M] of measured values: their number, Σt, Σt², Σp, Σp², Σtp, Σ|p − t| and Σ(p − t)², where t and p are
            differences from the wild type in units of ``scale``.
        strains: number of strains with a measured value.
        balance: tells how far predictions are from a steady state; None where they are no fluxes.
        amounts: amounts of metabolites that are unbalanced, and all of them.
        draws: how often each strain counts in each draw, as of `node_draws`; empty for scores without intervals.
        drawn: scores in these draws.
    """

    scale: Floats
    sums: Floats = field(init=False)
    strains: int = 0
    balance: MassBalance | None = None
    amounts: Floats = field(init=False)
    draws: Mapping[str, NDArray[np.floating]] = field(default_factory=dict)
    drawn: DrawnNodes = field(init=False)

    def __post_init__(self) -> None:
        self.sums, self.amounts = np.zeros((8, len(self.scale))), np.zeros(2)
        self.drawn = DrawnNodes(self.draws, len(self.scale))

    def add(self, predicted_BM: NDArray[np.floating], target_BM: NDArray[np.floating]) -> None:
        """Take in some strains; targets are NaN where not measured, and where values never change in training."""
        found = terms(predicted_BM, target_BM)
        measured, t, _, p, *_ = found
        error = p - t
        self.sums += [x.sum(axis=0) for x in (*found, np.abs(error), error * error)]
        self.drawn.add(found)
        some = measured.any(axis=1)
        self.strains += int(some.sum())
        if self.balance is not None:
            self.amounts += self.balance.amounts(predicted_BM[some])

    def metrics(self) -> dict[str, float]:
        """Return the metrics over all nodes.

        ``pearson`` is the mean correlation over the nodes whose value varies among these strains; a node with a
        constant prediction counts as 0. ``r2`` is 1 − ΣSSE/ΣSST over these nodes in original units.
        ``mae`` is the mean absolute error over all measured values, in original units. ``n`` is the number of strains,
        and ``nodes`` that of nodes that vary. What is undefined is NaN. Fluxes have ``unbalanced``, too: of all amounts
        of metabolites that predicted fluxes make or use, the share that is made and not used, or the other way round.
        """
        n, t, tt, *_, absolute, squared = self.sums
        r, varies = correlations(self.sums[:6])
        of_t, square = tt - t * t / np.maximum(n, 1), np.square(self.scale)
        total, some = n.sum(), bool(varies.any())
        open_amount, whole = self.amounts.tolist()
        return {
            "mae": float((absolute * self.scale).sum() / total) if total else math.nan,
            "pearson": float(r[varies].mean()) if some else math.nan,
            "r2": 1 - float((squared * square)[varies].sum() / (of_t * square)[varies].sum()) if some else math.nan,
            "n": self.strains,
            "nodes": int(varies.sum()),
            **({} if self.balance is None or not whole else {"unbalanced": open_amount / whole}),
        }


def scaled_values(head: NodeHead, values: CellValues, strains: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return differences from the wild type in units of their spread, [n, M], NaN where unmeasured or not changing."""
    device = head.scale.device
    scaled: Tensor = head.scaled(torch.from_numpy(values.of_strains(strains)).to(device))
    return scaled.float().cpu().numpy()


class PartScores:
    """Take in predictions of the strains of a part, batch by batch and in their order.

    Attributes:
        scores: name → scores. Those of the test part have draws of its strains and genes.
    """

    def __init__(self, heads: Mapping[str, NodeHead], prepared: Prepared, part: str) -> None:
        self._heads, self._prepared, self._part = heads, prepared, part
        self._done = 0
        self._sampled = {
            name: sample(len(prepared.parts[part]), max(1, MOST_SAMPLED // len(head.scale)))
            for name, head in heads.items()
        }
        self._changes: dict[str, list[Floats]] = {name: [] for name in heads}
        self.scores = {
            name: NodeScores(
                _scale(head),
                balance=MassBalance.of(head, prepared.nodes[name], prepared.cell),
                draws=node_draws(prepared.dataset.take(prepared.parts[part]).numpy(), len(head.scale))
                if part == "test"
                else {},
            )
            for name, head in heads.items()
        }

    def add(self, prediction: Prediction) -> None:
        """Take in the predictions of the next strains."""
        start, self._done = self._done, self._done + len(prediction.phenotypes)
        strains = self._prepared.parts[self._part][start : self._done].numpy()
        for name, scores in self.scores.items():
            target = scaled_values(self._heads[name], self._prepared.nodes[name], strains)
            predicted = prediction.nodes[name].float().cpu().numpy()
            scores.add(predicted, target)
            first, last = np.searchsorted(self._sampled[name], [start, self._done])
            rows = self._sampled[name][first:last] - start
            strain, node = np.nonzero(np.abs(np.nan_to_num(target[rows])) > CHANGED)
            found = node, target[rows][strain, node], predicted[rows][strain, node]
            self._changes[name].append(np.column_stack(found).astype(np.float64))

    def rows(self, model: str) -> list[ResultRow]:
        """Return a row of metrics for each name of values, with the name of the model."""
        return [
            ResultRow(model, self._part, name, scores.metrics(), kind=NODES) for name, scores in self.scores.items()
        ]

    def write_changes(self, path: Path, points: int) -> None:
        """Write values of nodes that change, at most ``points`` of each name, as a CSV file in original units.

        There is no file where the model predicts no values of nodes.
        """
        if not self._heads:
            path.unlink(missing_ok=True)
            return
        with atomic_file(path) as partial, open(partial, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(NODE_CHANGES)
            for name, parts in self._changes.items():
                changes = np.concatenate([np.zeros((0, 3)), *parts])
                values, scale = self._prepared.nodes[name], _scale(self._heads[name])
                for node, *scaled in changes[sample(len(changes), points)].tolist():
                    spread, wild_type = scale[int(node)], float(values.wild_type[int(node)])
                    numbers = (wild_type, spread, *(wild_type + spread * change for change in scaled))
                    called = no_formula(values.values.names[values.columns[int(node)]])
                    writer.writerow([name, called, *(f"{value:.6g}" for value in numbers)])


def _scale(head: NodeHead) -> Floats:
    return head.scale.double().cpu().numpy()


def null_node_rows(
    heads: Mapping[str, NodeHead], prepared: Prepared, of_model: PartScores | None = None
) -> list[ResultRow]:
    """Return metrics of null models of values of nodes, fitted to the training part.

    Args:
        of_model: what the model predicted for the test part. Rows of this part then have the metrics of
            `dglcell.uncertainty.paired.ahead`, where the score is the mean correlation over nodes.
    """
    scores = {} if of_model is None else of_model.scores
    return [row for name, head in heads.items() for row in _null_rows(name, head, prepared, scores.get(name))]


def _null_rows(name: str, head: NodeHead, prepared: Prepared, of_model: NodeScores | None) -> list[ResultRow]:
    """Return metrics of null models of the values of one name, fitted to the training part."""
    values, parts = prepared.nodes[name], strains_by_part(prepared)
    numbers = {part: strains.numpy() for part, strains in prepared.parts.items()}
    held = len(numbers["train"]) * len(values)
    if held > MOST_VALUES:
        log.info("%s: null models would hold %.0e values, and are limited to %.0e", name, held, MOST_VALUES)
        return []
    log.info("fitting null models of %s to %s", name, count(len(parts["train"]), "strain"))
    y_train, y_validation = (scaled_values(head, values, numbers[part]) for part in ("train", "validation"))
    reactions = Reactions(prepared.cell) if CATALYSES in prepared.cell.relations else None
    problem = NodeProblem(parts["train"], parts["validation"], y_train, y_validation, reactions)
    models, left_out = fit_node_nulls(problem)
    for null, why in left_out.items():
        log.info("%s: %s is left out: it %s", name, null, why)
    balance = MassBalance.of(head, values, prepared.cell)
    changes, of_zero, rows = head.changes.cpu().numpy(), head.of_zero.cpu().numpy(), []
    for part in prepared.evaluated:
        for null, model in models.items():
            compared = of_model if part == "test" else None
            scores = NodeScores(_scale(head), balance=balance, draws=compared.draws if compared else {})
            for start in range(0, len(numbers[part]), TOGETHER):
                some = slice(start, start + TOGETHER)
                chosen = parts[part].take(np.arange(len(parts[part]))[some])
                target = scaled_values(head, values, numbers[part][some])
                found = np.where(_lost(head, values, chosen, reactions), of_zero, model.predict(chosen))
                scores.add(np.where(changes, found, 0), target)
            lead = compared.drawn.ahead_of(scores.drawn) if compared else {}
            rows.append(ResultRow(null, part, name, scores.metrics() | lead, is_null=True, kind=NODES))
    return rows


def _lost(
    head: NodeHead, values: CellValues, strains: Strains, reactions: Reactions | None
) -> NDArray[np.bool_] | bool:
    """Return which values are 0 because the strains have lost their nodes, [B, M]; null models know this, too."""
    if not head.zero_if_lost:
        return False
    strains = strains.with_targets(strains.left() == 0).with_(strengths=None)
    if values.values.type == REACTION and reactions is not None:
        return reactions.lost(strains).toarray().astype(bool)
    return strains.design.toarray().astype(bool) if values.values.type == GENE else False
