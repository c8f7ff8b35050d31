"""Several measurements of one strain: averaged, with their spread, their number and their contradictions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.conflicts import find_conflicts
from dglcell.data.sources.measurements import Column, Measurements
from dglcell.data.sources.replicates_config import ConflictConfig
from dglcell.data.table import StrainTable
from dglcell.errors import DataError

MEAN, REFUSE = "mean", "refuse"


def merge_replicates(rows: Measurements, conflicts: ConflictConfig, policy: str = MEAN) -> StrainTable:
    """Turn rows into strains: rows of the same genes, in whatever order, become one.

    A strain of several rows has their mean, the standard deviation over them (n − 1), their number, and no p-value,
    since p-values of replicates do not average. Rows that list one measurement twice (the same two strains crossed,
    the same numbers) count once. Strains keep the order and gene order of their first row.

    Args:
        rows: measurements.
        conflicts: what to do with rows that contradict each other.
        policy: ``mean``, or ``refuse`` to have no strain with several rows.

    Raises:
        DataError: several rows of one strain, or contradictions among them, are to be refused; or no strain is left.
    """
    rows, keys = _drop_copies(rows, rows.genotypes.keys)
    first, sizes = _first_rows(keys)
    if policy == REFUSE and len(first) < len(keys):
        again = int(np.flatnonzero(~np.isin(np.arange(len(keys)), first))[0])
        raise DataError(
            f"'{rows.provenance.source}': a strain has several rows",
            got=f"{rows.genotypes.describe(again)} (and {len(keys) - len(first) - 1:,} more rows)",
            do="set `replicates: mean`",
        )
    found = find_conflicts(rows, keys, first, conflicts)
    rows = rows.count(**found.counts)
    if conflicts.policy == "refuse" and found.strains.any():
        strain = int(np.argmax(found.strains))
        raise DataError(
            f"'{rows.provenance.source}': rows of a strain contradict each other",
            got=f"{rows.genotypes.describe(int(first[strain]))} (and {int(found.strains.sum()) - 1:,} more strains)",
            expected="no significant rows of opposite sign"
            + ("" if conflicts.difference is None else f", no differences above {conflicts.difference}"),
            do="set `conflicts.policy` to mean or drop",
        )
    if conflicts.policy == "drop":
        dropped = int(found.strains.sum())
        rows = rows.keep(~found.strains[keys], strains_dropped_as_conflicting=dropped)
        keys = rows.genotypes.keys
        first, sizes = _first_rows(keys)
    if not len(rows):
        raise DataError(f"'{rows.provenance.source}': no strain is left", do="loosen its filters")
    return _merge(rows, keys, first, sizes)


def _merge(
    rows: Measurements, keys: NDArray[np.int64], first: NDArray[np.int64], sizes: NDArray[np.int64]
) -> StrainTable:
    single = sizes == 1
    repeated = not bool(single.all())
    means, sds, replicates = {}, {}, {}
    for name, values in rows.phenotypes.items():
        mean, sd = mean_and_sd(values, keys, len(first))
        if rows.sds or repeated:
            given = rows.sds.get(name)
            sds[name] = (sd if given is None else np.where(single, given[first], sd)).astype(np.float32)
        if repeated:
            replicates[name] = np.bincount(keys[~np.isnan(values)], minlength=len(first)).astype(np.float32)
        means[name] = mean.astype(np.float32)
    names, genes, offsets = rows.genotypes.pack(first)
    rows = rows.count(
        strains=len(first),
        strains_with_replicates=int((~single).sum()),
        replicate_rows_merged=len(keys) - len(first),
        genes=len(names),
    )
    return StrainTable(
        names=names,
        genes=genes,
        offsets=offsets,
        phenotypes=means,
        p_values={name: select_single(values, first, single) for name, values in rows.p_values.items()},
        sds=sds,
        units={name: rows.units.get(name, "") for name in means},
        provenance=rows.provenance,
        replicates=replicates,
    )


def _drop_copies(rows: Measurements, keys: NDArray[np.int64]) -> tuple[Measurements, NDArray[np.int64]]:
    """Leave out rows that list a measurement again."""
    if rows.crosses is None or not len(rows):
        return rows, keys
    import pandas as pd

    # Only strains of several rows can have copies.
    candidates = np.flatnonzero(np.bincount(keys)[keys] > 1)
    columns = [rows.crosses, *rows.phenotypes.values(), *rows.p_values.values(), *rows.sds.values()]
    copies = pd.DataFrame({i: column[candidates] for i, column in enumerate(columns)}).duplicated().to_numpy()
    kept = np.ones(len(rows), dtype=bool)
    kept[candidates[copies]] = False
    return rows.keep(kept, rows_identical=int(copies.sum())), keys[kept]


def _first_rows(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """[S] first row and number of rows of each strain; ``keys`` are numbered by first appearance."""
    newest = np.maximum.accumulate(keys)
    return np.flatnonzero(np.diff(newest, prepend=-1)), np.bincount(keys)


def mean_and_sd(
    values: Column, keys: NDArray[np.int64], strains: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation of each strain's measurements.

    Args:
        values: [rows] measurements; NaN where there is none.
        keys: [rows] strain of each row, 0 … strains − 1.
        strains: number of strains S.

    Returns:
        [S] mean, NaN without a measurement, and [S] standard deviation (n − 1), NaN with fewer than two.
    """
    present = ~np.isnan(values)
    keys, values = keys[present], values[present].astype(np.float64)
    counts = np.bincount(keys, minlength=strains)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(keys, values, minlength=strains) / counts
        squares = np.bincount(keys, (values - mean[keys]) ** 2, minlength=strains)
        sd = np.sqrt(squares / (counts - 1))
    return mean, np.where(counts > 1, sd, np.nan)


def select_single(values: Column, first: NDArray[np.int64], single: NDArray[np.bool_]) -> NDArray[np.float32]:
    """[S] the values of strains with one row; NaN for the others.

    Args:
        values: [rows].
        first: [S] first row of each strain.
        single: [S] whether it is the only one.
    """
    return np.where(single, values[first], np.nan).astype(np.float32)
