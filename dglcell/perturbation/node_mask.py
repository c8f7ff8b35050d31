"""Deletions are node-induced: mask(u → v) = keep(u) · keep(v), so rows are scaled and no edge tensor exists."""

from __future__ import annotations

import torch
from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import Relation
from dglcell.kernels.attention import GATv2Score, gatv2
from dglcell.kernels.spmm import spmm
from dglcell.kernels.update import COMPILED_DEVICES
from dglcell.perturbation.received import Received
from dglcell.perturbation.states import DenseStates, States
from dglcell.perturbation.strain_sums import Message

BY_STRAIN = ("auto", "tiled")
"""Kernels whose products may be taken one strain at a time."""


class NodeMask:
    """``y = K_v · A · (K_u · x)`` on the unperturbed graph, with all strains side by side as columns."""

    def __init__(self, cell: ResidentCell, keep: dict[str, Tensor], kernel: str = "auto") -> None:
        self.cell, self.keep, self.kernel = cell, keep, kernel
        self._mean_scales: dict[tuple[Relation, object], Tensor] = {}
        self._sent: dict[str, tuple[States, Tensor]] = {}

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        """See ``PerturbedCell.aggregate``."""
        edges = self.cell[relation]
        scale_MB = self.mean_scale(relation, states.dtype) if reduce == "mean" else self.keep[relation[2]]

        def product() -> Tensor:
            x_NBH = self._kept(relation[0], states)
            y_MC = spmm(edges, x_NBH.reshape(edges.num_src, -1), kernel=self.kernel)
            return y_MC.view(edges.num_dst, -1, x_NBH.shape[-1]) * scale_MB.unsqueeze(-1)

        if self.kernel not in BY_STRAIN or scale_MB.device.type not in COMPILED_DEVICES:
            return DenseStates(product())
        return Received(Message(edges, self.keep[relation[0]], scale_MB), states, product)

    def attend(self, relation: Relation, keys: States, queries: States, score: GATv2Score) -> States:
        """See ``PerturbedCell.attend``."""
        keep = self.keep[relation[0]], self.keep[relation[2]]
        keys_NBH, queries_MBH = (x.dense().expand(-1, keep[0].shape[1], -1) for x in (keys, queries))
        return DenseStates(gatv2(self.cell[relation], keys_NBH, queries_MBH, keep, score))

    def _kept(self, node_type: str, states: States) -> Tensor:
        """[N, B, H] states with those of lost nodes set to zero; once for all relations out of a node type."""
        known = self._sent.get(node_type)
        if known is None or known[0] is not states:
            known = self._sent[node_type] = states, states.dense() * self.keep[node_type].unsqueeze(-1)
        return known[1]

    def mean_scale(self, relation: Relation, dtype: torch.dtype) -> Tensor:
        """[M, B] keep(v) over the number of surviving in-edges; computed once per relation."""
        key = (relation, dtype)
        if key not in self._mean_scales:
            keep_NB = self.keep[relation[0]].to(dtype)
            degree_MB = spmm(self.cell[relation], keep_NB, weighted=False, kernel=self.kernel)
            self._mean_scales[key] = self.keep[relation[2]] / degree_MB.clamp(min=1)
        return self._mean_scales[key]
