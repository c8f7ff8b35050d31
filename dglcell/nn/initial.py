"""Initial weights."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

HEAD_GAIN = 0.01
"""Initial scale of the output layers' weights, relative to Kaiming's."""


def initialise(module: nn.Module) -> None:
    """Kaiming for Linear layers, zeros for their biases, N(0, 0.02²) for embeddings."""
    if isinstance(module, nn.Linear):
        nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)


def start_at_the_mean(outputs: Iterable[nn.Module]) -> None:
    """Shrink the last Linear layers of heads: an untrained model predicts about the training mean, 0."""
    with torch.no_grad():
        for output in outputs:
            assert isinstance(output, nn.Linear)
            output.weight.mul_(HEAD_GAIN)
