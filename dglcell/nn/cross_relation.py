"""Combine what several relations say about the same nodes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from dglcell.errors import ConfigError
from dglcell.nn.pairwise_interaction import PairwiseInteraction
from dglcell.nn.registry import make_norm
from dglcell.nn.relation_attention import RelationAttention
from dglcell.nn.relation_mixer import RelationMixer

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
    heads: int = 4
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
        if self.how not in CROSS_RELATION:
            raise ConfigError("`model.cross_relation` is unknown", got=self.how, expected=", ".join(CROSS_RELATION))
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
        make_norm(self.norm, 1)
        if self.norm != "none" and self.how not in LEARNED:
            raise ConfigError(
                f"`model.cross_relation_norm` has no effect where relations are combined by their {self.how}",
                got=self.norm,
                do=f"set `model.cross_relation_norm: none`, or `model.cross_relation` to {' or '.join(LEARNED)}",
            )

    def mixer(self, relations: int, width: int) -> RelationMixer | None:
        """The learned combination of so many relations, with fresh weights.

        None where there is nothing to learn: for sums and means, and for a single relation, whose states are taken as
        they are.
        """
        if relations == 1 or self.how not in LEARNED:
            return None
        return RelationMixer(self._mix(relations, width), make_norm(self.norm, width))

    def _mix(self, relations: int, width: int) -> nn.Module:
        if self.how == "cross_attention":
            return RelationAttention(relations, width, self.heads)
        return PairwiseInteraction(
            relations,
            width,
            hidden=max(1, width // 2) if self.hidden is None else self.hidden,
            layers=self.layers,
            activation=self.activation,
            dropout=self.dropout,
        )
