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
        return relation.csr(x_NC.dtype, weighted=weighted, transposed=False) @ x_NC

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MC: Tensor) -> tuple[Tensor, None, None]:
        transposed = ctx.relation.csr(grad_MC.dtype, weighted=ctx.weighted, transposed=True)
        return transposed @ grad_MC.contiguous(), None, None


def spmm_csr(relation: ResidentRelation, x_NC: Tensor, weighted: bool) -> Tensor:
    """[M, C] sums over in-edges as a sparse matrix product."""
    out: Tensor = _CsrProduct.apply(x_NC.contiguous(), relation, weighted)
    return out
