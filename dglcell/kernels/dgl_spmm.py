"""DGL's g-SpMM: no E × C tensor; blocked for the cache on a CPU when unweighted."""

from __future__ import annotations

import dgl
from torch import Tensor

from dglcell.graph.resident import ResidentRelation


def spmm_dgl(relation: ResidentRelation, x_NC: Tensor, weighted: bool) -> Tensor:
    """[M, C] sums over in-edges by ``copy_u``/``u_mul_e`` + ``sum``."""
    if weighted:
        assert relation.weight is not None
        return dgl.ops.u_mul_e_sum(relation.dgl_graph, x_NC, relation.weight.to(x_NC.dtype).unsqueeze(1))
    return dgl.ops.copy_u_sum(relation.dgl_graph, x_NC)
