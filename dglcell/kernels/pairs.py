"""Pairwise interaction of relations on rows, compiled: forward, or recomputed and backward.

A hidden layer for each of some fifty pairs makes small matrices and many activations; with torch's operators half of
the time goes to moving them about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dglcell.kernels.chain import add_gradient, put_rows, rows_of
from dglcell.kernels.update import Into, Taken, activation_code, is_known, on_compiled_device


class Affine(NamedTuple):
    """Weights and biases of one layer."""

    weight: Tensor
    bias: Tensor


@dataclass(frozen=True)
class PairWeights:
    """Parameters of P pairs of K relations, H wide, b wide inside, and of the scorer that they share.

    Pairs are in the order (0, 0), (0, 1), …, (0, K - 1), (1, 1), …

    Attributes:
        first: [P, 2H, b] and [P, b], of the two rows side by side.
        middle: any number of [P, b, b] and [P, b].
        last: [P, b, H] and [P, H].
        scorer: [b, H] and [b], then [1, b] and [1], as of a Linear.
    """

    first: Affine
    middle: Sequence[Affine]
    last: Affine
    scorer: tuple[Affine, Affine]

    def all(self) -> list[Tensor]:
        """The parameters, one after the other."""
        return [x for layer in (self.first, *self.middle, self.last, *self.scorer) for x in layer]


class PairMix:
    """``dglcell.nn.pairwise_interaction.PairwiseInteraction``.

    Args:
        weights: its parameters.
        activation: in all its MLPs.
    """

    def __init__(self, weights: PairWeights, activation: nn.Module) -> None:
        self.weights, self.activation = weights, activation

    @staticmethod
    def of(weights: PairWeights, activation: nn.Module) -> PairMix | None:
        """The compiled mixture, or None where there is none for this activation."""
        return PairMix(weights, activation) if is_known(activation) else None

    def applies(self, tables: Sequence[Tensor]) -> bool:
        """See ``dglcell.kernels.chain.RowUpdate.applies``."""
        return on_compiled_device([*tables, *self.weights.all()])

    def pack(self, dtype: torch.dtype) -> Any:
        """The arrays that compiled code reads."""
        from dglcell.kernels.pairs_numba import Weights

        w = self._detached()
        (pairs, _, hidden), (score, score_bias) = w.first.weight.shape, w.scorer[0]
        none = score.new_empty(0, pairs, hidden, hidden), score.new_empty(0, pairs, hidden)
        middle = [torch.stack(x) for x in zip(*w.middle, strict=True)] if w.middle else none
        # A pair's last layer and then the scorer's first are one.
        scored = [w.last.weight @ score.T, w.last.bias @ score.T + score_bias]
        arrays = [*w.first, *middle, *w.last, *scored, score.T, score_bias, *w.scorer[1]]
        return Weights(*(x.contiguous().numpy() for x in arrays))

    def forward(self, packed: Any, inputs: Sequence[Taken], number: int, out: Taken, *, add: bool) -> None:
        """See ``RowUpdate.forward``."""
        h_KNH = _stacked(inputs, number)
        rows_NH = torch.empty_like(h_KNH[0])
        self._call("forward", h_KNH, packed, number, rows_NH)
        put_rows(rows_NH, out, add=add)

    def backward(
        self, packed: Any, inputs: Sequence[Taken], number: int, grad: Taken, into: Sequence[Into]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """See ``RowUpdate.backward``."""
        h_KNH, grad_NH = _stacked(inputs, number), rows_of(grad, number).contiguous()
        of_h = torch.zeros_like(h_KNH)
        of_packed = type(packed)(*(torch.zeros(x.shape, dtype=h_KNH.dtype) for x in packed))
        arrays = type(packed)(*(x.numpy() for x in of_packed))
        self._call("backward", h_KNH, packed, number, grad_NH, arrays, of_h)
        for x_NH, target in zip(of_h, into, strict=True):
            add_gradient(x_NH, target)
        return zip(self.weights.all(), self._unpack(of_packed), strict=True)

    def _call(self, name: str, h_KNH: Tensor, packed: Any, number: int, *others: Any) -> None:
        from dglcell.kernels import blas_numba, pairs_numba

        arguments = [x.numpy() if isinstance(x, Tensor) else x for x in others]
        blas, code = blas_numba.gemm_address(h_KNH.dtype == torch.float64), activation_code(self.activation)
        getattr(pairs_numba, name)(blas, code, packed, h_KNH.numpy(), number, *arguments)

    def _unpack(self, of: Any) -> list[Tensor]:
        """Gradients of the parameters, from those of what they were packed to."""
        w = self._detached()
        score = w.scorer[0].weight
        of_score = of.mean.T + torch.einsum("pbs,pbh->sh", of.scored, w.last.weight) + of.scored_bias.T @ w.last.bias
        middle = [x for layer in zip(of.middle, of.middle_bias, strict=True) for x in layer]
        last = [of.last + of.scored @ score, of.last_bias + of.scored_bias @ score]
        scorer = [of_score, of.mean_bias + of.scored_bias.sum(0), of.score, of.score_bias]
        return [of.first, of.first_bias, *middle, *last, *scorer]

    def _detached(self) -> PairWeights:
        w = self.weights
        first, *middle, last, score, score_last = (
            Affine(layer.weight.detach(), layer.bias.detach()) for layer in (w.first, *w.middle, w.last, *w.scorer)
        )
        return PairWeights(first, middle, last, (score, score_last))


def _stacked(inputs: Sequence[Taken], number: int) -> Tensor:
    """[K, n, H]."""
    return torch.stack([rows_of(source, number).detach() for source in inputs])
