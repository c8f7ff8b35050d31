"""Pairwise interaction of relations on rows, for compiled code.

A hidden layer for each of some fifty pairs makes small matrices and many activations; with torch's operators half of
the time goes to moving them about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dglcell.kernels.update import activation_code


class Affine(NamedTuple):
    """Weights and biases of one layer."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class PairCode:
    """``dglcell.nn.pairwise_interaction.PairwiseInteraction`` for P pairs, H wide, b wide inside.

    Pairs are in the order (0, 0), (0, 1), …, (0, K - 1), (1, 1), …

    Attributes:
        first: [P, 2H, b] and [P, b], of the two rows side by side.
        middle: any number of [P, b, b] and [P, b].
        last: [P, b, H] and [P, H].
        scorer: [b, H] and [b], then [1, b] and [1], as of a Linear.
        activation: between all of them.
    """

    first: Affine
    middle: Sequence[Affine]
    last: Affine
    scorer: tuple[Affine, Affine]
    activation: nn.Module

    @property
    def parameters(self) -> list[Tensor]:
        """See ``dglcell.kernels.mix.MixCode``."""
        return [x for layer in (self.first, *self.middle, self.last, *self.scorer) for x in layer]

    def pack(self, dtype: torch.dtype) -> Any:
        """See ``MixCode.pack``."""
        from dglcell.kernels.pairs_numba import Weights

        (pairs, _, hidden), (score, score_bias) = self.first.weight.shape, self.scorer[0]
        none = score.new_empty(0, pairs, hidden, hidden), score.new_empty(0, pairs, hidden)
        middle = [torch.stack(x) for x in zip(*self.middle, strict=True)] if self.middle else none
        # A pair's last layer and then the scorer's first are one.
        scored = [self.last.weight @ score.T, self.last.bias @ score.T + score_bias]
        tensors = [*self.first, *middle, *self.last, *scored, score.T, score_bias, *self.scorer[1]]
        return Weights(*(x.detach().contiguous() for x in tensors))

    def unpack(self, of_packed: Any) -> list[Tensor]:
        """See ``MixCode.unpack``."""
        of, score, last = of_packed, self.scorer[0].weight.detach(), Affine(*(x.detach() for x in self.last))
        of_score = of.mean.T + torch.einsum("pbs,pbh->sh", of.scored, last.weight) + of.scored_bias.T @ last.bias
        middle = [x for layer in zip(of.middle, of.middle_bias, strict=True) for x in layer]
        of_last = [of.last + of.scored @ score, of.last_bias + of.scored_bias @ score]
        scorer = [of_score, of.mean_bias + of.scored_bias.sum(0), of.score, of.score_bias]
        return [of.first, of.first_bias, *middle, *of_last, *scorer]

    def forward(self, blas: int, packed: Any, h: Any, number: int, out: Any) -> None:
        """See ``MixCode.forward``."""
        from dglcell.kernels import pairs_numba

        pairs_numba.forward(blas, activation_code(self.activation), packed, h, number, out)

    def backward(self, blas: int, packed: Any, h: Any, number: int, grad: Any, of_packed: Any, of_h: Any) -> None:
        """See ``MixCode.backward``."""
        from dglcell.kernels import pairs_numba

        pairs_numba.backward(blas, activation_code(self.activation), packed, h, number, grad, of_packed, of_h)
