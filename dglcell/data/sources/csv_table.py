"""Strain tables from text files: the general source that every laboratory screen is read through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dglcell.data.sources.csv_config import CsvConfig
from dglcell.data.sources.csv_file import Rows, read_rows, refuse_rows
from dglcell.data.sources.genotypes import read_genotypes
from dglcell.data.sources.replicates import mean_and_sd, select_single
from dglcell.data.table import Provenance, StrainTable
from dglcell.errors import DataError, listing
from dglcell.files import find_raw, sha256_file
from dglcell.graph.names import read_aliases
from dglcell.graph.vocabulary import AliasTable

Column = NDArray[np.float64]


def load_csv(config: CsvConfig, raw: str | None = None) -> StrainTable:
    """Read a table of strains.

    Args:
        config: file, columns and policies.
        raw: folder for relative paths.

    Raises:
        ConfigError: a key is wrong.
        DataError: the file or one of its rows is unusable; the message names the line.
    """
    config.validate()
    path = find_raw(config.path, raw)
    provenance = Provenance(
        source="csv",
        description=f"strains of {path.name}",
        files={path.name: sha256_file(path)},
        parameters=asdict(config),
    )
    return table_of_rows(read_rows(path, config.separator), config, provenance, _aliases(config, raw))


def _aliases(config: CsvConfig, raw: str | None) -> tuple[AliasTable, Path | None]:
    if config.aliases is None:
        return AliasTable.empty(), None
    path = find_raw(config.aliases, raw)
    return read_aliases(path), path


def table_of_rows(
    rows: Rows,
    config: CsvConfig,
    provenance: Provenance,
    aliases: tuple[AliasTable, Path | None] = (AliasTable.empty(), None),
) -> StrainTable:
    """Turn rows into strains: filter, resolve names, read numbers, merge replicates.

    The mean of replicate rows has the standard deviation over them (n − 1) and no p-value, since p-values
    of replicates do not average. Strains keep the order and gene order of their first row.

    Args:
        rows: a whole table.
        config: columns and policies; its ``path`` is not read again.
        provenance: completed with counts and the alias table's hash.
        aliases: other names of genes, and their file.

    Raises:
        DataError: a row is unusable; the message names the line.
    """
    read = len(rows)
    for column, value in config.where.items():
        rows = rows.where(column, value)
    chosen = len(rows)
    phenotypes = _numbers(rows, config.phenotypes, "phenotypes", config.na_values)
    measured = _measured(rows, phenotypes, config)
    rows = rows.keep(measured)
    phenotypes = {name: values[measured] for name, values in phenotypes.items()}
    p_values = _numbers(rows, config.p_values, "p_values", config.na_values)
    sds = _numbers(rows, config.sds, "sds", config.na_values)
    genotypes = read_genotypes(rows, config.genes, aliases[0], config.ignore_genes)
    keys = genotypes.keys
    _, first, sizes = np.unique(keys, return_index=True, return_counts=True)
    single = sizes == 1
    if config.replicates == "refuse":
        repeated = ~np.isin(np.arange(len(keys)), first)
        refuse_rows(rows, repeated, "these genes were listed before", config.genes, do="set `replicates: mean`")
    merged = {name: mean_and_sd(values, keys, len(first)) for name, values in phenotypes.items()}
    if sds or not single.all():
        given = {name: select_single(values, first, single) for name, values in sds.items()}
        sds = {name: np.where(single & (name in given), given.get(name, sd), sd) for name, (_, sd) in merged.items()}
    genes, offsets = genotypes.pack(first)
    counts = {
        "rows": read,
        "rows_filtered_out": read - chosen,
        "rows_not_measured": chosen - len(rows),
        "strains": len(first),
        "strains_with_replicates": int((~single).sum()),
        "replicate_rows_merged": len(keys) - len(first),
        "genes": len(genotypes.names),
    }
    alias_file = {} if aliases[1] is None else {aliases[1].name: sha256_file(aliases[1])}
    return StrainTable(
        names=genotypes.names,
        genes=genes,
        offsets=offsets,
        phenotypes={name: mean.astype(np.float32) for name, (mean, _) in merged.items()},
        p_values={name: select_single(values, first, single).astype(np.float32) for name, values in p_values.items()},
        sds={name: values.astype(np.float32) for name, values in sds.items()},
        units={name: config.units.get(name, "") for name in phenotypes},
        provenance=replace(
            provenance, files={**provenance.files, **alias_file}, counts={**provenance.counts, **counts}
        ),
    )


def _measured(rows: Rows, phenotypes: Mapping[str, Column], config: CsvConfig) -> NDArray[np.bool_]:
    """[rows] whether a row has at least one phenotype."""
    measured: NDArray[np.bool_] = np.any([~np.isnan(values) for values in phenotypes.values()], axis=0)
    columns = list(config.phenotypes.values())
    if not measured.any():
        raise DataError(
            f"'{rows.file}': no row has a phenotype",
            expected="numbers in " + listing(columns),
            do="check `phenotypes` and `na_values`",
        )
    if config.missing == "refuse":
        refuse_rows(
            rows,
            ~measured,
            "no phenotype is measured",
            columns,
            expected="a number in " + listing(columns),
            do="mend the row, or set `missing: drop` to leave such rows out",
        )
    return measured


def _numbers(rows: Rows, columns: Mapping[str, str], key: str, na_values: Sequence[str]) -> dict[str, Column]:
    """Columns of finite numbers; NaN where a cell is one of ``na_values``."""
    import pandas as pd

    numbers = {}
    for name, column in columns.items():
        cells = rows.column(column, key).str.strip()
        missing = cells.isin(list(na_values)).to_numpy()
        values = pd.to_numeric(cells.mask(missing), errors="coerce").to_numpy(dtype=np.float64)
        # A number beyond float32 would become infinite in the table.
        bad = ~missing & ~(np.abs(values) <= np.finfo(np.float32).max)
        refuse_rows(
            rows,
            bad,
            f"column '{column}' does not hold a finite number",
            [column],
            expected=f"a number, or one of {listing(map(repr, na_values))}",
            do='mend the cell, or add it to `na_values` if it means "not measured"',
        )
        numbers[name] = values
    return numbers
