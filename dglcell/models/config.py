"""Define what an experiment says about its model; reading it needs no torch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

from dglcell.checks import Count, Number, Positive, at_least, below_one, check_values, must, one_of
from dglcell.errors import ConfigError, did_you_mean, listing
from dglcell.graph.edge_targets import EDGES
from dglcell.graph.schema import GENE, NODE_TYPES
from dglcell.kernels import KERNEL_NAMES
from dglcell.nn.config import (
    AUTO_LINK,
    COMBINATIONS,
    CROSS_RELATION,
    LINKS,
    PAIRWISE,
    Activation,
    ConvOptions,
    CrossRelation,
    GATv2Options,
    GINOptions,
    Norm,
    check_heads,
)
from dglcell.perturbation import DGL_STRATEGIES, STRATEGIES, no_edges
from dglcell.plugins import FORM, class_of, installed_names, read_options

if TYPE_CHECKING:
    from dglcell.nn.convolutions import Convolution

Dropout = Annotated[float, below_one("probability")]
Factors = Annotated[int, at_least(1, also=", or null")]
Kernel = Annotated[str, one_of("auto", *KERNEL_NAMES)]
Strategy = Annotated[str, one_of("auto", *STRATEGIES)]
LinkName = Annotated[str, one_of(*LINKS, AUTO_LINK)]
CombinationName = Annotated[str, one_of(*COMBINATIONS)]
CombinationOrNone = Annotated[str, one_of(*COMBINATIONS, "none")]
CrossRelationName = Annotated[str, one_of(*CROSS_RELATION)]
LocalKind = Annotated[str, one_of("hyper_sagnn", "factorisation", "both")]
Prior = Annotated[float, must(lambda share: 0 < share < 1, "is no share", "more than 0, and less than 1")]
Rounds = Annotated[int, at_least(0, "is negative")]
Pool = Annotated[
    list[str], must(lambda pool: pool and set(pool) <= {*NODE_TYPES}, "names no node types", ", ".join(NODE_TYPES))
]
Switch = Annotated[str, one_of("auto", "true", "false")]


OF_DGL = re.compile(r"^(dgl\.nn)\.(\w+)$")
"""A module of DGL is named so, as it is in Python."""


@dataclass
class ModelConfig:
    """Configure a model; each kind adds its own keys.

    Attributes of the class without a type are no keys: ``implementation`` is the model as MODULE:CLASS, ``base`` is a
    file of this package with settings that fit it, and ``link`` and ``compile`` hold for models without these keys.
    """

    implementation = ""
    base = ""
    link = "identity"
    compile = "false"

    name: str = ""  # kind of model: a key of `MODELS`, or MODULE:CLASS of your own
    kernel: Kernel = "auto"  # how sparse products are computed: auto | tiled | dgl | csr | dense | triton | reference
    features: dict[str, str] = field(default_factory=dict)  # node type → table of fixed input features, or wild_type
    conditions: dict[str, list[str]] | None = None  # condition → categories, [] for numbers; null: all of the strains
    strength_curves: bool | None = None  # heads see how much of a gene is left; null: where strains have strengths
    strength_from: list[str] = field(default_factory=list)  # conditions to learn strengths from; NAME is also NAME_…
    strength_hidden: Rounds = 16  # width inside the network that learns it; 0: a number for each allele
    strength_prior: Prior = 0.2  # what is left of genes at first, where the table does not say it

    def validate(self) -> None:
        """Check values and their combinations.

        Raises:
            ConfigError: naming the key.
        """
        check_values(self, "model")
        if self.conditions is not None:
            self.conditions_of_strength()

    def conditions_of_strength(self) -> list[str]:
        """Return the conditions that `strength_from` names, each alone, or all that begin with a name and `_`.

        Raises:
            ConfigError: the model sees no such condition.
        """
        seen = list(self.conditions or ())
        found = {
            name: [one for one in seen if one == name or one.startswith(f"{name}_")] for name in self.strength_from
        }
        unseen = [name for name, matching in found.items() if not matching]
        if unseen:
            raise ConfigError(
                f"`model.strength_from` names a condition that strains do not have: '{unseen[0]}'",
                got=listing(self.strength_from),
                expected="among " + (listing(seen) or "none"),
                do="name columns of the table in `data.source.csv.conditions`",
            )
        return [one for one in seen if any(one in matching for matching in found.values())]

    def provides(self) -> frozenset[str]:
        """Return what predictions hold beside phenotypes: ``embedding``, and the names of auxiliary scalars."""
        return frozenset()

    def requires(self) -> dict[str, str]:
        """Return what the loss must read of ``provides``: name → what to set where it does not.

        Nothing else trains these parts.
        """
        return {}

    def without_messages(self) -> ModelConfig | None:
        """Return the same configuration with no round of messages; None where it passes none in rounds."""
        return None

    def about(self) -> str:
        """Describe the model in a few words, for the report."""
        return self.name

    def uses_metabolism(self) -> bool:
        """Return whether the model reads reactions and metabolites."""
        return False

    def needs_relations(self) -> bool:
        """Return whether the model needs at least one edge."""
        return True


@dataclass
class EncoderConfig(ModelConfig):
    """Configure message passing over the cell graph and a head on deleted genes.

    The encoder is ``dglcell.models.encoder.CellEncoder``.
    """

    hidden: Count = 64  # H, width of every state
    layers: Number = 3  # L, rounds of message passing
    conv: str = "gin"  # for every relation: gin | sage | gatv2, dgl.nn.NAME, or MODULE:CLASS of your own
    conv_options: dict[str, Any] | None = None  # keys of a conv of your own, arguments of one of DGL
    gin_layers: Number = 2  # Linear layers of a GIN's MLP; with 0 states are only summed
    gin_hidden: Count | None = None  # width inside a GIN's MLP; null: H
    conv_heads: int = 4  # heads of gatv2; must divide H
    cross_relation: CrossRelationName = "sum"  # combines relations: sum | mean | pairwise_interaction
    cross_relation_hidden: Count | None = None  # width inside the MLPs of pairwise_interaction; null: H / 2
    cross_relation_layers: Annotated[int, at_least(2)] = 2  # Linear layers of these MLPs, 2 or more
    cross_relation_norm: Norm = "none"  # layer | none, after pairwise_interaction
    residual: bool = True  # add the input of every layer to its output
    norm: Norm = "layer"  # layer | none, per node
    activation: Activation = "gelu"  # relu | gelu | identity
    dropout: Dropout = 0.0  # share of states that are set to 0 in a training step
    embedding_std: Positive = 0.02  # standard deviation of the initial embeddings
    preprocessor_layers: Number = 2  # Linear layers between the embeddings and the first round
    relations: list[str] | None = None  # names of the relations to use; null: all of the cell graph
    metabolism: bool = True  # use the relations with reactions and metabolites
    local_kind: LocalKind = "hyper_sagnn"  # how deleted genes are scored: hyper_sagnn | factorisation | both
    local_layers: Count = 2  # hyper_sagnn: rounds of attention
    local_heads: Count = 8  # hyper_sagnn: must divide H
    local_gain: float = 1.0  # hyper_sagnn: initial share of the attention; with 0.01 interactions are learnt slowly
    local_factors: Factors | None = 64  # factorisation: width of a gene's vector; null: its state is the vector
    local_deviations: bool = False  # factorisation: add a free effect and vector per gene to those from the states
    link: LinkName = "identity"  # score to phenotype: identity | log | logistic | saturation | minimum | bounded | auto
    recompute: Switch = "auto"  # auto | true | false: compute layers twice to save memory; auto: if it saves gigabytes

    def __post_init__(self) -> None:
        self.recompute = str(self.recompute).lower()  # YAML's true is "True" here

    def validate(self) -> None:
        super().validate()
        self._validate_conv()
        if self.conv == "gatv2":
            check_heads(self.hidden, self.conv_heads)
        how = self.cross_relation
        if self.cross_relation_norm != "none" and how != PAIRWISE:
            raise ConfigError(
                f"`model.cross_relation_norm` has no effect where relations are combined by their {how}",
                got=self.cross_relation_norm,
                do=f"set `model.cross_relation_norm: none`, or `model.cross_relation: {PAIRWISE}`",
            )

    def strategy_of_edges(self) -> str | None:
        """Return what `strategy: auto` is where layers ask for the strains' single edges; None where they do not.

        They do for attention, for a module that is written for DGL, and where strains change edges.
        """
        if self.calls_module():
            return "edge_subgraph"
        return "edge_mask" if self.conv == "gatv2" or EDGES in (self.conditions or {}) else None

    def calls_module(self) -> bool:
        """Return whether `model.conv` is a module that is written for DGL."""
        return self.conv not in CONVS and hasattr(self._conv_class(), "kind")

    def _validate_conv(self) -> None:
        if self.conv not in CONVS:
            self.convolution()[1].validate()
        elif self.conv_options is not None:
            raise ConfigError(
                f"`model.conv_options` is for a {FORM}", got=f"`model.conv: {self.conv}`", do="remove the key"
            )

    def convolution(self) -> tuple[type[Convolution], ConvOptions]:
        """Return the class of convolutions, and the options that they are made with.

        Raises:
            ConfigError: the class or a key is wrong.
        """
        kind = self._conv_class()
        if self.conv in CONVS:
            return kind, CONVS[self.conv].of(self)
        return kind, read_options(kind.Config, self.conv_options or {}, "model.conv_options")

    def _conv_class(self) -> type[Convolution]:
        kind: type[Convolution] | None = class_of("conv", OF_DGL.sub(r"\1:\2", self.conv), CONVS)
        if kind is None:
            known = (*CONVS, *installed_names("conv"))
            expected, do = f"{', '.join(known)}, dgl.nn.NAME, or {FORM}", did_you_mean(self.conv, known)
            raise ConfigError("`model.conv` is unknown", got=self.conv, expected=expected, do=do)
        return kind

    def without_messages(self) -> EncoderConfig | None:
        return replace(self, layers=0) if self.layers else None

    def provides(self) -> frozenset[str]:
        return frozenset({"embedding"})

    def uses_metabolism(self) -> bool:
        return self.metabolism

    def needs_relations(self) -> bool:
        return self.layers > 0

    def combination_of_relations(self) -> CrossRelation:
        """Return the keys that say how relations are combined."""
        return CrossRelation(
            self.cross_relation,
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
        if self.local_deviations and self.local_kind == "hyper_sagnn":
            raise ConfigError(
                "`model.local_deviations` needs factorisation",
                got=f"`model.local_kind: {self.local_kind}`",
                expected="factorisation or both",
            )


@dataclass(frozen=True)
class ShippedConv:
    """Describe a convolution of this package.

    Attributes:
        implementation: the convolution, as MODULE:CLASS.
        of: makes its options from the keys of a model.
    """

    implementation: str
    of: Callable[[EncoderConfig], ConvOptions]


CONVS = {
    "gin": ShippedConv(
        "dglcell.nn.convolutions:GINConv",
        lambda model: GINOptions(model.gin_hidden or model.hidden, model.gin_layers, model.activation, model.dropout),
    ),
    "sage": ShippedConv("dglcell.nn.convolutions:SAGEConv", lambda model: ConvOptions()),
    "gatv2": ShippedConv("dglcell.nn.convolutions:GATv2Conv", lambda model: GATv2Options(model.conv_heads)),
}
"""These are the values of `model.conv`."""


@dataclass
class HeteroCellConfig(EncoderConfig):
    """Configure the heterograph model (``dglcell.models.hetero_cell.HeteroCell``)."""

    implementation, base = "dglcell.models.hetero_cell:HeteroCell", "bases/growth.yaml"

    name: str = "hetero_cell"
    pool: Pool = field(default_factory=lambda: [GENE])  # node types that are pooled
    local_head: bool = True  # score the deleted genes by their wild-type states
    combination: CombinationOrNone = "sum"  # how global and local prediction are combined: sum | mean | none
    strategy: Strategy = "auto"  # for strains' graphs: auto | difference | node_mask | edge_mask | edge_subgraph
    compile: Switch = "auto"  # auto | true | false: torch.compile for layers; auto: in long runs on a GPU

    def __post_init__(self) -> None:
        super().__post_init__()
        self.compile = str(self.compile).lower()

    def validate(self) -> None:
        super().validate()
        if self.strategy_of_edges() and self.strategy not in ("auto", *DGL_STRATEGIES):
            by_conv = self.conv == "gatv2" or self.calls_module()
            raise no_edges(f"`model.conv: {self.conv}`" if by_conv else "the condition `edges`", self.strategy)
        if not self.metabolism and self.pool != [GENE]:
            raise ConfigError(
                "`model.pool` needs metabolism",
                got=self.pool,
                do="set `model.metabolism: true` or `model.pool: [gene]`",
            )
        self._validate_local_head()

    def about(self) -> str:
        return f"{self.name}, {self.strategy}"

    def _validate_local_head(self) -> None:
        if self.local_head:
            self.check_local_head()
        if self.local_head and self.combination == "none":
            raise ConfigError(
                "`model.combination: none` would leave the local head without use",
                do="set `model.local_head: false`, or combine by `sum` or `mean`",
            )


OPERATORS = ("local", "both")
OPERATOR_HEADS = 4
"""The cross attention of genes to deleted ones has so many heads."""

Operator = Annotated[str, one_of(*OPERATORS)]


@dataclass
class SetOperatorConfig(EncoderConfig):
    """Configure the model of a wild type encoded once on which deleted genes act.

    The model is ``dglcell.models.set_operator.SetOperator``.
    """

    implementation, base = "dglcell.models.set_operator:SetOperator", "bases/pairs.yaml"

    name: str = "set_operator"
    operator: Operator = "local"  # how deleted genes act: local (on each other) | both (also on all genes)
    combination: CombinationName = "sum"  # with operator: both, how the two are combined: sum | mean

    def validate(self) -> None:
        super().validate()
        self.check_local_head()
        if self.operator != "local" and self.hidden % OPERATOR_HEADS:
            raise ConfigError(
                "`model.hidden` is not shared evenly by the heads of the cross attention",
                got=self.hidden,
                expected=f"a multiple of {OPERATOR_HEADS}",
            )

    def provides(self) -> frozenset[str]:
        return frozenset() if self.operator == "local" else super().provides()

    def about(self) -> str:
        return f"{self.name}, {self.operator}"


ZeroWeights = Annotated[
    dict[str, float], must(lambda weights: min(weights.values(), default=0) >= 0, "must not be negative", "0 or more")
]


@dataclass
class DangoConfig(ModelConfig):
    """Configure DANGO (``dglcell.models.dango.Dango``).

    Defaults are those of experiment 006 of the torchcell project.
    """

    implementation = "dglcell.models.dango:Dango"

    name: str = "dango"
    hidden: Count = 64  # H, width of every state
    activation: Activation = "relu"  # relu | gelu | identity
    embedding_std: Positive = 0.1  # standard deviation of the genes' initial embeddings
    relations: list[str] | None = None  # names of the networks; null: all gene–gene relations of the cell graph
    reconstruction: bool = True  # also predict every network's adjacency, for `loss.name: dango`
    zero_weights: ZeroWeights = field(default_factory=dict)  # network → weight of pairs that are not edges (λ)
    heads: Count = 4  # heads of the attention among the deleted genes
    gain: float = 0.01  # initial share of this attention
    dropout: Dropout = 0.0  # dropout inside the scorer

    def validate(self) -> None:
        super().validate()
        if self.hidden % self.heads:
            raise ConfigError(
                "`model.heads` does not divide `model.hidden`", got=self.heads, expected=f"a divisor of {self.hidden}"
            )
        if set(self.features) - {GENE}:
            raise ConfigError(
                "`model.features`: DANGO has states of genes only", got=", ".join(self.features), expected=GENE
            )

    def provides(self) -> frozenset[str]:
        return frozenset({"reconstruction"} if self.reconstruction else ())

    def requires(self) -> dict[str, str]:
        return {"reconstruction": "`loss.name: dango`, or `model.reconstruction: false`"} if self.reconstruction else {}


MODELS: dict[str, type[ModelConfig]] = {kind.name: kind for kind in (HeteroCellConfig, SetOperatorConfig, DangoConfig)}
"""This maps `model.name` to the configuration class of the section."""
