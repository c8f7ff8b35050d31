"""Compute whole states on graphs of DGL: a graph of every strain, or the one resident graph with masked edges."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from dglcell.graph.resident_graph import ResidentGraph, import_dgl
from dglcell.graph.schema import WEIGHT, Relation
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import Score, States, WholeStates
from dglcell.perturbation.targets import EdgeChanges

if TYPE_CHECKING:
    from dgl import DGLGraph

GraphModule = Callable[["EdgeRows", Tensor, Tensor], Tensor]
"""A module that is written for DGL gives rows of the destination nodes, from edges and the rows of their sources and
destinations."""


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Hold edges of one relation as DGL has them, with what belongs to each."""

    graph: DGLGraph  #: a graph of DGL with E edges
    weight: Tensor | None  #: [E] fixed weights; None where edges have none
    #: [E] what is left of each edge, which includes what is left of its source, or [E, C] for C columns; None for all
    activity: Tensor | None

    @cached_property
    def factor(self) -> Tensor | None:
        """Return what messages are multiplied by, [E] or [E, C]; None where it is 1."""
        if self.weight is None or self.activity is None:
            return self.activity if self.weight is None else self.weight
        return self.activity * self.weight.view(-1, *[1] * (self.activity.dim() - 1))

    @cached_property
    def in_degrees(self) -> Tensor:
        """Return the sums of activities over in-edges, [M] or [M, C]; the numbers of in-edges where all is left."""
        if self.activity is None:
            counts: Tensor = self.graph.in_degrees()
            return counts
        sums = self.activity.new_zeros(self.graph.num_dst_nodes(), *self.activity.shape[1:])
        return sums.index_add(0, self.graph.edges()[1].long(), self.activity)


class GraphStrategy(ABC):
    """Compute on graphs of DGL; states are whole, C = 1 + B columns with the wild type first.

    Rows of a graph are [N, C, H], or [C · N, H] where it has all columns side by side; [R, …, H] stands for both. Of
    changes of single edges, the wild type is the first strain.
    """

    name: ClassVar[str]

    def __init__(
        self, cell: ResidentGraph, kept: dict[str, Kept], changes: Mapping[Relation, EdgeChanges] | None = None
    ) -> None:
        self.cell, self.kept, self.changes = cell, kept, changes or {}
        self.num_strains = next(iter(kept.values())).strains_NB.shape[1]
        self._edge_rows: dict[tuple[Relation, torch.dtype], EdgeRows] = {}

    @abstractmethod
    def find_rows(self, relation: Relation, dtype: torch.dtype) -> EdgeRows:
        """Find the edges of a relation in all columns."""

    @abstractmethod
    def rows(self, states: WholeStates) -> Tensor:
        """Return states as rows of the graph."""

    @abstractmethod
    def states(self, rows: Tensor) -> WholeStates:
        """Return rows of the graph as states."""

    def start(self, x_NH: Tensor) -> WholeStates:
        return WholeStates(x_NH.unsqueeze(1), self.num_strains)

    def edge_rows(self, relation: Relation, dtype: torch.dtype) -> EdgeRows:
        """Return the edges of a relation, which are found once a batch, for all layers."""
        if (relation, dtype) not in self._edge_rows:
            self._edge_rows[relation, dtype] = self.find_rows(relation, dtype)
        return self._edge_rows[relation, dtype]

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        assert isinstance(states, WholeStates)
        ops, edges, x = import_dgl().ops, self.edge_rows(relation, states.x_NCH.dtype), self.rows(states)
        if edges.graph.num_edges() == 0:
            return self._none(relation, states)
        factor = edges.factor
        y = ops.copy_u_sum(edges.graph, x) if factor is None else ops.u_mul_e_sum(edges.graph, x, factor.unsqueeze(-1))
        if reduce == "mean":  # weighted by activities, not by the number of edges
            degree = edges.in_degrees.to(x.dtype).unsqueeze(-1)
            y = y / torch.where(degree == 0, 1, degree)
        return self.states(y)

    def attend(self, relation: Relation, keys: States, queries: States, score: Score) -> States:
        assert isinstance(keys, WholeStates)
        assert isinstance(queries, WholeStates)
        ops, edges, values = import_dgl().ops, self.edge_rows(relation, keys.x_NCH.dtype), self.rows(keys)
        if edges.graph.num_edges() == 0:
            return self._none(relation, queries)
        source, destination = (ends.long() for ends in edges.graph.edges())
        ends, shape = (values[source], self.rows(queries)[destination]), (len(source), *values.shape[1:-1])
        axes, weight = len(shape) - 1, edges.weight
        weight = None if weight is None else weight.view(-1, *[1] * axes).expand(shape).flatten()
        logits = score(ends[0].flatten(0, axes), ends[1].flatten(0, axes), weight).unflatten(0, shape)
        gone = torch.zeros_like(logits[..., :1], dtype=torch.bool)
        if edges.activity is not None:
            gone = (edges.activity == 0).unsqueeze(-1)
            logits = logits + edges.activity.unsqueeze(-1).masked_fill(gone, 1).log()
        logits = logits.masked_fill(gone, torch.finfo(logits.dtype).min)
        share = ops.edge_softmax(edges.graph, logits).masked_fill(gone, 0)
        values = values.unflatten(-1, (share.shape[-1], -1)).contiguous()
        return self.states(ops.u_mul_e_sum(edges.graph, values, share.unsqueeze(-1)).flatten(-2))

    def _none(self, relation: Relation, like: WholeStates) -> WholeStates:
        return WholeStates(like.x_NCH.new_zeros(self.cell[relation].num_dst, 1, like.x_NCH.shape[2]), self.num_strains)


class EdgeMask(GraphStrategy):
    """Aggregate with masked weights [E, C] of edges, so that any edge of any strain can have its own activity.

    They are made once a batch, for all layers, and take 4 · E · C bytes in single precision.
    """

    name = "edge_mask"

    def find_rows(self, relation: Relation, dtype: torch.dtype) -> EdgeRows:
        """Return the edges of the cell graph, with fixed weights [E] and what every strain leaves of them, [E, C]."""
        edges, changes = self.cell[relation], self.changes.get(relation)
        source, destination = (self.kept[node_type].columns(dtype) for node_type in (relation[0], relation[2]))
        # A weakened node receives as ever.
        activity_EC = source[edges.src] * (destination[edges.dst] != 0)
        activity_EC = activity_EC if changes is None else changes.put_into(activity_EC)
        weight = None if edges.weight is None else edges.weight.to(dtype)
        return EdgeRows(self.cell.heterograph()[relation], weight, activity_EC)

    def rows(self, states: WholeStates) -> Tensor:
        return states.columns.contiguous()

    def states(self, rows: Tensor) -> WholeStates:
        return WholeStates(rows, self.num_strains)


class EdgeSubgraph(GraphStrategy):
    """Hold one graph of all strains, made once a batch: any module of ``dgl.nn`` runs on it as it is.

    Each is reduced by ``dgl.edge_subgraph``, and ``dgl.batch`` joins them. Lost nodes keep a row, but their edges are
    removed. The graph has C · E edges at most, each of which takes 24 bytes once products have run forward and
    backward.
    """

    name = "edge_subgraph"

    @cached_property
    def graphs(self) -> list[DGLGraph]:
        """Return the reduced graphs of the wild type and of every strain, with node numbers as in the cell graph.

        Fixed weights of edges are in ``edata["weight"]``, and what strains leave of changed edges in
        ``edata["activity"]``.
        """
        # Numbers of 32 bits halve what a batch takes.
        wild_type = self.cell.heterograph(torch.int32)
        keep = {node_type: known.columns(torch.bool) for node_type, known in self.kept.items()}
        return [self._reduced(wild_type, keep, column) for column in range(1 + self.num_strains)]

    @cached_property
    def batched(self) -> DGLGraph:
        """Return ``graphs`` as one graph: node n of column c is ``c · N + n``."""
        return import_dgl().batch(self.graphs)

    def _reduced(self, wild_type: DGLGraph, keep: dict[str, Tensor], column: int) -> DGLGraph:
        left = {r: of.left(column, self.cell[r].num_edges) for r, of in self.changes.items()}
        surviving = {}
        for relation in self.cell.relations:
            edges = self.cell[relation]
            alive = keep[relation[0]][edges.src, column] & keep[relation[2]][edges.dst, column]
            alive = alive & (left[relation] != 0) if relation in left else alive
            surviving[relation] = alive.nonzero().squeeze(1)
        ids = {relation: edges.to(wild_type.idtype) for relation, edges in surviving.items()}
        graph = import_dgl().edge_subgraph(wild_type, ids, relabel_nodes=False, store_ids=False)
        for relation, activity in left.items():
            graph.edges[relation].data["activity"] = activity[surviving[relation]]
        return graph

    def find_rows(self, relation: Relation, dtype: torch.dtype) -> EdgeRows:
        """Return the edges of all columns, with weights and activities of edges times those of their sources."""
        graph = self.batched[relation]
        known = graph.edata
        weight, activity = (known[name].to(dtype) if name in known else None for name in (WEIGHT, "activity"))
        source = self.kept[relation[0]]
        if source.activities_NB is not None:
            of_sources = source.columns(dtype).T.flatten()[graph.edges()[0].long()]
            activity = of_sources if activity is None else of_sources * activity
        return EdgeRows(graph, weight, activity)

    def rows(self, states: WholeStates) -> Tensor:
        return states.graph_rows

    def states(self, rows: Tensor) -> WholeStates:
        return WholeStates(rows.unflatten(0, (1 + self.num_strains, -1)).transpose(0, 1), self.num_strains)

    def convolve(self, relation: Relation, source: States, destination: States, module: GraphModule) -> States:
        """Return what a module written for DGL computes, called once with all columns' edges and rows."""
        assert isinstance(source, WholeStates)
        assert isinstance(destination, WholeStates)
        edges = self.edge_rows(relation, source.x_NCH.dtype)
        if edges.graph.num_edges() == 0:
            return self._none(relation, destination)
        y = module(edges, self.rows(source), self.rows(destination))
        # A module may give anything to a node without edges.
        kept_R = self.kept[relation[2]].columns(torch.bool).T.flatten()
        return self.states(torch.where(kept_R.unsqueeze(-1), y, 0))
