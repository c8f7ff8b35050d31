"""Deletions are node-induced: mask(u → v) = keep(u) · keep(v), so rows are scaled and no edge tensor exists."""

from __future__ import annotations

from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import Relation
from dglcell.kernels.attention import GATv2Score, gatv2
from dglcell.kernels.spmm import spmm
from dglcell.perturbation.states import DenseStates, States


class NodeMask:
    """``y = K_v · A · (K_u · x)`` on the unperturbed graph, with all strains side by side as columns."""

    def __init__(self, cell: ResidentCell, keep: dict[str, Tensor], kernel: str = "auto") -> None:
        self.cell, self.keep, self.kernel = cell, keep, kernel
        self._mean_scales: dict[tuple[Relation, object], Tensor] = {}

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        """See ``PerturbedCell.aggregate``."""
        edges = self.cell[relation]
        keep_NB = self.keep[relation[0]]
        x_NBH = states.dense() * keep_NB.unsqueeze(-1)
        width = x_NBH.shape[-1]
        y_MC = spmm(edges, x_NBH.reshape(edges.num_src, -1), kernel=self.kernel)
        scale_MB = self._mean_scale(relation, y_MC) if reduce == "mean" else self.keep[relation[2]]
        return DenseStates(y_MC.view(edges.num_dst, -1, width) * scale_MB.unsqueeze(-1))

    def attend(self, relation: Relation, keys: States, queries: States, score: GATv2Score) -> States:
        """See ``PerturbedCell.attend``."""
        keep = self.keep[relation[0]], self.keep[relation[2]]
        keys_NBH, queries_MBH = (x.dense().expand(-1, keep[0].shape[1], -1) for x in (keys, queries))
        return DenseStates(gatv2(self.cell[relation], keys_NBH, queries_MBH, keep, score))

    def _mean_scale(self, relation: Relation, like: Tensor) -> Tensor:
        """[M, B] keep(v) over the number of surviving in-edges; computed once per relation."""
        key = (relation, like.dtype)
        if key not in self._mean_scales:
            keep_NB = self.keep[relation[0]].to(like.dtype)
            degree_MB = spmm(self.cell[relation], keep_NB, weighted=False, kernel=self.kernel)
            self._mean_scales[key] = self.keep[relation[2]] / degree_MB.clamp(min=1)
        return self._mean_scales[key]
