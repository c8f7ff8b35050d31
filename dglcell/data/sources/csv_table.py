"""Read strain tables from text files with a header, one row per strain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dglcell.data.changes import Changes, read_changes
from dglcell.data.columns import MEDIUM, Provenance, columns_of, covariate_columns
from dglcell.data.sources.config import CsvConfig
from dglcell.data.sources.replicates import REFUSE, genes_of, strain_numbers
from dglcell.data.sources.text_table import read_rows, refuse_lost
from dglcell.data.strains import Strains
from dglcell.data.table import Issue, IssuesError, Numbers, Rows, by_text, in_one_line, number_issues, read_numbers
from dglcell.errors import DataError, GenotypeError, listing
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.names import named_aliases
from dglcell.graph.schema import EDGES, NO_EDGES, edge_text
from dglcell.graph.vocabulary import AliasTable, Vocabulary


def measure_csv(config: CsvConfig, raw: str | None = None) -> Strains:
    """Read the rows of a table of strains.

    Args:
        config: file, columns and policies.
        raw: folder for relative paths.

    Raises:
        ConfigError: a key is wrong.
        DataError: the file or one of its rows is unusable; the message names the line.
    """
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


def measure_rows(rows: Rows, config: CsvConfig, provenance: Provenance, aliases: AliasTable | None = None) -> Strains:
    """Turn rows of text into measurements: filter, resolve names, read numbers.

    Args:
        rows: a whole table.
        config: columns and policies; its ``path`` is not read again.
        provenance: completed with counts.
        aliases: other names of genes.

    Raises:
        DataError: rows are unusable; the message names their lines, for each kind of mistake.
    """
    found = find_measured(rows, config, aliases or AliasTable())
    if found.issues:
        raise IssuesError(rows, found.issues)
    counts = {**provenance.counts, **found.strains.provenance.counts}
    return found.strains.with_(provenance=replace(provenance, counts=counts))


def find_measured(rows: Rows, config: CsvConfig, aliases: AliasTable, genes: Vocabulary | None = None) -> Measured:
    """Read the rows that are measured, and everything that is wrong with them.

    Args:
        rows, config, aliases: as for `measure_rows`.
        genes: the genes of a cell graph, with their other names; those of ``aliases`` where None.

    Raises:
        DataError: a column is missing, or no row is measured.
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
    of = changes.names, changes.genes, changes.offsets, found, units, Provenance("csv", counts=counts)
    strains = Strains(*of, changes.activities)
    issues = [*issues, *of_p_values, *of_sds, *changes.issues, *unclear]
    if config.replicates == REFUSE:
        same = by_text((str(number), row) for row, number in enumerate(strain_numbers(strains).tolist())).values()
        said = by_text(
            (f"{genes_of(strains, where[0]) or 'the wild type'} is listed {len(where)} times", row)
            for where in same
            if len(where) > 1
            for row in where
        )
        issues += rows.issues(said, "set `replicates: mean`", kind="strain that is listed again")
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
    """Return the covariates of the rows, numbers where all cells of the column are numbers and else texts; and
    what is wrong with them.
    """
    found, issues = dict[str, NDArray[Any]](), list[Issue]()
    for name, column in config.covariates.items():
        cells = rows.column(column, "covariates").str.strip()
        if name == EDGES:
            texts, wrong = dict[str, str](), dict[str, str]()
            for cell in cells.unique():
                try:
                    texts[cell] = edge_text(cell)
                except GenotypeError as error:
                    wrong[cell] = in_one_line(error)
            said = by_text((wrong[cell], row) for row, cell in enumerate(cells) if cell in wrong)
            issues += rows.issues(said, "leave the cell empty where a strain changes no edge")
            found[name] = cells.map(texts).fillna(NO_EDGES).to_numpy(dtype=str)
            continue
        numbers, missing = read_numbers(cells, config.decimal, config.na_values)
        what = f"covariate {name} is blank, and every strain needs it"
        issues += rows.issues({what: np.flatnonzero(missing).tolist()}, "fill the cell, or leave the row out")
        texts_of_rows = cells.mask(missing, "missing").to_numpy(dtype=str)
        found[name] = np.nan_to_num(numbers) if np.isfinite(numbers[~missing]).all() else texts_of_rows
    if config.guides is not None:
        written = zip(*(rows.column(column, "guides") for column in config.guides.columns), strict=True)
        found |= config.guides.covariates(list(written), rows.file)
    return found, issues


def _numbers(
    rows: Rows, columns: Mapping[str, str], key: str, config: CsvConfig
) -> tuple[dict[str, Numbers], NDArray[np.bool_], list[Issue]]:
    """Return columns of numbers, NaN where there is none; which rows have a wrong cell, [rows]; and what is wrong."""
    numbers, wrong, issues = {}, np.zeros(len(rows), dtype=bool), list[Issue]()
    for name, column in columns.items():
        values, missing = read_numbers(rows.column(column, key), config.decimal, config.na_values)
        bad = ~missing & ~(np.abs(values) <= np.finfo(np.float32).max)
        issues += number_issues(rows, column, values, bad, config.decimal)
        numbers[name], wrong = np.where(bad, np.nan, values), wrong | bad
    return numbers, wrong, issues
