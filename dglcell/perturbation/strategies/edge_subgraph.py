"""Build the reduced graph of every strain by ``dgl.edge_subgraph``: slow and literal, the reference for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dglcell.graph.resident_graph import ResidentGraph, import_dgl
from dglcell.graph.schema import Relation
from dglcell.perturbation.edge_perturbation import EdgePerturbations
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import Score, States, WholeStates

if TYPE_CHECKING:
    from dgl import DGLGraph


class EdgeSubgraph:
    """Hold one heterograph for the wild type and for each strain; lost nodes keep a row, but their edges are removed.

    States are whole, C = 1 + B columns with the wild type first.

    Args:
        cell: the cell graph.
        kept: node type → which nodes the wild type and the strains keep.
        perturbations: changes of single edges, with the wild type as the first strain; optional.
    """

    def __init__(
        self, cell: ResidentGraph, kept: dict[str, Kept], perturbations: EdgePerturbations | None = None
    ) -> None:
        self.cell, self.kept = cell, kept
        self.keep = {node_type: known.columns(torch.bool) for node_type, known in kept.items()}
        self.perturbations = {} if perturbations is None else perturbations.relations
        wild_type = cell.heterograph()
        self.num_strains = next(iter(kept.values())).strains_NB.shape[1]
        self.graphs = [self._reduced(wild_type, column) for column in range(1 + self.num_strains)]

    def start(self, x_NH: Tensor) -> WholeStates:
        return WholeStates(x_NH.unsqueeze(1), self.num_strains)

    def _reduced(self, wild_type: DGLGraph, strain: int) -> DGLGraph:
        """Return the graph of one strain, with the strengths of its edges."""
        surviving = {relation: self._surviving(relation, strain) for relation in self.cell.relations}
        graph = import_dgl().edge_subgraph(wild_type, surviving, relabel_nodes=False)
        for relation, changes in self.perturbations.items():
            mine = changes.strains == strain
            strength = changes.strengths.new_ones(self.cell[relation].num_edges)
            strength = strength.index_put((changes.edges[mine],), changes.strengths[mine])
            graph.edges[relation].data["strength"] = strength[surviving[relation]]
        return graph

    def _surviving(self, relation: Relation, strain: int) -> Tensor:
        """Return the positions of the edges that the strain has, ascending."""
        edges = self.cell[relation]
        alive = self.keep[relation[0]][edges.src, strain] & self.keep[relation[2]][edges.dst, strain]
        if relation in self.perturbations:
            changes = self.perturbations[relation]
            alive[changes.edges[(changes.strains == strain) & (changes.strengths == 0)]] = False
        return alive.nonzero().squeeze(1)

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        assert isinstance(states, WholeStates)
        parts = zip(self.graphs, states.columns.unbind(1), self._strengths(relation[0], states), strict=True)
        rows = [self._one(graph[relation], x_NH, strength_N, reduce) for graph, x_NH, strength_N in parts]
        return WholeStates(torch.stack(rows, dim=1), self.num_strains)

    def _strengths(self, node_type: str, states: WholeStates) -> Sequence[Tensor | None]:
        """Return the strengths of the wild type and of every strain, [N] each; None where no kept node is weakened."""
        kept = self.kept[node_type]
        if kept.strengths_NB is None:
            return [None] * (1 + self.num_strains)
        return kept.columns(states.x_NCH.dtype).unbind(1)

    @staticmethod
    def _one(graph: DGLGraph, x_NH: Tensor, strength_N: Tensor | None, reduce: str) -> Tensor:
        if graph.num_edges() == 0:
            return x_NH.new_zeros(graph.num_dst_nodes(), x_NH.shape[-1])
        fn = import_dgl().function
        strength_E = _edge_strengths(graph, strength_N, x_NH.dtype)
        with graph.local_scope():
            graph.srcdata["x"] = x_NH
            weight_E = x_NH.new_ones(graph.num_edges()) if strength_E is None else strength_E
            if "weight" in graph.edata:
                weight_E = weight_E * graph.edata["weight"].to(x_NH.dtype)
            graph.edata["weight"] = weight_E.unsqueeze(-1)
            graph.update_all(fn.u_mul_e("x", "weight", "m"), {"sum": fn.sum, "mean": fn.mean}[reduce]("m", "y"))
            y_MH: Tensor = graph.dstdata["y"]
            if reduce == "mean" and strength_E is not None:  # weighted by strengths, not by the number of edges
                graph.edata["strength"] = strength_E.unsqueeze(1)
                graph.update_all(fn.copy_e("strength", "m"), fn.mean("m", "mean"))
                mean_M1 = graph.dstdata["mean"]
                y_MH = y_MH / torch.where(mean_M1 == 0, 1, mean_M1)
            return y_MH

    def attend(self, relation: Relation, keys: States, queries: States, score: Score) -> States:
        assert isinstance(keys, WholeStates)
        assert isinstance(queries, WholeStates)
        key_columns, query_columns = keys.columns.unbind(1), queries.columns.unbind(1)
        rows = [
            self._attend_one(graph[relation], key_NH, query_MH, strength_N, score)
            for graph, key_NH, query_MH, strength_N in zip(
                self.graphs, key_columns, query_columns, self._strengths(relation[0], keys), strict=True
            )
        ]
        return WholeStates(torch.stack(rows, dim=1), self.num_strains)

    @staticmethod
    def _attend_one(
        graph: DGLGraph, key_NH: Tensor, query_MH: Tensor, strength_N: Tensor | None, score: Score
    ) -> Tensor:
        if graph.num_edges() == 0:
            return torch.zeros_like(query_MH)
        source, destination = graph.edges()
        weights = graph.edata["weight"].to(key_NH.dtype) if "weight" in graph.edata else None
        logits_EA = score(key_NH[source], query_MH[destination], weights)
        strength_E = _edge_strengths(graph, strength_N, key_NH.dtype)
        if strength_E is not None:
            logits_EA = logits_EA + strength_E.log().unsqueeze(1)
        share_EA1 = import_dgl().ops.edge_softmax(graph, logits_EA.unsqueeze(-1))
        value_NAD = key_NH.unflatten(1, (logits_EA.shape[1], -1)).contiguous()
        return import_dgl().ops.u_mul_e_sum(graph, value_NAD, share_EA1).flatten(1)


def _edge_strengths(graph: DGLGraph, strength_N: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return the strengths of edges times those of their sources, [E]; None where nothing is weakened."""
    of_edges = graph.edata["strength"].to(dtype) if "strength" in graph.edata else None
    if strength_N is None:
        return of_edges
    of_sources = strength_N[graph.edges()[0]]
    return of_sources if of_edges is None else of_sources * of_edges
