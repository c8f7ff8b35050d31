"""Reduce the graph of every strain by ``dgl.edge_subgraph``, and batch the strains' graphs by ``dgl.batch``."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dglcell.graph.resident_graph import import_dgl
from dglcell.graph.schema import WEIGHT, Relation
from dglcell.perturbation.edge_rows import EdgeRows, GraphModule, GraphStrategy
from dglcell.perturbation.states import Score, States, WholeStates

if TYPE_CHECKING:
    from dgl import DGLGraph


class EdgeSubgraph(GraphStrategy):
    """Hold one graph of all strains, made once a batch: any module of ``dgl.nn`` runs on it as it is.

    Lost nodes keep a row, but their edges are removed. The graph has C · E edges at most, each of which takes 24 bytes
    once products have run forward and backward.
    """

    @cached_property
    def keep(self) -> dict[str, Tensor]:
        """Return which nodes every column keeps: node type → [N, C] bool."""
        return {node_type: known.columns(torch.bool) for node_type, known in self.kept.items()}

    @cached_property
    def graphs(self) -> list[DGLGraph]:
        """Return the reduced graphs of the wild type and of every strain, with node numbers as in the cell graph.

        Fixed weights of edges are in ``edata["weight"]``, and what strains leave of changed edges in
        ``edata["strength"]``.
        """
        # Numbers of 32 bits halve what a batch takes.
        wild_type = self.cell.heterograph(torch.int32)
        return [self._reduced(wild_type, column) for column in range(1 + self.num_strains)]

    @cached_property
    def batched(self) -> DGLGraph:
        """Return ``graphs`` as one graph: node n of column c is ``c · N + n``."""
        return import_dgl().batch(self.graphs)

    def _reduced(self, wild_type: DGLGraph, column: int) -> DGLGraph:
        left = {r: of.left(column, self.cell[r].num_edges) for r, of in self.changes.items()}
        surviving = {}
        for relation in self.cell.relations:
            edges = self.cell[relation]
            alive = self.keep[relation[0]][edges.src, column] & self.keep[relation[2]][edges.dst, column]
            alive = alive & (left[relation] != 0) if relation in left else alive
            surviving[relation] = alive.nonzero().squeeze(1)
        ids = {relation: edges.to(wild_type.idtype) for relation, edges in surviving.items()}
        graph = import_dgl().edge_subgraph(wild_type, ids, relabel_nodes=False, store_ids=False)
        for relation, strength in left.items():
            graph.edges[relation].data["strength"] = strength[surviving[relation]]
        return graph

    def find_rows(self, relation: Relation, dtype: torch.dtype) -> EdgeRows:
        """Return the edges of all columns, with weights and strengths of edges times those of their sources."""
        graph = self.batched[relation]
        weight, strength = (
            graph.edata[name].to(dtype) if name in graph.edata else None for name in (WEIGHT, "strength")
        )
        source = self.kept[relation[0]]
        if source.strengths_NB is not None:
            of_sources = source.columns(dtype).T.flatten()[graph.edges()[0].long()]
            strength = of_sources if strength is None else of_sources * strength
        return EdgeRows(graph, weight, strength)

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        assert isinstance(states, WholeStates)
        ops, rows, x_RH = import_dgl().ops, self.edge_rows(relation, states.x_NCH.dtype), states.graph_rows
        if rows.graph.num_edges() == 0:
            return self._none(relation, x_RH.shape[1:], x_RH)
        factor_E = rows.factor
        y_RH = ops.copy_u_sum(rows.graph, x_RH) if factor_E is None else ops.u_mul_e_sum(rows.graph, x_RH, factor_E)
        if reduce == "mean":  # weighted by strengths, not by the number of edges
            count_R1 = rows.in_degrees.to(x_RH.dtype).unsqueeze(1)
            y_RH = y_RH / torch.where(count_R1 == 0, 1, count_R1)
        return self._states(y_RH)

    def attend(self, relation: Relation, keys: States, queries: States, score: Score) -> States:
        assert isinstance(keys, WholeStates)
        assert isinstance(queries, WholeStates)
        ops, key_RH, query_RH = import_dgl().ops, keys.graph_rows, queries.graph_rows
        rows = self.edge_rows(relation, key_RH.dtype)
        if rows.graph.num_edges() == 0:
            return self._none(relation, query_RH.shape[1:], query_RH)
        source, destination = (ends.long() for ends in rows.graph.edges())
        logits_EA = score(key_RH[source], query_RH[destination], rows.weight)
        if rows.strength is not None:
            logits_EA = logits_EA + rows.strength.log().unsqueeze(1)
        share_EA1 = ops.edge_softmax(rows.graph, logits_EA.unsqueeze(-1))
        value_RAD = key_RH.unflatten(1, (logits_EA.shape[1], -1)).contiguous()
        return self._states(ops.u_mul_e_sum(rows.graph, value_RAD, share_EA1).flatten(1))

    def convolve(self, relation: Relation, source: States, destination: States, module: GraphModule) -> States:
        """Return what a module written for DGL computes on the strains' reduced graphs.

        Args:
            relation: the relation whose edges are followed.
            source: states of the source nodes.
            destination: states of the destination nodes.
            module: called once, with the edges of all columns and the rows of all their nodes.
        """
        assert isinstance(source, WholeStates)
        assert isinstance(destination, WholeStates)
        rows = self.edge_rows(relation, source.x_NCH.dtype)
        if rows.graph.num_edges() == 0:
            return self._none(relation, destination.x_NCH.shape[2:], source.x_NCH)
        y_RH = module(rows, source.graph_rows, destination.graph_rows)
        # A module may give anything to a node without edges.
        return self._states(torch.where(self.keep[relation[2]].T.reshape(-1, 1), y_RH, 0))

    def _states(self, y_RH: Tensor) -> WholeStates:
        return WholeStates(y_RH.unflatten(0, (1 + self.num_strains, -1)).transpose(0, 1), self.num_strains)

    def _none(self, relation: Relation, width: torch.Size, like: Tensor) -> WholeStates:
        return WholeStates(like.new_zeros(self.cell[relation].num_dst, 1, *width), self.num_strains)
