"""Define what an experiment says about a network, and the networks, gene sets and metabolic models that it can name.

The catalogue itself is ``catalogue.yaml``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from dglcell.checks import check_choice, must, one_of
from dglcell.errors import ConfigError
from dglcell.graph.tables import EdgeTable, read_genome_table, read_gff, read_sgd_features, read_table
from dglcell.graph.vocabulary import UNKNOWN_POLICIES, Vocabulary
from dglcell.published.file import FILES, Found, PublishedFile, read_declarations

PAIRS, GROUPS = "pairs", "groups"

Layout = Annotated[str | None, one_of(None, PAIRS, GROUPS)]
Unknown = Annotated[str, one_of(*UNKNOWN_POLICIES)]
Hash = Annotated[str, must(re.compile(r"[0-9a-fA-F]{64}").fullmatch, "is no hash", "64 digits and letters a to f")]


@dataclass
class NetworkConfig:
    """Configure one edge table. Its key is its name, and also the name of its relation if it has only one.

    With `source`, every key that is left at its default is filled in from the catalogue (`dglcell data list`).
    """

    source: str = ""  # a network of the catalogue, e.g. string12_0
    path: str = ""  # text table, plain or .gz: absolute, or relative to the working or the raw folder
    columns: list[str] = field(default_factory=list)  # source and target column: names, or positions from 0
    header: bool | None = None  # the first line names the columns; null: only if a column is given by name
    quotes: bool | None = None  # fields may be in double quotes; null: true
    layout: Layout = None  # pairs | groups (columns gene, group); null: pairs
    where: dict[str, str] = field(default_factory=dict)  # column → value; rows with other values are left out
    not_within: str = ""  # table with genes in its first two columns; pairs of two of them are left out
    weight: str | None = None  # column of scores that decide which rows are kept, by `min_weight`
    channels: list[str] = field(default_factory=list)  # score columns; each becomes a relation, `name_column`
    min_weight: float | None = None  # smallest weight of a row that is kept; null: all, and for channels those above 0
    directed: bool | None = None  # the first column acts on the second one; null: false
    strip_prefix: str = ""  # prefix to remove from every name, e.g. "4932." for STRING
    #: rows with names that are no genes of the cell: refuse | drop; null: as `cell.unknown`
    unknown: Unknown | None = None
    sha256: Hash | None = None  # expected hash of the file

    def validate(self, key: str) -> None:
        """Check the keys at ``key`` against each other, once those of `source` are filled in."""
        if not self.path:
            do = f"or name a network of the catalogue in `{key}.source`; `dglcell data list` shows them"
            raise ConfigError(f"`{key}.path` is not set", expected="the path of an edge table", do=do)
        if len(self.columns) != 2:
            expected = "names from the header, or positions such as ['0', '1']"
            raise ConfigError(f"`{key}.columns` must name two columns", got=list(self.columns), expected=expected)
        for name in ("weight", "channels"):
            if self.layout == GROUPS and (own := getattr(self, name)):
                raise ConfigError(f"`{key}.{name}` does not apply to `layout: {self.layout}`", got=own)
        if self.channels and self.weight:
            raise ConfigError(f"`{key}.channels` excludes `weight`", do="leave one of them out")
        if self.min_weight is not None and not (self.weight or self.channels):
            raise ConfigError(f"`{key}.min_weight` needs weights", expected="their columns, in `weight` or `channels`")
        if self.header is None and all(column.isdecimal() for column in self.requested_columns()):
            what = f"`{key}.header` must be set when all columns are given by position"
            raise ConfigError(what, expected="true if the first line names the columns, false if it holds data")

    def requested_columns(self) -> list[str]:
        """Return every column that will be read."""
        return [*self.columns, *self.channels, *filter(None, [self.weight]), *self.where]


@dataclass(frozen=True)
class NetworkSource:
    """Describe a network that an experiment can name, or one of an experiment, with the keys that its source adds."""

    file: PublishedFile  #: where the file is, and who made it
    table: NetworkConfig  #: what its columns mean
    standard_names: bool = False  #: whether genes bear standard names (``GCN4``), so that the cell needs aliases

    def read(self, raw: str | None) -> tuple[EdgeTable, dict[str, Any]]:
        """Return the rows, and which file they are from, who made it, and its hash; see `read_table` for errors."""
        of, found = self.table, self.file.find(raw)
        table = read_table(found.path, of.requested_columns(), of.header, quotes=of.quotes is not False)
        made = {"source": of.source, **NETWORKS[of.source].file.origin()} if of.source else {}
        return table.where(of.where), {**made, "path": of.path, **found.provenance()}


@dataclass(frozen=True)
class GeneSetSource:
    """Describe a gene vocabulary with its aliases that an experiment can name."""

    file: PublishedFile  #: where the file is, and who made it
    read: Callable[[Path], Vocabulary]  #: how its format is read
    #: form of the systematic names of the cells whose genes it names (`names_of_genes`); empty: names none
    names: str = ""
    models: Sequence[str] = ()  #: metabolic models whose genes have these names


_DECLARED = read_declarations("dglcell.graph", "catalogue.yaml")
NETWORKS = {
    name: NetworkSource(FILES[of.pop("file")], NetworkConfig(**of.pop("table")), **of)
    for name, of in _DECLARED["networks"].items()
}
GENE_SETS = {
    name: GeneSetSource(
        FILES[of.pop("file")],
        {"gff": read_gff, "sgd_features": read_sgd_features, "genome_table": read_genome_table}[of.pop("format")],
        **of,
    )
    for name, of in _DECLARED["gene_sets"].items()
}
MODELS = {name: FILES[file] for name, file in _DECLARED["models"].items()}  # the extension of the file tells the format


def provenance(name: str, found: Found) -> dict[str, Any]:
    """Return where a file that was found for an entry of the catalogue came from, as plain containers."""
    return {"source": name, "path": found.file.path, **found.file.origin(), **found.provenance()}


def named_table(config: NetworkConfig, key: str) -> NetworkSource:
    """Fill in every key of a network that is left at its default from its source.

    A weight column that the user gives replaces the source's channels, and channels replace its weight.
    With a path that the user gives, the source's hash is not expected.
    """
    sha256 = config.sha256.lower() if config.sha256 else None
    if not config.source:
        return NetworkSource(PublishedFile(config.path, sha256=sha256), config)
    check_choice(f"{key}.source", config.source, NETWORKS, "see `dglcell data list`")
    source, defaults = NETWORKS[config.source], vars(NetworkConfig())
    own = {name: value for name, value in vars(config).items() if value != defaults[name]}
    table, file = source.table, source.file
    if "weight" in own:
        table = replace(table, channels=[])
    if "channels" in own:
        table = replace(table, weight=None)
    if config.path:
        file = PublishedFile(config.path, sha256=sha256)
    elif sha256:
        file = replace(file, sha256=sha256, size=None, content=None)
    return replace(source, file=file, table=replace(table, **{**own, "path": file.path, "sha256": file.sha256}))


def read_names(
    name: str, otherwise: Callable[[Path], Vocabulary], raw: str | None = None
) -> tuple[Vocabulary, dict[str, Any], Path]:
    """Read genes, or their other names: a gene set, a file of a genome, or another file, as ``otherwise`` reads it.

    The second result says where they come from, as plain containers, and the third is the file.
    """
    if name in GENE_SETS:
        of, found = GENE_SETS[name], GENE_SETS[name].file.find(raw)
        return of.read(found.path), provenance(name, found), found.path
    found = PublishedFile(name).find(raw)
    of_genomes = {".gff": read_gff, ".gff3": read_gff, ".tab": read_sgd_features}
    reader = of_genomes.get(Path(found.path.name.removesuffix(".gz")).suffix, otherwise)
    return reader(found.path), {"path": name, **found.provenance()}, found.path


def names_of_model(model: str | None) -> str | None:
    """Return the gene set of the catalogue that names the genes of a model, if there is one."""
    return next((name for name, source in GENE_SETS.items() if model in source.models), None)


def names_of_genes(genes: Iterable[str]) -> str | None:
    """Return the gene set of the catalogue that names most of some genes, by the form of their systematic names."""
    listed = list(genes)
    for name, source in GENE_SETS.items():
        if source.names and 2 * sum(map(bool, map(re.compile(source.names).fullmatch, listed))) > len(listed):
            return name
    return None


def add_names(genes: Vocabulary, given: Iterable[Vocabulary], raw: str | None) -> tuple[Vocabulary, dict[str, Any]]:
    """Add other names to genes, the most reliable ones given first, and return the provenance of the catalogue's part.

    The file of the catalogue is used where it is in the raw folder; a cell graph can be built without it.
    """
    others, origin = functools.reduce(Vocabulary.joined, given, Vocabulary()), dict[str, Any]()
    name = names_of_genes(genes)
    if name is not None and GENE_SETS[name].file.is_here(raw):
        found, origin, _ = read_names(name, read_genome_table, raw)
        others = found.joined(others)
    return genes.named_by(others), origin
