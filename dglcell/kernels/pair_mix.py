"""Mix relations pairwise by Triton kernels: differences of ``PairwiseInteraction``, forward and backward.

One operation after the other, each reads and writes the hidden rows of all pairs. Here a first kernel computes them and
their scores from the relations' rows, torch computes shares, and a second kernel sums the weighted options. Backward, a
kernel for each pair computes hidden rows again. Sums over nodes are written in parts, so that repeats give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dglcell.kernels.row_chain import PROGRAMS, options, strains_of_tile

BLOCK = 128
"""Rows of one product of the second kernel."""


class Pairs(NamedTuple):
    """Hold weights of P pairs of R relations, and rows of the base."""

    first: Tensor  #: [P, 2, H, b] from the rows of either relation to hidden rows
    scorer: Tensor  #: [P, b, b] from these to the scorer's
    score: Tensor  #: [b] from the scorer's to logits
    last: Tensor  #: [P, b, H] from hidden rows to options
    before: Tensor  #: [P, N, b] the base's hidden rows before their activation
    scored: Tensor  #: [P, N, b] the scorer's
    logits: Tensor  #: [N, P + 1] of the base; the last option is the mean of all relations
    options: Tensor  #: [N, P + 1, H] of the base


class Members(NamedTuple):
    """Say which relations are pairs."""

    of_pair: Tensor  #: [P, 2] the relations of every pair
    of_relation: Tensor  #: [R, R + 1] where every relation is in the flat ``of_pair``


ShareChanges = Callable[[Tensor, Tensor, Tensor, int], Tensor]
"""A function (shares, logits, by how much these differ, dimension) says by how much shares differ."""


def mixed(
    pairs: Pairs, members: Members, rows: Tensor, mean: Tensor, mean_logit: Tensor, changes: ShareChanges, *, gelu: bool
) -> Tensor:
    """Return differences of the mixture, [N · B, H], in the type of ``rows``.

    Args:
        pairs, members: weights and base, and the relations of the pairs.
        rows, mean: [R, N · B, H] differences of every relation's rows, and [N · B, H] of their mean.
        mean_logit: [N · B] by how much its logit differs.
        changes: computes shares.
        gelu: whether the activation is GELU; it is ReLU otherwise.
    """
    out: Tensor = _Mixed.apply(members, changes, gelu, rows, mean, mean_logit, *pairs)
    return out


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, members: Members, changes: ShareChanges, gelu: bool, rows: Tensor, mean: Tensor, mean_logit: Tensor,
        *tensors: Tensor,
    ) -> Tensor:  # fmt: skip
        from dglcell.kernels.loops_triton import pair_forward

        rows, mean, pairs = rows.contiguous(), mean.contiguous(), Pairs(*tensors)
        launch = _Launch(rows, pairs, gelu, backward=False)
        N, B, P = launch.N, launch.B, launch.P
        hidden, delta_NOB = rows.new_empty(P, N * B, launch.W), pairs.logits.new_empty(N, P + 1, B)
        delta_NOB[:, P] = mean_logit.view(N, B)
        pair_forward[launch.grid](
            rows, members.of_pair, *launch.weights[:-1], hidden, delta_NOB, *launch.sizes, **launch.options
        )
        logits_NO1 = pairs.logits.unsqueeze(2)
        share_NO1 = torch.softmax(logits_NO1, 1)
        change_NOB = changes(share_NO1, logits_NO1, delta_NOB, -2)
        share_NOB = share_NO1 + change_NOB
        start_NBH = torch.bmm(change_NOB.transpose(1, 2), pairs.options)
        every = torch.arange(P, device=rows.device).unsqueeze(0)
        out: Tensor = _sum_of_products(hidden, every, pairs.last.unsqueeze(0), share_NOB, start_NBH, mean)[0]
        ctx.members, ctx.gelu = members, gelu
        ctx.save_for_backward(rows, mean, change_NOB, out, *pairs)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        from dglcell.kernels.loops_triton import row_sums

        (rows, mean, change_NOB, out, *tensors), members = ctx.saved_tensors, ctx.members
        pairs, grad = Pairs(*tensors), grad.contiguous()
        launch = _Launch(rows, pairs, ctx.gelu, backward=True)
        N, B, P = launch.N, launch.B, launch.P
        share_NO1 = torch.softmax(pairs.logits, 1).unsqueeze(2)
        share_NOB, grad_NBH = share_NO1 + change_NOB, grad.view(N, B, -1).float()
        # Options count from their mean, and the gradient of shares that grow together is zero.
        slope_NOB = torch.bmm(pairs.options, grad_NBH.transpose(1, 2))
        slope_NOB -= (share_NO1 * slope_NOB).sum(1, keepdim=True)
        along_NOB, of_mean = torch.empty_like(slope_NOB), torch.empty_like(mean)
        of_out_N1B = slope_NOB.new_empty(N, 1, B)
        row_sums[(-(-len(grad) // BLOCK),)](
            grad, out, mean, share_NOB, of_out_N1B, of_mean, along_NOB, len(grad), B, P, BLOCK, grad.shape[1]
        )
        of_hidden, *of_pairs = launch.gradients(
            rows, members.of_pair, grad, share_NOB, slope_NOB - of_out_N1B, along_NOB
        )
        # Of single precision, unlike rounded ``out``: it cancels where one option has nearly all of the shares.
        along_NOB -= (change_NOB * slope_NOB + share_NOB * along_NOB).sum(1, keepdim=True)
        of_logits = (change_NOB * slope_NOB + share_NOB * along_NOB).sum(2)
        of_mean_logit = (share_NOB[:, P] * (slope_NOB[:, P] + along_NOB[:, P])).flatten().to(mean.dtype)
        of_rows = _of_relations(of_hidden, pairs.first, members)
        of_options = torch.bmm(change_NOB, grad_NBH)
        return None, None, None, of_rows, of_mean, of_mean_logit, *of_pairs, of_logits, of_options


def first_rows(x: Tensor, weight: Tensor, members: Members) -> Tensor:
    """Return the products of pairs, [P, N, b], of rows [R, N, H] with weights [P, 2, H, b]."""
    out: Tensor = _FirstRows.apply(x, weight, members)
    return out


class _FirstRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, members: Members) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.members = members
        return _sum_of_products(x.contiguous(), members.of_pair, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        of_weight = torch.matmul(x[ctx.members.of_pair].transpose(2, 3), grad.unsqueeze(1))
        return _of_relations(grad.contiguous(), weight, ctx.members), of_weight, None


def _of_relations(grad: Tensor, weight: Tensor, members: Members) -> Tensor:
    """Return the gradients of the rows of relations, from those of pairs."""
    transposed = weight.flatten(0, 1)[members.of_relation].transpose(2, 3)
    return _sum_of_products(grad, members.of_relation // 2, transposed)


class _Launch:
    """Hold what the kernels of pairs are started with."""

    def __init__(self, rows: Tensor, pairs: Pairs, gelu: bool, *, backward: bool) -> None:
        from dglcell.kernels.loops_triton import TYPES

        (self.P, self.N, self.W), (_, count, H) = pairs.before.shape, rows.shape
        self.B = count // self.N
        size = strains_of_tile(self.B, rows.dtype, backward=backward)
        # Registers do not spill. Two warps share 32 rows of narrow products; more would repeat.
        half = options(4, 3) if backward else options(2, 2)
        self.options = options(8 if backward else 4, 2) if rows.dtype == torch.float32 else half
        self.tiles = -(-self.B // size)
        programs = PROGRAMS if backward else 8 * PROGRAMS  # the forward pass has no sums over nodes
        self.grid = max(1, min(self.N, programs // (self.P * self.tiles))), self.P, self.tiles
        first, scorer, last = (x.to(rows.dtype).contiguous() for x in (pairs.first, pairs.scorer, pairs.last))
        self.weights = first, scorer, pairs.score, pairs.before, pairs.scored, last
        self.sizes = self.N, self.B, self.P, gelu, TYPES[rows.dtype], size, H, self.W

    def gradients(self, rows: Tensor, of_pair: Tensor, *given: Tensor) -> list[Tensor]:
        """Return the gradients of hidden rows before their activation, and of the first six of ``Pairs``."""
        from dglcell.kernels.loops_triton import pair_backward

        first, scorer, score, *bases, last = self.weights
        parts = self.tiles * self.grid[0]
        of_hidden = rows.new_empty(self.P, rows.shape[1], self.W)
        shapes = [x.shape for x in (first, scorer, score.expand(self.P, -1), last)]
        of_weights = [score.new_empty(parts, *shape) for shape in shapes]
        of_bases = [x.new_empty(self.tiles, *x.shape) for x in bases]
        pair_backward[self.grid](
            rows, of_pair, *self.weights, *given, of_hidden, *of_weights, *of_bases, *self.sizes, **self.options
        )
        of_first, of_scorer, of_score, of_last, *of_bases = (x.sum(0) for x in (*of_weights, *of_bases))
        return [of_hidden, of_first, of_scorer, of_score.sum(0), of_last, *of_bases]


def _sum_of_products(
    x: Tensor, which: Tensor, weight: Tensor, share_NOB: Tensor | None = None, *added: Tensor
) -> Tensor:
    """Return Σ_k x[which[i, k]] · weight[i, k] for every i, each times its share, in the type of ``x``."""
    from dglcell.kernels.loops_triton import TYPES, sum_of_products

    (_, count, W), (number, K, _, H) = x.shape, weight.shape
    out, weight = x.new_empty(number, count, H), weight.to(x.dtype).contiguous()
    start, mean = added or (None, None)
    B = 1 if share_NOB is None else share_NOB.shape[2]
    sum_of_products[-(-count // BLOCK), number](
        x, which, weight, share_NOB, start, mean, out, count, B, K, share_NOB is not None, TYPES[x.dtype], BLOCK, W, H,
        num_warps=4,
    )  # fmt: skip
    return out
