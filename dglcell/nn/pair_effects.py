"""Predict by effects of genes and pairs of genes that are fitted once, before a model is trained, and then stay."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RANK = 256


class PairEffects(nn.Module):
    r"""Predict strains by effects of their genes and of pairs of their genes, in fixed numbers.

    .. math:: s = m + \sum_i e_i + \sum_{i \lt j} \sum_r a_r v_{ir} v_{jr}

    The pairs' effects are a symmetric matrix of rank R (Rendle 2010, *Factorization Machines*, lemma 3.1 for the sum).
    Genes that no training strain deletes have effects by their similarity to others. All numbers are 0 before fitting.

    Args:
        outputs: number T of phenotypes.
        genes: N.
        rank: R, the largest rank of the matrix of pair effects.

    Attributes:
        mean: [T] constant m.
        effects: [T, N] effects e of genes.
        vectors: [T, N, R] vectors v of genes.
        weights: [T, R] weights a of the products.

    Shapes:
        deleted genes [B, K], removed [B, K] (see ``GenotypeBatch.padded``) → [B, T].
    """

    mean: Tensor
    effects: Tensor
    vectors: Tensor
    weights: Tensor

    def __init__(self, outputs: int, genes: int, rank: int = RANK) -> None:
        super().__init__()
        self.rank = rank
        self.register_buffer("mean", torch.zeros(outputs))
        self.register_buffer("effects", torch.zeros(outputs, genes))
        self.register_buffer("vectors", torch.zeros(outputs, genes, rank))
        self.register_buffer("weights", torch.zeros(outputs, rank))

    def forward(self, genes_BK: Tensor, removed_BK: Tensor) -> Tensor:
        """Return the predictions for strains, [B, T]."""
        columns = []
        for effects_N, vectors_NR, weights_R in zip(self.effects, self.vectors, self.weights, strict=True):
            vector_BKR = F.embedding(genes_BK, vectors_NR) * removed_BK.unsqueeze(-1)
            products_BR = 0.5 * (vector_BKR.sum(1).square() - vector_BKR.square().sum(1))
            columns.append((effects_N[genes_BK] * removed_BK).sum(1) + products_BR @ weights_R)
        return self.mean + torch.stack(columns, dim=-1)
