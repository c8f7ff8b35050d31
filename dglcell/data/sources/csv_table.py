"""Read the rows of a table of strains, join the rows of tables, and merge several measurements of one strain."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import (
    COVARIATE,
    MEDIUM,
    P_VALUE,
    SD,
    Array,
    Column,
    Provenance,
    columns_of,
    covariate_columns,
    translated,
)
from dglcell.data.sources.config import CsvConfig, GuideConfig
from dglcell.data.sources.text_table import read_rows, refuse_lost
from dglcell.data.strains import Strains
from dglcell.data.table import Changes, Issue, IssuesError, Rows, by_text, number_issues, read_changes, read_numbers
from dglcell.errors import DataError, listing
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.model_files import named_aliases
from dglcell.graph.vocabulary import Vocabulary

log = logging.getLogger("dglcell")


def measure_csv(config: CsvConfig, raw: str | None = None) -> Strains:
    """Read the rows of a table of strains; relative paths are also searched in the folder ``raw``."""
    path = find_raw(config.path, raw)
    aliases, named_in = named_aliases(config.aliases, raw)
    files = {file.name: sha256_file(file) for file in (path, named_in) if file is not None}
    provenance = Provenance("csv", f"strains of {path.name}", files=files, parameters=asdict(config))
    return measure_rows(read_rows(path), config, provenance, aliases)


class Measured(NamedTuple):
    """Hold what a table says of its rows that are measured."""

    rows: Rows  #: these rows
    strains: Strains  #: a strain for each
    changes: Changes  #: the genes that each changes
    issues: list[Issue]  #: everything that is wrong with them


def measure_rows(rows: Rows, config: CsvConfig, provenance: Provenance, aliases: Vocabulary | None = None) -> Strains:
    """Turn the rows of a whole table into measurements, or raise one error with everything that is wrong.

    ``provenance`` is completed with counts, and ``aliases`` are other names of genes.
    """
    found = find_measured(rows, config, aliases or Vocabulary())
    if found.issues:
        raise IssuesError(rows, found.issues)
    counts = {**provenance.counts, **found.strains.provenance.counts}
    return found.strains.with_(provenance=replace(provenance, counts=counts))


def find_measured(rows: Rows, config: CsvConfig, aliases: Vocabulary, genes: Vocabulary | None = None) -> Measured:
    """Read the rows that are measured, and everything that is wrong with them.

    ``genes`` are those of a cell graph, with their other names; those of ``aliases`` where None.
    """
    read = len(rows)
    for column, value in config.where.items():
        rows = rows.where(column, value)
    chosen = len(rows)
    rows, config = _in_each_medium(rows, config)
    for column in config.phenotypes.values():
        refuse_lost(rows.file, column)
    phenotypes, wrong, issues = _numbers(rows, config.phenotypes, "phenotypes", config)
    measured = wrong | np.any([~np.isnan(values) for values in phenotypes.values()], axis=0)
    columns = listing(config.phenotypes.values())
    if not measured.any():
        do = "check `phenotypes` and `na_values`"
        raise DataError(f"'{rows.file}': no row has a phenotype", expected=f"numbers in {columns}", do=do)
    if config.missing == "refuse":
        what = f"no phenotype is measured: no number in {columns}"
        do = "mend the row, or set `missing: drop` to leave such rows out"
        issues += rows.issues({what: np.flatnonzero(~measured).tolist()}, do)
    rows = rows.keep(measured)
    phenotypes = {name: values[measured] for name, values in phenotypes.items()}
    p_values, _, of_p_values = _numbers(rows, config.p_values, "p_values", config)
    sds, _, of_sds = _numbers(rows, config.sds, "sds", config)
    covariates, unclear = _covariates(rows, config)
    changes = read_changes(
        rows, config.genes, config.activities, aliases, genes, config.ignore_genes, may_be_empty=config.has_covariates
    )
    counts = {
        "rows": read,
        "rows_filtered_out": read - chosen,
        "rows_not_measured": chosen - len(np.unique(rows.lines)),  # a row may be measured in several media
        "rows_with_the_same_cells": int(rows.frame.duplicated().sum()),
    }
    found = {**columns_of(phenotype=phenotypes, p_value=p_values, sd=sds), **covariate_columns(covariates)}
    units = {name: config.units.get(name, "") for name in phenotypes}
    strains = Strains(*changes.targets, found, units, Provenance("csv", counts=counts), changes.activities)
    issues += [*of_p_values, *of_sds, *changes.issues, *unclear]
    if config.replicates == "refuse":
        numbers = strain_numbers(strains)
        again = np.flatnonzero(np.bincount(numbers)[numbers] > 1).tolist()
        genotypes = strains.genotypes if again else []
        listed = [(listing(sorted(genotypes[row])) or "the wild type", row) for row in again]
        said = by_text((f"{changed} is listed again", row) for changed, row in listed)
        issues += rows.issues(said, "set `replicates: mean`")
    return Measured(rows, strains, changes, issues)


def _in_each_medium(rows: Rows, config: CsvConfig) -> tuple[Rows, CsvConfig]:
    """Return each row once for each medium that it is measured in, and the columns of such a table."""
    if not config.by_medium:
        return rows, config
    import pandas as pd

    names = list(dict.fromkeys(name for columns in config.by_medium.values() for name in columns))
    frames, lines = [], []
    for medium, columns in config.by_medium.items():
        sds = config.sds_by_medium.get(medium, {})
        own = rows.frame.copy()
        for name in names:
            own[f"{name} by medium"] = rows.column(columns[name], "by_medium") if name in columns else ""
            own[f"sd of {name} by medium"] = rows.column(sds[name], "sds_by_medium") if name in sds else ""
        own[f"{MEDIUM} of the column"] = medium
        measured = ~own[[f"{name} by medium" for name in names]].isin(["", *config.na_values]).all(axis=1).to_numpy()
        frames.append(own[measured])
        lines.append(rows.lines[measured])
    spread = any(config.sds_by_medium.values())
    changed = replace(
        config,
        by_medium={},
        sds_by_medium={},
        phenotypes={name: f"{name} by medium" for name in names},
        sds={name: f"sd of {name} by medium" for name in names} if spread else {},
        covariates={**config.covariates, MEDIUM: f"{MEDIUM} of the column"},
    )
    return Rows(rows.file, pd.concat(frames, ignore_index=True), np.concatenate(lines)), changed


def _covariates(rows: Rows, config: CsvConfig) -> tuple[dict[str, NDArray[Any]], list[Issue]]:
    """Return covariates of rows, as numbers where a whole column is numbers and else as texts; and what is wrong."""
    found, issues = dict[str, NDArray[Any]](), list[Issue]()
    for name, column in config.covariates.items():
        cells = rows.column(column, "covariates").str.strip()
        numbers, missing = read_numbers(cells, config.decimal, config.na_values)
        what = f"covariate {name} is blank, and every strain needs it"
        issues += rows.issues({what: np.flatnonzero(missing).tolist()}, "fill the cell, or leave the row out")
        texts_of_rows = cells.mask(missing, "missing").to_numpy(dtype=str)
        found[name] = np.nan_to_num(numbers) if np.isfinite(numbers[~missing]).all() else texts_of_rows
    if config.guides is not None:
        for column in config.guides.columns:
            rows.column(column, "guides")
        found |= guide_covariates(config.guides, rows)
    return found, issues


def _numbers(
    rows: Rows, columns: Mapping[str, str], key: str, config: CsvConfig
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.bool_], list[Issue]]:
    """Return columns of numbers, NaN where there is none; which rows have a wrong cell, [rows]; and what is wrong."""
    numbers, wrong, issues = {}, np.zeros(len(rows), dtype=bool), list[Issue]()
    for name, column in columns.items():
        values, missing = read_numbers(rows.column(column, key), config.decimal, config.na_values)
        bad = ~missing & ~(np.abs(values) <= np.finfo(np.float32).max)
        issues += number_issues(rows, column, values, bad, config.decimal)
        numbers[name], wrong = np.where(bad, np.nan, values), wrong | bad
    return numbers, wrong, issues


# CRISPRi guides, whose mismatches say how strongly they repress a gene.


SITE, MISMATCH, DISTANCE = "site", "mismatch", "distance"
"""Covariates of a guide: where it binds, where it mismatches, and how far from the start of the gene that is."""

BASES = "ACGT"

NO_SITE = "none"


def guide_covariates(config: GuideConfig, rows: Rows, known: Sequence[str] = ()) -> dict[str, NDArray[np.generic]]:
    """Return the covariates of strains with CRISPRi guides.

    Args:
        config: columns of the guides, which the table has.
        rows: the table.
        known: sites whose sequences are known, as this function returns them.

    Returns:
        ``site`` → [S] names with sequences, ``mismatch_20`` … ``mismatch_1`` → [S] 0 or 1, and maybe ``distance``.
    """
    sites = [" ".join(filter(None, map(str.strip, row))) or NO_SITE for row in rows.frame[config.site].to_numpy()]
    upper = rows.frame[config.sequence].str.strip().str.upper().tolist()
    wrong = next((s for s in upper if set(s) - set(BASES)), None)
    lengths = sorted({len(sequence) for sequence in upper if sequence})
    if wrong is not None or len(lengths) != 1:
        got = f"'{wrong}'" if wrong is not None else f"lengths {', '.join(map(str, lengths)) or 'none'}"
        expected = f"letters {', '.join(BASES)}, and one length for all"
        raise DataError(f"{rows.title}: sequences of guides cannot be compared", got=got, expected=expected)
    (length,) = lengths
    bases = np.array([[BASES.index(base) for base in s] if s else [-1] * length for s in upper], dtype=np.int64)
    names, site = np.unique(np.asarray(sites, dtype=str), return_inverse=True)
    references = {name: sequence for name, _, sequence in (one.rpartition(" ") for one in reversed(known))}
    shown, matching = [], np.zeros_like(bases)
    for number, name in enumerate(names.tolist()):
        sequence = references.get(name, "")
        if len(sequence) != length:  # the most frequent base at each position, the first in the alphabet of equal ones
            here = bases[site == number]
            times = np.stack([(here == base).sum(axis=0) for base in range(len(BASES))])
            sequence = "".join(BASES[base] for base in times.argmax(axis=0))
        matching[site == number] = [BASES.index(base) for base in sequence]
        shown.append(name if name == NO_SITE else f"{name} {sequence}")
    mismatch = (bases != matching) & (bases >= 0)
    columns = {f"{MISMATCH}_{length - i}": mismatch[:, i].astype(np.float32) for i in range(length)}
    columns |= {DISTANCE: _distances(config, rows)} if config.distance else {}
    return {SITE: np.array(shown)[site], **columns}


def _distances(config: GuideConfig, rows: Rows) -> NDArray[np.generic]:
    """Return how far guides bind from the start of their genes, [S], 0 where they bind none."""
    cells = rows.frame[config.distance]
    found, nowhere = read_numbers(cells, ".", ())
    wrong = ~nowhere & ~(np.abs(found) <= np.finfo(np.float32).max)
    if wrong.any():
        got, expected = cells.iloc[int(np.argmax(wrong))], "a number, or an empty cell for a guide that binds no gene"
        do = "mend the cell, or leave `distance` of `guides` out"
        raise DataError(f"{rows.title}: a guide has no distance", got=f"'{got}'", expected=expected, do=do)
    return np.where(nowhere, 0, found).astype(np.float32)


# Measurements are strains, too, before replicates are merged: a row each, several of which may have the same genes.


def counted(rows: Strains, **counts: int) -> Strains:
    """Return the rows with more counts in their provenance."""
    return rows.with_(provenance=replace(rows.provenance, counts={**rows.provenance.counts, **counts}))


def keep(rows: Strains, chosen: NDArray[np.bool_], **counts: int) -> Strains:
    """Return the chosen rows; ``counts`` go into their provenance."""
    return counted(rows if chosen.all() else rows.take(np.flatnonzero(chosen)), **counts)


def strain_numbers(rows: Strains) -> NDArray[np.int64]:
    """Return a number for each row, [R], by first appearance, equal for the same genes, activities and covariates."""
    import pandas as pd

    return pd.factorize(rows.strain_keys)[0].astype(np.int64, copy=False)


def joined(parts: Sequence[Strains]) -> Strains:
    """Join the strains of ``parts``, one part after the other, with genes and categories matched by name.

    Values are NaN where a part lacks a column.
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


def merge_replicates(rows: Strains) -> Strains:
    """Turn rows into strains: rows of the same genes, in whatever order, activities and covariates become one.

    A strain of several rows has their mean, the standard deviation over them (n − 1), their number, and no p-value,
    since p-values of replicates do not average. Strains keep the order and gene order of their first row.
    """
    if not len(rows):
        raise DataError(f"'{rows.provenance.source}': no strain is left", do="loosen its filters")
    keys = strain_numbers(rows)
    # Keys are numbered by first appearance.
    first, sizes = np.flatnonzero(np.diff(np.maximum.accumulate(keys), prepend=-1)), np.bincount(keys)
    single, repeated = sizes == 1, bool((sizes > 1).any())
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
    counts = {
        "strains": len(first),
        "strains_with_replicates": int((~single).sum()),
        "replicate_rows_merged": len(keys) - len(first),
        "genes": len(used),
    }
    p_values = {name: np.where(single, of[first], np.float32(np.nan)) for name, of in rows.of_kind(P_VALUE).items()}
    columns = columns_of(phenotype=means, p_value=p_values, sd=sds, replicates=replicates)
    columns |= {column: values for column, values in strains.columns.items() if column.kind == COVARIATE}
    merged = strains.with_(
        names=tuple(rows.names[gene] for gene in used),
        targets=targets.astype(np.int32),
        columns=columns,
        units={name: rows.units.get(name, "") for name in means},
        provenance=counted(rows, **counts).provenance,
    )
    kinds = zip(means, rows.kinds, merged.kinds, strict=True)
    if mixed := [name for name, before, after in kinds if before != after == "regression"]:
        said = "%s: a strain has both 0 and 1, and their mean makes this a number; `replicates: refuse` names such rows"
        log.warning(said, listing(mixed))
    return merged


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
