"""A first experiment of one's own: a file that is written from a table or a screen, and checked against its cell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from dglcell.config import Config
from dglcell.config_io import PACKAGED, as_plain_text, load_config
from dglcell.data.config import NONE
from dglcell.data.sources import load_source
from dglcell.data.sources.config import DECIMALS
from dglcell.data.sources.csv_table import read_numbers
from dglcell.data.sources.text_table import Rows, read_rows
from dglcell.data.table import StrainTable
from dglcell.errors import ConfigError, DataError, count, listing
from dglcell.files import atomic_file, find_raw
from dglcell.graph.cell import build_cell
from dglcell.graph.cell_graph import CellGraph

GENE_COLUMN = re.compile(r"genes|gene[_ ]?\d*", re.IGNORECASE)
DERIVED = ["shares_complex", "isoenzyme", "metabolic_neighbour"]
SPLIT_QUESTION = "Split: random, gene_disjoint to test on new genes, or none to train on everything [random]: "

SHOWN = 10
"""Unknown genes that are named."""

HEAD = """\
# {about}
# `dglcell config show {file}` prints every key with its default.
"""


@dataclass(frozen=True)
class Wanted:
    """What an experiment is to be.

    Attributes:
        file: to be written.
        table: of strains; None for a screen.
        screen: a source that `dglcell data list` names; None for a table.
        cell: a metabolic model, or a cell of this package, e.g. ``yeast``.
        split: a kind of `split.kind`.
        genes: columns of the table; found by their names where empty.
        phenotypes: columns of the table; all other columns of numbers where empty.
        na_values: cells that mean "not measured", beside empty ones, NA, N/A and NaN.
    """

    file: Path
    table: Path | None
    screen: str | None
    cell: str
    split: str = "random"
    genes: Sequence[str] = field(default_factory=list)
    phenotypes: Sequence[str] = field(default_factory=list)
    aliases: str | None = None
    raw: str | None = None
    na_values: Sequence[str] = field(default_factory=list)


def write_experiment(wanted: Wanted) -> str:
    """Write the file.

    Returns:
        What was found in the strains: how many there are, and which genes the cell graph lacks.

    Raises:
        ConfigError: the file exists, or what is wanted is no valid experiment.
        DataError: the table has no such columns, or a row is unusable; or the cell graph lacks all of its genes.
        GraphError: the cell graph cannot be built.
    """
    if wanted.file.exists():
        raise ConfigError(f"'{wanted.file}' exists already", do="choose another name, or remove it")
    content, notes = _content(wanted)
    about = f"Strains of {wanted.table.name if wanted.table else wanted.screen} on the cell graph of {wanted.cell}."
    with atomic_file(wanted.file) as partial:
        text = HEAD.format(about=about, file=wanted.file) + yaml.safe_dump(as_plain_text(content), sort_keys=False)
        partial.write_text(text, encoding="utf-8")
        raw = [f"paths.raw={wanted.raw}"] if wanted.raw else []
        return "\n".join([_check(load_config(partial, raw)), *notes])


def ask(file: Path, read: Callable[[str], str]) -> Wanted:
    """What a user answers; an empty answer takes what stands in brackets.

    Args:
        file: to be written.
        read: shows a question and gives the answer, as `input` does.
    """
    table = read("Table of strains (CSV), or name of a screen: ").strip()
    cell = read("Metabolic model, or cell graph of this package [yeast]: ").strip() or "yeast"
    split = read(SPLIT_QUESTION).strip() or "random"
    is_table = Path(table).suffix != "" or Path(table).exists()
    return Wanted(file, Path(table) if is_table else None, None if is_table else table, cell, split)


def _content(wanted: Wanted) -> tuple[dict[str, object], list[str]]:
    """The keys of the file, and what was decided about the columns of the table."""
    extends = ["base.yaml"]
    content: dict[str, object] = {"experiment": {"name": wanted.file.stem}}
    if (PACKAGED / "cells" / f"{wanted.cell}.yaml").is_file():
        extends.append(f"cells/{wanted.cell}.yaml")
    else:
        content["cell"] = {"model": wanted.cell, "derived": DERIVED}
    source: dict[str, object] = {"name": wanted.screen}
    notes: list[str] = []
    if wanted.table is not None:
        rows = read_rows(find_raw(str(wanted.table), wanted.raw))
        genes = list(wanted.genes) or [name for name in rows.frame.columns if GENE_COLUMN.fullmatch(name)]
        columns, keys, notes = _numbers(rows, genes, wanted)
        _refuse_none(rows, genes, columns, notes)
        phenotypes = {name: name for name in columns}
        keys = {"path": str(wanted.table), "genes": genes, "phenotypes": phenotypes, **keys}
        if wanted.aliases is not None:
            keys["aliases"] = wanted.aliases
        source = {"name": "csv", "csv": keys}
    content |= {"data": {"source": source}, "split": {"kind": wanted.split}}
    if wanted.split == NONE:
        content["trainer"] = {"checkpoint": "last"}  # no validation part says which is best
    return {"extends": extends, **content}, notes


def _refuse_none(rows: Rows, genes: Sequence[str], phenotypes: Sequence[str], notes: Sequence[str]) -> None:
    for what, found, option in (("genes", genes, "--genes"), ("phenotypes", phenotypes, "--phenotypes")):
        if not found:
            raise DataError(
                f"'{rows.file}': which columns are {what}?",
                got="; ".join(
                    ["columns " + listing(rows.frame.columns, 30), *(" ".join(note.split()) for note in notes)]
                ),
                expected="gene_1, gene_2, … or genes" if what == "genes" else "a column of numbers",
                do=f"name them: `{option} COLUMN …`",
            )


def _numbers(rows: Rows, genes: Sequence[str], wanted: Wanted) -> tuple[list[str], dict[str, object], list[str]]:
    """The columns of phenotypes: those asked for, or all of numbers; how they are read; and what to say about them."""
    others = [name for name in rows.frame.columns if name not in genes and name in (wanted.phenotypes or [name])]
    read = {mark: [read_numbers(rows.frame[name], mark, wanted.na_values) for name in others] for mark in DECIMALS}
    # The mark by which most cells are numbers; a point, where it makes no difference.
    decimal = max(DECIMALS, key=lambda mark: sum(int((~np.isnan(values)).sum()) for values, _ in read[mark]))
    keys: dict[str, object] = {"na_values": list(wanted.na_values)} if wanted.na_values else {}
    found, notes, lacking = list(wanted.phenotypes), [], np.ones(len(rows), dtype=bool)
    for name, (values, missing) in zip(others, read[decimal], strict=True):
        wrong = ~missing & np.isnan(values)
        if not wanted.phenotypes and 2 * wrong.sum() < (~missing).sum():
            if wrong.any():
                notes.append(_left_out(rows, name, wrong))
                continue
            found.append(name)
        if name in found:
            lacking &= missing
    if decimal != ".":
        keys["decimal"] = decimal
        notes.append('numbers have decimal commas: `decimal: ","`')
    if found and lacking.any():
        keys["missing"] = "drop"
        notes.append(f"left out    {count(int(lacking.sum()), 'row')} without a phenotype: `missing: drop`")
    if len(found) > 1 and not wanted.phenotypes:
        notes.append("phenotypes are all columns of numbers; choose with `--phenotypes COLUMN …`")
    return found, keys, notes


def _left_out(rows: Rows, name: str, wrong: NDArray[np.bool_]) -> str:
    """A column of numbers with a few other words is most likely a phenotype, so that leaving it out is said."""
    cells = rows.frame[name][wrong]
    are = "1 cell is no number" if len(cells) == 1 else f"{len(cells):,} cells are no numbers"
    words = shlex.join(list(dict.fromkeys(cells))[:SHOWN])
    return (
        f"left out    column '{name}': {are}, line {rows.lines[wrong][0]} has {cells.iloc[0]!r}; "
        f"`--na-values {words}` reads such cells as not measured"
    )


def _check(config: Config) -> str:
    """Read the strains, build the cell graph, and compare their genes."""
    table, cell = load_source(config.data.source, config.paths.raw), build_cell(config.cell, config.paths.raw)
    unknown = [name for name in table.names if name not in cell.genes]
    lines = [f"strains     {len(table):,}, phenotypes {', '.join(table.phenotypes)}"]
    share = 1 - len(unknown) / len(table.names)
    lines.append(f"genes       {len(table.names):,} are deleted, {share:.1%} of them are in the cell graph")
    if unknown:
        lines += _about_unknown(table, cell, unknown)
    return "\n".join(lines)


def _about_unknown(table: StrainTable, cell: CellGraph, unknown: Sequence[str]) -> list[str]:
    if len(unknown) == len(table.names):
        raise DataError(
            "the cell graph has none of the genes that are deleted",
            got=listing(unknown),
            expected="names like " + listing(cell.genes.names, 5),
            do="choose another `--cell`, or give a table of other names of genes with `--aliases FILE`",
        )
    lacking = np.isin(table.genes, [table.names.index(name) for name in unknown])
    strains = np.unique(np.repeat(np.arange(len(table)), np.diff(table.offsets))[lacking])
    named = [f"  {name}{cell.genes.suggestion(name)}" for name in unknown[:SHOWN]]
    return [
        f"unknown     {count(len(unknown), 'gene')}, in {len(strains) / len(table):.1%} of the strains:",
        *named,
        *([f"  and {len(unknown) - SHOWN:,} more"] if len(unknown) > SHOWN else []),
        "Training refuses these strains. Mend their names, or set `data.unknown_genes: drop` to leave them out.",
    ]
