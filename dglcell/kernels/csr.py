"""A CSR matrix product (MKL on a CPU, cuSPARSE on a GPU), with the transpose prepared once for the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident import ResidentRelation


class _CsrProduct(torch.autograd.Function):
    """A x forward, Aᵀ g backward; A is constant."""

    @staticmethod
    def forward(ctx: Any, x_NC: Tensor, relation: ResidentRelation, weighted: bool) -> Tensor:
        ctx.relation, ctx.weighted = relation, weighted
        return _product(relation, x_NC, weighted=weighted, transposed=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MC: Tensor) -> tuple[Tensor, None, None]:
        return _product(ctx.relation, grad_MC, weighted=ctx.weighted, transposed=True), None, None


def _product(relation: ResidentRelation, x: Tensor, *, weighted: bool, transposed: bool) -> Tensor:
    """The product in the precision of ``x``; half precisions, which MKL does not have, are computed in float32."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    # Autocast would turn both factors into bfloat16.
    with torch.autocast(x.device.type, enabled=False):
        matrix = relation.csr(dtype, weighted=weighted, transposed=transposed)
        return (matrix @ x.to(dtype).contiguous()).to(x.dtype)


def spmm_csr(relation: ResidentRelation, x_NC: Tensor, weighted: bool) -> Tensor:
    """[M, C] sums over in-edges as a sparse matrix product."""
    out: Tensor = _CsrProduct.apply(x_NC, relation, weighted)
    return out
