"""Join the rows of tables, and merge several measurements of one strain: averages and spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import COVARIATE, P_VALUE, SD, Array, Column, columns_of, translated
from dglcell.data.strains import Strains
from dglcell.errors import DataError, and_more

# Measurements are strains, too, before replicates are merged: a row each, several of which may have the same genes.


def counted(rows: Strains, **counts: int) -> Strains:
    """Return the rows with more counts in their provenance."""
    return rows.with_(provenance=replace(rows.provenance, counts={**rows.provenance.counts, **counts}))


def keep(rows: Strains, chosen: NDArray[np.bool_], **counts: int) -> Strains:
    """Return the chosen rows; ``counts`` go into their provenance."""
    return counted(rows if chosen.all() else rows.take(np.flatnonzero(chosen)), **counts)


def strain_numbers(rows: Strains) -> NDArray[np.int64]:
    """Return a number for each row, [R], equal for rows of the same genes in any order, activities and covariates.

    Strains are numbered by first appearance.
    """
    import pandas as pd

    from dglcell.data.partition import strain_keys  # which imports scipy

    return pd.factorize(strain_keys(rows))[0].astype(np.int64, copy=False)


def genes_of(rows: Strains, row: int) -> str:
    """Return the genes of a row, for a message."""
    return ", ".join(rows.slice(row, row + 1).genotypes[0])


def joined(parts: Sequence[Strains]) -> Strains:
    """Join the strains of ``parts``, one part after the other, with genes and categories matched by name.

    Values are NaN where a part lacks a column.

    Raises:
        DataError: a part lacks a covariate of another part.
    """
    parts = _with_the_same_categories(parts)
    names = tuple(dict.fromkeys(chain.from_iterable(part.names for part in parts)))
    place = {name: number for number, name in enumerate(names)}
    ends = np.cumsum([0, *(len(part.targets) for part in parts)])
    columns = {
        column: np.concatenate([part.columns.get(column, np.full(len(part), np.nan, np.float32)) for part in parts])
        for column in dict.fromkeys(chain.from_iterable(part.columns for part in parts))
    }
    deletes_only = all(part.activities is None for part in parts)
    return parts[0].with_(
        names=names,
        targets=np.concatenate([translated(p.targets, np.array([place[name] for name in p.names])) for p in parts]),
        offsets=np.concatenate([*(p.offsets[:-1] + end for p, end in zip(parts, ends, strict=False)), ends[-1:]]),
        columns=columns,
        units={name: unit for part in reversed(parts) for name, unit in part.units.items()},
        activities=None if deletes_only else np.concatenate([part.left() for part in parts]),
    )


def _with_the_same_categories(parts: Sequence[Strains]) -> list[Strains]:
    """Return parts whose covariates have the categories of all of them, sorted."""
    order = dict[str, tuple[str, ...]]()
    for name in dict.fromkeys(chain.from_iterable(part.covariates for part in parts)):
        order[name] = tuple(sorted({one for part in parts for one in part.covariates.get(name, ())}))
        if any(name not in part.covariates or bool(part.covariates[name]) != bool(order[name]) for part in parts):
            what = f"covariate '{name}' is not the same kind of column in all tables that are joined"
            expected = f"texts in all of them, or numbers in all of them, under the name '{name}'"
            raise DataError(what, expected=expected, do="give the covariate of every strain")

    def recoded(column: Column, values: Array) -> tuple[Column, Array]:
        if column.kind != COVARIATE or column.categories == order[column.name]:
            return column, values
        codes = np.array([order[column.name].index(category) for category in column.categories], np.float32)
        return column._replace(categories=order[column.name]), codes[values.astype(np.int64)]

    return [part.with_(columns=dict(recoded(*item) for item in part.columns.items())) for part in parts]


# Several measurements of one strain: averaged, with their spread and their number.


MEAN, REFUSE = "mean", "refuse"


def merge_replicates(rows: Strains, policy: str = MEAN) -> Strains:
    """Turn rows into strains: rows of the same genes, in whatever order, activities and covariates become one.

    A strain of several rows has their mean, the standard deviation over them (n − 1), their number, and no p-value,
    since p-values of replicates do not average. Strains keep the order and gene order of their first row.

    Args:
        rows: measurements.
        policy: ``mean``, or ``refuse`` to have no strain with several rows.

    Raises:
        DataError: several rows of one strain are to be refused; or there are no rows.
    """
    keys = strain_numbers(rows)
    # Keys are numbered by first appearance.
    first, sizes = np.flatnonzero(np.diff(np.maximum.accumulate(keys), prepend=-1)), np.bincount(keys)
    if policy == REFUSE and len(first) < len(keys):
        again = int(np.flatnonzero(~np.isin(np.arange(len(keys)), first))[0])
        got = genes_of(rows, again) + and_more(len(keys) - len(first) - 1, "row")
        raise DataError(f"'{rows.provenance.source}': a strain has several rows", got=got, do="set `replicates: mean`")
    if not len(rows):
        raise DataError(f"'{rows.provenance.source}': no strain is left", do="loosen its filters")
    return _merge(rows, keys, first, sizes)


def _merge(rows: Strains, keys: NDArray[np.int64], first: NDArray[np.int64], sizes: NDArray[np.int64]) -> Strains:
    single = sizes == 1
    repeated = not bool(single.all())
    means, sds, replicates, given_sds = {}, {}, {}, rows.of_kind(SD)
    for name, values in rows.phenotypes.items():
        mean, sd = mean_and_sd(values, keys, len(first))
        if given_sds or repeated:
            given = given_sds.get(name)
            sds[name] = (sd if given is None else np.where(single, given[first], sd)).astype(np.float32)
        if repeated:
            replicates[name] = np.bincount(keys[~np.isnan(values)], minlength=len(first)).astype(np.float32)
        means[name] = mean.astype(np.float32)
    strains = rows.take(first)
    used, targets = np.unique(strains.targets, return_inverse=True)
    rows = counted(
        rows,
        strains=len(first),
        strains_with_replicates=int((~single).sum()),
        replicate_rows_merged=len(keys) - len(first),
        genes=len(used),
    )
    p_values = {name: np.where(single, values[first], np.nan) for name, values in rows.of_kind(P_VALUE).items()}
    p_values = {name: values.astype(np.float32) for name, values in p_values.items()}
    columns = columns_of(phenotype=means, p_value=p_values, sd=sds, replicates=replicates)
    columns |= {column: values for column, values in strains.columns.items() if column.kind == COVARIATE}
    names, units = tuple(rows.names[gene] for gene in used), {name: rows.units.get(name, "") for name in means}
    targets = targets.astype(np.int32)
    return Strains(names, targets, strains.offsets, columns, units, rows.provenance, strains.activities)


def mean_and_sd(
    values: NDArray[np.floating], keys: NDArray[np.int64], strains: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and standard deviation of each strain's measurements.

    Args:
        values: [rows] measurements; NaN where there is none.
        keys: [rows] strain of each row, 0 … strains − 1.

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
