"""Mask the edges of the one resident graph: a weight for each edge and strain, in one g-SpMM with broadcasting."""

from __future__ import annotations

import torch

from dglcell.graph.resident_graph import import_dgl
from dglcell.graph.schema import Relation
from dglcell.perturbation.edge_rows import EdgeRows, GraphModule, GraphStrategy
from dglcell.perturbation.states import Score, States, WholeStates


class EdgeMask(GraphStrategy):
    """Aggregate with masked weights [E, C, 1] of edges, so that any edge of any strain can have its own strength.

    They are made once a batch, for all layers, and take 4 · E · C bytes in single precision. The graph itself stays as
    it is.
    """

    def find_rows(self, relation: Relation, dtype: torch.dtype) -> EdgeRows:
        """Return the edges of the cell graph, with fixed weights [E] and what every strain leaves of them, [E, C]."""
        edges, changes = self.cell[relation], self.changes.get(relation)
        source, destination = (self.kept[node_type].columns(dtype) for node_type in (relation[0], relation[2]))
        # A weakened node receives as ever.
        strength_EC = source[edges.src] * (destination[edges.dst] != 0)
        strength_EC = strength_EC if changes is None else changes.put_into(strength_EC)
        weight = None if edges.weight is None else edges.weight.to(dtype)
        return EdgeRows(self.cell.heterograph()[relation], weight, strength_EC)

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        assert isinstance(states, WholeStates)
        x_NCH, edges = states.columns, self.cell[relation]
        if edges.num_edges == 0:
            return WholeStates(x_NCH.new_zeros(edges.num_dst, *x_NCH.shape[1:]), self.num_strains)
        rows = self.edge_rows(relation, x_NCH.dtype)
        factor = rows.factor
        assert factor is not None
        y_MCH = import_dgl().ops.u_mul_e_sum(rows.graph, x_NCH.contiguous(), factor.unsqueeze(-1))
        if reduce == "mean":
            degree_MC1 = rows.in_degrees.unsqueeze(-1)
            y_MCH = y_MCH / torch.where(degree_MC1 == 0, 1, degree_MC1)
        return WholeStates(y_MCH, self.num_strains)

    def attend(self, relation: Relation, keys: States, queries: States, score: Score) -> States:
        assert isinstance(keys, WholeStates)
        assert isinstance(queries, WholeStates)
        ops, edges, key_NCH, query_MCH = import_dgl().ops, self.cell[relation], keys.columns, queries.columns
        if edges.num_edges == 0:
            return WholeStates(torch.zeros_like(query_MCH), self.num_strains)
        rows = self.edge_rows(relation, key_NCH.dtype)
        assert rows.strength is not None
        gone_EC1 = (rows.strength == 0).unsqueeze(-1)
        ends = key_NCH[edges.src].flatten(0, 1), query_MCH[edges.dst].flatten(0, 1)
        weights = None if rows.weight is None else rows.weight.unsqueeze(1).expand_as(rows.strength).flatten()
        logits_ECA = score(*ends, weights).unflatten(0, rows.strength.shape)
        logits_ECA = logits_ECA + rows.strength.unsqueeze(-1).masked_fill(gone_EC1, 1).log()
        floor = torch.finfo(logits_ECA.dtype).min
        share_ECA = ops.edge_softmax(rows.graph, logits_ECA.masked_fill(gone_EC1, floor)).masked_fill(gone_EC1, 0)
        values_NCAD = key_NCH.unflatten(-1, (share_ECA.shape[-1], -1)).contiguous()
        return WholeStates(
            ops.u_mul_e_sum(rows.graph, values_NCAD, share_ECA.unsqueeze(-1)).flatten(2), self.num_strains
        )

    def convolve(self, relation: Relation, source: States, destination: States, module: GraphModule) -> States:
        """Return what a module written for DGL computes where masked weights stand for removed edges.

        Args:
            relation: the relation whose edges are followed.
            source: states of the source nodes.
            destination: states of the destination nodes.
            module: called with rows [N, C, H] and [M, C, H], and the masks as strengths.
        """
        assert isinstance(source, WholeStates)
        assert isinstance(destination, WholeStates)
        if self.cell[relation].num_edges == 0:
            return WholeStates(torch.zeros_like(destination.columns), self.num_strains)
        rows = self.edge_rows(relation, source.x_NCH.dtype)
        keep_MC1 = self.kept[relation[2]].columns(torch.bool).unsqueeze(-1)
        y_MCH = module(rows, source.columns, destination.columns)
        return WholeStates(torch.where(keep_MC1, y_MCH, 0), self.num_strains)
