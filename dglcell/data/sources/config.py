"""What an experiment says about where its strains come from."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from dglcell.checks import LARGEST_INTEGER, check_choice, check_seed, check_workers
from dglcell.errors import ConfigError, listing

# Configuration of what happens to rows that do not agree.


CONFLICT_POLICIES = ("mean", "drop", "refuse")


@dataclass
class ConflictConfig:
    """Rows of the same genes that contradict each other, in phenotypes with p-values. They are always counted.

    Two rows contradict each other if both are significant and of opposite sign, or if they differ by more than
    ``difference``. The default is the distance between the cut-offs −0.08 and 0.08, at which Costanzo et al. (2016)
    call an interaction negative or positive.

    Attributes:
        policy: ``mean`` averages them like any other rows, ``drop`` leaves the strain out, ``refuse`` stops.
        p: rows with a smaller p-value are significant.
        difference: largest difference that is not a contradiction; null: any.
    """

    policy: str = "mean"
    p: float = 0.05
    difference: float | None = 0.16

    def validate(self, key: str) -> None:
        """Check the values.

        Args:
            key: where this section is, for the message.

        Raises:
            ConfigError: a value is out of range.
        """
        check_choice(f"{key}.policy", self.policy, CONFLICT_POLICIES)
        if not 0 < self.p <= 1:
            raise ConfigError(f"`{key}.p` is no p-value", got=self.p, expected="above 0, at most 1")
        if self.difference is not None and self.difference <= 0:
            raise ConfigError(f"`{key}.difference` must be positive", got=self.difference, do="use null for any")


# Configuration of tables of strains in text files.


MISSING_POLICIES = ("refuse", "drop")
REPLICATE_POLICIES = ("mean", "refuse")
SEPARATORS = ("auto", ",", "\t", ";")
DECIMALS = (".", ",")


@dataclass
class CsvConfig:
    """A table of strains, one per row, with a header; plain or gzipped.

    Attributes:
        path: the file; a relative path is also searched in the raw folder.
        genes: the columns of deleted genes, with query genes first and the array gene last; an empty cell deletes
            nothing. A single column may contain several genes, separated by ``;``.
        phenotypes: phenotype name → column.
        p_values: phenotype name → column.
        sds: phenotype name → column of standard deviations over replicates.
        units: phenotype name → unit.
        separator: a comma, tab or semicolon; ``auto``: the most frequent one in the header.
        aliases: what maps other names to systematic ones: a gene set of the catalogue such as ``sgd_names``, a
            metabolic model whose genes have names, or a table with columns Strain, Orf, Common, Allele (or
            ``systematic`` and others). Case and blanks in names do not count where there is only one such gene.
        where: column → value; rows with other values are left out.
        ignore_genes: genes that do not count as deleted, such as a marker locus.
        missing: what to do with rows without any phenotype: ``refuse`` or ``drop``.
        replicates: what to do with rows of the same genes: ``mean`` (with their standard deviation), or
            ``refuse``.
        conflicts: what to do with rows of the same genes that contradict each other.
        na_values: cells that mean "not measured"; empty cells, NA, N/A and NaN always do.
        decimal: a point or a comma, the mark in numbers such as 0,85.
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
    decimal: str = "."

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
        check_choice(f"{where}.missing", self.missing, MISSING_POLICIES)
        check_choice(f"{where}.decimal", self.decimal, DECIMALS)
        check_choice(f"{where}.replicates", self.replicates, REPLICATE_POLICIES)
        if self.separator not in SEPARATORS:
            raise ConfigError(
                f"`{where}.separator` is unknown", got=repr(self.separator), expected=", ".join(map(repr, SEPARATORS))
            )


# Configuration of the in-silico screen; apart from it, so that reading a configuration needs no cobra.


DESIGNS = ("subsets", "query")
LONGEST_SOLVE = 1_000_000
"""Seconds; GLPK counts milliseconds in 32 bits."""


@dataclass
class InSilicoConfig:
    """An in-silico screen.

    Attributes:
        model: a model that cobra includes (``textbook``, ``iJO1366``) or a model file.
        design: ``subsets``: all or sampled gene sets. ``query``: query pairs crossed with an array, as in the
            trigenic laboratory screens.
        singles: include the single deletion of every gene.
        pairs: ``all``, ``none`` or a number to sample. In the query design ``all`` includes the digenic controls.
        triples: ``all``, ``none`` or a number to sample. The query design includes all its crosses.
        query_pairs: number of viable query pairs of the query design.
        array_size: number of array genes of the query design; null: all genes.
        seed: seed of every random choice.
        tolerance: tolerance of the solver; yeast-GEM needs 1e-9.
        time_limit: seconds for one linear program; a strain that needs longer has no fitness.
        processes: number of processes; 0: one for each CPU. The result does not depend on it.
    """

    model: str = "textbook"
    design: str = "subsets"
    singles: bool = True
    pairs: str = "all"
    triples: str = "all"
    query_pairs: int | None = None
    array_size: int | None = None
    seed: int = 0
    tolerance: float = 1e-9
    time_limit: float = 60.0
    processes: int = 0

    def validate(self) -> None:
        """Check the keys against each other.

        Raises:
            ConfigError: a key is wrong.
        """
        check_choice("data.source.insilico.design", self.design, DESIGNS)
        for key, amount in (("pairs", self.pairs), ("triples", self.triples)):
            if amount not in ("all", "none") and not _is_amount(amount):
                raise ConfigError(
                    f"`data.source.insilico.{key}` is not an amount",
                    got=amount,
                    expected=f"all, none or a positive number, at most {LARGEST_INTEGER}",
                )
        check_seed(self.seed, "data.source.insilico.seed")
        check_workers(self.processes, "data.source.insilico.processes")
        for key, value, limit in (("tolerance", self.tolerance, 1), ("time_limit", self.time_limit, LONGEST_SOLVE)):
            if not value > 0:
                raise ConfigError(f"`data.source.insilico.{key}` must be positive", got=value)
            if value >= limit:
                raise ConfigError(
                    f"`data.source.insilico.{key}` is too large", got=value, expected=f"less than {limit}"
                )
        if self.processes < 0:
            raise ConfigError("`data.source.insilico.processes` is negative", got=self.processes, expected="0 or more")
        if self.design == "query":
            self._validate_query()
        else:
            self._validate_subsets()

    def _validate_query(self) -> None:
        if self.query_pairs is None or self.query_pairs < 1:
            raise ConfigError(
                "the query design needs `data.source.insilico.query_pairs`",
                got=self.query_pairs,
                expected="a positive number",
            )
        if self.array_size is not None and self.array_size < 1:
            raise ConfigError("`data.source.insilico.array_size` is not positive", got=self.array_size)
        if self.pairs not in ("all", "none") or self.triples != "all":
            raise ConfigError(
                "the query design lists all its crosses",
                got=f"pairs: {self.pairs}, triples: {self.triples}",
                expected="triples: all, and pairs: all (with digenic controls) or none",
            )

    def _validate_subsets(self) -> None:
        for key, value in (("query_pairs", self.query_pairs), ("array_size", self.array_size)):
            if value is not None:
                raise ConfigError(
                    f"`data.source.insilico.{key}` belongs to the query design",
                    got=value,
                    do="set `data.source.insilico.design: query`, or leave the key out",
                )
        if not self.singles and self.pairs == self.triples == "none":
            raise ConfigError(
                "the in-silico screen has no strains",
                expected="singles, pairs or triples",
                do="set `data.source.insilico.singles: true` or give `pairs` or `triples`",
            )


def _is_amount(text: str) -> bool:
    return text.isdecimal() and len(text) < 12 and 0 < int(text) <= LARGEST_INTEGER


# Configuration of the published laboratory screens.


DIGENIC, TRIGENIC = "digenic", "trigenic"
TEMPERATURES = (26, 30)
ARRAY_TYPES = ("DMA26", "DMA30", "TSA26", "TSA30")
ALL, ANY = "all", "any"
EVERY_SCREEN = ("missing", "replicates", "conflicts", "keep_marker_locus", "p_below", "genes", "genes_required")
"""Keys that apply whatever the file looks like."""


@dataclass
class LaboratoryConfig:
    """Which rows of a laboratory screen are used, and how they become strains.

    A key is refused if the file of the screen has no data for it.

    Attributes:
        tables: tables of the publication to read, e.g. ``[S1, S3]`` or ``[NxN]``; empty: all.
        where: column of the file → value; rows with other values are left out.
        kind: only ``digenic`` or ``trigenic`` rows; null: both.
        temperature: only rows measured at 26 or 30 °C; null: both.
        array_types: arrays to use, from ``DMA26``, ``DMA30``, ``TSA26``, ``TSA30``; empty: all.
        deletions_only: leave out rows with an allele that is not a deletion (temperature-sensitive, DAmP, suppressor).
            A deletion strain that carries a mapped suppressor counts as a deletion.
        p_below: only rows with a p-value below this; null: all.
        genes: path of a list of genes, one per line; a relative path is also searched in the raw folder.
        genes_required: rows are kept if ``all`` or ``any`` of their genes are in ``genes``.
        aliases: table with columns Strain, Orf, Common, Allele that maps strain names to systematic names; null:
            the systematic name is the part before the underscore.
        missing: what to do with rows without a phenotype: ``refuse`` or ``drop``.
        replicates: what to do with rows of the same genes: ``mean`` or ``refuse``.
        conflicts: what to do with rows of the same genes that contradict each other.
        keep_marker_locus: count HO, the marker locus of single-mutant controls, as a deleted gene.
    """

    tables: list[str] = field(default_factory=list)
    where: dict[str, str] = field(default_factory=dict)
    kind: str | None = None
    temperature: int | None = None
    array_types: list[str] = field(default_factory=list)
    deletions_only: bool = False
    p_below: float | None = None
    genes: str | None = None
    genes_required: str = ALL
    aliases: str | None = None
    missing: str = "refuse"
    replicates: str = "mean"
    conflicts: ConflictConfig = field(default_factory=ConflictConfig)
    keep_marker_locus: bool = False

    def validate(self, key: str = "data.source.laboratory") -> None:
        """Check the values.

        Args:
            key: where this section is, for the message.

        Raises:
            ConfigError: a value is unknown or out of range.
        """
        for name, allowed in (
            ("kind", (None, DIGENIC, TRIGENIC)),
            ("temperature", (None, *TEMPERATURES)),
            ("genes_required", (ALL, ANY)),
            ("missing", MISSING_POLICIES),
            ("replicates", REPLICATE_POLICIES),
        ):
            check_choice(f"{key}.{name}", getattr(self, name), allowed)
        stray = [array for array in self.array_types if array not in ARRAY_TYPES]
        if stray:
            raise ConfigError(
                f"`{key}.array_types` names unknown arrays",
                got=listing(stray),
                expected=f"among {listing(ARRAY_TYPES)}",
            )
        if self.p_below is not None and not 0 < self.p_below <= 1:
            raise ConfigError(f"`{key}.p_below` is no p-value", got=self.p_below, expected="above 0, at most 1")
        self.conflicts.validate(f"{key}.conflicts")

    def check_applies(self, screen: str, options: tuple[str, ...], key: str = "data.source.laboratory") -> None:
        """Refuse keys that were set and mean nothing for a screen.

        Args:
            screen: its name.
            options: the keys that apply to it, besides ``EVERY_SCREEN``.
            key: where this section is, for the message.

        Raises:
            ConfigError: a key was set that does not apply.
        """
        default = LaboratoryConfig()
        applicable = (*EVERY_SCREEN, *options)
        for option in fields(self):
            name = option.name
            if name not in applicable and getattr(self, name) != getattr(default, name):
                raise ConfigError(
                    f"`{key}.{name}` does not apply to '{screen}': its file does not say",
                    got=getattr(self, name),
                    do=f"remove the key; those that apply are {', '.join(applicable)}",
                )
