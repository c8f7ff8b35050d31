"""A plain multilayer perceptron on the last dimension."""

from __future__ import annotations

import itertools

from torch import nn

from dglcell.nn.registry import make_activation


def mlp(widths: list[int], activation: str, dropout: float = 0.0) -> nn.Sequential:
    """``Linear → activation → dropout`` between the widths, ending in a bare Linear.

    Args:
        widths: of the input, every hidden layer and the output; at least two.
        activation: see ``ACTIVATIONS``.
        dropout: probability; no module is made for 0.
    """
    layers: list[nn.Module] = []
    for i, (width_in, width_out) in enumerate(itertools.pairwise(widths)):
        if i > 0:
            layers.append(make_activation(activation))
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
        layers.append(nn.Linear(width_in, width_out))
    return nn.Sequential(*layers)
