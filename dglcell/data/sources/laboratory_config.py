"""Configuration of the published laboratory screens."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from dglcell.data.sources.csv_config import MISSING_POLICIES, REPLICATE_POLICIES
from dglcell.data.sources.replicates_config import ConflictConfig
from dglcell.errors import ConfigError, listing

DIGENIC, TRIGENIC = "digenic", "trigenic"
TEMPERATURES = (26, 30)
ARRAY_TYPES = ("DMA26", "DMA30", "TSA26", "TSA30")
ALL, ANY = "all", "any"
EVERY_SCREEN = ("missing", "replicates", "conflicts", "keep_marker_locus", "p_below", "genes", "genes_required")
"""Keys that apply whatever the file looks like."""


@dataclass
class LaboratoryConfig:
    """Which rows of a laboratory screen count, and how they become strains.

    A key that a screen's file cannot answer is refused.

    Attributes:
        tables: tables of the publication that are read, e.g. ``[S1, S3]`` or ``[NxN]``; all where empty.
        where: column of the file → value; other rows are left out.
        kind: ``digenic`` or ``trigenic`` rows only; both where null.
        temperature: rows measured at 26 or 30 °C only; both where null.
        array_types: arrays whose rows count, of ``DMA26``, ``DMA30``, ``TSA26``, ``TSA30``; all where empty.
        deletions_only: leave out rows with an allele that is no deletion (temperature-sensitive, DAmP, suppressor).
            A deletion strain that carries a mapped suppressor counts as a deletion.
        p_below: rows with a p-value below this only; all where null.
        genes: list of genes, one per line, as a path; relative paths are looked up in the raw folder too.
        genes_required: rows stay if ``all`` or ``any`` of their genes are in ``genes``.
        aliases: table with columns Strain, Orf, Common, Allele that maps strain names to systematic names; where null,
            the systematic name is what stands before the underscore.
        missing: rows without a phenotype: ``refuse`` or ``drop``.
        replicates: rows of the same genes: ``mean`` or ``refuse``.
        conflicts: rows of the same genes that contradict each other.
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
            value = getattr(self, name)
            if value not in allowed:
                expected = " or ".join("null" if one is None else str(one) for one in allowed)
                raise ConfigError(f"`{key}.{name}` has an unknown value", got=value, expected=expected)
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
