"""What a configuration may say of layers, and the names that there are. No torch is needed to read it."""

from __future__ import annotations

from dataclasses import dataclass

from dglcell.checks import check_choice
from dglcell.errors import ConfigError

ACTIVATION_NAMES = ("relu", "gelu", "silu", "elu", "tanh", "identity")

NORM_NAMES = ("layer", "rms", "none")
REFUSED_NORMS = ("batch", "graph", "instance", "pair", "mean_subtraction")


@dataclass
class ConvOptions:
    """What `model.conv_options` may say; a convolution with options derives its own ``Config`` from it."""

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """


LOCAL_KINDS = ("hyper_sagnn", "factorisation", "both")
"""Heads on the deleted genes."""

COMBINATIONS = ("sum", "mean", "gated")
"""Of two predictions."""

LINKS = ("identity", "log", "logistic", "saturation", "minimum", "bounded")
"""From scores to phenotypes; see ``dglcell.nn.links.Link``."""

AUTO_LINK = "auto"
COMPARING_LINKS = (AUTO_LINK, "minimum", "bounded")
"""Those that may compare a strain with all training strains."""

TARGETS = ("binary", "weight")
"""What DANGO reconstructs of an edge."""

MEANS = ("pairs", "rows")
"""Over what the error of that reconstruction is a mean."""


def check_activation(name: str) -> None:
    """Refuse an activation that there is not.

    Raises:
        ConfigError: naming those there are.
    """
    if name not in ACTIVATION_NAMES:
        expected = ", ".join(ACTIVATION_NAMES)
        raise ConfigError("unknown activation", got=name, expected=expected, do="set `model.activation`")


def check_norm(name: str) -> None:
    """Refuse a norm that there is not, or that mixes nodes or strains.

    Raises:
        ConfigError: naming those there are.
    """
    if name in REFUSED_NORMS:
        raise ConfigError(
            f"norm '{name}' takes statistics over nodes or strains: deleted genes and batch mates would change a "
            "strain's prediction",
            expected=", ".join(NORM_NAMES),
            do="set `model.norm: layer`",
        )
    check_choice("model.norm", name, NORM_NAMES)


def check_heads(width: int, heads: int, key: str = "model.conv_heads") -> None:
    """Refuse a number of heads that cannot share the width evenly.

    Raises:
        ConfigError: naming the key.
    """
    if heads < 1 or width % heads:
        raise ConfigError(
            f"`{key}` does not divide `model.hidden`",
            got=heads,
            expected=f"a divisor of {width}",
            do=f"set `{key}` or `model.hidden`",
        )


# How the relations that end in a node type are combined.


CROSS_RELATION = ("sum", "mean", "cross_attention", "pairwise_interaction")
LEARNED = CROSS_RELATION[2:]


@dataclass(frozen=True)
class CrossRelation:
    """How the relations that end in a node type are combined.

    Attributes:
        how: one of ``CROSS_RELATION``.
        heads: of ``cross_attention``.
        hidden: width inside the MLPs of ``pairwise_interaction``; half of H where None.
        layers: Linear layers of these MLPs.
        norm: after a learned combination, per node.
        activation, dropout: inside these MLPs.
    """

    how: str = "sum"
    heads: int = 4  # of attention
    hidden: int | None = None
    layers: int = 2
    norm: str = "none"
    activation: str = "gelu"
    dropout: float = 0.0

    def check(self, width: int) -> None:
        """Check values and their combinations.

        Args:
            width: H.

        Raises:
            ConfigError: naming the key.
        """
        check_choice("model.cross_relation", self.how, CROSS_RELATION)
        if self.how == "cross_attention" and (self.heads < 1 or width % self.heads):
            raise ConfigError(
                "`model.cross_relation_heads` does not divide `model.hidden`",
                got=self.heads,
                expected=f"a divisor of {width}",
                do="set `model.cross_relation_heads` or `model.hidden`",
            )
        for key, minimum, value in (
            ("cross_relation_hidden", 1, self.hidden),
            ("cross_relation_layers", 2, self.layers),
        ):
            if value is not None and value < minimum:
                raise ConfigError(f"`model.{key}` is too small", got=value, expected=f"{minimum} or more")
        check_norm(self.norm)
        if self.norm != "none" and self.how not in LEARNED:
            raise ConfigError(
                f"`model.cross_relation_norm` has no effect where relations are combined by their {self.how}",
                got=self.norm,
                do=f"set `model.cross_relation_norm: none`, or `model.cross_relation` to {' or '.join(LEARNED)}",
            )
