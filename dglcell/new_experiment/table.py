"""Read a user's table of strains: find its columns, the names in it and its faults in one pass."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dglcell.data.columns import MEDIUM
from dglcell.data.sources.config import CsvConfig
from dglcell.data.sources.csv_table import MISMATCH, Measured, find_measured, strain_numbers
from dglcell.data.sources.text_table import read_rows
from dglcell.data.table import Issue, IssuesError, Rows, by_text, describe_issues, read_numbers
from dglcell.errors import ConfigError, DataError, count, listing
from dglcell.files.atomic import atomic_file, find_raw
from dglcell.graph.cell_graph import CellGraph
from dglcell.graph.model_files import named_aliases
from dglcell.graph.vocabulary import form_of, way_out
from dglcell.new_experiment.cell import Wanted, choose_aliases, names_to_fetch, with_catalogue
from dglcell.new_experiment.columns import ALLELES, about_words, find_columns
from dglcell.new_experiment.settings import OTHER_CELL

ALL_WILD_TYPE = "no column of genes was found, so all rows are the wild type; `--genes COLUMN` names one"

CONTRADICTING = "contradiction"
"""Issues of this kind are alike, so that a few examples of them say enough."""

SPREAD = 3.0
"""Standard deviations by which rows of the same genes may differ, estimated by the median deviation."""

NEARLY_ALL, FEW_BLANK = 0.95, 20
"""Where at least this share of the rows fills all columns of genes, a blank is a fault."""


class OwnTable(NamedTuple):
    """Describe a table without faults as an experiment reads it."""

    config: CsvConfig  #: what its columns hold
    cell: CellGraph  #: with the names that the table uses
    drops: bool  #: strains have genes that the cell graph lacks
    notes: list[str]  #: what the user has to know
    activity_from: list[str]  #: covariates that what is left of genes is learned from


def read_own_table(wanted: Wanted, cell: CellGraph) -> OwnTable:
    """Read a table, find its columns and the names of its genes, and refuse faults or leave them out."""
    path = find_raw(str(wanted.table), wanted.raw)
    rows = read_rows(path)
    config, notes = find_columns(rows, wanted, cell.genes)
    if not config.genes:
        notes.insert(0, ALL_WILD_TYPE)
    aliases = named_aliases(wanted.aliases, wanted.raw)[0]
    found = find_measured(rows, config, aliases, cell.genes)
    if wanted.aliases is None and (unknown := found.changes.unknown(cell.genes)):
        cell, aliases = with_catalogue(cell, unknown, wanted)
        found = find_measured(rows, config, aliases, cell.genes)
    unknown = found.changes.unknown(cell.genes)
    if unknown and len(unknown) == len(found.changes.meant):
        do = way_out(unknown, cell.genes) or "; ".join([*names_to_fetch(cell, wanted), OTHER_CELL])
        what, expected = "the cell graph has none of the genes that are deleted", f"names like {cell.genes.examples()}"
        raise DataError(what, got=listing(unknown), expected=expected, do=do)
    if issues := _issues(found, config, wanted, cell):
        if (clean := wanted.write_clean) is None:
            raise IssuesError(rows, issues, *_advice(rows, issues, found, config, wanted, cell))
        if clean.exists() and clean.samefile(path):
            raise ConfigError("`--write-clean` names the table itself", got=clean, do="choose another file")
        left_out = count(_write_clean(rows, issues, clean), "row")
        notes += [f"clean copy  {clean}: {left_out} left out, other faults mended", *describe_issues(rows, issues)]
        rows, config = read_rows(clean), replace(config, path=str(clean))
        found = find_measured(rows, config, aliases, cell.genes)
    lacking = len(rows) - len(found.rows)
    other = {text: gene for text, gene in found.changes.meant.items() if gene in cell.genes and text != gene}
    chosen = wanted.aliases or (choose_aliases(other, wanted) if other else None)
    config = replace(config, missing="drop" if lacking else "refuse", aliases=chosen)
    if chosen is not None:
        are = "is no systematic one" if len(other) == 1 else "are not systematic"
        of = count(len(found.changes.meant), "name")
        notes.append(f"names       {len(other):,} of {of} {are}: `aliases: {chosen}`")
    alleles = list(filter(ALLELES.fullmatch, config.covariates))
    learned = [] if found.changes.left is not None else [MISMATCH] if config.guides else alleles
    notes += _notes(found, config, lacking)
    return OwnTable(config, cell, bool(found.changes.unknown(cell.genes)), notes, learned)


# What is wrong with a table, or looks so.


def _issues(found: Measured, config: CsvConfig, wanted: Wanted, cell: CellGraph) -> list[Issue]:
    return [
        *found.issues,
        # Genes whose names are like those of others may be right, and missing from the cell graph.
        *found.changes.unknown_issues(cell.genes, lambda name: form_of(name) in cell.genes.forms),
        *([] if wanted.keep_blank else _blank_genes(found, config)),
        *([] if wanted.average else _unequal_rows(found, config, contradicting=True)),
    ]


def _blank_genes(found: Measured, config: CsvConfig) -> list[Issue]:
    """Return rows whose blank gene stands out; a screen with single deletions on purpose has more such rows."""
    wanted, rows, numbers = len(config.genes), found.rows, found.changes.numbers
    fewer = np.flatnonzero((numbers > 0) & (numbers < wanted)).tolist()
    full = int((numbers == wanted).sum())
    if config.ignore_genes or len(fewer) >= FEW_BLANK or full < NEARLY_ALL * len(rows):
        return []
    others = f"while {full:,} of {count(len(rows), 'row')} name {wanted} genes (if that is meant: `--keep-blank`)"
    blank = by_text(
        (" and ".join(name for name in config.genes if not rows.frame[name].iloc[row].strip()), row) for row in fewer
    )
    return rows.issues({f"{n} {'are' if ' and ' in n else 'is'} blank, {others}": where for n, where in blank.items()})


def _unequal_rows(found: Measured, config: CsvConfig, *, contradicting: bool) -> list[Issue]:
    """Return rows of the same strain with different values.

    Args:
        contradicting: only those whose values differ by more than different strains do, and by more than half the
            effect.
    """
    issues = list[Issue]()
    numbers, changed = strain_numbers(found.strains), (found.changes.numbers > 0) | config.has_covariates
    for name, column in found.strains.phenotypes.items():
        values, cells, said = column.astype(np.float64), found.rows.frame[config.phenotypes[name]], {}
        known = values[np.isfinite(values)]
        if len(known) < 2:
            continue
        centre = float(np.median(known))
        limit = SPREAD * (1.4826 * float(np.median(np.abs(known - centre))) or float(known.std()))
        usable = np.flatnonzero(np.isfinite(values) & changed)
        usable = usable[np.bincount(numbers[usable], minlength=1)[numbers[usable]] > 1]
        for where in by_text((str(numbers[row]), row) for row in usable.tolist()).values():
            effect = float(np.abs(values[where] - centre).max())
            if np.ptp(values[where]) > (max(limit, effect / 2) if contradicting else 0):
                texts = [cells.iloc[row].strip() for row in where]
                least, most = (texts[int(pick(values[where]))] for pick in (np.argmin, np.argmax))
                shown = " and ".join(texts) if len(texts) < 4 else f"from {least} to {most} in {len(texts)} rows"
                how = "contradicting" if contradicting else "several"
                said[f"{_strain(found, config, where[0])} has {how} values: {name} {shown}"] = where
        issues += found.rows.issues(said, kind=CONTRADICTING if contradicting else "repeated strain")
    return issues


def _strain(found: Measured, config: CsvConfig, row: int) -> str:
    """Return the genes of a row with their activities, and its covariates."""
    genes = [f"{name}:{left}" if left else name for name, left in zip(*found.changes.of_row(row), strict=True)]
    guides = [] if config.guides is None else [name for name in config.guides.columns if name not in config.genes]
    apart = [*config.covariates.values(), *guides]
    return ", ".join([*genes, *(f"{name} {found.rows.frame[name].iloc[row].strip()}" for name in apart)])


def _write_clean(rows: Rows, issues: Sequence[Issue], file: Path) -> int:
    """Write a table without its faults: cells are mended or emptied, and rows left out; return how many of these."""
    frame, out = rows.frame.copy(), np.zeros(len(rows), dtype=bool)
    for issue in issues:
        chosen = np.isin(rows.lines, issue.lines)
        if issue.column is None:
            out |= chosen
        else:
            frame.loc[chosen, issue.column] = issue.cell
    with atomic_file(file) as partial:
        frame[~out].to_csv(partial, index=False, lineterminator="\n")
    return int(out.sum())


# What to do about it; text in backticks can be pasted into a shell.


def _advice(
    rows: Rows, issues: Sequence[Issue], found: Measured, config: CsvConfig, wanted: Wanted, cell: CellGraph
) -> list[str]:
    unknown = found.changes.unknown(cell.genes)
    advice = names_to_fetch(cell, wanted) if unknown and wanted.aliases is None else []
    times = {name: len(where) for name, where in found.changes.where(unknown).items()}
    frequent = max(times, key=times.__getitem__, default="")
    if times.get(frequent, 0) > 1:
        option = f"`--ignore {shlex.quote(frequent)}`"
        advice.append(f"if '{frequent}' stands for no deletion, as controls do, add {option}")
    read = {name: read_numbers(rows.frame[name], config.decimal, config.na_values) for name in config.phenotypes}
    if words := [name for name, (x, gone) in read.items() if not gone.all() and np.isnan(x[~gone]).all()]:
        return [*advice, *(about_words(rows, name) for name in words)]
    assert wanted.table is not None
    stem = wanted.table.name.removesuffix(".gz").rpartition(".")[0] or wanted.table.name
    copied = f"{wanted.command} --write-clean {shlex.quote(str(wanted.table.with_name(f'{stem}.clean.csv')))}"
    advice += [] if config.genes else [ALL_WILD_TYPE]
    advice += ["mend these lines", f"or `{copied}` writes a copy without them, and goes on with it"]
    if any(issue.kind == CONTRADICTING for issue in issues):
        advice.append(f"if they are replicates that vary so much, `{wanted.command} --average` takes their mean")
    if words := list(dict.fromkeys(issue.word for issue in issues if issue.word is not None)):
        options = " ".join(shlex.quote(f"--na-values={word}") for word in words)
        advice.append(f'if words mean "not measured", add `{options}`')
    if len(config.phenotypes) > 1 and not wanted.phenotypes:
        advice.append("if a column is no phenotype, name those that are with `--phenotypes COLUMN …`")
    return advice


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
    if again:
        same = pd.DataFrame({"strain": numbers, **found.strains.phenotypes}).duplicated().sum()
        what = "strains" if config.has_covariates or found.strains.activities is not None else "genes"
        notes.append(f"repeated    {count(again, 'row')} of {what} listed before, {same:,} with equal values: averaged")
        notes += describe_issues(found.rows, _unequal_rows(found, config, contradicting=False))
    if MEDIUM in config.covariates:
        notes.append("media       are names only; `cell.media` says what cells take up in each")
    return notes
