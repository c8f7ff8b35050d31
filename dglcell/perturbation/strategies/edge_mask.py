"""Aggregate with one weight per edge and strain, by a single g-SpMM with broadcasting."""

from __future__ import annotations

import torch
from torch import Tensor

from dglcell.graph.resident_graph import ResidentGraph, import_dgl
from dglcell.graph.schema import Relation
from dglcell.perturbation.edge_perturbation import EdgeChanges, EdgePerturbations
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import Score, States, WholeStates


class EdgeMask:
    """Aggregate with masked weights [E, B, 1], so that any edge of any strain can have a strength of its own.

    The weights are in ``edata``, and messages are ``u_mul_e``.

    States are whole, C = 1 + B columns with the wild type first.

    Args:
        cell: the cell graph.
        kept: node type → which nodes the wild type and the strains keep.
        perturbations: changes of single edges, with the wild type as the first strain; optional.
    """

    def __init__(
        self,
        cell: ResidentGraph,
        kept: dict[str, Kept],
        perturbations: EdgePerturbations | None = None,
    ) -> None:
        self.cell, self.kept, self.perturbations = cell, kept, perturbations

    @property
    def num_strains(self) -> int:
        """Return the number of strains, B."""
        return next(iter(self.kept.values())).strains_NB.shape[1]

    def start(self, x_NH: Tensor) -> WholeStates:
        return WholeStates(x_NH.unsqueeze(1), self.num_strains)

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        assert isinstance(states, WholeStates)
        return WholeStates(self._aggregated(relation, states.columns, reduce), self.num_strains)

    def _aggregated(self, relation: Relation, x_NCH: Tensor, reduce: str) -> Tensor:
        edges = self.cell[relation]
        if edges.num_edges == 0:
            return x_NCH.new_zeros(edges.num_dst, *x_NCH.shape[1:])
        alive_EC, weight_EC = self._edge_data(relation, x_NCH.dtype)
        strength_EC = self._strengths(relation, alive_EC, x_NCH.dtype)
        strength_EC = alive_EC.to(x_NCH.dtype) if strength_EC is None else strength_EC
        graph = edges.dgl_graph
        fn = import_dgl().function
        with graph.local_scope():
            graph.srcdata["x"] = x_NCH
            graph.edata["weight"] = (strength_EC * weight_EC).unsqueeze(-1)
            graph.update_all(fn.u_mul_e("x", "weight", "m"), fn.sum("m", "y"))
            y_MCH: Tensor = graph.dstdata["y"]
            if reduce == "mean":
                graph.edata["strength"] = strength_EC.unsqueeze(-1)
                graph.update_all(fn.copy_e("strength", "m"), fn.sum("m", "degree"))
                degree_MC1 = graph.dstdata["degree"]
                y_MCH = y_MCH / torch.where(degree_MC1 == 0, 1, degree_MC1)
        return y_MCH

    def attend(self, relation: Relation, keys: States, queries: States, score: Score) -> States:
        assert isinstance(keys, WholeStates)
        assert isinstance(queries, WholeStates)
        edges, key_NCH, query_MCH = self.cell[relation], keys.columns, queries.columns
        if edges.num_edges == 0:
            return WholeStates(torch.zeros_like(query_MCH), self.num_strains)
        alive_EC, weight_EC = self._edge_data(relation, key_NCH.dtype)
        changes = self._changes(relation)
        alive_EC = alive_EC if changes is None else changes.removed_from(alive_EC)
        graph, gone_EC1 = edges.dgl_graph, ~alive_EC.unsqueeze(-1)
        ends = key_NCH[edges.src].flatten(0, 1), query_MCH[edges.dst].flatten(0, 1)
        weights = None if edges.weight is None else weight_EC.flatten()
        logits_ECA = score(*ends, weights).unflatten(0, alive_EC.shape)
        strength_EC = self._strengths(relation, alive_EC, key_NCH.dtype)
        if strength_EC is not None:
            logits_ECA = logits_ECA + strength_EC.unsqueeze(-1).masked_fill(gone_EC1, 1).log()
        floor = torch.finfo(logits_ECA.dtype).min
        share_ECA = (
            import_dgl().ops.edge_softmax(graph, logits_ECA.masked_fill(gone_EC1, floor)).masked_fill(gone_EC1, 0)
        )
        values_NCAD = key_NCH.unflatten(-1, (share_ECA.shape[-1], -1)).contiguous()
        return WholeStates(
            import_dgl().ops.u_mul_e_sum(graph, values_NCAD, share_ECA.unsqueeze(-1)).flatten(2), self.num_strains
        )

    def _changes(self, relation: Relation) -> EdgeChanges | None:
        return self.perturbations.relations.get(relation) if self.perturbations else None

    def _edge_data(self, relation: Relation, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return which edges have both ends, [E, C] bool, and the fixed weights of all, [E, C]."""
        edges = self.cell[relation]
        source, destination = (self.kept[node_type].columns(torch.bool) for node_type in (relation[0], relation[2]))
        alive_EC = source[edges.src] & destination[edges.dst]
        weight_EC = torch.ones(alive_EC.shape, dtype=dtype, device=alive_EC.device)
        if edges.weight is not None:
            weight_EC = edges.weight.to(dtype).unsqueeze(1).expand_as(alive_EC)
        return alive_EC, weight_EC

    def _strengths(self, relation: Relation, alive_EC: Tensor, dtype: torch.dtype) -> Tensor | None:
        """Return the strengths of edges times those of their sources, [E, C]; None where nothing is weakened."""
        changes, source = self._changes(relation), self.kept[relation[0]]
        if changes is None and source.strengths_NB is None:
            return None
        strength_EC = alive_EC * source.columns(dtype)[self.cell[relation].src]
        return strength_EC if changes is None else changes.put_into(strength_EC)
