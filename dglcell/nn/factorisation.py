"""Factorisation machine over the deleted genes of a strain."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.nn.initial import HEAD_GAIN


class FactorisationMachine(nn.Module):
    r"""Score a set of genes by the sum of their effects and of the products of their vectors.

    .. math:: s = \sum_i (w^\top x_i + c) + \sum_{i \lt j} \sum_f a_f v_{if} v_{jf}, \quad v_i = V x_i

    Rendle 2010, *Factorization Machines*, eq. 1, with the inner sum over pairs computed by his lemma 3.1 as
    :math:`\tfrac12 \big((\sum_i v_{if})^2 - \sum_i v_{if}^2\big)`; the weights :math:`a_f` let products count against
    each other, so that the matrix of pairwise scores need not be positive definite.

    With ``genes``, every gene has an effect and a vector of its own beside :math:`w^\top x_i` and :math:`V x_i`. They
    start at zero: what the states say about a gene that is never trained on is not disturbed, and weight decay takes
    back whatever the states can say as well.

    Args:
        width: H.
        outputs: T scores per set.
        factors: width F of the vectors; None where the states themselves are the vectors (V = 1).
        dropout: on the states.
        genes: number of genes with a deviation of their own; None for none.

    Shapes:
        genes' states [B, K, H], their indices [B, K], present [B, K] → [B, T]; zero for an empty set.
    """

    def __init__(
        self, width: int, outputs: int, *, factors: int | None, dropout: float, genes: int | None = None
    ) -> None:
        super().__init__()
        free, factors = factors is not None, factors or width
        self.effect = nn.Linear(width, outputs)
        self.vector = nn.Linear(width, factors, bias=False) if free else None
        self.score = nn.Linear(factors, outputs, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.own_effects = None if genes is None else nn.Parameter(torch.zeros(genes, outputs))
        self.own_vectors = None if genes is None else nn.Parameter(torch.zeros(genes, factors))

    def start_at_the_mean(self) -> None:
        """Scale initial weights down: an untrained model predicts about the training mean, 0.

        Effects by the gain; vectors by its root, because scores are products of two. Were the products' weights scaled
        down instead, the vectors' gradients would be, and weight decay would win against them.
        """
        with torch.no_grad():
            self.effect.weight.mul_(HEAD_GAIN)
            if self.vector is not None:
                self.vector.weight.mul_(HEAD_GAIN**0.5)

    def forward(self, x_BKH: Tensor, genes_BK: Tensor, present_BK: Tensor) -> Tensor:
        """[B, T] scores."""
        x_BKH = self.dropout(x_BKH)
        effect_BKT = self.effect(x_BKH)
        vector_BKF = x_BKH if self.vector is None else self.vector(x_BKH)
        if self.own_effects is not None and self.own_vectors is not None:
            effect_BKT = effect_BKT + F.embedding(genes_BK, self.own_effects)
            vector_BKF = vector_BKF + F.embedding(genes_BK, self.own_vectors)
        there_BK1 = present_BK.unsqueeze(-1)
        vector_BKF = vector_BKF * there_BK1
        products_BF = 0.5 * (vector_BKF.sum(1).square() - vector_BKF.square().sum(1))
        out: Tensor = (effect_BKT * there_BK1).sum(1) + self.score(products_BF)
        return out
