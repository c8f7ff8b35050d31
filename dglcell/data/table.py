"""The strain table: what every source produces and every store is built from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dglcell.errors import DataError

# Kinds of labels.


REGRESSION, CLASSIFICATION = "regression", "classification"


# The strain table: what every source produces and every store is built from.


@dataclass(frozen=True)
class Provenance:
    """Where data came from.

    Attributes:
        source: short name of the source, e.g. ``collins2007``.
        description: one sentence.
        citation: publication, where there is one.
        licence: as stated by the source.
        urls: where the raw files can be had.
        files: raw file name → sha256.
        counts: rows read, kept, dropped by reason.
        parameters: the options that shaped the table.
    """

    source: str
    description: str = ""
    citation: str = ""
    licence: str = ""
    urls: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TableHead:
    """All of a strain table but its strains.

    Attributes:
        names: distinct gene names.
        phenotypes: names of the phenotypes.
        provenance: where the strains come from.
        units: phenotype name → unit.
        p_values: phenotypes with p-values.
        sds: phenotypes with standard deviations over replicates.
        replicates: phenotypes with numbers of measurements.
    """

    names: tuple[str, ...]
    phenotypes: tuple[str, ...]
    provenance: Provenance
    units: dict[str, str] = field(default_factory=dict)
    p_values: tuple[str, ...] = ()
    sds: tuple[str, ...] = ()
    replicates: tuple[str, ...] = ()


@dataclass(frozen=True)
class StrainTable:
    """Strains with measured phenotypes, in columns.

    Genes of a strain keep the order of the source: query genes first, array gene last.

    Attributes:
        names: distinct gene names, any order.
        genes: [P] int32, indices into ``names``, concatenated strain by strain.
        offsets: [S + 1] int64; strain s deletes ``genes[offsets[s]:offsets[s + 1]]``.
        phenotypes: name → [S] float32; NaN where not measured.
        units: phenotype name → unit (``""`` if dimensionless).
        p_values: phenotype name → [S] float32, where the source has them.
        sds: phenotype name → [S] float32, standard deviation over replicates, where the source has them.
        replicates: phenotype name → [S] float32, number of measurements that the phenotype is the mean of
            (0: not measured), where some strain has more than one.
        provenance: where the table came from.
    """

    names: tuple[str, ...]
    genes: NDArray[np.int32]
    offsets: NDArray[np.int64]
    phenotypes: dict[str, NDArray[np.float32]]
    provenance: Provenance
    units: dict[str, str] = field(default_factory=dict)
    p_values: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    sds: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    replicates: dict[str, NDArray[np.float32]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("genes", "offsets"):
            kind = getattr(self, name).dtype
            if not np.issubdtype(kind, np.integer):
                raise DataError(
                    f"strain table: {name} are no whole numbers", got=kind, expected="indices into its names"
                )
        strains = len(self)
        if strains < 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.genes):
            raise DataError("strain table: offsets do not cover the gene column", got=self.offsets[[0, -1]].tolist())
        if (self.offsets[1:] < self.offsets[:-1]).any():
            raise DataError("strain table: offsets decrease")
        if len(self.genes) and not 0 <= self.genes.min() <= self.genes.max() < len(self.names):
            raise DataError("strain table: gene indices outside its names", expected=f"0 … {len(self.names) - 1}")
        for column in (self.phenotypes, self.p_values, self.sds, self.replicates):
            for name, values in column.items():
                if len(values) != strains:
                    raise DataError(
                        f"strain table: column '{name}' has the wrong length", got=len(values), expected=strains
                    )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_deletions(self) -> NDArray[np.int64]:
        """[S] number of deleted genes of each strain."""
        return np.diff(self.offsets)

    @property
    def head(self) -> TableHead:
        """The table without its strains."""
        kinds = (tuple(column) for column in (self.p_values, self.sds, self.replicates))
        return TableHead(self.names, tuple(self.phenotypes), self.provenance, self.units, *kinds)

    def slice(self, start: int, stop: int) -> StrainTable:
        """Strains ``start`` to ``stop``, without copying."""
        first, last = self.offsets[start], self.offsets[stop]

        def part(columns: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
            return {name: values[start:stop] for name, values in columns.items()}

        return replace(
            self,
            genes=self.genes[first:last],
            offsets=self.offsets[start : stop + 1] - first,
            phenotypes=part(self.phenotypes),
            p_values=part(self.p_values),
            sds=part(self.sds),
            replicates=part(self.replicates),
        )
