"""Define the keys of the terms of this package, which the models have that use them; reading it needs no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from dglcell.checks import Count, at_least, check_values, must, one_of
from dglcell.errors import ConfigError, listing
from dglcell.graph.schema import GENE, NODE_TYPES
from dglcell.nn.config import AUTO_LINK, LINKS, check_heads

TERMS = {
    name: f"dglcell.models.terms.{place}"
    for name, place in {
        "graph": "scores:Graph",
        "operator": "scores:Operator",
        "genes": "scores:Genes",
        "activities": "covariates:Activities",
        "covariates": "covariates:Covariates",
        "link": "link:Link",
    }.items()
}
"""This maps the names that `model.terms` may list to MODULE:CLASS."""

Factors = Annotated[int, at_least(1, also=", or null")]
LinkName = Annotated[str, one_of(*LINKS, AUTO_LINK)]
LocalKind = Annotated[str, one_of("hyper_sagnn", "factorisation", "both")]
Prior = Annotated[float, must(lambda share: 0 < share < 1, "is no share", "more than 0, and less than 1")]
Rounds = Annotated[int, at_least(0, "is negative")]
Pool = Annotated[
    list[str], must(lambda pool: pool and set(pool) <= {*NODE_TYPES}, "names no node types", ", ".join(NODE_TYPES))
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


OPERATORS = ("local", "both")
OPERATOR_HEADS = 4
"""Heads of the cross attention of genes to deleted ones."""

OperatorName = Annotated[str, one_of(*OPERATORS)]


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
            expected, do = (
                f"among {listing(seen) or 'none'}",
                "name columns of the table in `data.source.csv.covariates`",
            )
            raise ConfigError(what, got=listing(self.activity_from), expected=expected, do=do)
        return [one for one in seen if any(one in matching for matching in found.values())]


@dataclass
class LinkConfig(TermConfig):
    """Hold the keys of ``Link``."""

    link: LinkName = "identity"  # score to phenotype: identity | log | logistic | saturation | minimum | bounded | auto
