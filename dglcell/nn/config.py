"""Define configurations of layers, and the names that they may use; reading this module needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dglcell.checks import Rule, check_choice, check_values, one_of
from dglcell.errors import ConfigError

ACTIVATION_NAMES = ("relu", "gelu", "identity")

NORM_NAMES = ("layer", "none")
REFUSED_NORMS = ("batch", "graph", "instance", "pair", "mean_subtraction")


@dataclass
class ConvOptions:
    """Define the keys of `model.conv_options`; a convolution with options derives its own ``Config`` from it."""

    def validate(self) -> None:
        """Check values and their combinations; a ``ConfigError`` names the key."""
        check_values(self, "model.conv_options")


@dataclass
class GINOptions(ConvOptions):
    """Hold the options of ``GINConv``."""

    hidden: int  # width inside the MLP
    layers: int = 2  # Linear layers of the MLP
    activation: str = "gelu"
    dropout: float = 0.0


@dataclass
class GATv2Options(ConvOptions):
    """Hold the options of ``GATv2Conv``."""

    heads: int = 4
    slope: float = 0.2  # of LeakyReLU for negative numbers


LINKS = {"identity": 0, "log": 1, "saturation": 3, "minimum": 4, "bounded": 5}
"""Links turn scores into phenotypes; see ``dglcell.models.terms.link.Link``. Checkpoints have these numbers."""


def check_norm(key: str, name: str) -> None:
    """Refuse a norm that does not exist, or that mixes nodes or strains."""
    if name in REFUSED_NORMS:
        what = f"norm '{name}' takes statistics over nodes or strains"
        why = "deleted genes and batch mates would change a strain's prediction"
        raise ConfigError(f"{what}: {why}", expected=", ".join(NORM_NAMES), do=f"set `{key}: layer`")
    check_choice(key, name, NORM_NAMES)


Activation = Annotated[str, one_of(*ACTIVATION_NAMES)]
Norm = Annotated[str, Rule(check_norm)]


def check_heads(width: int, heads: int, key: str = "model.conv_heads") -> None:
    """Refuse a number of heads that cannot share the width evenly."""
    if heads < 1 or width % heads:
        what, do = f"`{key}` does not divide `model.hidden`", f"set `{key}` or `model.hidden`"
        raise ConfigError(what, got=heads, expected=f"a divisor of {width}", do=do)


PAIRWISE = "pairwise_interaction"
CROSS_RELATION = ("sum", "mean", PAIRWISE)


@dataclass(frozen=True)
class CrossRelation:
    """Say how the relations that end in a node type are combined."""

    how: str = "sum"  #: one of ``CROSS_RELATION``
    hidden: int | None = None  #: width inside the MLPs of ``pairwise_interaction``; half of H where None
    layers: int = 2  #: Linear layers of these MLPs
    norm: str = "none"  #: norm after a learned combination, per node
    activation: str = "gelu"  #: activation and dropout inside these MLPs
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_choice("how", self.how, CROSS_RELATION)
