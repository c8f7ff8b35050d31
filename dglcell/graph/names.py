"""Lists of gene names and tables of their aliases, as text files."""

from __future__ import annotations

import csv
from pathlib import Path

from dglcell.errors import GraphError, listing
from dglcell.graph.text_lines import numbered_lines
from dglcell.graph.vocabulary import AliasTable, Vocabulary

SYSTEMATIC_COLUMNS = ("systematic", "orf")
"""Header of the column of systematic names in an alias table, in any case."""


def read_gene_list(path: Path) -> Vocabulary:
    """Genes from a text file, plain or ``.gz``: one name per line; blank lines and lines from ``#`` are skipped.

    Raises:
        GraphError: the file is damaged, holds no name, or has several words in a line.
    """
    names = []
    for number, line in list(numbered_lines(path)):  # a file that is cut off is no list
        words = line.split("#")[0].split()
        if len(words) > 1:
            raise GraphError(
                f"gene list '{path.name}', line {number}: more than one name",
                got=f"'{line}'",
                expected="one name per line",
                do="keep only the column of systematic names",
            )
        names += words
    if not names:
        raise GraphError(f"gene list '{path.name}' holds no names", expected="one name per line")
    return Vocabulary.of(names)


def read_aliases(path: Path) -> AliasTable:
    """Aliases from a tab- or comma-separated table with a header, plain or ``.gz``.

    The column called ``systematic`` or ``orf`` (any case) holds systematic names; whatever the other columns
    hold is an alias of the gene in that row, e.g. strain, common and allele names.

    Raises:
        GraphError: the file is damaged, or has no such column or no other one.
    """
    lines = [line for _, line in numbered_lines(path)]
    rows = csv.reader(lines, delimiter="\t" if lines and "\t" in lines[0] else ",")
    header = [column.strip() for column in next(rows, [])]
    systematic = [i for i, column in enumerate(header) if column.lower() in SYSTEMATIC_COLUMNS]
    if len(systematic) != 1 or len(header) < 2:
        raise GraphError(
            f"alias table '{path.name}': which column holds the systematic names?",
            got=listing(header) or "an empty file",
            expected=f"a header with one column '{SYSTEMATIC_COLUMNS[0]}' or '{SYSTEMATIC_COLUMNS[1]}' and others",
            do="add or rename the header",
        )
    targets: dict[str, set[str]] = {}
    for row in rows:
        gene = row[systematic[0]].strip() if len(row) > systematic[0] else ""
        for alias in {cell.strip() for cell in row} - {gene, ""}:
            if gene:
                targets.setdefault(alias, set()).add(gene)
    return AliasTable({alias: tuple(sorted(genes)) for alias, genes in targets.items()})
