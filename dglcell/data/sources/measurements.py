"""Measurements: what a reader of laboratory tables produces, row by row, before replicates are merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.genotypes import Genotypes
from dglcell.data.table import Provenance

Column = NDArray[np.floating]


@dataclass(frozen=True)
class Measurements:
    """R rows: a genotype each, and what was measured of it.

    Attributes:
        genotypes: deleted genes of each row, query genes first, array gene last.
        phenotypes: name → [R]; NaN where not measured.
        provenance: where the rows came from.
        p_values: phenotype → [R], where there are any.
        sds: phenotype → [R] standard deviations, where there are any.
        units: phenotype → unit.
        crosses: [R] int64, equal where the same two strains were crossed, so that equal numbers are one measurement
            listed twice; None where the source names genes only.
    """

    genotypes: Genotypes
    phenotypes: dict[str, Column]
    provenance: Provenance
    p_values: dict[str, Column] = field(default_factory=dict)
    sds: dict[str, Column] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    crosses: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.genotypes.genes)

    def keep(self, chosen: NDArray[np.bool_], **counts: int) -> Measurements:
        """The chosen rows; ``counts`` go into the provenance."""
        kept = self.count(**counts)
        if chosen.all():
            return kept
        return replace(
            kept,
            genotypes=Genotypes(self.genotypes.names, self.genotypes.genes[chosen]),
            phenotypes={name: values[chosen] for name, values in self.phenotypes.items()},
            p_values={name: values[chosen] for name, values in self.p_values.items()},
            sds={name: values[chosen] for name, values in self.sds.items()},
            crosses=None if self.crosses is None else self.crosses[chosen],
        )

    def count(self, **counts: int) -> Measurements:
        """The same with more counts in the provenance."""
        provenance = replace(self.provenance, counts={**self.provenance.counts, **counts})
        return replace(self, provenance=provenance)


def concatenate(parts: Sequence[Measurements], provenance: Provenance) -> Measurements:
    """The rows of ``parts``, one part after the other; a phenotype that a part lacks is not measured in its rows.

    Args:
        parts: at least one.
        provenance: of them all.
    """

    def together(column: Callable[[Measurements], dict[str, Column]]) -> dict[str, Column]:
        names = dict.fromkeys(name for part in parts for name in column(part))
        lacking = [np.full(len(part), np.nan, dtype=np.float32) for part in parts]
        return {
            name: np.concatenate([column(part).get(name, nan) for part, nan in zip(parts, lacking, strict=True)])
            for name in names
        }

    units = {name: unit for part in reversed(parts) for name, unit in part.units.items()}
    return Measurements(
        genotypes=Genotypes.concatenate([part.genotypes for part in parts]),
        phenotypes=together(lambda part: part.phenotypes),
        provenance=provenance,
        p_values=together(lambda part: part.p_values),
        sds=together(lambda part: part.sds),
        units=units,
        crosses=_distinct_crosses(parts),
    )


def _distinct_crosses(parts: Sequence[Measurements]) -> NDArray[np.int64]:
    """Crosses of different parts are different; a row whose strains are not named is a cross of its own."""
    crosses, first = [], 0
    for part in parts:
        own = np.arange(len(part), dtype=np.int64) if part.crosses is None else part.crosses
        crosses.append(own + first)
        first += int(own.max(initial=-1)) + 1
    return np.concatenate(crosses)
