"""A CSR matrix product (MKL on a CPU, cuSPARSE on a GPU), with the transpose prepared once for the backward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from dglcell.graph.resident import ResidentRelation
from dglcell.kernels.product import constant_product


def spmm_csr(relation: ResidentRelation, x_NC: Tensor, weighted: bool) -> Tensor:
    """[M, C] sums over in-edges as a sparse matrix product."""
    return constant_product(relation, x_NC, weighted, _product)


def _product(relation: ResidentRelation, x: Tensor, *, weighted: bool, transposed: bool) -> Tensor:
    """The product in the precision of ``x``; half precisions, which MKL does not have, are computed in float32."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    # Autocast would turn both factors into bfloat16.
    with torch.autocast(x.device.type, enabled=False):
        matrix = relation.csr(dtype, weighted=weighted, transposed=transposed)
        return (matrix @ x.to(dtype).contiguous()).to(x.dtype)
