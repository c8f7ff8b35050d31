"""One weight per edge and strain, aggregated by a single g-SpMM with broadcasting."""

from __future__ import annotations

import dgl
import dgl.function as fn
import torch
import torch.nn.functional as F
from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import Relation
from dglcell.kernels.attention import GATv2Score
from dglcell.perturbation.edge_corrections import CORRECTED_SHARE, corrected_aggregate
from dglcell.perturbation.edge_perturbation import EdgeChanges, EdgePerturbations, check_weights_matter
from dglcell.perturbation.states import DenseStates, States


class EdgeMask:
    """Masked weights [E, B, 1] in ``edata``, messages ``u_mul_e``: any edge of any strain can have its own weight.

    Where edge perturbations are given and few (``CORRECTED_SHARE``), sums and means are computed without [E, B]
    tensors. Attention takes [E, B, H].
    """

    def __init__(
        self,
        cell: ResidentCell,
        keep: dict[str, Tensor],
        kernel: str = "auto",
        perturbations: EdgePerturbations | None = None,
    ) -> None:
        self.cell, self.keep, self.kernel, self.perturbations = cell, keep, kernel, perturbations

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        """See ``PerturbedCell.aggregate``."""
        edges, x_NBH = self.cell[relation], states.dense()
        num_strains = self.keep[relation[2]].shape[1]
        if edges.num_edges == 0:
            return DenseStates(x_NBH.new_zeros(edges.num_dst, num_strains, x_NBH.shape[-1]))
        x_NBH = x_NBH.expand(-1, num_strains, -1)
        changes = self._changes(relation)
        if self.perturbations and len(changes or ()) <= CORRECTED_SHARE * edges.num_edges * num_strains:
            ends = self.keep[relation[0]], self.keep[relation[2]]
            return DenseStates(corrected_aggregate(edges, ends, changes, x_NBH, reduce, self.kernel))
        alive_EB, weight_EB = self._edge_data(relation, x_NBH.dtype)
        graph = edges.dgl_graph
        with graph.local_scope():
            graph.srcdata["x"] = x_NBH
            graph.edata["weight"] = (alive_EB * weight_EB).unsqueeze(-1)
            graph.update_all(fn.u_mul_e("x", "weight", "m"), fn.sum("m", "y"))
            y_MBH = graph.dstdata["y"]
            if reduce == "mean":
                graph.edata["alive"] = alive_EB.unsqueeze(-1).to(x_NBH.dtype)
                graph.update_all(fn.copy_e("alive", "m"), fn.sum("m", "degree"))
                y_MBH = y_MBH / graph.dstdata["degree"].clamp(min=1)
        return DenseStates(y_MBH)

    def attend(self, relation: Relation, keys: States, queries: States, score: GATv2Score) -> States:
        """See ``PerturbedCell.attend``."""
        edges, num_strains = self.cell[relation], self.keep[relation[2]].shape[1]
        keys_NBH, queries_MBH = (x.dense().expand(-1, num_strains, -1) for x in (keys, queries))
        check_weights_matter(self._changes(relation), relation, score)
        if edges.num_edges == 0:
            return DenseStates(torch.zeros_like(queries_MBH))
        alive_EB, weight_EB = self._edge_data(relation, keys_NBH.dtype)
        graph, gone_EB1 = edges.dgl_graph, ~alive_EB.unsqueeze(-1)
        sum_EBH = dgl.ops.u_add_v(graph, keys_NBH.contiguous(), queries_MBH.contiguous())
        if score.edge_vector is not None:
            sum_EBH = sum_EBH + weight_EB.unsqueeze(-1) * score.edge_vector
        hidden_EBAD = F.leaky_relu(sum_EBH, score.slope).unflatten(-1, score.vector.shape)
        logits_EBA = (hidden_EBAD * score.vector).sum(-1)
        floor = torch.finfo(logits_EBA.dtype).min
        share_EBA = dgl.ops.edge_softmax(graph, logits_EBA.masked_fill(gone_EB1, floor)).masked_fill(gone_EB1, 0)
        values_NBAD = keys_NBH.unflatten(-1, score.vector.shape).contiguous()
        return DenseStates(dgl.ops.u_mul_e_sum(graph, values_NBAD, share_EBA.unsqueeze(-1)).flatten(2))

    def _changes(self, relation: Relation) -> EdgeChanges | None:
        return self.perturbations.relations.get(relation) if self.perturbations else None

    def _edge_data(self, relation: Relation, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """[E, B] bool surviving edges, and [E, B] their weights."""
        edges = self.cell[relation]
        alive_EB = self.keep[relation[0]][edges.src] & self.keep[relation[2]][edges.dst]
        weight_EB = torch.ones(alive_EB.shape, dtype=dtype, device=alive_EB.device)
        if edges.weight is not None:
            weight_EB = edges.weight.to(dtype).unsqueeze(1).expand_as(alive_EB)
        changes = self._changes(relation)
        if changes is None:
            return alive_EB, weight_EB
        return changes.without_removed(alive_EB), changes.reweighted(weight_EB)
