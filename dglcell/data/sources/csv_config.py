"""Configuration of tables of strains in text files."""

from __future__ import annotations

from dataclasses import dataclass, field

from dglcell.data.sources.replicates_config import ConflictConfig
from dglcell.errors import ConfigError, listing

MISSING_POLICIES = ("refuse", "drop")
REPLICATE_POLICIES = ("mean", "refuse")
SEPARATORS = ("auto", ",", "\t", ";")


@dataclass
class CsvConfig:
    """A table of strains, one per row, with a header; plain or gzipped.

    Attributes:
        path: the file; relative paths are looked up in the raw folder too.
        genes: the columns of deleted genes, query genes first, array gene last; an empty cell deletes
            nothing. A single column may hold several genes, separated by ``;``.
        phenotypes: phenotype name → column.
        p_values: phenotype name → column.
        sds: phenotype name → column of standard deviations over replicates.
        units: phenotype name → unit.
        separator: a comma, tab or semicolon; ``auto`` takes the one that the header holds most often.
        aliases: table with columns Strain, Orf, Common, Allele (or ``systematic`` and others) that maps
            other names to systematic ones.
        where: column → value; other rows are left out.
        ignore_genes: genes that do not count as deleted, such as a marker locus.
        missing: what to do with rows without any phenotype: ``refuse`` or ``drop``.
        replicates: what to do with rows of the same genes: ``mean`` (with their standard deviation), or
            ``refuse``.
        conflicts: what to do with rows of the same genes that contradict each other.
        na_values: cells that mean "not measured".
    """

    path: str = ""
    genes: list[str] = field(default_factory=list)
    phenotypes: dict[str, str] = field(default_factory=dict)
    p_values: dict[str, str] = field(default_factory=dict)
    sds: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    separator: str = "auto"
    aliases: str | None = None
    where: dict[str, str] = field(default_factory=dict)
    ignore_genes: list[str] = field(default_factory=list)
    missing: str = "refuse"
    replicates: str = "mean"
    conflicts: ConflictConfig = field(default_factory=ConflictConfig)
    na_values: list[str] = field(default_factory=lambda: ["", "NA", "NaN", "nan"])

    def validate(self, where: str = "data.source.csv") -> None:
        """Check the keys against each other.

        Args:
            where: this section is, for the message.

        Raises:
            ConfigError: a key is missing or wrong.
        """
        for key, value, example in (
            ("path", self.path, "strains.csv"),
            ("genes", self.genes, "[gene_1, gene_2]"),
            ("phenotypes", self.phenotypes, "{fitness: fitness}"),
        ):
            if not value:
                raise ConfigError(f"the CSV source needs `{where}.{key}`", do=f"set e.g. `{where}.{key}: {example}`")
        self.conflicts.validate(f"{where}.conflicts")
        if len(set(self.genes)) < len(self.genes):
            raise ConfigError(f"`{where}.genes` names a column twice", got=listing(self.genes))
        for key, columns in (("p_values", self.p_values), ("sds", self.sds), ("units", self.units)):
            stray = sorted(set(columns) - set(self.phenotypes))
            if stray:
                raise ConfigError(
                    f"`{where}.{key}` names phenotypes that `phenotypes` beside it does not",
                    got=listing(stray),
                    expected=listing(self.phenotypes),
                )
        for key, policy, policies in (
            ("missing", self.missing, MISSING_POLICIES),
            ("replicates", self.replicates, REPLICATE_POLICIES),
            ("separator", self.separator, SEPARATORS),
        ):
            if policy not in policies:
                raise ConfigError(
                    f"`{where}.{key}` has an unknown value",
                    got=repr(policy),
                    expected=" or ".join(map(repr, policies)),
                )
