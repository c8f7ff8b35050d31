"""Define what an experiment says about its cell graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from dglcell.checks import Count, check_values, must, one_of
from dglcell.errors import ConfigError
from dglcell.graph.catalogue import NamedTable, NetworkConfig, named_table
from dglcell.graph.gene_space import SimilarityConfig
from dglcell.graph.media import MediaChanges
from dglcell.graph.metabolism import CURRENCY_DEGREE, DERIVED
from dglcell.graph.schema import check_relation_name
from dglcell.graph.vocabulary import UNKNOWN_POLICIES

UNION, MODEL = "union", "model"


Unknown = Annotated[str, one_of(*UNKNOWN_POLICIES)]
Derived = Annotated[list[str], must(lambda of: {*of} <= {*DERIVED}, "names no relation", ", ".join(DERIVED))]


@dataclass
class CellConfig:
    """Configure what the cell graph is made of. `dglcell data list` shows what the catalogue offers."""

    model: str | None = None  # metabolic model: a name of the catalogue or of cobra, or a file that cobra reads
    metabolism: bool = True  # include the model's reaction and metabolite nodes and their relations
    networks: dict[str, NetworkConfig] = field(default_factory=dict)  # network name → edge table
    lose_blocked: bool = False  # strains also lose reactions that carry no flux at steady state once others are lost
    derived: Derived = field(default_factory=list)  # relations that are computed from the model alone
    similarity: SimilarityConfig | None = None  # weighted edges between genes with similar neighbours, sets or vectors
    currency_degree: Count = CURRENCY_DEGREE  # a metabolite of more reactions makes no metabolic neighbours
    currency: list[str] = field(default_factory=list)  # if not empty: only these metabolites make no such neighbours
    media: MediaChanges = field(default_factory=dict)  # medium → exchange reaction → largest uptake, in mmol/gDW/h
    genes: str = UNION  # union (model, networks) | model | a gene set of the catalogue | path of a list, .gff or .tab
    more_genes: str | None = None  # genes beside these: path of a list, or TABLE:COLUMN of a text table
    unknown: Unknown = "refuse"  # names that are not among the genes, unless a network has its own key: refuse | drop
    aliases: str | None = None  # other names of genes in networks: gene set of the catalogue, or path of a table, .gff
    symmetrise: bool = True  # store both directions of each pair of an undirected network
    self_loops: bool = False  # networks add a self-loop to every gene without one

    def validate(self, key: str = "cell") -> None:
        """Check the keys at ``key`` against each other."""
        check_values(self, key)
        if not self.model and not self.networks:
            raise ConfigError(f"`{key}` is empty", expected=f"`{key}.model`, `{key}.networks`, or both")
        if self.genes == MODEL and not self.model:
            raise ConfigError(f"`{key}.genes: model` needs `{key}.model`", do="name a model or a gene list")
        for name, of in (("lose_blocked", "reactions"), ("media", "exchange reactions")):
            if getattr(self, name) and not (self.model and self.metabolism):
                got = f"`{key}.model: {self.model or 'null'}`, `{key}.metabolism: {str(self.metabolism).lower()}`"
                do = f"name a model and set `{key}.metabolism: true`, or leave `{key}.{name}` out"
                raise ConfigError(f"`{key}.{name}` needs the {of} of a metabolic model", got=got, do=do)
        if self.derived and not self.model:
            do = f"name a metabolic model in `{key}.model`, or leave `{key}.derived` out"
            raise ConfigError(f"`{key}.derived` needs `{key}.model`", got=list(self.derived), do=do)
        if self.similarity is not None:
            self.similarity.validate(f"{key}.similarity")
        if not self.networks and not self.derived and not self.metabolism:
            got, do = "metabolism: false, no networks, nothing derived", "or list networks or derived relations"
            raise ConfigError(f"`{key}` gives no relations", got=got, do=f"set `{key}.metabolism: true`, {do}")
        for name, table in self.tables(key).items():
            where = f"{key}.networks.{name}"
            table.config.validate(where)
            if table.source and table.source.standard_names and not self.aliases:
                what = f"`{where}.source: {table.config.source}` calls genes by their standard names"
                expected = f"`{key}.aliases`, which leads from these to systematic names"
                raise ConfigError(what, expected=expected, do=f"e.g. `{key}.aliases: sgd_r64_4_1`")
            if not table.config.channels and not table.config.relation_column:
                check_relation_name(name, where=where)

    def tables(self, key: str = "cell") -> dict[str, NamedTable]:
        """Return network name → its table, with what the catalogue says of it."""
        return {name: named_table(network, f"{key}.networks.{name}") for name, network in self.networks.items()}
