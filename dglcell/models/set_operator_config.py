"""What a configuration can say about the set operator model."""

from __future__ import annotations

from dataclasses import dataclass

from dglcell.errors import ConfigError
from dglcell.models.encoder_config import EncoderConfig
from dglcell.nn.combination import COMBINATIONS
from dglcell.nn.gatv2 import check_heads

OPERATORS = ("local", "cross_attention", "both")


@dataclass
class SetOperatorConfig(EncoderConfig):
    """The wild type encoded once, and deleted genes acting on it (``dglcell.models.set_operator.SetOperator``)."""

    name: str = "set_operator"
    operator: str = "local"  # how the deleted genes act: local (on each other) | cross_attention (on all genes) | both
    operator_heads: int = 4  # cross_attention: must divide H
    combination: str = "sum"  # both: sum | mean | gated

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        self.check_choice("operator", OPERATORS)
        self.check_choice("combination", COMBINATIONS)
        if self.operator != "cross_attention":
            self.check_local_head()
        if self.operator != "local":
            check_heads(self.hidden, self.operator_heads, key="model.operator_heads")
        if self.combination == "gated" and self.operator != "both":
            raise ConfigError(
                "`model.combination: gated` needs two predictions",
                got=f"`model.operator: {self.operator}`",
                do="set `model.operator: both` or `model.combination: sum`",
            )

    def gives(self) -> frozenset[str]:
        """See ``ModelConfig.gives``."""
        return frozenset() if self.operator == "local" else super().gives()

    def about(self) -> str:
        """See ``ModelConfig.about``."""
        return f"{self.name}, {self.operator}"
