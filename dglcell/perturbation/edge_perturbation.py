"""Describe changes of single edges, beside a strain's gene deletions: removed edges and a strain's own weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dglcell.errors import ConfigError, GenotypeError, listing
from dglcell.graph.resident import ResidentCell, ResidentRelation
from dglcell.graph.schema import Relation
from dglcell.graph.vocabulary import Vocabulary
from dglcell.perturbation.attention import Score

Node = int | str
Removal = tuple[int, Relation, Node, Node]
"""A removal is (strain, relation, source, destination)."""
Reweighting = tuple[int, Relation, Node, Node, float | Tensor]
"""A reweighting is (strain, relation, source, destination, weight)."""


@dataclass(frozen=True, eq=False)
class EdgeChanges:
    """Hold what strains do to the edges of one relation; every (edge, strain) pair occurs at most once.

    An edge is named by its position among the resident edges, which are sorted by destination.

    Attributes:
        removed_edges: [D] int64 edges that are removed.
        removed_strains: [D] int64 strain that removes each of them.
        edges: [Q] int64 edges with a weight of the strain's own.
        strains: [Q] int64 strain of each weight.
        weights: [Q] float, in place of the fixed weights (1 where the relation has none); may require gradients.
    """

    removed_edges: Tensor
    removed_strains: Tensor
    edges: Tensor
    strains: Tensor
    weights: Tensor

    def __len__(self) -> int:
        return len(self.removed_edges) + len(self.edges)

    def without_removed(self, alive_EB: Tensor) -> Tensor:
        """Return ``alive_EB``, [E, B] bool, set to false where a strain has removed the edge."""
        gone = torch.zeros((), dtype=torch.bool, device=alive_EB.device)
        return alive_EB.index_put((self.removed_edges, self.removed_strains), gone)

    def reweighted(self, weight_EB: Tensor) -> Tensor:
        """Return ``weight_EB``, [E, B], with the strains' own weights put in."""
        return weight_EB.index_put((self.edges, self.strains), self.weights.to(weight_EB.dtype))

    def map(self, device: torch.device | str, first_strain: int = 0) -> EdgeChanges:
        """Return the same changes on ``device``, with strains numbered from ``first_strain``."""
        return EdgeChanges(
            self.removed_edges.to(device),
            self.removed_strains.to(device) + first_strain,
            self.edges.to(device),
            self.strains.to(device) + first_strain,
            self.weights.to(device),
        )


@dataclass(frozen=True, eq=False)
class EdgePerturbations:
    """Hold the changed edges of B strains.

    A removed edge is not an edge of weight 0: it is left out of degrees, means and softmaxes. A weight replaces the
    edge's fixed weight, or 1 where the edge has none. Only a strain's deleted genes decide which nodes it loses:
    removing the edge between a gene and its reaction does not remove the reaction. Edges at a lost node are removed,
    whatever is said about them here.

    Attributes:
        relations: relation → its changed edges.
        num_strains: B.
    """

    relations: Mapping[Relation, EdgeChanges]
    num_strains: int

    @classmethod
    def build(
        cls,
        cell: ResidentCell,
        num_strains: int,
        removed: Sequence[Removal] = (),
        weights: Sequence[Reweighting] = (),
        vocabularies: Mapping[str, Vocabulary] | None = None,
    ) -> EdgePerturbations:
        """Look edges up by their ends, and check them.

        Edges are directed: both directions of an undirected network are two edges. Parallel edges are changed
        together. The result is on the device of ``cell``.

        Args:
            cell: the wild-type cell.
            num_strains: B of the batch.
            removed: (strain, relation, source, destination); nodes by index, or by name where there are vocabularies.
            weights: (strain, relation, source, destination, weight); a weight is a number or a tensor without
            dimensions (gradients flow into it).
            vocabularies: node type → names, e.g. ``CellGraph.vocabularies``.

        Raises:
            GraphError: the cell graph has no such relation.
            GenotypeError: a strain, node or edge that does not exist, a weight that is not finite, or two statements
                about the same edge of a strain.
        """
        relations = {}
        for relation in dict.fromkeys([entry[1] for entry in removed] + [entry[1] for entry in weights]):
            gone = [entry for entry in removed if entry[1] == relation]
            weighed = [entry for entry in weights if entry[1] == relation]
            lookup = _Lookup(cell[relation], num_strains, vocabularies or {})
            relations[relation] = lookup.changes(gone, weighed)
        return cls(relations, num_strains)

    def with_wild_type(self) -> EdgePerturbations:
        """Return the same changes with the wild type, unchanged, in front as strain 0."""
        shifted = {relation: c.map(c.edges.device, first_strain=1) for relation, c in self.relations.items()}
        return EdgePerturbations(shifted, self.num_strains + 1)

    def to(self, device: torch.device | str) -> EdgePerturbations:
        """Return the same changes on ``device``."""
        return replace(self, relations={relation: c.map(device) for relation, c in self.relations.items()})


def check_weights_matter(changes: EdgeChanges | None, relation: Relation, score: Score) -> None:
    """Refuse weights of single edges where the score does not use weights.

    Raises:
        ConfigError: there are such weights, and the score has ``uses_weights = False``.
    """
    if changes is not None and len(changes.edges) and not getattr(score, "uses_weights", True):
        raise ConfigError(
            f"relation '{relation[1]}': the attention does not depend on edge weights, but strains change some",
            got=f"weights of {len(changes.edges):,} edges",
            expected="removed edges only, or an edge vector in the score",
            do="set `model.conv: gin` or `model.conv: sage`",
        )


@dataclass(frozen=True)
class _Lookup:
    """Find and check the edges of one relation."""

    edges: ResidentRelation
    num_strains: int
    vocabularies: Mapping[str, Vocabulary]

    def changes(self, removed: Sequence[Removal], weights: Sequence[Reweighting]) -> EdgeChanges:
        entries: list[tuple[Any, ...]] = [*removed, *weights]
        device = self.edges.src.device
        strain, source, destination = (
            torch.tensor(column, dtype=torch.int64, device=device)
            for column in (
                [entry[0] for entry in entries],
                self._nodes([entry[2] for entry in entries], self.edges.relation[0]),
                self._nodes([entry[3] for entry in entries], self.edges.relation[2]),
            )
        )
        self._check_strains(strain)
        # Nodes out of range would be taken for other pairs.
        inside = (source >= 0) & (source < self.edges.num_src) & (destination >= 0) & (destination < self.edges.num_dst)
        key = torch.where(inside, destination * self.edges.num_src + source, -1)
        pairs, order = self.edges.edges_by_pair
        first = torch.searchsorted(pairs, key)
        parallel = torch.searchsorted(pairs, key, right=True) - first
        self._check_found(parallel, entries)
        self._check_distinct(strain * (self.edges.num_src * self.edges.num_dst) + key, entries)
        entry = torch.repeat_interleave(parallel)
        within = torch.arange(len(entry), device=device) - (parallel.cumsum(0) - parallel)[entry]
        edge, strain = order[first[entry] + within], strain[entry]
        cut = int(parallel[: len(removed)].sum())
        weight = self._weights(weights)[entry[cut:] - len(removed)]
        return EdgeChanges(edge[:cut], strain[:cut], edge[cut:], strain[cut:], weight)

    def _nodes(self, nodes: Sequence[Node], node_type: str) -> list[int]:
        """Return the indices of nodes that are given by index or name."""
        names = [node for node in nodes if isinstance(node, str)]
        if not names:
            return [int(node) for node in nodes]
        vocabulary = self.vocabularies.get(node_type)
        if vocabulary is None:
            raise GenotypeError(
                f"{self._name}: nodes are given by name, but there is no vocabulary of {node_type} names",
                got=listing(names),
                do="pass `vocabularies=cell_graph.vocabularies`, or node indices",
            )
        unknown = [name for name in dict.fromkeys(names) if name not in vocabulary]
        if unknown:
            raise GenotypeError(
                f"{self._name}: unknown {node_type} '{unknown[0]}'{vocabulary.suggestion(unknown[0])}",
                got=listing(unknown),
                expected=f"names among the {len(vocabulary):,} of the cell graph",
                do="see `dglcell graph describe --names`",
            )
        return [vocabulary.index(node) if isinstance(node, str) else int(node) for node in nodes]

    def _weights(self, weights: Sequence[Reweighting]) -> Tensor:
        """Return the weights as one tensor through which gradients flow, [Q] float64."""
        device = self.edges.src.device
        values = [torch.as_tensor(entry[4], dtype=torch.float64, device=device) for entry in weights]
        stacked = torch.stack(values) if values else torch.empty(0, dtype=torch.float64, device=device)
        wrong = (~stacked.detach().isfinite()).nonzero().flatten().tolist()
        if wrong:
            raise GenotypeError(
                f"{self._name}: the weight of an edge is not finite",
                got=listing(self._shown(weights[i]) + f": {float(values[i])}" for i in wrong),
                expected="finite numbers",
                do="to take an edge out of a strain's graph, name it in `removed`",
            )
        return stacked

    def _check_strains(self, strain: Tensor) -> None:
        wrong = strain[(strain < 0) | (strain >= self.num_strains)].unique().tolist()
        if wrong:
            raise GenotypeError(
                f"{self._name}: a changed edge belongs to no strain of the batch",
                got=f"strain {listing(wrong)}",
                expected=f"0 … {self.num_strains - 1}",
                do="number strains by their place in the genotype batch, without the wild type",
            )

    def _check_found(self, parallel: Tensor, entries: Sequence[tuple[Any, ...]]) -> None:
        wrong = (parallel == 0).nonzero().flatten().tolist()
        if wrong:
            raise GenotypeError(
                f"{self._name}: no such edge in the cell graph",
                got=listing(self._shown(entries[i]) for i in wrong),
                expected=f"ends of one of the {self.edges.num_edges:,} edges, source → destination",
                do="check the direction; edges that the wild type lacks cannot be added",
            )

    def _check_distinct(self, key: Tensor, entries: Sequence[tuple[Any, ...]]) -> None:
        _, place, count = torch.unique(key, return_inverse=True, return_counts=True)
        wrong = (count[place] > 1).nonzero().flatten().tolist()
        if wrong:
            raise GenotypeError(
                f"{self._name}: two statements about the same edge of a strain",
                got=listing(dict.fromkeys(self._shown(entries[i]) for i in wrong)),
                expected="every edge once for a strain, either removed or with a weight",
                do="leave one out; parallel edges are changed together",
            )

    @property
    def _name(self) -> str:
        return f"relation '{self.edges.relation[1]}'"

    @staticmethod
    def _shown(entry: tuple[Any, ...]) -> str:
        return f"strain {entry[0]}, {entry[2]} → {entry[3]}"
