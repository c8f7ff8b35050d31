"""Label statistics that are added up piece by piece."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Of T phenotypes over some strains, missing labels left out; float64.

    Attributes:
        number: [T] labels.
        mean: [T]; 0 without labels.
        square: [T] sum of squared deviations from the mean.
        low: [T] least label; infinite without labels.
        high: [T] greatest label.
    """

    number: Tensor
    mean: Tensor
    square: Tensor
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, labels_ST: Tensor) -> Moments:
        """Statistics of labels [S, T] with NaN where missing."""
        labels = labels_ST.double()
        missing = labels.isnan()
        number = (~missing).sum(0).double()
        mean = labels.nansum(0) / number.clamp(min=1)
        square = (labels - mean).square().nansum(0)
        infinite = torch.full((1, labels.shape[1]), torch.inf, dtype=torch.float64)
        low = torch.cat([labels.masked_fill(missing, torch.inf), infinite]).amin(0)
        high = torch.cat([labels.masked_fill(missing, -torch.inf), -infinite]).amax(0)
        return cls(number, mean, square, low, high)

    def __add__(self, other: Moments) -> Moments:
        """Statistics of the strains of both (Chan, Golub & LeVeque 1983, *Algorithms for computing the sample
        variance*, eq. 2.1).
        """
        number = self.number + other.number
        share = other.number / number.clamp(min=1)
        change = other.mean - self.mean
        return Moments(
            number,
            self.mean + change * share,
            self.square + other.square + change.square() * self.number * share,
            torch.minimum(self.low, other.low),
            torch.maximum(self.high, other.high),
        )
