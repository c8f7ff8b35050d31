"""What the configurations of models that encode the cell graph have in common."""

from __future__ import annotations

from dataclasses import dataclass

from dglcell.errors import ConfigError
from dglcell.models.base_config import ModelConfig
from dglcell.nn.cross_relation import CrossRelation
from dglcell.nn.gatv2 import check_heads
from dglcell.nn.local_head import LOCAL_KINDS
from dglcell.nn.registry import make_activation, make_norm

CONVS = ("gin", "sage", "gatv2")


@dataclass
class EncoderConfig(ModelConfig):
    """Message passing over the cell graph (``dglcell.models.encoder.CellEncoder``) and a head on deleted genes."""

    hidden: int = 64  # H, width of every state
    layers: int = 3  # L, rounds of message passing
    conv: str = "gin"  # gin | sage | gatv2, for every relation
    gin_layers: int = 2  # Linear layers of a GIN's MLP; with 0 states are only summed up
    gin_hidden: int | None = None  # width inside a GIN's MLP; H where null
    conv_heads: int = 4  # heads of gatv2; must divide H
    cross_relation: str = "sum"  # sum | mean | cross_attention | pairwise_interaction, of the relations into a node
    cross_relation_heads: int = 4  # heads of cross_attention; must divide H
    cross_relation_hidden: int | None = None  # width inside the MLPs of pairwise_interaction; H / 2 where null
    cross_relation_layers: int = 2  # Linear layers of these MLPs, 2 or more
    cross_relation_norm: str = "none"  # layer | rms | none, after the two that are learnt
    residual: bool = True  # add the input of every layer to its output
    norm: str = "layer"  # layer | rms | none, per node
    activation: str = "gelu"
    dropout: float = 0.0
    embedding_sd: float = 0.02  # of the initial embeddings
    preprocessor_layers: int = 2  # Linear layers between the embeddings and the first round
    relations: list[str] | None = None  # names of the relations in use; all of the cell graph where null
    metabolism: bool = True  # use the relations with reactions and metabolites
    local_kind: str = "hyper_sagnn"  # how deleted genes are scored: hyper_sagnn | factorisation | both
    local_layers: int = 2  # hyper_sagnn: rounds of attention
    local_heads: int = 8  # hyper_sagnn: must divide H
    local_gain: float = 1.0  # hyper_sagnn: initial share of the attention; from 0.01 interactions are learnt slowly
    local_factors: int | None = 64  # factorisation: width of a gene's vector; its state is the vector where null
    local_deviations: bool = False  # factorisation: a free effect and vector per gene beside what the states give
    recompute: str = (
        "auto"  # auto | true | false: layers twice, for less memory; auto where a step would keep gigabytes
    )

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        for key, minimum in (
            ("hidden", 1),
            ("layers", 0),
            ("gin_layers", 0),
            ("preprocessor_layers", 0),
            ("local_layers", 1),
            ("local_heads", 1),
        ):
            if getattr(self, key) < minimum:
                raise ConfigError(f"`model.{key}` is too small", got=getattr(self, key), expected=f"{minimum} or more")
        if not self.embedding_sd > 0:
            raise ConfigError("`model.embedding_sd` must be positive", got=self.embedding_sd)
        if not 0 <= self.dropout < 1:
            raise ConfigError("`model.dropout` is no probability", got=self.dropout, expected="0 ≤ dropout < 1")
        self.recompute = str(self.recompute).lower()  # YAML's true is "True" here
        for key, allowed in (
            ("conv", CONVS),
            ("local_kind", LOCAL_KINDS),
            ("recompute", ("auto", "true", "false")),
        ):
            self.check_choice(key, allowed)
        if self.conv == "gatv2":
            check_heads(self.hidden, self.conv_heads)
        self.combination_of_relations().check(self.hidden)
        make_norm(self.norm, 1)
        make_activation(self.activation)

    def gives(self) -> frozenset[str]:
        """See ``ModelConfig.gives``."""
        return frozenset({"embedding"})

    def uses_metabolism(self) -> bool:
        """See ``ModelConfig.uses_metabolism``."""
        return self.metabolism

    def needs_relations(self) -> bool:
        """See ``ModelConfig.needs_relations``."""
        return self.layers > 0

    def combination_of_relations(self) -> CrossRelation:
        """The keys that say how relations are combined."""
        return CrossRelation(
            self.cross_relation,
            self.cross_relation_heads,
            self.cross_relation_hidden,
            self.cross_relation_layers,
            self.cross_relation_norm,
            self.activation,
            self.dropout,
        )

    def check_choice(self, key: str, allowed: tuple[str, ...]) -> None:
        """Refuse an unknown value of a key.

        Raises:
            ConfigError: naming those there are.
        """
        if getattr(self, key) not in allowed:
            raise ConfigError(f"`model.{key}` is unknown", got=getattr(self, key), expected=", ".join(allowed))

    def check_local_head(self) -> None:
        """Refuse keys of the local head that do not fit each other, where the model has one.

        Raises:
            ConfigError: naming the key.
        """
        if self.local_kind != "factorisation":
            check_heads(self.hidden, self.local_heads, key="model.local_heads")
        if self.local_factors is not None and self.local_factors < 1:
            raise ConfigError(
                "`model.local_factors` is too small", got=self.local_factors, expected="1 or more, or null"
            )
        if self.local_deviations and self.local_kind == "hyper_sagnn":
            raise ConfigError(
                "`model.local_deviations` needs factorisation",
                got=f"`model.local_kind: {self.local_kind}`",
                expected="factorisation or both",
            )
