"""Attribute a difference to what it comes from: the mode in which the rules of differences have secants for gradients.

A rule gives ``g(a + δ) − g(a)``. In this mode it gives the same number, and its backward pass multiplies by the secant
``(g(a + δ) − g(a)) / δ`` in place of the derivative (Shrikumar et al. 2017, *DeepLIFT*, arXiv 1704.02685). Gradient
times difference, summed over all sources of a difference, is then the difference of the prediction itself, and not an
approximation. Products are split by their midpoints, norms and softmax by forms that are exact, and functions without a
rule along a straight line, which leaves a remainder.

The mode is on inside ``attributing()``, in the thread that turned it on, and costs nothing elsewhere.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dglcell.graph.resident_graph import ranges

if TYPE_CHECKING:
    from dglcell.graph.resident_graph import ResidentRelation
    from dglcell.graph.schema import Relation
    from dglcell.perturbation.sent import Kept


@dataclass(frozen=True)
class Received:
    """Hold what M nodes receive along one relation in B strains, for what they no longer receive."""

    relation: Relation  #: the relation
    edges: ResidentRelation  #: its edges, from N to M nodes
    kept: Kept  #: what is kept of the sources
    base_NH: Tensor  #: states of the sources in the base
    base_MH: Tensor  #: what nodes receive in the base
    difference_MBH: Tensor  #: by how much strains receive something else
    #: those of ``NodeMask.degrees`` where messages are averaged; None where they are summed
    degrees: tuple[Tensor, Tensor] | None

    def lost_messages(self, grad_MBH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the edges out of lost and weakened nodes, the strains, and what each message's loss gives, [D] each.

        They follow from the gradient of ``difference_MBH``.
        """
        pairs, edges = self.kept.changed, self.edges
        starts = edges.index_tensors(transposed=True)[0]
        place_D, pair_D = ranges(starts[pairs.nodes], edges.out_degrees[pairs.nodes])
        edge_D = edges.by_source[place_D]
        strain_D, source_D, target_D = pairs.strains[pair_D], edges.src[edge_D], edges.dst[edge_D]
        gone_D = 1 - self.kept.weights(self.base_NH.dtype)[source_D, strain_D]
        value_D = -gone_D * _dots(self.base_NH, source_D, grad_MBH, target_D, strain_D)
        if edges.weight is not None:
            value_D = value_D * edges.weight[edge_D]
        if self.degrees is not None:
            base_M1, strains_MB = self.degrees
            gone_MB = torch.zeros_like(strains_MB).index_put((target_D, strain_D), gone_D, accumulate=True)
            # Of a node that loses all messages the degree is 1, not 0: each loss then counts by its part.
            per_loss_MB = torch.where(gone_MB == 0, 1, (base_M1 - strains_MB) / gone_MB)
            of_mean_D = gone_D * per_loss_MB[target_D, strain_D]
            of_mean_D = of_mean_D * _dots(self.base_MH, target_D, grad_MBH, target_D, strain_D)
            value_D = (value_D + of_mean_D) / strains_MB[target_D, strain_D]
        return edge_D, strain_D, value_D


BLOCK = 1 << 16  # messages that are computed together


def _dots(x_NH: Tensor, rows_D: Tensor, grad_MBH: Tensor, targets_D: Tensor, strains_D: Tensor) -> Tensor:
    parts = [
        (x_NH[rows] * grad_MBH[targets, strains]).sum(-1)
        for rows, targets, strains in zip(*(x.split(BLOCK) for x in (rows_D, targets_D, strains_D)), strict=True)
    ]
    return torch.cat(parts) if parts else x_NH.new_zeros(0)


@dataclass(frozen=True)
class PooledNodes:
    """Hold what each node gives to a difference of pooled states."""

    kept: Kept  #: what is kept of the nodes
    shares_NBH: Tensor  #: what each node gives
    pooled_BH: Tensor  #: their sum


@dataclass
class Attribution:
    """Collect the sources of differences while a model runs in the mode."""

    #: what nodes receive, relation by relation and layer by layer
    received: list[Received] = field(default_factory=list)
    #: for each pooling what is kept of the nodes, and how much of each is gone, [N, B]
    leaving: list[tuple[Kept, Tensor]] = field(default_factory=list)
    pooled: list[PooledNodes] = field(default_factory=list)  #: what nodes give to pooled states
    #: pairs of a name and [B, …] numbers, by which they differ from those of the wild type
    sources: list[tuple[str, Tensor]] = field(default_factory=list)
    inexact: set[str] = field(default_factory=set)  #: names of functions that leave a remainder
    kept: dict[str, Kept] = field(default_factory=dict)  #: node type → what is kept of its nodes

    def leave(self, kept: Kept, dtype: torch.dtype) -> Tensor:
        """Return how much of each node is gone, [N, B], as a source of what leaves a pooling."""
        gone_NB = (kept.base_N1.to(dtype) - kept.weights(dtype)).requires_grad_()
        self.leaving.append((kept, gone_NB))
        return gone_NB

    def type_of(self, kept: Kept) -> str | None:
        """Return the node type that something is kept of in the strains' graphs; None if it is kept elsewhere."""
        return next((node_type for node_type, known in self.kept.items() if known is kept), None)


_ACTIVE: dict[int, Attribution] = {}  # of each thread that is in the mode


def active() -> Attribution | None:
    """Return what collects sources in this thread; None outside the mode."""
    return _ACTIVE.get(threading.get_ident()) if _ACTIVE else None


@contextmanager
def attributing() -> Iterator[Attribution]:
    """Turn the mode on in this thread, and yield what collects the sources."""
    _ACTIVE[threading.get_ident()] = found = Attribution()
    try:
        yield found
    finally:
        del _ACTIVE[threading.get_ident()]


def with_gradient_of(value: Tensor, linear: Tensor) -> Tensor:
    """Return a value with the gradient of something that is equal to it, but for rounding."""
    return value.detach() + (linear - linear.detach())


def secant(change: Tensor, delta: Tensor, slope: Callable[[], Tensor]) -> Tensor:
    """Return the change g(a + δ) − g(a), whose gradient is change / δ, or the slope g'(a) where δ is zero."""
    none = delta.detach().abs() < torch.finfo(delta.dtype).tiny
    by = torch.where(none, slope(), change / torch.where(none, 1, delta))
    return with_gradient_of(change, by.detach() * delta)


def halves(times: Callable[[Tensor, Tensor], Tensor], a: Tensor, d: Tensor, b: Tensor, e: Tensor) -> Tensor:
    """Return ``(a + d)(b + e) − ab``, half of whose part ``de`` belongs to either difference."""
    return times(d, b + e.detach() / 2) + times(a + d.detach() / 2, e)


def norm_secant(change: Tensor, delta: Tensor, c: Tensor, r: Tensor, r_new: Tensor) -> Tensor:
    """Return the change of a norm over the last dimension, split exactly: c r and r = 1 / √(mean(c²) + ε) by midpoints.

    ``delta`` is the change of what is normalised, and c is that less its mean.
    """
    e = delta - delta.mean(-1, keepdim=True)
    middle = c + e.detach() / 2
    of_variance = (e * (2 * middle)).mean(-1, keepdim=True)
    of_r = of_variance * (-(r * r_new).square() / (r + r_new)).detach()
    return with_gradient_of(change, e * ((r + r_new) / 2).detach() + middle * of_r)


def share_secant(
    change: Tensor, p: Tensor, delta: Tensor, dim: int, kept: Tensor | float = 1.0, gone: Tensor | float = 0.0
) -> Tensor:
    """Return the change of a softmax, ``p (m − Σ p m) / (1 + Σ p m)`` with m = kept (e^Δ − 1) − gone, linear in m.

    ``kept`` is what is left of an entry, and ``gone`` what is not; they sum to 1.
    """
    m = kept * secant(torch.expm1(delta.clamp(max=600)), delta, lambda: torch.ones_like(delta)) - gone  # finite
    total = (p * m).sum(dim, keepdim=True)
    left = (1 + total).detach()  # where hardly anything is left, rounding would be split: it remains a remainder
    return with_gradient_of(change, p.detach() * (m - total) * torch.where(left > 1e-8, 1 / left, 0))


# Each number that these functions return depends on one number of each argument.
# fmt: off
ELEMENTWISE = frozenset([
    "abs", "celu", "clamp", "clamp_max", "clamp_min", "clip", "cos", "div", "elu", "erf", "exp", "expm1", "gelu",
    "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log", "log1p", "logsigmoid", "maximum", "minimum", "mish",
    "pow", "reciprocal", "relu6", "rsqrt", "selu", "sigmoid", "silu", "sin", "softplus", "softsign", "sqrt", "square",
    "tanh", "true_divide", "lerp",
])
# fmt: on

Call = Callable[[Sequence[Any]], Tensor]


def elementwise_secant(call: Call, before: Sequence[Any], deltas: Sequence[Tensor | None], change: Tensor) -> Tensor:
    """Return the change of an elementwise function, split over its arguments by the mean over the orders of changes.

    Differences are None of those arguments that do not differ.
    """
    moving = [i for i, delta in enumerate(deltas) if delta is not None]
    shares: list[Tensor | float] = [0.0] * len(before)
    orders = list(itertools.permutations(moving))
    for order in orders:
        with torch.no_grad():
            at, last = list(before), call(before)
            for i in order:
                at[i] = at[i] + deltas[i]
                now = call(at)
                shares[i], last = shares[i] + (now - last) / len(orders), now

    def slope(i: int) -> Tensor:
        with torch.enable_grad():
            x = before[i].detach().requires_grad_()
            out = call([*before[:i], x, *before[i + 1 :]])
            found: Tensor = torch.autograd.grad(out.sum(), x)[0]
        return found

    parts = [secant(shares[i], deltas[i], lambda i=i: slope(i)) for i in moving]  # type: ignore[misc, arg-type]
    return with_gradient_of(change, torch.stack(torch.broadcast_tensors(*parts)).sum(0))


POINTS = [(0.5 - 12**-0.5, 0.5), (0.5 + 12**-0.5, 0.5)]  # of a straight line, with their weights (Gauss)


def general_secant(
    name: str, call: Call, before: Sequence[Any], deltas: Sequence[Tensor | None], change: Tensor
) -> Tensor:
    """Return the change of any function of rows, with the secants of ``elementwise_secant`` where it is elementwise.

    Other functions are differentiated along a straight line, and leave a remainder.
    """
    if name in ELEMENTWISE:
        return elementwise_secant(call, before, deltas, change)
    found = active()
    assert found is not None
    found.inexact.add(name)

    def at(point: float) -> list[Any]:
        pairs = zip(before, deltas, strict=True)
        return [x if d is None else x + point * d.detach() + (d - d.detach()) for x, d in pairs]

    return with_gradient_of(change, torch.stack([weight * call(at(point)) for point, weight in POINTS]).sum(0))
