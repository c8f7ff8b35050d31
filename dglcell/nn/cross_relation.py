"""Combine the messages of several relations to one state: by sums, means and learned combinations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dglcell.kernels import pair_mix, row_chain
from dglcell.nn.blocks import make_activation, make_norm
from dglcell.nn.config import PAIRWISE, CrossRelation
from dglcell.perturbation.curves import share_changes
from dglcell.perturbation.rules import PerturbedTensor, joined


class RelationMixer(nn.Module):
    """Mix K rows [N, H] of relations to one, then apply a norm."""

    def __init__(self, mix: PairwiseInteraction, norm: nn.Module) -> None:
        super().__init__()
        self.mix, self.norm = mix, norm

    @property
    def in_kernels(self) -> bool:
        """Return whether kernels know all modules."""
        return self.mix.curve is not None and self._norms is not None

    @property
    def _norms(self) -> list[row_chain.Step] | None:
        return row_chain.steps_of([("norm", self.norm)], self.mix.width)

    def by_kernels(self, base_KNH: Tensor, rows: Tensor, num_strains: int) -> tuple[Tensor, Tensor]:
        """Return the base's rows [N, H] and the differences [N · B, H] by kernels, from those of K relations."""
        base, delta = self.mix.by_kernels(base_KNH, rows, num_strains)
        if not (steps := self._norms):
            return base, delta
        parameters = [own.unsqueeze(0) for own in self.norm.parameters()]
        bases, deltas = (base.detach(), base.unsqueeze(0)), (None, delta.unsqueeze(0))
        return row_chain.chained(steps, bases, deltas, base.new_zeros(1), parameters, num_strains)

    def forward(self, *h: Tensor) -> Tensor:
        out: Tensor = self.norm(self.mix(*h))
        return out


class PairLinear(nn.Module):
    """Apply a Linear for each of P pairs: [N, P, entry] → [N, P, width]."""

    def __init__(self, pairs: int, entry: int, width: int) -> None:
        super().__init__()
        # Kaiming's initialisation is that of all Linear layers of the models.
        self.weight = nn.Parameter(torch.randn(pairs, entry, width) * (2 / entry) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(pairs, width))

    def forward(self, x_NPE: Tensor) -> Tensor:
        return torch.einsum("npe,pew->npw", x_NPE, self.weight) + self.bias


class PairwiseInteraction(nn.Module):
    r"""Combine relations pairwise: for every node a weighted mean of K(K+1)/2 + 1 options.

    .. math::
        o_{ij} = f_{ij}([h_i \Vert h_j]) \;\; (i \le j), \quad o_0 = \tfrac{1}{K}\textstyle\sum_k h_k, \quad
        h' = \sum_o \operatorname{softmax}_o\big(s(o)\big)\; o

    where every pair has an MLP :math:`f_{ij}` of its own and all options share the scorer :math:`s`. It follows
    ``PairwiseGraphAggregation`` of the torchcell project. The options are never stored: an MLP's first layer is
    :math:`U h_i + V h_j`, its last layer :math:`A` and the scorer's first :math:`W` are one matrix :math:`W A`, and the
    sum is one product of the weighted hidden layers of all pairs. K rows [N, H] become one.

    Args:
        relations, width: K and H.
        hidden, layers: b, the width inside the pairs' MLPs and the scorer, and two or more Linear layers of a pair's.
        activation, dropout: activation and dropout between layers.
    """

    by_second: Tensor
    back: Tensor
    of_pair: Tensor
    of_relation: Tensor

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
        by_second, of_pair = torch.argsort(columns * relations + rows), torch.stack([rows, columns], 1)
        of_relation = torch.argsort(of_pair.flatten(), stable=True).view(relations, -1)
        places = {"by_second": by_second, "back": torch.argsort(by_second), "of_pair": of_pair}
        for name, place in {**places, "of_relation": of_relation}.items():
            self.register_buffer(name, place, persistent=False)

    def forward(self, *h: Tensor) -> Tensor:
        a_NPB, mean_NH = self.dropout(self.activation(self._before(h))), joined(torch.stack, h, 1).mean(1)
        for layer in self.middle:
            a_NPB = self.dropout(self.activation(layer(a_NPB)))
        scored_NOB = joined(torch.cat, [self._scored(a_NPB), self.score_first(mean_NH).unsqueeze(1)], 1)
        share_NO = torch.softmax(self._logits(scored_NOB), 1)
        share_NP, share_N1 = share_NO[:, :-1], share_NO[:, -1:]
        weighted_NC = (a_NPB * share_NP.unsqueeze(-1)).flatten(1)
        of_pairs_NH = torch.matmul(weighted_NC, self.last.weight.flatten(0, 1)) + torch.matmul(share_NP, self.last.bias)
        return of_pairs_NH + share_N1 * mean_NH

    def _before(self, h: tuple[Tensor, ...]) -> Tensor:
        """Return the first hidden rows of all pairs before their activation, [N, P, b]."""
        counts = list(range(1, self.relations + 1))
        of_second = self.first.weight.index_select(0, self.by_second)[:, self.width :]
        x = self._products(h, self.first.weight[:, : self.width], counts[::-1])
        return x + self._products(h, of_second, counts).index_select(1, self.back) + self.first.bias

    def _products(self, h: tuple[Tensor, ...], weight_PHB: Tensor, counts: list[int]) -> Tensor:
        """Return one product for every relation, with the weights of ``counts`` pairs side by side, [N, P, b]."""
        weights = [w.transpose(0, 1).flatten(1) for w in weight_PHB.split(counts)]
        parts = [torch.matmul(x_NH, w) for x_NH, w in zip(h, weights, strict=True)]
        return joined(torch.cat, parts, 1).unflatten(1, (-1, self.hidden))

    def _scored(self, a_NPB: Tensor) -> Tensor:
        """Return the scorer's hidden rows of all pairs before their activation, [N, P, b]."""
        return torch.einsum("npb,pbc->npc", a_NPB, self._scorer()) + self.score_first(self.last.bias)

    def _scorer(self) -> Tensor:
        """Return the pairs' last layers and the scorer's first as one, [P, b, b]."""
        return self.last.weight @ self.score_first.weight.T

    def _logits(self, scored: Tensor) -> Tensor:
        out: Tensor = self.score_last(self.activation(scored)).squeeze(-1)
        return out

    @property
    def curve(self) -> str | None:
        """Return the kind of activation where kernels know it and all layers; None where they do not."""
        modules = [("activation", self.activation), ("dropout", self.dropout)]
        steps = row_chain.steps_of(modules, self.hidden)
        return steps[0].kind if steps and not self.middle and self.width in row_chain.WIDTHS else None

    def by_kernels(self, base_KNH: Tensor, rows: Tensor, num_strains: int) -> tuple[Tensor, Tensor]:
        """Return the base's mixture [N, H] and the differences of strains [N · B, H], from those of K relations."""
        members = pair_mix.Members(self.of_pair, self.of_relation)
        mean: Any = PerturbedTensor(base_KNH.mean(0), rows.sum(0) / self.relations, num_strains)
        mean_logit: Any = self._logits(self.score_first(mean))
        first, scorer = self.first.weight.unflatten(1, (2, self.width)), self._scorer()
        before_PNB = pair_mix.first_rows(base_KNH, first, members) + self.first.bias.unsqueeze(1)
        a_PNB = self.activation(before_PNB)
        scored_PNB = torch.baddbmm(self.score_first(self.last.bias).unsqueeze(1), a_PNB, scorer)
        options_PNH = torch.baddbmm(self.last.bias.unsqueeze(1), a_PNB, self.last.weight)
        pairs = pair_mix.Pairs(
            first=first,
            scorer=scorer,
            score=self.score_last.weight.flatten(),
            last=self.last.weight,
            before=before_PNB,
            scored=scored_PNB,
            logits=torch.cat([self._logits(scored_PNB), mean_logit.base.unsqueeze(0)]).T.contiguous(),
            options=torch.cat([options_PNH, mean.base.unsqueeze(0)]).transpose(0, 1),
        )
        base_NH = torch.bmm(torch.softmax(pairs.logits, 1).unsqueeze(1), pairs.options).squeeze(1)
        gelu = self.curve == row_chain.GELU
        return base_NH, pair_mix.mixed(pairs, members, rows, mean.delta, mean_logit.delta, share_changes, gelu=gelu)


def make_mixer(combination: CrossRelation, relations: int, width: int) -> RelationMixer | None:
    """Make the learned combination of some relations; None where there is nothing to learn, as for a single one."""
    if relations == 1 or combination.how != PAIRWISE:
        return None
    mix = PairwiseInteraction(
        relations, width, hidden=combination.hidden or max(1, width // 2), layers=combination.layers,
        activation=combination.activation, dropout=combination.dropout,
    )  # fmt: skip
    return RelationMixer(mix, make_norm(combination.norm, width))
