"""Read a user's table of strains: find its columns, the names in it and its faults in one pass."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dglcell.config.published import format_offer, named
from dglcell.data.changes import Changes
from dglcell.data.columns import MEDIUM
from dglcell.data.sources.config import CsvConfig
from dglcell.data.sources.csv_table import Measured, find_measured
from dglcell.data.sources.guides import MISMATCH
from dglcell.data.sources.replicates import strain_numbers
from dglcell.data.sources.text_table import read_rows
from dglcell.data.table import Issue, IssuesError, Rows, describe_issues
from dglcell.errors import ConfigError, DataError, GraphError, count, listing
from dglcell.files.atomic import find_raw
from dglcell.graph.catalogue import GENE_SETS
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.names import add_names, named_aliases, names_of_genes, way_out
from dglcell.graph.vocabulary import AliasTable, form_of
from dglcell.new_experiment.cell import Downloads, cell_keys
from dglcell.new_experiment.columns import ALLELES, WantedTable, about_words, column_keys, find_columns, no_numbers
from dglcell.new_experiment.faults import CONTRADICTING, blank_genes, unequal_rows, write_clean

ALL_WILD_TYPE = "no column of genes was found, so all rows are the wild type; `--genes COLUMN` names one"

MANY = 0.1
"""A name that no gene has and that stands in a larger share of the rows may be that of a control."""

SHOWN = 10
"""Messages name at most so many genes."""


@dataclass(frozen=True)
class OwnTable:
    """Describe a table without faults as an experiment reads it.

    Attributes:
        keys: keys of `data.source.csv`.
        cell: the cell graph, with the names that the table uses.
        drops: whether strains have genes that the cell graph lacks.
        notes: texts about the table for the user.
        strength_from: conditions that what is left of genes is learned from; none where the table says it.
    """

    keys: dict[str, Any]
    cell: CellGraph
    drops: bool = False
    notes: list[str] = field(default_factory=list)
    strength_from: list[str] = field(default_factory=list)


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
    config, notes = find_columns(rows, wanted, cell.genes)
    if not config.genes:
        notes.insert(0, ALL_WILD_TYPE)
    aliases = AliasTable() if wanted.aliases is None else named_aliases(wanted.aliases, downloads.raw)[0]
    found = find_measured(rows, config, aliases, cell.genes)
    if wanted.aliases is None and (unknown := found.changes.unknown(cell.genes)):
        cell = _with_more_names(cell, unknown, downloads)
        # Genes that the catalogue knows and the cell graph lacks are no mistakes.
        aliases = _catalogue_names(cell, downloads.raw)
        found = find_measured(rows, config, aliases, cell.genes)
    unknown = found.changes.unknown(cell.genes)
    if unknown and len(unknown) == len(found.changes.meant):
        raise DataError(
            "the cell graph has none of the genes that are deleted",
            got=listing(unknown),
            expected="names like " + cell.genes.examples(),
            do=way_out(unknown, cell.genes)
            or "; ".join(
                [
                    *_names_to_fetch(cell, downloads),
                    "choose another `--cell`, or give a table of other names of genes with `--aliases FILE`",
                ]
            ),
        )
    issues = _issues(found, config, wanted, cell)
    if issues:
        if wanted.clean is None:
            fetch = _names_to_fetch(cell, downloads) if unknown and wanted.aliases is None else []
            advice = [*_controls(found.changes, unknown), *fetch]
            advice += _advice(rows, issues, config, wanted, downloads.command)
            raise IssuesError(rows, issues, "; ".join(advice))
        if wanted.clean.exists() and wanted.clean.samefile(find_raw(str(wanted.path), downloads.raw)):
            raise ConfigError("`--write-clean` names the table itself", got=wanted.clean, do="choose another file")
        left_out = write_clean(rows, issues, wanted.clean)
        notes += [
            f"clean copy  {wanted.clean}: {count(left_out, 'row')} left out, other faults mended",
            *describe_issues(rows, issues),
        ]
        rows, config = read_rows(wanted.clean), replace(config, path=str(wanted.clean))
        found = find_measured(rows, config, aliases, cell.genes)
    lacking = len(rows) - len(found.rows)
    other = {text: gene for text, gene in found.changes.meant.items() if gene in cell.genes and text != gene}
    chosen = wanted.aliases or (_choose_aliases(other, name, downloads.raw) if other else None)
    config = replace(config, missing="drop" if lacking else "refuse", aliases=chosen)
    if chosen is not None:
        are = "is no systematic one" if len(other) == 1 else "are not systematic"
        of = count(len(found.changes.meant), "name")
        notes.append(f"names       {len(other):,} of {of} {are}: `aliases: {chosen}`")
    alleles = list(filter(ALLELES.fullmatch, config.conditions))
    learned = [] if found.changes.left is not None else [MISMATCH] if config.guides else alleles
    return OwnTable(
        column_keys(config),
        cell,
        bool(found.changes.unknown(cell.genes)),
        [*notes, *_notes(found, config, lacking)],
        learned,
    )


def _issues(found: Measured, config: CsvConfig, wanted: WantedTable, cell: CellGraph) -> list[Issue]:
    """Return everything that is wrong with a table, or looks so."""
    genes = cell.genes
    return [
        *found.issues,
        # Genes whose names are like those of others may be right, and missing from the cell graph.
        *found.changes.unknown_issues(genes, lambda name: form_of(name) in genes.forms),
        *([] if wanted.keep_blank else blank_genes(found, config)),
        *([] if wanted.average else unequal_rows(found, config, contradicting=True)),
    ]


def _names_to_fetch(cell: CellGraph, downloads: Downloads) -> list[str]:
    """Return advice on how to download the catalogue's names, where they are not here and nobody was asked."""
    listed = names_of_genes(cell.genes)
    if listed is None or downloads.confirm is not None:
        return []
    (names,) = named(GENE_SETS[listed].file.path)
    if names.is_here(downloads.folder):
        return []
    return [f"`{downloads.command} --fetch` downloads other names of genes ({format_offer([names])})"]


def _advice(rows: Rows, issues: Sequence[Issue], config: CsvConfig, wanted: WantedTable, command: str) -> list[str]:
    """Return advice on what to do about faults; text in backticks can be pasted into a shell."""
    table = wanted.path
    clean = table.with_name(f"{table.name.removesuffix('.gz').rpartition('.')[0] or table.name}.clean.csv")
    copied = f"{command} --write-clean {shlex.quote(str(clean))}"
    advice = [f"mend these lines; or `{copied}` writes a copy without them, and goes on with it"]
    if not config.genes:
        advice.insert(0, ALL_WILD_TYPE)
    words = [name for name in config.phenotypes if no_numbers(rows, name, config)]
    if words:
        return [about_words(rows, name) for name in words]
    if any(issue.kind == CONTRADICTING for issue in issues):
        advice.append(f"if they are replicates that vary so much, `{command} --average` takes their mean")
    if words := list(dict.fromkeys(issue.word for issue in issues if issue.word is not None)):
        options = " ".join(shlex.quote(f"--na-values={word}") for word in words)
        advice.append(f'if words mean "not measured", add `{options}`')
    if len(config.phenotypes) > 1 and not wanted.phenotypes:
        advice.append("if a column is no phenotype, name those that are with `--phenotypes COLUMN …`")
    return advice


CONTROL = re.compile(
    r"(ctrl|control|contr|wt|wild[ _-]?type|none|na|-|ho|neg(ative)?|ntc?|non[ _-]?targeting|scrambled?|safe)"
    r"([ _-]?[0-9]+)?",
    re.IGNORECASE,
)
"""Names like these stand in the place of a gene where nothing is deleted."""


def _controls(changes: Changes, unknown: Sequence[str]) -> list[str]:
    """Return advice on names that no gene has and that look like those of controls, or stand in many rows."""
    times = {name: len(rows) for name, rows in changes.where(unknown).items()}
    found = [name for name in times if CONTROL.fullmatch(name) or times[name] > MANY * len(changes.rows)]
    if not found:
        return []
    stems = {name: name.rstrip("0123456789") for name in found}
    alike = Counter(stems.values())
    words = dict.fromkeys(f"{stem}*" if stem and alike[stem] > 1 else name for name, stem in stems.items())
    shown = listing(map(repr, found), 3)
    return [
        f"if {shown} {'stands' if len(found) == 1 else 'stand'} for no deletion, as controls do, add `--ignore "
        f"{' '.join(shlex.quote(word) for word in words)}`: {count(sum(times[name] for name in found), 'row')} then "
        "delete the other genes alone, or are the wild type"
    ]


def _notes(found: Measured, config: CsvConfig, lacking: int) -> list[str]:
    """Return what to tell the user about how a table is read."""
    import pandas as pd

    notes = []
    if config.decimal != ".":
        notes.append('numbers have decimal commas: `decimal: ","`')
    if lacking:
        notes.append(f"left out    {count(lacking, 'row')} without a phenotype: `missing: drop`")
    numbers = strain_numbers(found.strains)
    again = len(numbers) - len(np.unique(numbers))
    same = pd.DataFrame({"strain": numbers, **found.strains.phenotypes}).duplicated().sum()
    if again:
        what = "strains" if config.has_conditions or found.strains.strengths is not None else "genes"
        notes.append(f"repeated    {count(again, 'row')} of {what} listed before, {same:,} with equal values: averaged")
        notes += describe_issues(found.rows, unequal_rows(found, config, contradicting=False))
    if MEDIUM in config.conditions:
        notes.append("media       are names only; `cell.media` says what cells take up in each")
    return notes


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
    return cell.with_genes(vocabulary)


def _catalogue_names(cell: CellGraph, raw: str | None) -> AliasTable:
    """Return the names of the catalogue for genes like those of a cell graph, as far as they are here."""
    listed = names_of_genes(cell.genes)
    with suppress(DataError):
        if listed is not None:
            return named_aliases(listed, raw)[0]
    return AliasTable()


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
