"""Mix relations by networks of their pairs, of which every node chooses its own mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dglcell.nn.registry import make_activation


class PairLinear(nn.Module):
    """A Linear for each of P pairs.

    Args:
        pairs: P.
        entry: width of the input.
        width: of the output.

    Attributes:
        weight: [P, entry, width].
        bias: [P, width].
    """

    def __init__(self, pairs: int, entry: int, width: int) -> None:
        super().__init__()
        # Kaiming's, as all Linear layers of the models.
        self.weight = nn.Parameter(torch.randn(pairs, entry, width) * (2 / entry) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(pairs, width))

    def forward(self, x_NPE: Tensor) -> Tensor:
        """[N, P, entry] → [N, P, width]."""
        return torch.einsum("npe,pew->npw", x_NPE, self.weight) + self.bias


class PairwiseInteraction(nn.Module):
    r"""Pairwise interaction of relations: for every node a weighted mean of K(K+1)/2 + 1 options.

    .. math::
        o_{ij} = f_{ij}([h_i \Vert h_j]) \;\; (i \le j), \quad o_0 = \tfrac{1}{K}\textstyle\sum_k h_k, \quad
        h' = \sum_o \operatorname{softmax}_o\big(s(o)\big)\; o

    where every pair has an MLP :math:`f_{ij}` of its own and all options share the scorer :math:`s`. After
    ``PairwiseGraphAggregation`` of the torchcell project. The options are never stored: an MLP's first layer is
    :math:`U h_i + V h_j`, its last layer :math:`A` and the scorer's first :math:`W` are one matrix :math:`W A`, and the
    sum is one product of the weighted hidden layers of all pairs.

    Args:
        relations: K.
        width: H.
        hidden: b, width inside the pairs' MLPs and the scorer.
        layers: number of Linear layers of a pair's MLP, 2 or more.
        activation, dropout: between layers.

    Shapes:
        K rows [N, H] → [N, H].
    """

    by_second: Tensor
    back: Tensor

    def __init__(
        self, relations: int, width: int, *, hidden: int, layers: int, activation: str, dropout: float
    ) -> None:
        super().__init__()
        self.relations, self.width, self.hidden = relations, width, hidden
        pairs = relations * (relations + 1) // 2
        self.first = PairLinear(pairs, 2 * width, hidden)
        self.middle = nn.ModuleList(PairLinear(pairs, hidden, hidden) for _ in range(layers - 2))
        self.last = PairLinear(pairs, hidden, width)
        self.score_first, self.score_last = nn.Linear(width, hidden), nn.Linear(hidden, 1)
        self.activation, self.dropout = make_activation(activation), nn.Dropout(dropout)
        # Pairs are ordered by the first relation; here, by the second.
        rows, columns = torch.triu_indices(relations, relations)
        by_second = torch.argsort(columns * relations + rows)
        self.register_buffer("by_second", by_second, persistent=False)
        self.register_buffer("back", torch.argsort(by_second), persistent=False)

    @staticmethod
    def options(names: list[str]) -> list[str]:
        """What the options of relations are called, in order."""
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i:]]
        return [a if a == b else f"{a} × {b}" for a, b in pairs] + ["mean"]

    def forward(self, *h: Tensor) -> Tensor:
        """[N, H] the mixture."""
        a_NPB, mean_NH = self._last_hidden(h), torch.stack(h, 1).mean(1)
        share_NO = self._shares(a_NPB, mean_NH)
        share_NP, share_N1 = share_NO[:, :-1], share_NO[:, -1:]
        weighted_NC = (a_NPB * share_NP.unsqueeze(-1)).flatten(1)
        return weighted_NC @ self.last.weight.flatten(0, 1) + share_NP @ self.last.bias + share_N1 * mean_NH

    def weights(self, *h: Tensor) -> Tensor:
        """[N, options] what every node gives to each option."""
        return self._shares(self._last_hidden(h), torch.stack(h, 1).mean(1))

    def _last_hidden(self, h: tuple[Tensor, ...]) -> Tensor:
        """[N, P, b] the input of all pairs' last layers."""
        counts = list(range(1, self.relations + 1))
        of_second = self.first.weight.index_select(0, self.by_second)[:, self.width :]
        x = self._products(h, self.first.weight[:, : self.width], counts[::-1])
        x = x + self._products(h, of_second, counts).index_select(1, self.back) + self.first.bias
        x = self.dropout(self.activation(x))
        for layer in self.middle:
            x = self.dropout(self.activation(layer(x)))
        return x

    def _products(self, h: tuple[Tensor, ...], weight_PHB: Tensor, counts: list[int]) -> Tensor:
        """[N, P, b] for every relation one product, with the weights of ``counts`` pairs side by side."""
        parts = [x_NH @ w.transpose(0, 1).flatten(1) for x_NH, w in zip(h, weight_PHB.split(counts), strict=True)]
        return torch.cat(parts, 1).unflatten(1, (-1, self.hidden))

    def _shares(self, a_NPB: Tensor, mean_NH: Tensor) -> Tensor:
        """[N, options] softmax of the scores."""
        bias_PB, weight_PBB = self.score_first(self.last.bias), self.last.weight @ self.score_first.weight.T
        of_pairs_NPB = torch.einsum("npb,pbc->npc", a_NPB, weight_PBB) + bias_PB
        hidden_NOB = torch.cat([of_pairs_NPB, self.score_first(mean_NH).unsqueeze(1)], 1)
        logits_NO = self.score_last(self.activation(hidden_NOB)).squeeze(-1)
        return torch.softmax(logits_NO, 1)
