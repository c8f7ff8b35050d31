"""What an experiment says about its model. No torch is needed to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dglcell.checks import check_choice
from dglcell.errors import ConfigError, did_you_mean
from dglcell.graph.schema import GENE, NODE_TYPES, Relation
from dglcell.kernels import KERNEL_NAMES
from dglcell.nn.config import (
    AUTO_LINK,
    COMBINATIONS,
    LINKS,
    LOCAL_KINDS,
    MEANS,
    TARGETS,
    ConvOptions,
    CrossRelation,
    check_activation,
    check_heads,
    check_norm,
)
from dglcell.perturbation import STRATEGIES
from dglcell.plugins import FORM, find_class, installed_names, read_options

if TYPE_CHECKING:
    from dglcell.nn.convolutions import Convolution

# What the configurations of all models have in common.


@dataclass
class ModelConfig:
    """A model; each kind adds its own keys."""

    name: str = ""  # kind of model: a key of `MODEL_CONFIGS`, or MODULE:CLASS of your own
    kernel: str = "auto"  # how sparse products are computed: auto | tiled | dgl | csr | dense | triton | reference
    features: dict[str, str] = field(default_factory=dict)  # node type → table of fixed input features, or wild_type

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        check_choice("model.kernel", self.kernel, ("auto", *KERNEL_NAMES))

    def provides(self) -> frozenset[str]:
        """What its predictions hold beside phenotypes: ``embedding``, and the names of auxiliary scalars."""
        return frozenset()

    def requires(self) -> dict[str, str]:
        """What the loss must read of ``provides``, as nothing else trains it: name → what to set where it does not."""
        return {}

    def is_autotuned(self) -> bool:
        """Whether something is chosen by measuring when a run starts."""
        return False

    def about(self) -> str:
        """A few words for the report."""
        return self.name

    def uses_metabolism(self) -> bool:
        """Whether it reads reactions and metabolites."""
        return False

    def needs_relations(self) -> bool:
        """Whether it cannot do without an edge."""
        return True


# What the configurations of models that encode the cell graph have in common.


CONVS = ("gin", "sage", "gatv2")


@dataclass
class EncoderConfig(ModelConfig):
    """Message passing over the cell graph (``dglcell.models.encoder.CellEncoder``) and a head on deleted genes."""

    hidden: int = 64  # H, width of every state
    layers: int = 3  # L, rounds of message passing
    conv: str = "gin"  # for every relation: gin | sage | gatv2, or MODULE:CLASS of your own
    conv_options: dict[str, Any] | None = None  # keys of a conv of your own
    gin_layers: int = 2  # Linear layers of a GIN's MLP; with 0 states are only summed
    gin_hidden: int | None = None  # width inside a GIN's MLP; null: H
    conv_heads: int = 4  # heads of gatv2; must divide H
    cross_relation: str = "sum"  # combines relations: sum | mean | cross_attention | pairwise_interaction
    cross_relation_heads: int = 4  # heads of cross_attention; must divide H
    cross_relation_hidden: int | None = None  # width inside the MLPs of pairwise_interaction; null: H / 2
    cross_relation_layers: int = 2  # Linear layers of these MLPs, 2 or more
    cross_relation_norm: str = "none"  # layer | rms | none, after cross_attention or pairwise_interaction
    residual: bool = True  # add the input of every layer to its output
    norm: str = "layer"  # layer | rms | none, per node
    activation: str = "gelu"  # relu | gelu | silu | elu | tanh | identity
    dropout: float = 0.0  # share of states that are set to 0 in a training step
    embedding_std: float = 0.02  # standard deviation of the initial embeddings
    preprocessor_layers: int = 2  # Linear layers between the embeddings and the first round
    relations: list[str] | None = None  # names of the relations to use; null: all of the cell graph
    metabolism: bool = True  # use the relations with reactions and metabolites
    local_kind: str = "hyper_sagnn"  # how deleted genes are scored: hyper_sagnn | factorisation | both
    local_layers: int = 2  # hyper_sagnn: rounds of attention
    local_heads: int = 8  # hyper_sagnn: must divide H
    local_gain: float = 1.0  # hyper_sagnn: initial share of the attention; with 0.01 interactions are learnt slowly
    local_factors: int | None = 64  # factorisation: width of a gene's vector; null: its state is the vector
    local_deviations: bool = False  # factorisation: add a free effect and vector per gene to those from the states
    link: str = "identity"  # score to phenotype: identity | log | logistic | saturation | minimum | bounded | auto
    null_share: float = 0.0  # share of null models in each prediction: the mean of the two that are best
    recompute: str = "auto"  # auto | true | false: compute layers twice to save memory; auto: if it saves gigabytes

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
        if not self.embedding_std > 0:
            raise ConfigError("`model.embedding_std` must be positive", got=self.embedding_std)
        if not 0 <= self.dropout < 1:
            raise ConfigError("`model.dropout` is no probability", got=self.dropout, expected="0 ≤ dropout < 1")
        if not 0 <= self.null_share < 1:
            raise ConfigError("`model.null_share` is no share", got=self.null_share, expected="0 ≤ null_share < 1")
        self.recompute = str(self.recompute).lower()  # YAML's true is "True" here
        for key, allowed in (
            ("local_kind", LOCAL_KINDS),
            ("link", (*LINKS, AUTO_LINK)),
            ("recompute", ("auto", "true", "false")),
        ):
            check_choice(f"model.{key}", getattr(self, key), allowed)
        self._validate_conv()
        if self.conv == "gatv2":
            check_heads(self.hidden, self.conv_heads)
        self.combination_of_relations().check(self.hidden)
        check_norm(self.norm)
        check_activation(self.activation)

    def _validate_conv(self) -> None:
        own = self.own_conv()
        if own is not None:
            own[1].validate()
        elif self.conv not in CONVS:
            known = (*CONVS, *installed_names("conv"))
            expected, do = f"{', '.join(known)}, or {FORM}", did_you_mean(self.conv, known)
            raise ConfigError("`model.conv` is unknown", got=self.conv, expected=expected, do=do)
        elif self.conv_options is not None:
            raise ConfigError(f"`model.conv_options` is for a {FORM}", got=f"`model.conv: {self.conv}`")

    def own_conv(self) -> tuple[Callable[[Relation, int, ConvOptions], Convolution], ConvOptions] | None:
        """The convolution, where it is a class of one's own, and the values of its keys.

        Raises:
            ConfigError: the class or a key is wrong.
        """
        kind: Any = None if self.conv in CONVS else find_class("conv", self.conv)
        return (
            None if kind is None else (kind, read_options(kind.Config, self.conv_options or {}, "model.conv_options"))
        )

    def provides(self) -> frozenset[str]:
        return frozenset({"embedding"})

    def uses_metabolism(self) -> bool:
        return self.metabolism

    def needs_relations(self) -> bool:
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


# What a configuration can say about the heterograph model.


@dataclass
class HeteroCellConfig(EncoderConfig):
    """The heterograph model (``dglcell.models.hetero_cell.HeteroCell``)."""

    name: str = "hetero_cell"
    pool: list[str] = field(default_factory=lambda: [GENE])  # node types that are pooled
    scale_difference: bool = True  # multiply pooled differences by the number of nodes in their mean
    local_head: bool = True  # score the deleted genes by their wild-type states
    combination: str = "sum"  # how global and local prediction are combined: sum | mean | gated | none
    flux_rounds: int = 0  # rounds of messages that solve each strain's flux balance, whose growth the score corrects
    strategy: str = "auto"  # for strains' graphs: auto | difference | node_mask | edge_mask | edge_subgraph
    compile: str = "auto"  # auto | true | false: torch.compile for layers; auto: if it works and the run is long enough
    autotuned: str | None = None  # autotuned.json of a run, with choices for `auto`; null: measure them

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        check_choice("model.combination", self.combination, (*COMBINATIONS, "none"))
        check_choice("model.strategy", self.strategy, ("auto", *STRATEGIES))
        if self.flux_rounds < 0:
            raise ConfigError("`model.flux_rounds` is negative", got=self.flux_rounds, expected="0 or more")
        self.compile = self.compile.lower()  # YAML's true is "True" here
        check_choice("model.compile", self.compile, ("auto", "true", "false"))
        if not self.pool or set(self.pool) - set(NODE_TYPES):
            raise ConfigError("`model.pool` names no node types", got=self.pool, expected=", ".join(NODE_TYPES))
        if not self.metabolism and self.pool != [GENE]:
            raise ConfigError(
                "`model.pool` needs metabolism",
                got=self.pool,
                do="set `model.metabolism: true` or `model.pool: [gene]`",
            )
        self._validate_local_head()

    def is_autotuned(self) -> bool:
        return True

    def about(self) -> str:
        return f"{self.name}, {self.strategy}"

    def _validate_local_head(self) -> None:
        if self.local_head:
            self.check_local_head()
        if self.local_head and self.combination == "none":
            raise ConfigError(
                "`model.combination: none` would leave the local head without use",
                do="set `model.local_head: false`, or combine by `sum`, `mean` or `gated`",
            )
        if not self.local_head and self.combination == "gated":
            raise ConfigError(
                "`model.combination: gated` needs the local head",
                do="set `model.local_head: true` or `model.combination: none`",
            )


# What a configuration can say about the set operator model.


OPERATORS = ("local", "cross_attention", "both")

LOW_RANK = 40
"""Largest rank of the low-rank profiles of pairs."""


@dataclass
class SetOperatorConfig(EncoderConfig):
    """The wild type encoded once, and deleted genes acting on it (``dglcell.models.set_operator.SetOperator``)."""

    name: str = "set_operator"
    operator: str = "local"  # how the deleted genes act: local (on each other) | cross_attention (on all genes) | both
    operator_heads: int = 4  # cross_attention: number of heads; must divide H
    combination: str = "sum"  # with operator: both, how the two are combined: sum | mean | gated
    kernel_ridge: float = 0.0  # share of a kernel ridge, fitted to the training part, in each prediction
    kernel_ridge_rank: int = 256  # largest rank of its matrix of pair effects
    kernel_ridge_low_rank: float = 0.0  # part of that share that is the null model `kernel ridge and low rank`

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        if not 0 <= self.kernel_ridge < 1:
            raise ConfigError(
                "`model.kernel_ridge` is no share", got=self.kernel_ridge, expected="0 ≤ kernel_ridge < 1"
            )
        if not 0 <= self.kernel_ridge_low_rank <= 1 or (self.kernel_ridge_low_rank and not self.kernel_ridge):
            raise ConfigError(
                "`model.kernel_ridge_low_rank` is no part of `model.kernel_ridge`",
                got=f"{self.kernel_ridge_low_rank} of {self.kernel_ridge}",
                expected="0 to 1, and 0 where `model.kernel_ridge` is 0",
            )
        if self.kernel_ridge_rank < 1:
            raise ConfigError(
                "`model.kernel_ridge_rank` is too small", got=self.kernel_ridge_rank, expected="1 or more"
            )
        check_choice("model.operator", self.operator, OPERATORS)
        check_choice("model.combination", self.combination, COMBINATIONS)
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

    @property
    def rank_of_pairs(self) -> int:
        """Of the effects of pairs: two kernel ridges and the low-rank profiles have a rank each."""
        return self.kernel_ridge_rank + (self.kernel_ridge_rank + LOW_RANK if self.kernel_ridge_low_rank else 0)

    def provides(self) -> frozenset[str]:
        return frozenset() if self.operator == "local" else super().provides()

    def about(self) -> str:
        return f"{self.name}, {self.operator}"


# What a configuration can say about DANGO.


SCORERS = ("rezero", "released")


@dataclass
class DangoConfig(ModelConfig):
    """DANGO (``dglcell.models.dango.Dango``); defaults as in experiment 006 of the torchcell project."""

    name: str = "dango"
    hidden: int = 64  # H, width of every state
    activation: str = "relu"  # relu | gelu | silu | elu | tanh | identity
    embedding_std: float = 0.1  # standard deviation of the genes' initial embeddings
    relations: list[str] | None = None  # names of the networks; null: all gene–gene relations of the cell graph
    meta_layers: int = 2  # Linear layers that weight a gene's states from the networks
    reconstruction: bool = True  # also predict every network's adjacency, for `loss.name: dango`
    reconstruction_layers: int = 1  # Linear layers of the reconstruction
    reconstruction_target: str = "binary"  # binary | weight: edge weights, scaled to 0 … 1
    reconstruction_mean: str = "pairs"  # mean over pairs (all pairs) | rows (for each gene, edges and other pairs)
    zero_weights: dict[str, float] = field(default_factory=dict)  # network → weight of pairs that are not edges (λ)
    scorer: str = "rezero"  # rezero: as in the paper | released: as in the authors' code
    attention_layers: int = 2  # rounds of attention among the deleted genes; `released` has one
    heads: int = 4  # heads of this attention
    gain: float = 0.01  # initial share of this attention; `released` starts its feed-forward network from 0
    dropout: float = 0.0  # dropout inside the scorer

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        super().validate()
        minima = (
            ("hidden", 1),
            ("meta_layers", 1),
            ("reconstruction_layers", 1),
            ("attention_layers", 1),
            ("heads", 1),
        )
        for key, minimum in minima:
            if getattr(self, key) < minimum:
                raise ConfigError(f"`model.{key}` is too small", got=getattr(self, key), expected=f"{minimum} or more")
        for key, allowed in (
            ("reconstruction_target", TARGETS),
            ("reconstruction_mean", MEANS),
            ("scorer", SCORERS),
        ):
            check_choice(f"model.{key}", getattr(self, key), allowed)
        check_activation(self.activation)
        if self.embedding_std <= 0:
            raise ConfigError("`model.embedding_std` must be positive", got=self.embedding_std)
        if not 0 <= self.dropout < 1:
            raise ConfigError("`model.dropout` is no probability", got=self.dropout, expected="0 ≤ dropout < 1")
        if self.scorer == "rezero" and self.hidden % self.heads:
            raise ConfigError(
                "`model.heads` does not divide `model.hidden`", got=self.heads, expected=f"a divisor of {self.hidden}"
            )
        negative = {name: weight for name, weight in self.zero_weights.items() if weight < 0}
        if negative:
            raise ConfigError("`model.zero_weights` must not be negative", got=negative, expected="0 or more")
        if set(self.features) - {GENE}:
            raise ConfigError(
                "`model.features`: DANGO has states of genes only", got=", ".join(self.features), expected=GENE
            )

    def provides(self) -> frozenset[str]:
        return frozenset({"reconstruction"} if self.reconstruction else ())

    def requires(self) -> dict[str, str]:
        return {"reconstruction": "`loss.name: dango`, or `model.reconstruction: false`"} if self.reconstruction else {}


MODEL_CONFIGS: dict[str, type[ModelConfig]] = {
    "hetero_cell": HeteroCellConfig,
    "set_operator": SetOperatorConfig,
    "dango": DangoConfig,
}
"""`model.name` → what its section may say; ``dglcell.models.build.MODELS`` has the models themselves."""
