"""The physically reduced graph of every strain by ``dgl.edge_subgraph``: slow, literal, the oracle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dglcell.graph.resident import ResidentCell, import_dgl
from dglcell.graph.schema import Relation
from dglcell.perturbation.attention import Score
from dglcell.perturbation.edge_perturbation import EdgePerturbations, check_weights_matter
from dglcell.perturbation.states import States, WholeStates

if TYPE_CHECKING:
    from dgl import DGLGraph


class EdgeSubgraph:
    """One heterograph for the wild type and for each strain; lost nodes keep a row, their edges are gone.

    States are whole, C = 1 + B columns with the wild type first.

    Args:
        cell: the cell graph.
        keep: node type → [N, C] bool.
        perturbations: of single edges, with the wild type in front; optional.
    """

    def __init__(
        self, cell: ResidentCell, keep: dict[str, Tensor], perturbations: EdgePerturbations | None = None
    ) -> None:
        self.cell, self.keep = cell, keep
        self.perturbations = {} if perturbations is None else perturbations.relations
        wild_type = cell.heterograph()
        columns = next(iter(keep.values())).shape[1]
        self.graphs = [self._reduced(wild_type, column) for column in range(columns)]
        self.num_strains = columns - 1

    def start(self, x_NH: Tensor) -> WholeStates:
        return WholeStates(x_NH.unsqueeze(1), self.num_strains)

    def _reduced(self, wild_type: DGLGraph, strain: int) -> DGLGraph:
        """The graph of one strain, with its own edge weights."""
        surviving = {relation: self._surviving(relation, strain) for relation in self.cell.relations}
        graph = import_dgl().edge_subgraph(wild_type, surviving, relabel_nodes=False)
        for relation, changes in self.perturbations.items():
            mine = changes.strains == strain
            if len(changes.edges):
                edges = self.cell[relation]
                weight = changes.weights.new_ones(edges.num_edges) if edges.weight is None else edges.weight
                weight = weight.to(changes.weights.dtype).index_put((changes.edges[mine],), changes.weights[mine])
                graph.edges[relation].data["weight"] = weight[surviving[relation]]
        return graph

    def _surviving(self, relation: Relation, strain: int) -> Tensor:
        """Positions of the edges that the strain has, ascending."""
        edges = self.cell[relation]
        alive = self.keep[relation[0]][edges.src, strain] & self.keep[relation[2]][edges.dst, strain]
        if relation in self.perturbations:
            changes = self.perturbations[relation]
            alive[changes.removed_edges[changes.removed_strains == strain]] = False
        return alive.nonzero().squeeze(1)

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        assert isinstance(states, WholeStates)
        columns = states.columns.unbind(1)
        rows = [self._one(graph[relation], x_NH, reduce) for graph, x_NH in zip(self.graphs, columns, strict=True)]
        return WholeStates(torch.stack(rows, dim=1), self.num_strains)

    @staticmethod
    def _one(graph: DGLGraph, x_NH: Tensor, reduce: str) -> Tensor:
        if graph.num_edges() == 0:
            return x_NH.new_zeros(graph.num_dst_nodes(), x_NH.shape[-1])
        fn = import_dgl().function
        with graph.local_scope():
            graph.srcdata["x"] = x_NH
            if "weight" in graph.edata:
                graph.edata["weight"] = graph.edata["weight"].to(x_NH.dtype).unsqueeze(-1)
                message = fn.u_mul_e("x", "weight", "m")
            else:
                message = fn.copy_u("x", "m")
            graph.update_all(message, {"sum": fn.sum, "mean": fn.mean}[reduce]("m", "y"))
            return graph.dstdata["y"]

    def attend(self, relation: Relation, keys: States, queries: States, score: Score) -> States:
        check_weights_matter(self.perturbations.get(relation), relation, score)
        assert isinstance(keys, WholeStates)
        assert isinstance(queries, WholeStates)
        key_columns, query_columns = keys.columns.unbind(1), queries.columns.unbind(1)
        rows = [
            self._attend_one(graph[relation], key_NH, query_MH, score)
            for graph, key_NH, query_MH in zip(self.graphs, key_columns, query_columns, strict=True)
        ]
        return WholeStates(torch.stack(rows, dim=1), self.num_strains)

    @staticmethod
    def _attend_one(graph: DGLGraph, key_NH: Tensor, query_MH: Tensor, score: Score) -> Tensor:
        if graph.num_edges() == 0:
            return torch.zeros_like(query_MH)
        source, destination = graph.edges()
        weights = graph.edata["weight"].to(key_NH.dtype) if "weight" in graph.edata else key_NH.new_ones(len(source))
        logits_EA = score(key_NH[source], query_MH[destination], weights)
        share_EA1 = import_dgl().ops.edge_softmax(graph, logits_EA.unsqueeze(-1))
        value_NAD = key_NH.unflatten(1, (logits_EA.shape[1], -1)).contiguous()
        return import_dgl().ops.u_mul_e_sum(graph, value_NAD, share_EA1).flatten(1)
