"""Huber loss."""

from __future__ import annotations

import torch
from torch import Tensor


def huber(error: Tensor) -> Tensor:
    """``error² / 2`` within one unit of the normalised label, ``|error| − 1/2`` beyond; element by element.

    Huber 1964, *Robust estimation of a location parameter*.
    """
    magnitude = error.abs()
    return torch.where(magnitude <= 1, 0.5 * error.square(), magnitude - 0.5)
