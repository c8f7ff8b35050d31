"""Activations and norms by the names used in configurations."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from dglcell.errors import ConfigError

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
    "identity": nn.Identity,
}

# Norms act on one row at a time: a norm over nodes or strains would let deleted genes and batch mates change a
# strain's prediction.
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    "none": lambda width: nn.Identity(),
}

REFUSED_NORMS = ("batch", "graph", "instance", "pair", "mean_subtraction")


def make_activation(name: str) -> nn.Module:
    """A new activation module.

    Raises:
        ConfigError: unknown name.
    """
    if name not in ACTIVATIONS:
        raise ConfigError("unknown activation", got=name, expected=", ".join(ACTIVATIONS), do="set `model.activation`")
    return ACTIVATIONS[name]()


def make_norm(name: str, width: int) -> nn.Module:
    """A new norm over the last dimension.

    Raises:
        ConfigError: unknown name, or a norm that mixes nodes or strains.
    """
    if name in REFUSED_NORMS:
        raise ConfigError(
            f"norm '{name}' takes statistics over nodes or strains: deleted genes and batch mates would change a "
            "strain's prediction",
            expected=", ".join(NORMS),
            do="set `model.norm: layer`",
        )
    if name not in NORMS:
        raise ConfigError("unknown norm", got=name, expected=", ".join(NORMS), do="set `model.norm`")
    return NORMS[name](width)
