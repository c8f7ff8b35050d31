"""Read strain tables from text files with a header, one row per strain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dglcell.data.columns import MEDIUM, Provenance, columns_of, condition_columns
from dglcell.data.sources.config import CsvConfig
from dglcell.data.sources.replicates import REFUSE, merge_replicates, strain_numbers
from dglcell.data.sources.text_table import (
    Mistakes,
    Numbers,
    Rows,
    read_genotypes,
    read_numbers,
    read_rows,
    refuse_lost,
)
from dglcell.data.strains import Strains
from dglcell.errors import DataError, GenotypeError, listing
from dglcell.files.atomic import find_raw, sha256_file
from dglcell.graph.edge_targets import EDGE_FORM, EDGES, NO_EDGES, edge_text
from dglcell.graph.names import named_aliases
from dglcell.graph.vocabulary import AliasTable

if TYPE_CHECKING:
    import pandas as pd


def load_csv(config: CsvConfig, raw: str | None = None) -> Strains:
    """Read a table of strains.

    Args:
        config: file, columns and policies.
        raw: folder for relative paths.

    Raises:
        ConfigError: a key is wrong.
        DataError: the file or one of its rows is unusable; the message names the line.
    """
    return merge_replicates(measure_csv(config, raw))


def measure_csv(config: CsvConfig, raw: str | None = None) -> Strains:
    """Read the rows of a table of strains; arguments and errors are those of ``load_csv``."""
    config.validate()
    path = find_raw(config.path, raw)
    provenance = Provenance(
        source="csv",
        description=f"strains of {path.name}",
        files={path.name: sha256_file(path)},
        parameters=asdict(config),
    )
    return measure_rows(read_rows(path), config, provenance, find_aliases(config.aliases, raw))


def find_aliases(aliases: str | None, raw: str | None) -> tuple[AliasTable, Path | None]:
    """Read the alias table of a configuration, and return it with its file.

    Raises:
        DataError: the file is not there.
        GraphError: it is no alias table.
    """
    if aliases is None:
        return AliasTable(), None
    return named_aliases(aliases, raw)


def measure_rows(
    rows: Rows,
    config: CsvConfig,
    provenance: Provenance,
    aliases: tuple[AliasTable, Path | None] = (AliasTable(), None),
) -> Strains:
    """Turn rows of text into measurements: filter, resolve names, read numbers.

    Args:
        rows: a whole table.
        config: columns and policies; its ``path`` is not read again.
        provenance: completed with counts and the alias table's hash.
        aliases: other names of genes, and their file.

    Raises:
        DataError: rows are unusable; the message names their lines, for each kind of mistake.
    """
    read = len(rows)
    for column, value in config.where.items():
        rows = rows.where(column, value)
    chosen = len(rows)
    rows, config = _in_each_medium(rows, config)
    mistakes = Mistakes(rows.file)
    for column in config.phenotypes.values():
        refuse_lost(rows.file, column)
    phenotypes, wrong = _numbers(rows, config.phenotypes, "phenotypes", config, mistakes)
    measured = wrong | _measured(rows, phenotypes, wrong, config, mistakes)
    rows = rows.keep(measured)
    phenotypes = {name: values[measured] for name, values in phenotypes.items()}
    p_values, _ = _numbers(rows, config.p_values, "p_values", config, mistakes)
    sds, _ = _numbers(rows, config.sds, "sds", config, mistakes)
    strains = read_genotypes(
        rows,
        config.genes,
        aliases[0],
        config.ignore_genes,
        mistakes,
        config.strengths,
        may_be_empty=config.has_conditions,
    )
    conditions = condition_columns(_conditions(rows, config, mistakes))
    strains = strains.with_(columns=conditions)
    if config.replicates == REFUSE:
        first = np.unique(strain_numbers(strains), return_index=True)[1]
        again = ~np.isin(np.arange(len(rows)), first)
        mistakes.add(rows, again, "this strain was listed before", config.genes, do="set `replicates: mean`")
    mistakes.refuse()
    counts = {
        "rows": read,
        "rows_filtered_out": read - chosen,
        "rows_not_measured": chosen - len(np.unique(rows.lines)),  # a row may be measured in several media
        "rows_with_the_same_cells": int(rows.frame.duplicated().sum()),
    }
    alias_file = {} if aliases[1] is None else {aliases[1].name: sha256_file(aliases[1])}
    return strains.with_(
        columns={**columns_of(phenotype=phenotypes, p_value=p_values, sd=sds), **conditions},
        units={name: config.units.get(name, "") for name in phenotypes},
        provenance=replace(
            provenance, files={**provenance.files, **alias_file}, counts={**provenance.counts, **counts}
        ),
    )


def _measured(
    rows: Rows, phenotypes: Mapping[str, Numbers], wrong: NDArray[np.bool_], config: CsvConfig, mistakes: Mistakes
) -> NDArray[np.bool_]:
    """Return which rows have at least one phenotype, [rows]; a row may lack one, or have only ``wrong`` ones."""
    measured: NDArray[np.bool_] = np.any([~np.isnan(values) for values in phenotypes.values()], axis=0)
    columns = list(config.phenotypes.values())
    if not (measured | wrong).any():
        raise DataError(
            f"'{rows.file}': no row has a phenotype",
            expected="numbers in " + listing(columns),
            do="check `phenotypes` and `na_values`",
        )
    if config.missing == "refuse":
        mistakes.add(
            rows,
            ~(measured | wrong),
            "no phenotype is measured",
            columns,
            expected="a number in " + listing(columns),
            do="mend the row, or set `missing: drop` to leave such rows out",
        )
    return measured


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
        conditions={**config.conditions, MEDIUM: f"{MEDIUM} of the column"},
    )
    return Rows(rows.file, pd.concat(frames, ignore_index=True), np.concatenate(lines)), changed


def _conditions(rows: Rows, config: CsvConfig, mistakes: Mistakes) -> dict[str, NDArray[Any]]:
    """Return the conditions of the rows: numbers where all cells of the column are numbers, else texts."""
    found: dict[str, NDArray[Any]] = {}
    for name, column in config.conditions.items():
        cells = rows.column(column, "conditions").str.strip()
        if name == EDGES:
            found[name] = _edges(rows, column, cells, mistakes)
            continue
        numbers, missing = read_numbers(cells, config.decimal, config.na_values)
        mistakes.add(
            rows,
            missing,
            f"condition '{name}' is missing",
            [column],
            expected="a number or a text for every strain",
            do="fill the cell, or leave the row out",
        )
        texts = cells.mask(missing, "missing").to_numpy(dtype=str)
        found[name] = np.nan_to_num(numbers) if np.isfinite(numbers[~missing]).all() else texts
    if config.guides is not None:
        written = zip(*(rows.column(column, "guides") for column in config.guides.columns), strict=True)
        found |= config.guides.conditions(list(written), rows.file)
    return found


def _edges(rows: Rows, column: str, cells: pd.Series, mistakes: Mistakes) -> NDArray[Any]:
    """Return which edges the rows change, as texts that are equal where the changes are; a row may change none."""
    texts, wrong = dict[str, str](), []
    for cell in cells.unique():
        try:
            texts[cell] = edge_text(cell)
        except GenotypeError:
            wrong.append(cell)
    mistakes.add(
        rows,
        cells.isin(wrong).to_numpy(),
        "changed edges cannot be read",
        [column],
        expected=EDGE_FORM,
        do="leave the cell empty where a strain changes no edge",
    )
    return cells.map(texts).fillna(NO_EDGES).to_numpy(dtype=str)


def _numbers(
    rows: Rows, columns: Mapping[str, str], key: str, config: CsvConfig, mistakes: Mistakes
) -> tuple[dict[str, Numbers], NDArray[np.bool_]]:
    """Return columns of finite numbers, NaN where there is none, and which rows have a wrong cell, [rows]."""
    numbers, wrong = {}, np.zeros(len(rows), dtype=bool)
    words = [repr(word) for word in dict.fromkeys(["", "NA", "N/A", "NaN", *config.na_values])]
    for name, column in columns.items():
        cells = rows.column(column, key)
        values, missing = read_numbers(cells, config.decimal, config.na_values)
        # A number beyond the range of float32 would become infinite in the table.
        bad = ~missing & ~(np.abs(values) <= np.finfo(np.float32).max)
        commas = config.decimal == "." and cells[bad].str.strip().str.fullmatch(r"[+-]?\d+,\d+").mean() > 0.5
        mistakes.add(
            rows,
            bad,
            f"column '{column}' does not hold a finite number",
            [column],
            expected=f"a number, or one of {listing(words)}",
            do='set `decimal: ","`, or write numbers with decimal points'
            if commas
            else 'mend the cell, or add it to `na_values` if it means "not measured"',
        )
        numbers[name], wrong = np.where(bad, np.nan, values), wrong | bad
    return numbers, wrong
