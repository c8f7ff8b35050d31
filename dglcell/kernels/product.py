"""The product of a constant matrix with features, differentiable in the features."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.graph.resident import ResidentRelation


class Product(Protocol):
    """A kernel's plain product: A x, or Aᵀ x where ``transposed``."""

    def __call__(self, relation: ResidentRelation, x: Tensor, *, weighted: bool, transposed: bool) -> Tensor: ...


class _ConstantProduct(torch.autograd.Function):
    """A x forward, Aᵀ g backward; A is constant."""

    @staticmethod
    def forward(ctx: Any, x_NC: Tensor, relation: ResidentRelation, weighted: bool, product: Product) -> Tensor:
        ctx.relation, ctx.weighted, ctx.product = relation, weighted, product
        return product(relation, x_NC, weighted=weighted, transposed=False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MC: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.product(ctx.relation, grad_MC, weighted=ctx.weighted, transposed=True), None, None, None


def constant_product(relation: ResidentRelation, x_NC: Tensor, weighted: bool, product: Product) -> Tensor:
    """[M, C] sums over in-edges by ``product``, whose transposed form gives the gradient."""
    out: Tensor = _ConstantProduct.apply(x_NC, relation, weighted, product)
    return out
