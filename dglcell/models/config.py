"""What a configuration can say about the heterograph model."""

from __future__ import annotations

from dataclasses import dataclass, field

from dglcell.errors import ConfigError
from dglcell.graph.schema import GENE, NODE_TYPES
from dglcell.models.base_config import ModelConfig
from dglcell.nn.cross_relation import CrossRelation
from dglcell.nn.gatv2 import check_heads
from dglcell.nn.registry import make_activation, make_norm
from dglcell.perturbation.perturb import STRATEGIES

CONVS = ("gin", "sage", "gatv2")
COMBINATIONS = ("mean", "gated", "none")


@dataclass
class HeteroCellConfig(ModelConfig):
    """The heterograph model (``dglcell.models.hetero_cell.HeteroCell``)."""

    name: str = "hetero_cell"
    hidden: int = 64  # H, width of every state
    layers: int = 3  # L, rounds of message passing
    conv: str = "gin"  # gin | sage | gatv2, for every relation
    gin_layers: int = 2  # Linear layers of a GIN's MLP
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
    preprocessor_layers: int = 2  # Linear layers between the embeddings and the first round
    relations: list[str] | None = None  # names of the relations in use; all of the cell graph where null
    metabolism: bool = True  # use the relations with reactions and metabolites
    pool: list[str] = field(default_factory=lambda: [GENE])  # node types that are pooled
    scale_difference: bool = True  # multiply pooled differences by the number of nodes they are means over
    local_head: bool = True  # score the deleted genes' wild-type states by self-attention
    local_layers: int = 2  # rounds of that attention
    local_heads: int = 8
    local_gain: float = 1.0  # initial share of the attention; from 0.01 interactions are learnt slowly
    combination: str = "mean"  # mean | gated | none, of global and local prediction
    strategy: str = "auto"  # auto | difference | node_mask | edge_mask | edge_subgraph, for the strains' graphs
    choices: str | None = None  # choices.json of a run, for what `auto` takes; found by a short calibration where null
    recompute: bool = True  # keep little between forward and backward pass: half the memory, about as fast on a CPU

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        for key, minimum in (
            ("hidden", 1),
            ("layers", 0),
            ("gin_layers", 1),
            ("preprocessor_layers", 0),
            ("local_layers", 1),
            ("local_heads", 1),
        ):
            if getattr(self, key) < minimum:
                raise ConfigError(f"`model.{key}` is too small", got=getattr(self, key), expected=f"{minimum} or more")
        if not 0 <= self.dropout < 1:
            raise ConfigError("`model.dropout` is no probability", got=self.dropout, expected="0 ≤ dropout < 1")
        for key, allowed in (
            ("conv", CONVS),
            ("combination", COMBINATIONS),
            ("strategy", ("auto", *STRATEGIES)),
        ):
            if getattr(self, key) not in allowed:
                raise ConfigError(f"`model.{key}` is unknown", got=getattr(self, key), expected=", ".join(allowed))
        if self.conv == "gatv2":
            check_heads(self.hidden, self.conv_heads)
        self.combination_of_relations().check(self.hidden)
        make_norm(self.norm, 1)
        make_activation(self.activation)
        if not self.pool or set(self.pool) - set(NODE_TYPES):
            raise ConfigError("`model.pool` names no node types", got=self.pool, expected=", ".join(NODE_TYPES))
        if not self.metabolism and self.pool != [GENE]:
            raise ConfigError(
                "`model.pool` needs metabolism",
                got=self.pool,
                do="set `model.metabolism: true` or `model.pool: [gene]`",
            )
        if self.strategy == "difference" and self.dropout > 0:
            raise ConfigError(
                "`model.strategy: difference` is not exact with dropout: wild type and strains would draw other masks",
                got=f"`model.dropout: {self.dropout}`",
                do="set `model.dropout: 0`, or `model.strategy: node_mask`",
            )
        self._validate_local_head()

    def gives(self) -> frozenset[str]:
        """See ``ModelConfig.gives``."""
        return frozenset({"embedding"})

    def is_calibrated(self) -> bool:
        """See ``ModelConfig.is_calibrated``."""
        return "auto" in (self.strategy, self.kernel)

    def about(self) -> str:
        """See ``ModelConfig.about``."""
        return f"{self.name}, {self.strategy}"

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

    def _validate_local_head(self) -> None:
        if self.local_head and self.hidden % self.local_heads:
            raise ConfigError(
                "`model.local_heads` does not divide `model.hidden`",
                got=self.local_heads,
                expected=f"a divisor of {self.hidden}",
            )
        if self.local_head and self.combination == "none":
            raise ConfigError(
                "`model.combination: none` would leave the local head without use",
                do="set `model.local_head: false`, or combine by `mean` or `gated`",
            )
        if not self.local_head and self.combination == "gated":
            raise ConfigError(
                "`model.combination: gated` needs the local head",
                do="set `model.local_head: true` or `model.combination: none`",
            )
