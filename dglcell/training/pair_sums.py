"""Metrics of predictions that are not kept: from sums that are added up over batches and ranks."""

from __future__ import annotations

import math
from functools import reduce

import torch
from torch import Tensor

from dglcell.training.metrics import CONSTANT

FIELDS = 12


def pair_sums(predicted_BT: Tensor, measured_BT: Tensor) -> Tensor:
    """[T, 12] sums over the strains of a batch, in float64 and on its device, which is not waited for.

    They are the number of measured strains, the means of predictions and measurements, the sums of squared deviations
    from them, the sum of the deviations' products, the sums of squared and of absolute errors, and the least and
    greatest prediction and measurement.

    Args:
        predicted_BT: predictions.
        measured_BT: measurements; NaN where missing, those strains are left out.
    """
    missing = measured_BT.isnan()
    p, t = (values.double().masked_fill(missing, 0.0) for values in (predicted_BT, measured_BT))
    number = (~missing).sum(0).double()
    mean_p, mean_t = (values.sum(0) / number.clamp(min=1) for values in (p, t))
    dp, dt = ((values - mean).masked_fill(missing, 0.0) for values, mean in ((p, mean_p), (t, mean_t)))
    error = p - t
    sums = [number, mean_p, mean_t, dp.square().sum(0), dt.square().sum(0), (dp * dt).sum(0)]
    sums += [error.square().sum(0), error.abs().sum(0)]
    infinite = torch.full_like(p[:1], torch.inf) if len(p) else p.new_full((1, p.shape[1]), torch.inf)
    for values in (p, t):
        sums.append(torch.cat([values.masked_fill(missing, torch.inf), infinite]).amin(0))
        sums.append(torch.cat([values.masked_fill(missing, -torch.inf), -infinite]).amax(0))
    return torch.stack(sums, -1)


def add_sums(one: Tensor, other: Tensor) -> Tensor:
    """[..., T, 12] sums over the strains of both (Chan, Golub & LeVeque 1983, *Algorithms for computing the sample
    variance*, eq. 2.1; for products as for squares).
    """
    number = one[..., 0] + other[..., 0]
    share = other[..., 0] / number.clamp(min=1)
    by_p, by_t = other[..., 1] - one[..., 1], other[..., 2] - one[..., 2]
    weight = one[..., 0] * share
    moved = torch.stack([by_p * share, by_t * share, by_p.square() * weight, by_t.square() * weight], -1)
    means, squares = one[..., 1:3] + moved[..., :2], one[..., 3:5] + other[..., 3:5] + moved[..., 2:]
    product = one[..., 5] + other[..., 5] + by_p * by_t * weight
    low = torch.minimum(one[..., 8::2], other[..., 8::2])
    high = torch.maximum(one[..., 9::2], other[..., 9::2])
    ends = torch.stack([low, high], -1).flatten(-2)
    return torch.cat([number[..., None], means, squares, product[..., None], one[..., 6:8] + other[..., 6:8], ends], -1)


def metrics_of(sums: Tensor) -> dict[str, float]:
    """The metrics of :func:`~dglcell.training.metrics.regression_metrics` but for ``spearman``, of sums [12]."""
    n, _, _, square_p, square_t, product, squares, sizes, low_p, high_p, low_t, high_t = sums.tolist()
    found = dict.fromkeys(("mse", "rmse", "mae", "pearson", "r2"), math.nan)
    if n == 0 or not math.isfinite(squares):
        return found | {"n": int(n)}
    found |= {"mse": squares / n, "rmse": math.sqrt(squares / n), "mae": sizes / n}
    constant_p, constant_t = _is_constant(low_p, high_p), _is_constant(low_t, high_t)
    if not constant_p and not constant_t:
        found["pearson"] = min(1.0, max(-1.0, product / math.sqrt(square_p) / math.sqrt(square_t)))
    if not constant_t:
        found["r2"] = 1.0 - squares / square_t
    return found | {"n": int(n)}


def _is_constant(low: float, high: float) -> bool:
    """See :func:`~dglcell.training.metrics.is_constant`."""
    return high - low <= CONSTANT * max(abs(low), abs(high))


class EpochSums:
    """What the figures of an epoch need, as sums over all its steps so far; they stay on the device."""

    def __init__(self) -> None:
        self._sums: tuple[Tensor, Tensor] | None = None

    def __bool__(self) -> bool:
        return self._sums is not None

    def clear(self) -> None:
        """Forget everything."""
        self._sums = None

    def add(self, pairs: Tensor, losses: Tensor) -> None:
        """Take in sums of pairs [..., T, 12] and of losses [L]."""
        if self._sums is not None:
            pairs, losses = add_sums(self._sums[0], pairs), self._sums[1] + losses
        self._sums = pairs, losses

    def rows(self) -> tuple[Tensor, Tensor]:
        """All sums, as a single row each."""
        assert self._sums is not None
        return self._sums[0][None], self._sums[1][None]

    def add_rows(self, pairs: Tensor, losses: Tensor) -> None:
        """Take in such rows, of several ranks."""
        self.add(sum_rows(pairs), losses.sum(0))


def sum_rows(pairs: Tensor) -> Tensor:
    """Sums over the strains of all rows."""
    return reduce(add_sums, pairs.unbind(0))
