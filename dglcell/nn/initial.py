"""Initial weights."""

from __future__ import annotations

import torch
from torch import nn

HEAD_GAIN = 0.01
"""Initial scale of the output layers' weights, relative to Kaiming's."""
EMBEDDING_SD = 0.02


def initialise(module: nn.Module) -> None:
    """Kaiming for Linear layers, zeros for their biases, N(0, EMBEDDING_SD²) for embeddings."""
    if isinstance(module, nn.Linear):
        nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=EMBEDDING_SD)


def start_at_the_mean(output: nn.Module) -> None:
    """Scale the last Linear layer of a head down: an untrained model predicts about the training mean, 0."""
    assert isinstance(output, nn.Linear)
    with torch.no_grad():
        output.weight.mul_(HEAD_GAIN)
