"""Batches for losses that compare strains, and such losses in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dglcell.losses.config import LOSSES
from dglcell.losses.loss import Loss, make_loss
from dglcell.models.model import Prediction

COUPLED = ("mse_dist_supcr", "mle_dist_supcr", "mle_wass_supcr")


def make(name: str, epochs: int = 20, **keys: Any) -> Loss:
    """Return a loss by its configuration's keys; embeddings are compared where it is not said otherwise."""
    config = replace(LOSSES[name](), **{"name": name, "supcr": 0.3, **keys})
    config.validate()
    return make_loss(config, epochs).double()


def batch(seed: int, strains: int, phenotypes: int = 2, missing: float = 0.3) -> tuple[Prediction, Tensor]:
    """Return predictions with gradient, and labels of which some are missing."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    target = normal(strains, phenotypes)
    target[torch.rand(strains, phenotypes, generator=generator) < missing] = math.nan
    prediction = normal(strains, phenotypes).requires_grad_()
    return Prediction(prediction, embedding=normal(strains, 3).requires_grad_()), target
