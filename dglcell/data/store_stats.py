"""What a strain table holds: labels, numbers of deletions and genes, counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglcell.data.partition import gene_set_keys
from dglcell.data.table import StrainTable

HISTOGRAM_BINS = 24
FREQUENT_GENES = 5


@dataclass(frozen=True)
class LabelStats:
    """One phenotype over all strains, in its own unit; NaN where nothing was measured.

    Attributes:
        name: the phenotype.
        unit: its unit.
        measured: strains that have it.
        missing: strains that lack it.
        mean: over those that have it.
        sd: population standard deviation.
        quantiles: minimum, first quartile, median, third quartile, maximum.
        histogram: strains in equal bins from the 1st to the 99th percentile, the tails in the outermost.
        p_values: strains with a p-value.
        sds: strains with a standard deviation over replicates.
        replicated: strains with two or more measurements.
        most_replicates: most measurements of any strain; 0 where the source does not say.
    """

    name: str
    unit: str
    measured: int
    missing: int
    mean: float
    sd: float
    quantiles: tuple[float, float, float, float, float]
    histogram: tuple[int, ...]
    p_values: int
    sds: int
    replicated: int
    most_replicates: int


@dataclass(frozen=True)
class TableStats:
    """Counts over a strain table.

    Attributes:
        strains: number of strains.
        by_deletions: number of deletions → strains.
        distinct_gene_sets: strains with the same genes counted once.
        labels: one entry for each phenotype.
        genes: genes that at least one strain deletes.
        names: size of the vocabulary.
        frequent_genes: the genes deleted most often, with their number of strains.
    """

    strains: int
    by_deletions: dict[int, int]
    distinct_gene_sets: int
    labels: tuple[LabelStats, ...]
    genes: int
    names: int
    frequent_genes: tuple[tuple[str, int], ...]


def deletion_counts(num_deletions: NDArray[np.int64]) -> dict[int, int]:
    """Number of deletions → how many strains have it, ascending."""
    numbers, strains = np.unique(num_deletions, return_counts=True)
    return dict(zip(numbers.tolist(), strains.tolist(), strict=True))


def table_stats(table: StrainTable) -> TableStats:
    """Count what ``table`` holds."""
    frequency = np.bincount(table.genes, minlength=len(table.names))
    # Stable, so that genes of equal frequency are listed by name.
    top = np.argsort(-frequency, kind="stable")[:FREQUENT_GENES]
    return TableStats(
        strains=len(table),
        by_deletions=deletion_counts(table.num_deletions),
        distinct_gene_sets=len(np.unique(gene_set_keys(table))),
        labels=tuple(_label_stats(table, name) for name in table.phenotypes),
        genes=int((frequency > 0).sum()),
        names=len(table.names),
        frequent_genes=tuple((table.names[gene], int(frequency[gene])) for gene in top if frequency[gene]),
    )


def _label_stats(table: StrainTable, name: str) -> LabelStats:
    values = table.phenotypes[name]
    # Sums over millions of strains need more than float32.
    measured = values[~np.isnan(values)].astype(np.float64)
    if len(measured):
        low, *quartiles, high = np.quantile(measured, [0.01, 0, 0.25, 0.5, 0.75, 1, 0.99]).tolist()
        # Equal percentiles (nearly all labels alike) still need bins of some width.
        edges = (low, high) if high > low else (low - 0.5, low + 0.5)
        histogram = np.histogram(measured.clip(*edges), HISTOGRAM_BINS, range=edges)[0]
        mean, sd = float(measured.mean()), float(measured.std())
    else:
        quartiles, histogram, mean, sd = [np.nan] * 5, np.zeros(HISTOGRAM_BINS, np.int64), np.nan, np.nan
    replicates = table.replicates.get(name, np.zeros(1, np.float32))
    lowest, first, median, third, highest = quartiles
    return LabelStats(
        name=name,
        unit=table.units.get(name, ""),
        measured=len(measured),
        missing=len(values) - len(measured),
        mean=mean,
        sd=sd,
        quantiles=(lowest, first, median, third, highest),
        histogram=tuple(histogram.tolist()),
        p_values=_present(table.p_values.get(name)),
        sds=_present(table.sds.get(name)),
        replicated=int((replicates > 1).sum()),
        most_replicates=int(replicates.max(initial=0)),
    )


def _present(values: NDArray[np.float32] | None) -> int:
    return 0 if values is None else int((~np.isnan(values)).sum())
