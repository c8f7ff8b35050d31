"""Define what an experiment says about its model; reading it needs no torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from dglcell.checks import Count, NotEmpty, Number, Positive, at_least, check_values, must, one_of, read_section
from dglcell.errors import ConfigError, listing
from dglcell.graph.schema import GENE, NODE_TYPES
from dglcell.kernels import KERNEL_NAMES
from dglcell.nn.config import (
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
from dglcell.plugins import FORM, class_of, find_class

if TYPE_CHECKING:
    from dglcell.nn.convolutions import Convolution

TERMS = {
    "graph": "dglcell.models.terms.scores:Graph",
    "operator": "dglcell.models.terms.scores:Operator",
    "genes": "dglcell.models.terms.scores:Genes",
    "activities": "dglcell.models.terms.covariates:Activities",
    "covariates": "dglcell.models.terms.covariates:Covariates",
    "link": "dglcell.models.terms.link:Link",
}
"""This maps the names that `model.terms` may list to MODULE:CLASS."""

OPERATORS = ("local", "both")
OPERATOR_HEADS = 4
"""Heads of the cross attention of genes to deleted ones."""

Factors = Annotated[int, at_least(1, also=", or null")]
LinkName = Annotated[str, one_of(*LINKS)]
LocalKind = Annotated[str, one_of("hyper_sagnn", "factorisation", "both")]
OperatorName = Annotated[str, one_of(*OPERATORS)]
Prior = Annotated[float, must(lambda share: 0 < share < 1, "is no share", "more than 0, and less than 1")]
Rounds = Annotated[int, at_least(0, "is negative")]
Pool = Annotated[
    list[str], must(lambda pool: pool and set(pool) <= {*NODE_TYPES}, "names no node types", ", ".join(NODE_TYPES))
]
Dropout = Annotated[float, must(lambda share: 0 <= share < 1, "is no probability", "0 or more, and less than 1")]
Kernel = Annotated[str, one_of("auto", *KERNEL_NAMES)]
Strategy = Annotated[str, one_of("auto", *STRATEGIES)]
Messages = Annotated[str, one_of("own", "wild_type")]
CombinationName = Annotated[str, one_of("sum", "mean")]
CombinationOrNone = Annotated[str, one_of("sum", "mean", "none")]
CrossRelationName = Annotated[str, one_of(*CROSS_RELATION)]
Switch = Annotated[str, one_of("auto", "true", "false")]
ZeroWeights = Annotated[
    dict[str, float], must(lambda weights: min(weights.values(), default=0) >= 0, "must not be negative", "0 or more")
]


@dataclass
class TermConfig:
    """Hold the keys of a term; a term of your own derives its ``Config`` from it."""

    name: str = ""  # a key of `MODELS` or of `TERMS`, or MODULE:CLASS of your own

    def validate(self, key: str = "model") -> None:
        """Check the values at ``key`` and their combinations; a ``ConfigError`` names the key."""
        check_values(self, key)


@dataclass
class GraphConfig(TermConfig):
    """Hold the keys of ``Graph``."""

    pool: Pool = field(default_factory=lambda: [GENE])  # node types that are pooled


@dataclass
class OperatorConfig(TermConfig):
    """Hold the keys of ``Operator``."""

    operator: OperatorName = "local"  # how deleted genes act: local (on each other) | both (also on all genes)


@dataclass
class GenesConfig(TermConfig):
    """Hold the keys of ``Genes``."""

    local_kind: LocalKind = "hyper_sagnn"  # how deleted genes are scored: hyper_sagnn | factorisation | both
    local_layers: Count = 2  # hyper_sagnn: rounds of attention
    local_heads: Count = 8  # hyper_sagnn: must divide H
    local_gain: float = 1.0  # hyper_sagnn: initial share of the attention; with 0.01 interactions are learnt slowly
    local_factors: Factors | None = 64  # factorisation: width of a gene's vector; null: its state is the vector
    local_deviations: bool = False  # factorisation: add a free effect and vector per gene to those from the states

    def check_local_head(self, hidden: int) -> None:
        """Refuse keys that do not fit each other, or the width of states."""
        if self.local_kind != "factorisation":
            check_heads(hidden, self.local_heads, key="model.local_heads")
        if self.local_deviations and self.local_kind == "hyper_sagnn":
            got = f"`model.local_kind: {self.local_kind}`"
            raise ConfigError("`model.local_deviations` needs factorisation", got=got, expected="factorisation or both")


@dataclass
class CovariatesConfig(TermConfig):
    """Hold the keys of ``Covariates`` and ``Activities``."""

    covariates: dict[str, list[str]] | None = None  # covariate → categories, [] for numbers; null: all of the strains
    linear_covariates: bool = False  # add a linear function of the covariates, fitted before the first step, to scores
    activity_curves: bool | None = None  # heads see how much of a gene is left; null: where strains have activities
    activity_from: list[str] = field(default_factory=list)  # covariates to learn activities from; NAME is also NAME_…
    activity_hidden: Rounds = 16  # width inside the network that learns it; 0: a number for each allele
    activity_prior: Prior = 0.2  # what is left of genes at first, where the table does not say it

    def validate(self, key: str = "model") -> None:
        super().validate(key)
        if self.covariates is not None:
            self.covariates_of_activity()

    def covariates_of_activity(self) -> list[str]:
        """Return the covariates that `activity_from` names, each alone, or all that begin with a name and `_`."""
        seen = list(self.covariates or ())
        found = {
            name: [one for one in seen if one == name or one.startswith(f"{name}_")] for name in self.activity_from
        }
        unseen = [name for name, matching in found.items() if not matching]
        if unseen:
            what = f"`model.activity_from` names a covariate that strains do not have: '{unseen[0]}'"
            expected, do = f"among {listing(seen) or 'none'}", "name columns in `data.source.csv.covariates`"
            raise ConfigError(what, got=listing(self.activity_from), expected=expected, do=do)
        return [one for one in seen if any(one in matching for matching in found.values())]


@dataclass
class LinkConfig(TermConfig):
    """Hold the keys of ``Link``."""

    link: LinkName = "identity"  # score to phenotype: identity | log | saturation | minimum | bounded


@dataclass
class ModelConfig(CovariatesConfig):
    """Configure a model; each kind adds its own keys.

    Attributes of the class without a type are no keys: ``implementation`` is the model as MODULE:CLASS, ``base`` is a
    file of this package with settings that fit it, and the others hold for models without these keys.
    """

    implementation = ""
    base = ""
    link = "identity"
    combination = "sum"
    compile = "false"
    messages = "own"
    metabolism = False

    kernel: Kernel = "auto"  # how sparse products are computed: auto | csr | tiled | triton
    features: dict[str, str] = field(default_factory=dict)  # node type → table of fixed input features, or wild_type

    def provides(self) -> frozenset[str]:
        """Return what predictions hold beside phenotypes: ``embedding``, and the names of auxiliary scalars."""
        return frozenset()

    def requires(self) -> dict[str, str]:
        """Return what the loss must read of ``provides``, because nothing else trains it: name → what to set."""
        return {}

    def without_messages(self) -> ModelConfig | None:
        """Return the same configuration with no round of messages; None where it passes none in rounds."""
        return None

    def about(self) -> str:
        """Describe the model in a few words, for the report."""
        return self.name

    def needs_relations(self) -> bool:
        """Return whether the model needs at least one edge."""
        return True


class PlannedTerm(NamedTuple):
    """Say which term a model has."""

    name: str  #: its name in the model: that of this package, or that of its class
    kind: Any  #: its class
    config: TermConfig  #: its keys: those of the model, or its own


@dataclass
class CellModelConfig(ModelConfig):
    """Configure a model that is a list of terms (``dglcell.models.cell_model.CellModel``)."""

    terms: NotEmpty[Any] | None = None  # names, or {name: …, key: …}, of this package or your own; null: the model's

    def validate(self, key: str = "model") -> None:
        super().validate(key)
        if self.linear_covariates and self.link != "identity":
            what = f"`{key}.linear_covariates` adds to phenotypes, which `{key}.link` makes of scores"
            do = f"set `{key}.linear_covariates: false`"
            raise ConfigError(what, got=f"`{key}.link: {self.link}`", expected="identity", do=do)
        if self.terms is not None:
            names = [term.name for term in self.planned_terms()]
            needed = [item for item in self.own_terms() if item in ("activities", "link") and item not in names]
            if needed:
                what, do = f"`model.terms` lacks `{needed[0]}`, whose keys are set", f"add `{needed[0]}` to the list"
                raise ConfigError(what, got=listing(names), do=do)

    def scoring(self) -> list[Any]:
        """Return the terms that score strains where `terms` is null."""
        return []

    def own_terms(self) -> list[Any]:
        """Return the terms that the model has where `terms` is null."""
        seen = bool(self.covariates or self.activity_curves or self.activity_from)
        used = {"covariates": seen, "activities": bool(self.activity_from), "link": self.link != "identity"}
        return [*self.scoring(), *(name for name, is_used in used.items() if is_used)]

    def planned_terms(self) -> list[PlannedTerm]:
        """Return the class and the keys of each term; a ``ConfigError`` where one is wrong.

        A term of this package has its keys from the section of the model. Keys beside its name come before these.
        """
        planned: list[PlannedTerm] = []
        for number, item in enumerate(self.own_terms() if self.terms is None else self.terms):
            where = f"model.terms[{number}]"
            options = dict(item) if isinstance(item, Mapping) else {"name": item}
            kind = options.pop("name", None)
            if not isinstance(kind, type):
                name = str(kind or "")
                kind = find_class("term", TERMS.get(name, name), TERMS, where=f"`{where}`")
            shares, place = isinstance(self, kind.Config), f"{kind.__module__}:{kind.__name__}"
            config: Any = self
            if options or not shares:
                known = {key.name: getattr(self, key.name) for key in fields(kind.Config)} if shares else {}
                config = read_section(kind.Config, known | options | {"name": place}, where)
                config.validate(where)
            name = next((name for name, of in TERMS.items() if of == place), kind.__name__)
            taken = sum(term.kind is kind for term in planned)
            planned.append(PlannedTerm(f"{name}_{taken + 1}" if taken else name, kind, config))
        return planned


@dataclass
class EncoderConfig(CellModelConfig):
    """Configure message passing over the cell graph (``dglcell.models.encoder.CellEncoder``)."""

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
    relations: NotEmpty[str] | None = None  # names of the relations to use; null: all of the cell graph
    metabolism: bool = True  # use the relations with reactions and metabolites
    recompute: Switch = "auto"  # auto | true | false: compute layers twice to save memory; auto: if it saves gigabytes

    def __post_init__(self) -> None:
        self.recompute = str(self.recompute).lower()  # YAML's true is "True" here

    def validate(self, key: str = "model") -> None:
        super().validate(key)
        if self.conv not in CONVS:
            self.convolution()[1].validate()
        elif self.conv_options is not None:
            got = f"`model.conv: {self.conv}`"
            raise ConfigError(f"`model.conv_options` is for a {FORM}", got=got, do="remove the key")
        if self.conv == "gatv2":
            check_heads(self.hidden, self.conv_heads)
        how = self.cross_relation
        if self.cross_relation_norm != "none" and how != PAIRWISE:
            what = f"`model.cross_relation_norm` has no effect where relations are combined by their {how}"
            do = f"set `model.cross_relation_norm: none`, or `model.cross_relation: {PAIRWISE}`"
            raise ConfigError(what, got=self.cross_relation_norm, do=do)

    def strategy_of_edges(self) -> str | None:
        """Return what `strategy: auto` is for attention and modules written for DGL; None for others."""
        if self.calls_module():
            return "edge_subgraph"
        return "edge_mask" if self.conv == "gatv2" else None

    def calls_module(self) -> bool:
        """Return whether `model.conv` is a module that is written for DGL."""
        return self.conv not in CONVS and hasattr(self._conv_class(), "kind")

    def convolution(self) -> tuple[type[Convolution], ConvOptions]:
        """Return the class of convolutions and the options that they are made with; a ``ConfigError`` names the key."""
        kind = self._conv_class()
        if self.conv in CONVS:
            return kind, CONVS[self.conv].of(self)
        return kind, read_section(kind.Config, self.conv_options or {}, "model.conv_options")

    def _conv_class(self) -> type[Convolution]:
        of_dgl = re.sub(r"^(dgl\.nn)\.(\w+)$", r"\1:\2", self.conv)  # a module of DGL is named as it is in Python
        kind: type[Convolution] = class_of("conv", of_dgl, CONVS, also=["dgl.nn.NAME"])
        return kind

    def without_messages(self) -> EncoderConfig | None:
        return replace(self, layers=0) if self.layers else None

    def provides(self) -> frozenset[str]:
        named = [item.get("name") if isinstance(item, Mapping) else item for item in self.terms or self.own_terms()]
        return frozenset({"embedding"} if {"graph", "operator"} & {*named} else ())

    def needs_relations(self) -> bool:
        return self.layers > 0

    def combination_of_relations(self) -> CrossRelation:
        """Return the keys that say how relations are combined."""
        sizes = self.cross_relation_hidden, self.cross_relation_layers
        return CrossRelation(self.cross_relation, *sizes, self.cross_relation_norm, self.activation, self.dropout)


class ShippedConv(NamedTuple):
    """Describe a convolution of this package."""

    implementation: str  #: the convolution, as MODULE:CLASS
    of: Callable[[EncoderConfig], ConvOptions]  #: makes its options from the keys of a model


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
class HeteroCellConfig(LinkConfig, GenesConfig, GraphConfig, EncoderConfig):
    """Configure the heterograph model (``dglcell.models.cell_model.HeteroCell``)."""

    implementation, base = "dglcell.models.cell_model:HeteroCell", "bases/growth.yaml"

    name: str = "hetero_cell"
    local_head: bool = True  # score the deleted genes by their wild-type states
    combination: CombinationOrNone = "sum"  # how global and local prediction are combined: sum | mean | none
    messages: Messages = "own"  # over own, each strain's graph; or wild_type, where only readouts know what is lost
    strategy: Strategy = "auto"  # for strains' graphs: auto | difference | node_mask | edge_mask | edge_subgraph
    compile: Switch = "auto"  # auto | true | false: torch.compile for layers; auto: in long runs on a GPU

    def __post_init__(self) -> None:
        super().__post_init__()
        self.compile = str(self.compile).lower()

    def validate(self, key: str = "model") -> None:
        super().validate(key)
        able = ("edge_subgraph",) if self.calls_module() else DGL_STRATEGIES
        if self.strategy_of_edges() and self.strategy not in ("auto", *able):
            raise no_edges(f"`model.conv: {self.conv}`", self.strategy, able)
        if not self.metabolism and self.pool != [GENE]:
            do = "set `model.metabolism: true` or `model.pool: [gene]`"
            raise ConfigError("`model.pool` needs metabolism", got=self.pool, do=do)
        if not self.local_head:
            return
        self.check_local_head(self.hidden)
        if self.combination == "none":
            do = "set `model.local_head: false`, or combine by `sum` or `mean`"
            raise ConfigError("`model.combination: none` would leave the local head without use", do=do)

    def scoring(self) -> list[Any]:
        return ["graph", "genes"] if self.local_head else ["graph"]

    def about(self) -> str:
        return f"{self.name}, {self.strategy}"


@dataclass
class SetOperatorConfig(LinkConfig, GenesConfig, OperatorConfig, EncoderConfig):
    """Configure the model of a wild type encoded once on which deleted genes act (``SetOperator``)."""

    implementation, base = "dglcell.models.cell_model:SetOperator", "bases/pairs.yaml"

    name: str = "set_operator"
    combination: CombinationName = "sum"  # with operator: both, how the two are combined: sum | mean

    def validate(self, key: str = "model") -> None:
        super().validate(key)
        self.check_local_head(self.hidden)
        if self.operator != "local" and self.hidden % OPERATOR_HEADS:
            what = "`model.hidden` is not shared evenly by the heads of the cross attention"
            raise ConfigError(what, got=self.hidden, expected=f"a multiple of {OPERATOR_HEADS}")

    def scoring(self) -> list[Any]:
        return ["genes"] if self.operator == "local" else ["genes", "operator"]

    def about(self) -> str:
        return f"{self.name}, {self.operator}"


@dataclass
class DangoConfig(CellModelConfig):
    """Configure DANGO (``dglcell.models.dango.Dango``), by default as experiment 006 of the torchcell project."""

    implementation = "dglcell.models.dango:Dango"

    name: str = "dango"
    hidden: Count = 64  # H, width of every state
    activation: Activation = "relu"  # relu | gelu | identity
    embedding_std: Positive = 0.1  # standard deviation of the genes' initial embeddings
    relations: NotEmpty[str] | None = None  # names of the networks; null: all gene–gene relations of the cell graph
    reconstruction: bool = True  # also predict every network's adjacency, for `loss.name: dango`
    zero_weights: ZeroWeights = field(default_factory=dict)  # network → weight of pairs that are not edges (λ)
    heads: Count = 4  # heads of the attention among the deleted genes
    gain: float = 0.01  # initial share of this attention
    dropout: Dropout = 0.0  # dropout inside the scorer

    def validate(self, key: str = "model") -> None:
        super().validate(key)
        check_heads(self.hidden, self.heads, key="model.heads")
        if self.features:
            do = "leave them out, or set `model.name: hetero_cell`"
            raise ConfigError("`model.features`: DANGO has embeddings only", got=", ".join(self.features), do=do)

    def scoring(self) -> list[Any]:
        return [{"name": "genes", "local_layers": 2, "local_heads": self.heads, "local_gain": self.gain}]

    def provides(self) -> frozenset[str]:
        return frozenset({"reconstruction"} if self.reconstruction else ())

    def requires(self) -> dict[str, str]:
        return {"reconstruction": "`loss.name: dango`, or `model.reconstruction: false`"} if self.reconstruction else {}


MODELS: dict[str, type[ModelConfig]] = {kind.name: kind for kind in (HeteroCellConfig, SetOperatorConfig, DangoConfig)}
"""This maps `model.name` to the configuration class of the section."""
