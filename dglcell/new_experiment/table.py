"""Read a user's table of strains: find its columns, the names in it and its faults in one pass."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dglcell.config.published import format_offer, named
from dglcell.data.sources.config import DECIMALS
from dglcell.data.sources.csv_table import read_numbers
from dglcell.data.sources.faults import (
    Fault,
    FaultsError,
    TableColumns,
    Written,
    describe_faults,
    find_faults,
    na_options,
    write_clean,
)
from dglcell.data.sources.text_table import Rows, read_rows
from dglcell.errors import ConfigError, DataError, GraphError, count, listing
from dglcell.files.atomic import find_raw
from dglcell.graph.catalogue import GENE_SETS
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.names import add_names, named_aliases, names_of_genes
from dglcell.graph.schema import GENE
from dglcell.graph.vocabulary import AliasTable
from dglcell.new_experiment.cell import Downloads, cell_keys

GENE_COLUMN = re.compile(r"genes|gene[_ ]?(\d*|[a-d])", re.IGNORECASE)

SHOWN = 10
"""Messages name at most so many genes."""


@dataclass(frozen=True)
class WantedTable:
    """These settings say how the user wants a table to be read.

    Attributes:
        path: path of the table.
        genes: its gene columns; found by their names where empty.
        phenotypes: its columns of phenotypes; all other columns of numbers where empty.
        aliases: other names of genes; found where None.
        na_values: cells that mean "not measured", beside empty ones, NA, N/A and NaN.
        clean: where a copy without faults is written, which is then read in its place.
        keep_blank: whether rows with a blank gene are strains with fewer deletions, however few they are.
    """

    path: Path
    genes: Sequence[str] = ()
    phenotypes: Sequence[str] = ()
    aliases: str | None = None
    na_values: Sequence[str] = ()
    clean: Path | None = None
    keep_blank: bool = False


@dataclass(frozen=True)
class OwnTable:
    """This is a table without faults.

    Attributes:
        keys: keys of `data.source.csv`.
        cell: the cell graph, with the names that the table uses.
        drops: whether strains have genes that the cell graph lacks.
        notes: texts about the table for the user.
    """

    keys: dict[str, Any]
    cell: CellGraph
    drops: bool = False
    notes: list[str] = field(default_factory=list)


def read_own_table(wanted: WantedTable, cell: CellGraph, name: str, downloads: Downloads) -> OwnTable:
    """Read a table, find its columns and the names of its genes, and refuse faults or leave them out.

    Args:
        wanted: the table.
        cell: the cell graph.
        name: name of the cell, as `--cell` takes it.
        downloads: how files of names are downloaded.

    Raises:
        DataError: columns cannot be told, or rows have faults.
        ConfigError: the copy would replace the table.
    """
    rows = read_rows(find_raw(str(wanted.path), downloads.raw))
    genes = list(wanted.genes) or [column for column in rows.frame.columns if GENE_COLUMN.fullmatch(column)]
    columns, notes = _columns(rows, genes, wanted)
    aliases = AliasTable.empty() if wanted.aliases is None else named_aliases(wanted.aliases, downloads.raw)[0]
    written = Written.of(rows, genes, cell.genes, aliases)
    if wanted.aliases is None and written.unknown:
        cell = _with_more_names(cell, written.unknown, downloads)
        # Genes that the catalogue knows and the cell graph lacks are no mistakes.
        aliases = _catalogue_names(cell, downloads.raw)
        written = Written.of(rows, genes, cell.genes, aliases)
    if len(written.unknown) == len(written.meant):
        raise DataError(
            "the cell graph has none of the genes that are deleted",
            got=listing(written.unknown),
            expected="names like " + listing(cell.genes.names, 5),
            do="; ".join(
                [
                    *_names_to_fetch(cell, downloads),
                    "choose another `--cell`, or give a table of other names of genes with `--aliases FILE`",
                ]
            ),
        )
    faults = find_faults(rows, columns, written, cell.genes)
    path = wanted.path
    if faults:
        if wanted.clean is None:
            fetch = _names_to_fetch(cell, downloads) if written.unknown and wanted.aliases is None else []
            advice = [*fetch, *_advice(faults, columns, wanted, downloads.command)]
            raise FaultsError(rows, faults, "; ".join(advice))
        path = wanted.clean
        if path.exists() and path.samefile(find_raw(str(wanted.path), downloads.raw)):
            raise ConfigError("`--write-clean` names the table itself", got=path, do="choose another file")
        left_out = write_clean(rows, faults, path)
        notes += [
            f"clean copy  {path}: {count(left_out, 'row')} left out, other faults mended",
            *describe_faults(rows, faults),
        ]
        rows = read_rows(path)
        written = Written.of(rows, genes, cell.genes, aliases)
    keys = {"path": str(path), "genes": genes, "phenotypes": {column: column for column in columns.phenotypes}}
    how, more = _reading(rows, columns, written)
    keys |= how
    other = {text: gene for text, gene in written.meant.items() if gene in cell.genes and text != gene}
    chosen = wanted.aliases or _choose_aliases(other, name, downloads.raw)
    if chosen is not None:
        keys["aliases"] = chosen
        are = "is no systematic one" if len(other) == 1 else "are not systematic"
        notes.append(f"names       {len(other):,} of {count(len(written.meant), 'name')} {are}: `aliases: {chosen}`")
    return OwnTable(keys, cell, bool(written.unknown), [*notes, *more])


def _names_to_fetch(cell: CellGraph, downloads: Downloads) -> list[str]:
    """Return advice on how to download the catalogue's names, where they are not here and nobody was asked."""
    listed = names_of_genes(cell.genes)
    if listed is None or downloads.confirm is not None:
        return []
    (names,) = named(GENE_SETS[listed].file.path)
    if names.is_here(downloads.folder):
        return []
    return [f"`{downloads.command} --fetch` downloads other names of genes ({format_offer([names])})"]


def _advice(faults: Sequence[Fault], columns: TableColumns, wanted: WantedTable, command: str) -> list[str]:
    """Return advice on what to do about faults; text in backticks can be pasted into a shell."""
    table = wanted.path
    clean = table.with_name(f"{table.name.removesuffix('.gz').rpartition('.')[0] or table.name}.clean.csv")
    copied = f"{command} --write-clean {shlex.quote(str(clean))}"
    advice = [f"mend these lines; or `{copied}` writes a copy without them, and goes on with it"]
    if options := na_options(faults):
        advice.append(f'if words mean "not measured", add `{options}`')
    if len(columns.phenotypes) > 1 and not wanted.phenotypes:
        advice.append("if a column is no phenotype, name those that are with `--phenotypes COLUMN …`")
    return advice


def _columns(rows: Rows, genes: Sequence[str], wanted: WantedTable) -> tuple[TableColumns, list[str]]:
    """Find the columns of genes and of phenotypes, which are those asked for or all that are mostly numbers.

    Raises:
        DataError: there are no columns of genes or of phenotypes.
    """
    others = [name for name in rows.frame.columns if name not in genes and name in (wanted.phenotypes or [name])]
    read = {mark: [read_numbers(rows.frame[name], mark, wanted.na_values) for name in others] for mark in DECIMALS}
    # This is the decimal mark with which most cells are numbers, or a point where both marks do equally well.
    decimal = max(DECIMALS, key=lambda mark: sum(int((~np.isnan(values)).sum()) for values, _ in read[mark]))
    found = list(wanted.phenotypes)
    if not found:
        for name, (values, missing) in zip(others, read[decimal], strict=True):
            if 2 * (~missing & np.isnan(values)).sum() < (~missing).sum():
                found.append(name)
    for what, given, option in (("genes", genes, "--genes"), ("phenotypes", found, "--phenotypes")):
        if not given:
            raise DataError(
                f"'{rows.file}': which columns are {what}?",
                got="columns " + listing(rows.frame.columns, 30),
                expected="gene_1, gene_2, … or genes" if what == "genes" else "a column of numbers",
                do=f"name them: `{option} COLUMN …`",
            )
    several = len(found) > 1 and not wanted.phenotypes
    notes = ["phenotypes are all columns of numbers; choose with `--phenotypes COLUMN …`"] if several else []
    for name in found:
        rows.column(name, "--phenotypes")
    return TableColumns(genes, found, decimal, wanted.na_values, wanted.keep_blank), notes


def _reading(rows: Rows, columns: TableColumns, written: Written) -> tuple[dict[str, Any], list[str]]:
    """Return how the table is read, as keys of `data.source.csv`, and what to tell the user about it."""
    keys: dict[str, Any] = {"na_values": list(columns.na_values)} if columns.na_values else {}
    notes = []
    if columns.decimal != ".":
        keys["decimal"] = columns.decimal
        notes.append('numbers have decimal commas: `decimal: ","`')
    read = [read_numbers(rows.frame[name], columns.decimal, columns.na_values) for name in columns.phenotypes]
    lacking = np.all([missing for _, missing in read], axis=0)
    if lacking.any():
        keys["missing"] = "drop"
        notes.append(f"left out    {count(int(lacking.sum()), 'row')} without a phenotype: `missing: drop`")
    strains = [frozenset(written.found(row)) for row in np.flatnonzero(~lacking).tolist()]
    values = zip(*(numbers[~lacking].astype(str).tolist() for numbers, _ in read), strict=True)
    again, same = len(strains) - len({*strains}), len(strains) - len({*zip(strains, values, strict=True)})
    if again:
        notes.append(f"repeated    {count(again, 'row')} of genes listed before, {same:,} with equal values: averaged")
    return keys, notes


def _with_more_names(cell: CellGraph, unknown: Sequence[str], downloads: Downloads) -> CellGraph:
    """Return the cell graph with the names of the catalogue, which are downloaded if the user agrees."""
    listed = names_of_genes(cell.genes)
    if listed is None:
        return cell
    (names,) = named(GENE_SETS[listed].file.path)
    if names.is_here(downloads.folder) or downloads.confirm is None:
        return cell
    with suppress(ConfigError):
        downloads.have([names], f"{count(len(unknown), 'name')} ({listing(unknown, 3)}) may be known to `{listed}`")
    vocabulary, _ = add_names(cell.genes, [cell.genes.others], downloads.raw)
    return replace(cell, vocabularies={**cell.vocabularies, GENE: vocabulary})


def _catalogue_names(cell: CellGraph, raw: str | None) -> AliasTable:
    """Return the names of the catalogue for genes like those of a cell graph, as far as they are here."""
    listed = names_of_genes(cell.genes)
    with suppress(DataError):
        if listed is not None:
            return named_aliases(listed, raw)[0]
    return AliasTable.empty()


def _choose_aliases(other: dict[str, str], cell: str, raw: str | None) -> str | None:
    """Choose the gene set of the catalogue, or the metabolic model, with most of the names that are not systematic."""
    model = cell_keys(cell).get("cell", {}).get("model")
    candidates = [names_of_genes(other.values()), model]
    best, most = None, 0
    for name in filter(None, candidates):
        with suppress(DataError, GraphError):
            table = named_aliases(name, raw)[0]
            found, _ = table.resolve(list(other), table.targets, spelled=True)
            known = sum(gene == meant for gene, meant in zip(found, other.values(), strict=True))
            best, most = (name, known) if known > most else (best, most)
    return best
