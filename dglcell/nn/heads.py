"""Turn states of the deleted genes into phenotypes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dglcell.nn.blocks import HEAD_GAIN, make_activation
from dglcell.perturbation.rules import from_source

CHANGED_GENES = "changed genes"
"""What heads give for the deleted genes has this name among the sources of a change."""


def shares_of_removed(logits: Tensor, removed: Tensor) -> Tensor:
    """Return a softmax of [..., K] logits over changed genes, each weighted by how much of it is removed or added.

    ``removed`` is bool, or float and negative for what is added. Shares are zero where nothing is removed.
    """
    gone = removed == 0
    if removed.is_floating_point():
        logits = logits + removed.abs().masked_fill(gone, 1).log().to(logits.dtype)
    # A finite floor keeps rows without any entry free of NaN.
    return torch.softmax(logits.masked_fill(gone, torch.finfo(logits.dtype).min), dim=-1).masked_fill(gone, 0)


class SetAttention(nn.Module):
    """Let every gene attend to the *other* genes of its strain, with several heads and a ReZero residual.

    ``d ← d + β · out(attention(d))`` (Bachlechner et al. 2021, *ReZero is all you need*) with β = ``gain`` at first; a
    gene without partners stays as it is. The number of heads divides H.

    Shapes:
        [B, K, H], removed [B, K] (see ``GenotypeBatch.padded``) → [B, K, H].
    """

    def __init__(self, width: int, heads: int, gain: float) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.beta = nn.Parameter(torch.full((1,), gain))

    def forward(self, x_BKH: Tensor, removed_BK: Tensor) -> Tensor:
        (B, K, H), removed_BK = x_BKH.shape, removed_BK.to(x_BKH.dtype)
        query, key, value = self.project(x_BKH).view(B, K, 3, self.heads, H // self.heads).permute(2, 0, 3, 1, 4)
        others_KK = ~torch.eye(K, dtype=torch.bool, device=x_BKH.device)
        partner_B1KK = (removed_BK.unsqueeze(1) * others_KK).unsqueeze(1)
        share = shares_of_removed((query @ key.transpose(-1, -2)) * (H // self.heads) ** -0.5, partner_B1KK)
        # A single partner has a share of 1 even if little of it is removed, so values are weighted once more.
        mixed_BKH = ((share * partner_B1KK) @ value).transpose(1, 2).reshape(B, K, H)
        partners_BK1 = partner_B1KK.squeeze(1).abs().sum(-1, keepdim=True).clamp(max=1)
        return x_BKH + self.beta * self.out(mixed_BKH) * partners_BK1


class HyperSAGNN(nn.Module):
    r"""Score a set of genes by how far each moves when it sees the others.

    Zhang, Zou & Ma 2020, *Hyper-SAGNN*: with static embeddings :math:`s_i = \sigma(W x_i)` and dynamic ones
    :math:`d_i` (attention within the set), the score of the set is the mean over its genes of
    :math:`w^\top (d_i - s_i)^2 + c`, weighted by their losses where strains weaken genes.

    Args:
        width, outputs: H, and T scores per set.
        layers, heads: rounds of attention, and its heads, which divide H.
        gain: initial share of the attention; the genes' interaction is learnt through it.
        activation, dropout: activation of the static embedding, and dropout on the input.

    Shapes:
        genes' states [B, K, H], removed [B, K] → [B, T]; zero for an empty set.
    """

    def __init__(
        self, width: int, outputs: int, *, layers: int, heads: int, gain: float, activation: str, dropout: float
    ) -> None:
        super().__init__()
        self.static = nn.Sequential(nn.Linear(width, width), make_activation(activation))
        self.attention = nn.ModuleList(SetAttention(width, heads, gain) for _ in range(layers))
        self.score = nn.Linear(width, outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x_BKH: Tensor, removed_BK: Tensor) -> Tensor:
        x_BKH, removed_BK = self.dropout(x_BKH), removed_BK.to(x_BKH.dtype)
        dynamic = x_BKH
        for attention in self.attention:
            dynamic = attention(dynamic, removed_BK)
        there_BK1 = from_source(CHANGED_GENES, removed_BK).unsqueeze(-1)
        score_BKT = self.score((dynamic - self.static(x_BKH)).square()) * there_BK1
        return score_BKT.sum(1) / removed_BK.abs().sum(1, keepdim=True).clamp(min=1)


class FactorisationMachine(nn.Module):
    r"""Score a set of genes by the sum of their effects and of the products of their vectors.

    .. math:: s = \sum_i (w^\top x_i + c) + \sum_{i \lt j} \sum_f a_f v_{if} v_{jf}, \quad v_i = V x_i

    Rendle 2010, *Factorization Machines*, eq. 1, with the inner sum over pairs computed by his lemma 3.1 as
    :math:`\tfrac12 \big((\sum_i v_{if})^2 - \sum_i v_{if}^2\big)`; the weights :math:`a_f` let products count against
    each other, so that the matrix of pairwise scores need not be positive definite.

    With ``genes``, every gene has an effect and a vector of its own beside :math:`w^\top x_i` and :math:`V x_i`. They
    start at zero: scores of genes that are never trained on come from the states alone, and weight decay reduces
    deviations that the states can explain as well.

    Args:
        width, outputs: H, and T scores per set.
        factors: width F of the vectors; None where the states themselves are the vectors (V = 1).
        dropout: dropout on the states.
        genes: number of genes with a deviation of their own; None for none.

    Shapes:
        genes' states [B, K, H], their indices [B, K], removed [B, K] → [B, T]; zero for an empty set.
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
        """Scale initial weights down, so that an untrained model predicts about the training mean, 0.

        Effects are scaled by the gain, vectors by its root, because scores are products of two. Scaling down the
        products' weights instead would scale down the vectors' gradients, and weight decay would win against them.
        """
        with torch.no_grad():
            self.effect.weight.mul_(HEAD_GAIN)
            if self.vector is not None:
                self.vector.weight.mul_(HEAD_GAIN**0.5)

    def forward(self, x_BKH: Tensor, genes_BK: Tensor, removed_BK: Tensor) -> Tensor:
        x_BKH = self.dropout(x_BKH)
        effect_BKT = self.effect(x_BKH)
        vector_BKF = x_BKH if self.vector is None else self.vector(x_BKH)
        if self.own_effects is not None and self.own_vectors is not None:
            effect_BKT = effect_BKT + F.embedding(genes_BK, self.own_effects)
            vector_BKF = vector_BKF + F.embedding(genes_BK, self.own_vectors)
        there_BK1 = from_source(CHANGED_GENES, removed_BK.to(x_BKH.dtype)).unsqueeze(-1)
        vector_BKF = vector_BKF * there_BK1
        products_BF = 0.5 * (vector_BKF.sum(1).square() - vector_BKF.square().sum(1))
        out: Tensor = (effect_BKT * there_BK1).sum(1) + self.score(products_BF)
        return out
