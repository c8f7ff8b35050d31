"""Write differences as sums of parts: each function's difference as fixed factors times differences of its arguments.

A rule of ``rules.py`` or a curve of ``curves.py`` computes ``g(a + δ) − g(a)``. Within ``secants()`` it computes the
same number as ``m · δ``, with a factor m that autograd takes for a constant, and that is ``(g(a + δ) − g(a)) / δ``, or
g'(a) where δ is zero. The backward pass then multiplies by these factors instead of derivatives. So it splits a
difference of a whole network over all that it came from, and the parts sum to it exactly (multipliers of DeepLIFT:
Shrikumar et al. 2017, arXiv 1704.02685). Where several arguments differ, each gets what is due to it halfway: products
are split by their midpoint, and softmaxes by the logarithmic mean of the shares before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

PATH_POINTS = 16
"""A function without a rule is differentiated at so many points between base and strain (Gauss and Legendre)."""


class _Mode:
    on = False


def on() -> bool:
    """Return whether rules give differences as fixed factors times differences."""
    return _Mode.on


@contextmanager
def secants() -> Iterator[None]:
    """Let rules give differences as fixed factors times differences; the backward pass belongs inside, too."""
    before, _Mode.on = _Mode.on, True
    try:
        yield
    finally:
        _Mode.on = before


def by_slope(delta: Tensor, difference: Tensor, slope: Tensor) -> Tensor:
    """Return the difference of a function of single numbers as a fixed factor times ``delta``.

    Args:
        delta: differences of the argument.
        difference: those of the function.
        slope: derivative at the base, which is the factor where ``delta`` is zero.
    """
    still = delta.detach() == 0
    factor = difference / delta.detach().masked_fill(still, 1)
    return delta * torch.where(still, slope, factor).detach()


def norm(d: Tensor, c: Tensor, v: Tensor, r: Tensor, eps: float, centre: bool) -> Tensor:
    """Return the difference of a norm, ``c' r' − c r``, split by its midpoint; see ``curves._norm_difference``."""
    e = d - d.mean(-1, keepdim=True) if centre else d
    with torch.no_grad():
        twice = torch.add(e, c, alpha=2)  # c' + c
        r_new = (v + (e * twice).mean(-1, keepdim=True)).clamp(min=eps).rsqrt()
        fall = -(r * r_new).square() / (r + r_new)  # (r' − r) by the change of the variance
    return e * ((r + r_new) / 2) + (twice / 2) * (fall * (e * twice).mean(-1, keepdim=True))


def share_changes(
    logits: Tensor,
    delta: Tensor,
    dim: int,
    alive_base: Tensor | None = None,
    alive: Tensor | None = None,
    added: Tensor | None = None,
    removed: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return by how much a softmax's shares change, as fixed factors times ``delta`` and ``removed``.

    With L the logarithmic mean of an entry's shares before and after, the change is ``L (Δ − Σ L Δ / Σ L)``, which is
    the gradient of a softmax with L in place of the shares.

    Args:
        logits: logits of the base.
        delta: by how much the strains' logits differ.
        dim: the dimension along which shares sum to one, negative.
        alive_base, alive: bool, false where an entry is gone; none is gone where None.
        added: what is added to logits of weakened entries; None for nothing.
        removed: how much of each entry is removed, 1 where it is gone; None where nothing is.

    Returns:
        The changes, the shares of the base, and those of the strains.
    """
    with torch.no_grad():
        after = logits + delta if added is None else logits + delta + added
        log_p, log_q = _log_shares(logits, dim, alive_base), _log_shares(after, dim, alive)
        p, q = log_p.exp(), log_q.exp()
        mean = _logarithmic_mean(log_p, log_q)
        spread = mean / mean.sum(dim, keepdim=True).clamp(min=torch.finfo(mean.dtype).tiny)
    pull = mean * delta
    if removed is not None:
        with torch.no_grad():
            lost = -p if alive is None else torch.where(alive, 0, -p)
            if added is not None:
                lost = lost + mean * added / torch.where(removed == 0, 1, removed)
        pull = pull + lost * removed
    return pull - spread * pull.sum(dim, keepdim=True), p, q


def _log_shares(logits: Tensor, dim: int, alive: Tensor | None) -> Tensor:
    """Return logarithms of softmax shares, −∞ where an entry is gone."""
    if alive is None:
        return torch.log_softmax(logits, dim)
    logits = logits.masked_fill(~alive, torch.finfo(logits.dtype).min)
    return torch.log_softmax(logits, dim).masked_fill(~alive, -torch.inf)


def _logarithmic_mean(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Return ``(q − p) / (log q − log p)``, which lies between p and q; zero where either is gone."""
    gone = log_p.isneginf() | log_q.isneginf()
    fall = -(log_q - log_p).abs().masked_fill(gone, 0)
    ratio = torch.where(fall == 0, 1, torch.expm1(fall) / torch.where(fall == 0, 1, fall))
    # The smaller share may be below the smallest number, so the mean is computed from the larger one.
    return (torch.maximum(log_p, log_q).exp() * ratio).masked_fill(gone, 0)


def along_path(
    call: Callable[[Sequence[Any]], Tensor], before: Sequence[Any], deltas: Sequence[Tensor | None], difference: Tensor
) -> Tensor:
    """Return the difference of a function without a rule, with the mean of its derivatives along the way as factors.

    The parts sum to the difference as far as so many points tell (``PATH_POINTS``): to rounding for smooth functions.

    Args:
        call: the function of a list of arguments.
        before: its arguments of the base, row by row beside the differences.
        deltas: the differences of each argument; None where it has none.
        difference: that of the function.
    """
    known = [delta for delta in deltas if delta is not None]
    out: Tensor = _AlongPath.apply(call, list(before), [delta is not None for delta in deltas], difference, *known)
    return out


class _AlongPath(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Any, before: Any, differs: Any, difference: Tensor, *deltas: Tensor) -> Tensor:
        ctx.call, ctx.before, ctx.differs = call, before, differs
        ctx.save_for_backward(*deltas)
        return difference.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        deltas = ctx.saved_tensors
        totals = [torch.zeros_like(delta) for delta in deltas]
        for point, weight in zip(*np.polynomial.legendre.leggauss(PATH_POINTS), strict=True):
            inputs, remaining = [], list(deltas)
            for row, differs in zip(ctx.before, ctx.differs, strict=True):
                if differs:
                    row = (row + (1 + point) / 2 * remaining.pop(0)).detach().requires_grad_()
                inputs.append(row)
            with torch.enable_grad():
                out = ctx.call(inputs)
                moved = [x for x, differs in zip(inputs, ctx.differs, strict=True) if differs]
                found = torch.autograd.grad(out, moved, grad.to(out.dtype), allow_unused=True)
            for total, one in zip(totals, found, strict=True):
                if one is not None:
                    total += (weight / 2 * one).to(total.dtype)
        return None, None, None, None, *totals
