"""Make the parts of layers: activations, norms, perceptrons, initial weights, and poolings of kept nodes."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from dglcell.checks import check_choice
from dglcell.nn.config import ACTIVATION_NAMES, check_norm
from dglcell.perturbation.rules import as_difference
from dglcell.perturbation.sent import Kept
from dglcell.perturbation.states import Pooled, States


def make_activation(name: str) -> nn.Module:
    """Make a new activation module; a ``ConfigError`` for an unknown name."""
    check_choice("model.activation", name, ACTIVATION_NAMES)
    return {"relu": nn.ReLU, "gelu": nn.GELU, "identity": nn.Identity}[name]()


def make_norm(name: str, width: int) -> nn.Module:
    """Make a new norm over the last dimension; a ``ConfigError`` for one that mixes nodes or strains."""
    check_norm("model.norm", name)
    return nn.LayerNorm(width) if name == "layer" else nn.Identity()


def mlp(widths: list[int], activation: str, dropout: float = 0.0) -> nn.Sequential:
    """Make ``Linear → activation → dropout`` between two or more widths, ending in a bare Linear."""
    layers: list[nn.Module] = []
    for i, (width_in, width_out) in enumerate(itertools.pairwise(widths)):
        if i > 0:
            layers.append(make_activation(activation))
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
        layers.append(nn.Linear(width_in, width_out))
    return nn.Sequential(*layers)


HEAD_GAIN, EMBEDDING_STD = 0.01, 0.02
"""The initial weights of output layers are scaled by the former, relative to Kaiming's."""


def initialise(module: nn.Module) -> None:
    """Initialise Linear layers by Kaiming, their biases with zeros, and embeddings by N(0, EMBEDDING_STD²)."""
    if isinstance(module, nn.Linear):
        nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=EMBEDDING_STD)


def start_at_the_mean(output: nn.Module) -> None:
    """Scale the last Linear layer of a head down, so that an untrained model predicts about the training mean, 0."""
    assert isinstance(output, nn.Linear)
    with torch.no_grad():
        output.weight.mul_(HEAD_GAIN)


class MeanPooling(nn.Module):
    """Take the mean over the nodes that a strain keeps, zero where it keeps none; one of activity a counts a times.

    Shapes:
        states [N, B, H] → [1, H] of the base and [B, H], by how much the strains differ from it.
    """

    def forward(self, states: States, kept: Kept) -> Pooled:
        return states.pool(states.map(lambda x: x[..., :1] * 0), kept)


class AttentionPooling(nn.Module):
    r"""Pool by gated attention (Li et al. 2016, *Gated graph sequence neural networks*, eq. 7, with a softmax gate).

    .. math:: z_b = \sum_{v \text{ kept in } b} \operatorname{softmax}_v\big(g(h_{vb})\big)\; f(h_{vb})

    It is zero for a strain that keeps no node of this type. Activation and dropout are those inside g.

    Shapes:
        states [N, B, H] → [1, H] of the base and [B, H], by how much the strains differ from it.
    """

    def __init__(self, width: int, activation: str = "gelu", dropout: float = 0.0) -> None:
        super().__init__()
        self.gate = mlp([width, width // 2, 1], activation, dropout)
        self.value = nn.Linear(width, width)

    def forward(self, states: States, kept: Kept) -> Pooled:
        pooled = states.pool(states.map(self.gate), kept)
        # A weighted mean of linear maps is the linear map of the weighted mean: B rows instead of N · B.
        value_1H = torch.where(kept.base_N1.any(), self.value(pooled.base_1H), 0.0)
        has_nodes_B1 = kept.strains_NB.any(0).unsqueeze(1)
        difference_BH = F.linear(pooled.difference_BH, self.value.weight)
        return Pooled(value_1H, as_difference(torch.where(has_nodes_B1, difference_BH, -value_1H)))
