"""Hold the edges of strains as graphs of DGL, for modules written for DGL, and what the strategies of DGL share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dglcell.graph.resident_graph import ResidentGraph
from dglcell.graph.schema import Relation
from dglcell.perturbation.edge_perturbation import EdgePerturbations
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import WholeStates

if TYPE_CHECKING:
    from dgl import DGLGraph

GraphModule = Callable[["EdgeRows", Tensor, Tensor], Tensor]
"""A module that is written for DGL gives rows of the destination nodes, from edges and the rows of their sources and
destinations."""


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Hold edges of one relation as DGL has them, with what belongs to each.

    Attributes:
        graph: a graph of DGL with E edges.
        weight: [E] fixed weights; None where edges have none.
        strength: [E] what is left of each edge, which includes what is left of its source, or [E, C] for C columns;
            None where it is all.
    """

    graph: DGLGraph
    weight: Tensor | None
    strength: Tensor | None
    _made: dict[tuple[float, float], Tensor] = field(default_factory=dict, repr=False)

    @cached_property
    def factor(self) -> Tensor | None:
        """Return what messages are multiplied by, [E] or [E, C]; None where it is 1."""
        if self.weight is None or self.strength is None:
            return self.strength if self.weight is None else self.weight
        return self.strength * self.weight.view(-1, *[1] * (self.strength.dim() - 1))

    @cached_property
    def in_degrees(self) -> Tensor:
        """Return the sums of strengths over in-edges, [M] or [M, C]; the numbers of in-edges where all is left."""
        if self.strength is None:
            counts: Tensor = self.graph.in_degrees()
            return counts
        return _summed(self.strength, self.graph.edges()[1].long(), self.graph.num_dst_nodes())

    def dividing_by(self, powers: tuple[float, float]) -> Tensor:
        """Return weights with which modules that divide by degrees of ``graph`` divide by strengths, [E] or [E, C].

        Such a module divides by an in-degree d to some power, where the sum of strengths d' is right. Its weights are
        multiplied by (d / d') to this power; likewise for out-degrees.

        Args:
            powers: the powers of in-degrees and out-degrees.
        """
        if powers not in self._made:
            assert self.strength is not None
            factor = self.factor
            assert factor is not None
            source, destination = (ends.long() for ends in self.graph.edges())
            if powers[0]:
                more = _ratio(self.graph.in_degrees(), self.in_degrees)
                factor = factor * more[destination] ** powers[0]
            if powers[1]:
                more = _ratio(self.graph.out_degrees(), _summed(self.strength, source, self.graph.num_src_nodes()))
                factor = factor * more[source] ** powers[1]
            self._made[powers] = factor
        return self._made[powers]


def _summed(values: Tensor, ends_E: Tensor, number: int) -> Tensor:
    """Return the sums of values of edges, [E] or [E, C], at one end of them."""
    return values.new_zeros(number, *values.shape[1:]).index_add(0, ends_E, values)


def _ratio(counts: Tensor, left: Tensor) -> Tensor:
    """Return how many times as much all edges are as those that are left, 1 where none is."""
    counts = counts.to(left.dtype).view(-1, *[1] * (left.dim() - 1))
    return torch.where(left == 0, 1, counts / torch.where(left == 0, 1, left))


class GraphStrategy(ABC):
    """Compute on graphs of DGL; states are whole, C = 1 + B columns with the wild type first.

    Args:
        cell: the cell graph.
        kept: node type → which nodes the wild type and the strains keep.
        perturbations: changes of single edges, with the wild type as the first strain; optional.
    """

    def __init__(
        self, cell: ResidentGraph, kept: dict[str, Kept], perturbations: EdgePerturbations | None = None
    ) -> None:
        self.cell, self.kept = cell, kept
        self.changes = {} if perturbations is None else perturbations.relations
        self.num_strains = next(iter(kept.values())).strains_NB.shape[1]
        self._rows: dict[tuple[Relation, torch.dtype], EdgeRows] = {}

    def start(self, x_NH: Tensor) -> WholeStates:
        return WholeStates(x_NH.unsqueeze(1), self.num_strains)

    def edge_rows(self, relation: Relation, dtype: torch.dtype) -> EdgeRows:
        """Return the edges of a relation, which are found once a batch, for all layers."""
        if (relation, dtype) not in self._rows:
            self._rows[relation, dtype] = self.find_rows(relation, dtype)
        return self._rows[relation, dtype]

    @abstractmethod
    def find_rows(self, relation: Relation, dtype: torch.dtype) -> EdgeRows:
        """Find the edges of a relation in all columns."""
