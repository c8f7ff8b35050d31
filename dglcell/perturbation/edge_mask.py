"""One weight per edge and strain, aggregated by a single g-SpMM with broadcasting."""

from __future__ import annotations

import dgl.function as fn
from torch import Tensor

from dglcell.graph.resident import ResidentCell
from dglcell.graph.schema import Relation
from dglcell.perturbation.states import DenseStates, States


class EdgeMask:
    """Masked weights [E, B, 1] in ``edata``, messages ``u_mul_e``: any edge of any strain can have its own weight."""

    def __init__(self, cell: ResidentCell, keep: dict[str, Tensor]) -> None:
        self.cell, self.keep = cell, keep

    def aggregate(self, relation: Relation, states: States, reduce: str = "sum") -> States:
        """See ``PerturbedCell.aggregate``."""
        edges, x_NBH = self.cell[relation], states.dense()
        if edges.num_edges == 0:
            shape = (edges.num_dst, self.keep[relation[2]].shape[1], x_NBH.shape[-1])
            return DenseStates(x_NBH.new_zeros(shape))
        alive_EB = self.keep[relation[0]][edges.src] & self.keep[relation[2]][edges.dst]
        mask_EB1 = alive_EB.unsqueeze(-1).to(x_NBH.dtype)
        weight_EB1 = mask_EB1 if edges.weight is None else mask_EB1 * edges.weight.to(mask_EB1.dtype).view(-1, 1, 1)
        graph = edges.dgl_graph
        with graph.local_scope():
            graph.srcdata["x"] = x_NBH.expand(-1, alive_EB.shape[1], -1)
            graph.edata["weight"] = weight_EB1
            graph.update_all(fn.u_mul_e("x", "weight", "m"), fn.sum("m", "y"))
            y_MBH = graph.dstdata["y"]
            if reduce == "mean":
                graph.edata["alive"] = mask_EB1
                graph.update_all(fn.copy_e("alive", "m"), fn.sum("m", "degree"))
                y_MBH = y_MBH / graph.dstdata["degree"].clamp(min=1)
        return DenseStates(y_MBH)
